//! A volume prepared on the node, once for all pods (upstream's csi_attacher.go, MountDevice and UnmountDevice, 1.36).

use std::path::{Path, PathBuf};

use mounts::{answer, requests};
use proto::csi::NodeUnstageVolumeRequest;
use proto::storage::{Csi, Mode, StageRequest, StageResponse, UnstageRequest, Volume};
use tonic::{Code, Status};

use super::folder::{self, Cleaned};
use super::{Job, Volumes, check_driver, check_kind, request, source};
use crate::data::{DataError, Subject, VolumeData};
use crate::driver::capability::{self, FileCapability};
use crate::driver::failure::{CallKind, DriverFailure, Failure};
use crate::driver::{Ability, Driver};

/// What is known of a volume that was staged.
enum Known {
    /// Staged, by this driver under this handle.
    Staged { driver: String, handle: String },
    /// Nothing is left of it but perhaps empty folders.
    Nothing,
}

impl Volumes {
    /// Stages a volume: NodeStageVolume, if the driver has the capability.
    pub(crate) async fn stage(&self, request: StageRequest) -> Result<StageResponse, Status> {
        let volume = requests::volume(request.volume.as_ref())?;
        let csi = source(volume)?;
        if csi.ephemeral {
            return Err(requests::invalid("an ephemeral volume is not staged"));
        }
        let job = self.job(&volume.id, request.within_ms).await?;
        let path = match request.mode() {
            Mode::FileSystem => self.stage_files(&job, &request, csi).await?,
            Mode::Block => self.stage_block(&job, volume, csi).await?,
        };
        Ok(StageResponse {
            path: path.display().to_string(),
        })
    }

    async fn stage_files(
        &self,
        job: &Job,
        request: &StageRequest,
        csi: &Csi,
    ) -> Result<PathBuf, Status> {
        let staging = self.layout.global_mount(&csi.driver, &csi.volume_handle);
        let before =
            "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: ";
        let driver = self.driver(&csi.driver, job, before).await?;
        let label = mount_label(csi, &request.selinux_label);
        let subject = Subject {
            driver: &csi.driver,
            handle: &csi.volume_handle,
            name: "",
            node: &self.node,
        };
        write_down(job, &staging, VolumeData::staged(&subject).labelled(label)).await?;
        if !driver.can(Ability::StageUnstageVolume) {
            // What is written down stays: Unstage needs it.
            return Ok(staging);
        }
        let asked = FileCapability {
            options: &request.mount_options,
            ownership: request.ownership.as_ref(),
            label,
        };
        let capability = capability::files(&driver, csi, &asked);
        let message = request::stage(csi, &staging, capability);
        let staged = driver.call(job.left(), message, |mut node, request| async move {
            node.node_stage_volume(request).await
        });
        match staged.await {
            Ok(_) => Ok(staging),
            Err(failure) => {
                if failure.is_final() {
                    clean_up(job, &staging).await;
                }
                Err(failure.answer(CallKind::Work, ""))
            }
        }
    }

    /// Unstages a volume: the reverse of [`stage`](Self::stage).
    pub(crate) async fn unstage(&self, request: UnstageRequest) -> Result<(), Status> {
        check_kind(&request.kind)?;
        let volume = match &request.volume {
            Some(volume) => Some(requests::volume(Some(volume))?),
            None => None,
        };
        match request.mode() {
            Mode::FileSystem => self.unstage_files(&request, volume).await,
            Mode::Block => {
                let name = self.block_name(&request, volume)?;
                let id = if request.volume_id.is_empty() {
                    &name
                } else {
                    &request.volume_id
                };
                let job = self.job(id, request.within_ms).await?;
                self.unstage_block(&job, &name).await
            }
        }
    }

    async fn unstage_files(
        &self,
        request: &UnstageRequest,
        volume: Option<&Volume>,
    ) -> Result<(), Status> {
        let csi = volume.map(source).transpose()?;
        let staging = match (request.path.is_empty(), csi) {
            (false, _) => requests::target("path", &self.layout.plugin(), &request.path)?,
            (true, Some(csi)) => self.layout.global_mount(&csi.driver, &csi.volume_handle),
            (true, None) => return Err(requests::missing("path or volume")),
        };
        let id = if request.volume_id.is_empty() {
            &request.path
        } else {
            &request.volume_id
        };
        let job = self.job(id, request.within_ms).await?;
        let volume = csi.map(|csi| (csi.driver.clone(), csi.volume_handle.clone()));
        let path = staging.clone();
        let what = format!("looking at {}", staging.display());
        let known = job.on_disk(&what, move || known(&path, volume)).await?;
        if let Known::Staged { driver, handle } = known {
            check_driver(&driver)?;
            let before =
                "kubernetes.io/csi: attacher.UnmountDevice failed to create newCsiDriverClient: ";
            let driver = self.driver(&driver, &job, before).await?;
            if driver.can(Ability::StageUnstageVolume) {
                let before = "kubernetes.io/csi: attacher.UnmountDevice failed: ";
                unstage(&job, &driver, &handle, &staging, before).await?;
            }
        }
        let what = format!("removing {}", staging.display());
        let cleaned = job.on_disk(&what, {
            let staging = staging.clone();
            move || folder::clean(&staging)
        });
        match cleaned.await? {
            Cleaned::Gone => Ok(()),
            Cleaned::Mounted => Err(still_mounted(&staging, "NodeUnstageVolume")),
        }
    }
}

