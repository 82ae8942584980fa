//! A volume brought to a pod and taken away again (upstream's csi_mounter.go, SetUpAt and TearDownAt, 1.36).

use std::path::{Path, PathBuf};

use mounts::{answer, ownership, requests};
use proto::csi::NodeUnpublishVolumeRequest;
use proto::storage::{
    Access, Csi, MountRequest, MountResponse, Ownership, Pod, UnmountRequest, Volume,
};
use tokio::time::Instant;
use tonic::Status;

use super::folder::{self, Cleaned};
use super::request::{self, Publish};
use super::stage::{clean_up, ended, mount_label, still_mounted};
use super::{Job, Volumes, check_driver, check_kind, source};
use crate::data::{DataError, Subject, VolumeData};
use crate::driver::capability::{self, FileCapability};
use crate::driver::failure::{CallKind, DriverFailure};
use crate::driver::{Ability, Driver};

const SET_UP: &str = "kubernetes.io/csi: mounter.SetUpAt";
const TEAR_DOWN: &str = "kubernetes.io/csi: Unmounter.TearDownAt";

impl Volumes {
    /// Publishes a volume at the pod's target. A volume that is published already is published again: its driver
    /// refreshes what it shows, or does nothing.
    pub(crate) async fn mount(&self, request: MountRequest) -> Result<MountResponse, Status> {
        let volume = requests::volume(request.volume.as_ref())?;
        let csi = source(volume)?;
        let pod = requests::pod(request.pod.as_ref())?;
        let target = requests::target("target", self.layout.root(), &request.target)?;
        let job = self.job(&volume.id, request.within_ms).await?;
        let before = format!("{SET_UP} failed to get CSI client: ");
        let driver = self.driver(&csi.driver, &job, &before).await?;
        let label = mount_label(csi, &request.selinux_label);
        let data = VolumeData::published(&self.subject(volume, csi), csi.ephemeral);
        write_down(&job, &target, data.labelled(label)).await?;
        let publish = Publishing {
            request: &request,
            csi,
            pod,
            target: &target,
            label,
        };
        self.publish(&job, &driver, &publish).await?;
        let group = request
            .ownership
            .filter(|_| !driver.can(Ability::VolumeMountGroup));
        let group = group.filter(|_| request.access() == Access::ReadWrite);
        let begun = Instant::now();
        settle(&job, &target, &csi.volume_handle, group).await?;
        let slow = group.is_some() && Instant::now() - begun > ownership::SLOW;
        Ok(MountResponse {
            path: request::text(&target),
            selinux_mounted: label.is_some(),
            warnings: slow
                .then(|| ownership::slow(&target, &pod.uid))
                .into_iter()
                .collect(),
        })
    }

    pub(super) fn subject<'a>(&'a self, volume: &'a Volume, csi: &'a Csi) -> Subject<'a> {
        Subject {
            driver: &csi.driver,
            handle: &csi.volume_handle,
            name: &volume.name,
            node: &self.node,
        }
    }

    async fn publish(
        &self,
        job: &Job,
        driver: &Driver,
        publishing: &Publishing<'_>,
    ) -> Result<(), Status> {
        let (request, csi) = (publishing.request, publishing.csi);
        let staged = !csi.ephemeral && driver.can(Ability::StageUnstageVolume);
        let staging = staged.then(|| self.layout.global_mount(&csi.driver, &csi.volume_handle));
        let asked = FileCapability {
            options: &request.mount_options,
            ownership: request.ownership.as_ref(),
            label: publishing.label,
        };
        let publish = Publish {
            volume: csi,
            pod: publishing.pod,
            access: request.access(),
            target: publishing.target,
            staging: staging.as_deref(),
        };
        let message = publish.message(capability::files(driver, csi, &asked));
        let published = driver.call(job.left(), message, |mut node, request| async move {
            node.node_publish_volume(request).await
        });
        match published.await {
            Ok(_) => Ok(()),
            Err(failure) => {
                if failure.is_final() {
                    clean_up(job, publishing.target).await;
                }
                Err(failure.answer(CallKind::Work, ""))
            }
        }
    }

    /// Takes a volume from the pod's target.
    pub(crate) async fn unmount(&self, request: UnmountRequest) -> Result<(), Status> {
        check_kind(&request.kind)?;
        let target = requests::target("target", self.layout.root(), &request.target)?;
        let id = if request.volume_id.is_empty() {
            &request.target
        } else {
            &request.volume_id
        };
        let job = self.job(id, request.within_ms).await?;
        let path = target.clone();
        let what = format!("looking at {}", target.display());
        if let Some(data) = job.on_disk(&what, move || known(&path)).await? {
            check_driver(data.driver())?;
            let before = format!("{TEAR_DOWN} failed to get CSI client: ");
            let driver = self.driver(data.driver(), &job, &before).await?;
            unpublish(
                &job,
                &driver,
                data.handle(),
                &target,
                &format!("{TEAR_DOWN} failed: "),
            )
            .await?;
        }
        let what = format!("removing {}", target.display());
        let path = target.clone();
        let cleaned = job.on_disk(&what, move || {
            folder::clean(&path).map_err(|status| {
                let (path, why) = (path.display(), status.message());
                let text = format!("{TEAR_DOWN} failed to clean mount dir [{path}]: {why}");
                Status::new(status.code(), text)
            })
        });
        match cleaned.await? {
            Cleaned::Gone => Ok(()),
            Cleaned::Mounted => Err(still_mounted(&target, "NodeUnpublishVolume")),
        }
    }
}