/// Has a driver unstage a volume.
pub(super) async fn unstage(
    job: &Job,
    driver: &Driver,
    handle: &str,
    staging: &Path,
    before: &str,
) -> Result<(), Status> {
    let message = NodeUnstageVolumeRequest {
        volume_id: handle.to_owned(),
        staging_target_path: request::text(staging),
    };
    let unstaged = driver.call(job.left(), message, |mut node, request| async move {
        node.node_unstage_volume(request).await
    });
    match unstaged.await {
        Ok(_) => Ok(()),
        Err(failure) => ended(job, staging, &failure, before).await,
    }
}

/// A driver that finds no such volume, where nothing is mounted, has taken it away: an earlier call whose answer was lost did.
pub(super) async fn ended(
    job: &Job,
    path: &Path,
    failure: &Failure,
    before: &str,
) -> Result<(), Status> {
    if failure.code() == Code::NotFound {
        let what = format!("looking at {}", path.display());
        let path = path.to_owned();
        if !job
            .on_disk(&what, move || folder::is_mounted(&path))
            .await?
        {
            return Ok(());
        }
    }
    Err(failure.answer(CallKind::Work, before))
}

/// Makes the folder that the driver gets, and writes down whose it is.
async fn write_down(job: &Job, staging: &Path, data: VolumeData) -> Result<(), Status> {
    let what = format!("preparing {}", staging.display());
    let staging = staging.to_owned();
    let work = move || {
        let shown = format!("{:?}", staging.display().to_string());
        // What is mounted there already is better not looked at.
        if !folder::is_mounted(&staging)? {
            folder::make(&staging).map_err(|error| {
                let what = "kubernetes.io/csi: attacher.MountDevice failed to create dir";
                answer::failed(format!("{what} {shown}"), error)
            })?;
        }
        let folder = staging.parent().unwrap_or(&staging);
        data.save(folder).map_err(|error| {
            answer::failed("kubernetes.io/csi: failed to save volume info data", error)
        })
    };
    job.on_disk(&what, work).await
}

/// Finds a staged volume's data by its folder; `asked` is what the agent knows.
fn known(staging: &Path, asked: Option<(String, String)>) -> Result<Known, Status> {
    let others = folder::other_mounts(staging)?;
    if !others.is_empty() {
        let staging = staging.display();
        return Err(Status::failed_precondition(format!(
            "the device mount path \"{staging}\" is still mounted by other references [{}]",
            others.join(" ")
        )));
    }
    let folder = staging.parent().unwrap_or(staging);
    let damaged = match VolumeData::load(folder) {
        Ok(data) => {
            return Ok(Known::Staged {
                driver: data.driver().to_owned(),
                handle: data.handle().to_owned(),
            });
        }
        // It is written before the driver is called: what was never written was never staged.
        Err(DataError::Missing { .. }) if !folder::is_mounted(staging)? => {
            return Ok(Known::Nothing);
        }
        Err(damaged) => damaged,
    };
    match asked {
        Some((driver, handle)) => Ok(Known::Staged { driver, handle }),
        None => Err(Status::failed_precondition(format!(
            "kubernetes.io/csi: attacher.UnmountDevice failed to get driver and volume name from device mount path: \
             {damaged}"
        ))),
    }
}

/// After a final error nothing may be left; what cannot be removed is, and the next call finds it.
pub(super) async fn clean_up(job: &Job, path: &Path) {
    let what = format!("removing {}", path.display());
    let path = path.to_owned();
    if let Err(status) = job.on_disk(&what, move || folder::clean(&path)).await {
        tracing::warn!("{}", status.message());
    }
}

/// The label that a mount is to carry, if its driver can have it so.
pub(super) fn mount_label<'a>(csi: &Csi, label: &'a str) -> Option<&'a str> {
    (csi.selinux_mount && !label.is_empty()).then_some(label)
}

pub(super) fn still_mounted(path: &Path, call: &str) -> Status {
    Status::failed_precondition(format!(
        "kubernetes.io/csi: {} is still mounted after {call}",
        path.display()
    ))
}