/// What is published, and how it was asked for.
struct Publishing<'a> {
    request: &'a MountRequest,
    csi: &'a Csi,
    pod: &'a Pod,
    target: &'a Path,
    label: Option<&'a str>,
}

/// Has a driver unpublish a volume.
pub(super) async fn unpublish(
    job: &Job,
    driver: &Driver,
    handle: &str,
    target: &Path,
    before: &str,
) -> Result<(), Status> {
    let message = NodeUnpublishVolumeRequest {
        volume_id: handle.to_owned(),
        target_path: request::text(target),
    };
    let unpublished = driver.call(job.left(), message, |mut node, request| async move {
        node.node_unpublish_volume(request).await
    });
    match unpublished.await {
        Ok(_) => Ok(()),
        Err(failure) => ended(job, target, &failure, before).await,
    }
}

/// Makes the folder above the target, and writes down whose it is. The target itself is the driver's to make.
async fn write_down(job: &Job, target: &Path, data: VolumeData) -> Result<(), Status> {
    let what = format!("preparing {}", target.display());
    let target: PathBuf = target.to_owned();
    let work = move || {
        let folder = target.parent().unwrap_or(&target);
        folder::make(folder).map_err(|error| {
            let shown = format!("{:?}", folder.display().to_string());
            answer::failed(format!("{SET_UP} failed to create dir {shown}"), error)
        })?;
        refuse_another(folder, &target, &data)?;
        data.save(folder).map_err(|error| {
            answer::failed(format!("{SET_UP} failed to save volume info data"), error)
        })
    };
    job.on_disk(&what, work).await
}

/// One volume must not be published over another one.
fn refuse_another(folder: &Path, target: &Path, data: &VolumeData) -> Result<(), Status> {
    match VolumeData::load(folder) {
        Ok(there) if !there.same_volume(data) && folder::is_mounted(target)? => {
            Err(Status::failed_precondition(format!(
                "{} has volume {} of driver {} mounted already",
                target.display(),
                there.handle(),
                there.driver()
            )))
        }
        // A damaged one is written anew.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Looks whether the driver did what it should have, and gives the files to the pod's group.
async fn settle(
    job: &Job,
    target: &Path,
    handle: &str,
    group: Option<Ownership>,
) -> Result<(), Status> {
    let what = format!("giving {} to the pod", target.display());
    let (target, handle) = (target.to_owned(), handle.to_owned());
    let work = move || {
        folder::check_published(&target)?;
        let Some(group) = group else { return Ok(()) };
        let applied = ownership::apply(&target, &group, false);
        applied.map(drop).map_err(|status| {
            let text = format!("applyFSGroup failed for vol {handle}: {}", status.message());
            Status::new(status.code(), text)
        })
    };
    job.on_disk(&what, work).await
}

/// Whose volume is at a target; `None` if nothing is.
fn known(target: &Path) -> Result<Option<VolumeData>, Status> {
    let folder = target.parent().unwrap_or(target);
    match VolumeData::load(folder) {
        Ok(data) => Ok(Some(data)),
        // It is written before the driver is called: what was never written was never published.
        Err(DataError::Missing { .. }) if !folder::is_mounted(target)? => Ok(None),
        Err(damaged) => Err(Status::failed_precondition(format!(
            "kubernetes.io/csi: unmounter failed to load volume data file [{}]: {damaged}",
            target.display()
        ))),
    }
}
