//! Raw block volumes (upstream's csi_block.go and MapBlockVolume, 1.36): the driver puts the device at a path for each
//! pod; it is bound below the volume's own folder, held open there, and the pod's link leads to it.

mod device;

use std::path::{Path, PathBuf};

use mounts::{answer, requests};
use proto::storage::{
    Csi, MapBlockRequest, MapBlockResponse, UnmapBlockRequest, UnstageRequest, Volume,
};
use tonic::Status;

use super::publish::unpublish;
use super::request::{self, Publish};
use super::stage::{still_mounted, unstage};
use super::{Job, Volumes, check_driver, check_kind, folder, source};
use crate::data::{self, VolumeData};
use crate::driver::failure::{CallKind, DriverFailure};
use crate::driver::{Ability, Driver, capability};
use crate::layout::Block;

const PLUGIN: &str = "kubernetes.io/csi:";

impl Volumes {
    pub(super) async fn stage_block(
        &self,
        job: &Job,
        volume: &Volume,
        csi: &Csi,
    ) -> Result<PathBuf, Status> {
        let before = format!("{PLUGIN} blockMapper.SetUpDevice failed to get CSI client: ");
        let driver = self.driver(&csi.driver, job, &before).await?;
        let block = self.layout.block(&volume.name);
        let staged = driver.can(Ability::StageUnstageVolume);
        let folders = if staged {
            vec![block.staging.clone()]
        } else {
            Vec::new()
        };
        let data = VolumeData::block(&self.subject(volume, csi));
        write_down(job, &block, data, folders).await?;
        if !staged {
            return Ok(block.staging);
        }
        let message = request::stage(csi, &block.staging, capability::block(&driver, csi));
        let staged = driver.call(job.left(), message, |mut node, request| async move {
            node.node_stage_volume(request).await
        });
        match staged.await {
            Ok(_) => Ok(block.staging),
            Err(failure) => {
                if failure.is_final()
                    && let Err(status) = clean_up(job, &block).await
                {
                    tracing::warn!("{}", status.message());
                }
                Err(failure.answer(CallKind::Work, ""))
            }
        }
    }

    /// The name of the raw block volume that is to be unstaged.
    pub(super) fn block_name(
        &self,
        request: &UnstageRequest,
        volume: Option<&Volume>,
    ) -> Result<String, Status> {
        if let Some(volume) = volume {
            return Ok(volume.name.clone());
        }
        let path = requests::target("path", &self.layout.volume_devices(), &request.path)?;
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        Ok(requests::name("path", name)?.to_owned())
    }

    pub(super) async fn unstage_block(&self, job: &Job, name: &str) -> Result<(), Status> {
        let block = self.layout.block(name);
        let what = format!("looking at {}", block.own.display());
        let found = job.on_disk(&what, {
            let block = block.clone();
            move || device::staged(&block)
        });
        if let Some(data) = found.await? {
            check_driver(data.driver())?;
            let before = format!("{PLUGIN} blockMapper.TearDownDevice failed to get CSI client: ");
            let driver = self.driver(data.driver(), job, &before).await?;
            if driver.can(Ability::StageUnstageVolume) {
                let before = format!("{PLUGIN} blockMapper.unstageVolumeForBlock failed: ");
                unstage(job, &driver, data.handle(), &block.staging, &before).await?;
            }
        }
        clean_up(job, &block).await
    }

    /// Brings a raw block volume to a pod.
    pub(crate) async fn map_block(
        &self,
        request: MapBlockRequest,
    ) -> Result<MapBlockResponse, Status> {
        let volume = requests::volume(request.volume.as_ref())?;
        let csi = source(volume)?;
        let pod = requests::pod(request.pod.as_ref())?;
        let link = requests::target("target", self.layout.root(), &request.target)?;
        let job = self.job(&volume.id, request.within_ms).await?;
        let before = format!("{PLUGIN} blockMapper.MapPodDevice failed to get CSI client: ");
        let driver = self.driver(&csi.driver, &job, &before).await?;
        let block = self.layout.block(&volume.name);
        let data = VolumeData::block(&self.subject(volume, csi));
        write_down(&job, &block, data, vec![block.publish.clone()]).await?;
        let place = block.publish.join(&pod.uid);
        let publish = Publish {
            volume: csi,
            pod,
            access: request.access(),
            target: &place,
            staging: Some(&block.staging),
        };
        publish_device(&job, &driver, &publish).await?;
        let what = format!("mapping {}", link.display());
        let bound = block.map.join(&pod.uid);
        let path = link.clone();
        job.on_disk(&what, move || device::map(&place, &bound, &path))
            .await?;
        Ok(MapBlockResponse {
            device: request::text(&link),
        })
    }

    /// Takes a raw block volume from a pod.
    pub(crate) async fn unmap_block(&self, request: UnmapBlockRequest) -> Result<(), Status> {
        check_kind(&request.kind)?;
        let name = requests::name("name", &request.name)?;
        let pod = requests::name("pod_uid", &request.pod_uid)?;
        let link = requests::target("target", self.layout.root(), &request.target)?;
        let id = if request.volume_id.is_empty() {
            name
        } else {
            &request.volume_id
        };
        let job = self.job(id, request.within_ms).await?;
        let block = self.layout.block(name);
        let (place, bound) = (block.publish.join(pod), block.map.join(pod));
        let what = format!("unmapping {}", link.display());
        let found = job.on_disk(&what, {
            let (place, block) = (place.clone(), block.clone());
            move || {
                device::unmap(&bound, &link)?;
                device::published(&block, &place)
            }
        });
        let Some(data) = found.await? else {
            return Ok(());
        };
        check_driver(data.driver())?;
        let before = format!("{PLUGIN} blockMapper.UnmapPodDevice failed to get CSI client: ");
        let driver = self.driver(data.driver(), &job, &before).await?;
        let before = format!("{PLUGIN} blockMapper.unpublishVolumeForBlock failed: ");
        unpublish(&job, &driver, data.handle(), &place, &before).await?;
        let what = format!("removing {}", place.display());
        job.on_disk(&what, move || {
            if folder::is_mounted(&place)? {
                return Err(still_mounted(&place, "NodeUnpublishVolume"));
            }
            device::remove_trace(&place)
        })
        .await
    }
}

async fn publish_device(job: &Job, driver: &Driver, publish: &Publish<'_>) -> Result<(), Status> {
    let message = publish.message(capability::block(driver, publish.volume));
    let published = driver.call(job.left(), message, |mut node, request| async move {
        node.node_publish_volume(request).await
    });
    match published.await {
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.answer(CallKind::Work, "")),
    }
}

/// Writes down whose volume it is, then makes the folders that the driver is given.
async fn write_down(
    job: &Job,
    block: &Block,
    data: VolumeData,
    folders: Vec<PathBuf>,
) -> Result<(), Status> {
    let what = format!("preparing {}", block.own.display());
    let place = block.data.clone();
    let work = move || {
        let failed = |path: &Path, error| {
            let shown = format!("{:?}", path.display().to_string());
            answer::failed(format!("{PLUGIN} failed to create dir {shown}"), error)
        };
        folder::make(&place).map_err(|error| failed(&place, error))?;
        data.save(&place).map_err(|error| {
            let what = "csi.NewBlockVolumeMapper failed to save volume info data";
            answer::failed(format!("{PLUGIN} {what}"), error)
        })?;
        folders
            .iter()
            .try_for_each(|path| folder::make(path).map_err(|error| failed(path, error)))
    };
    job.on_disk(&what, work).await
}

/// Removes a volume's folders when the driver is done with them, what is written down last.
async fn clean_up(job: &Job, block: &Block) -> Result<(), Status> {
    let what = format!("removing {}", block.own.display());
    let block = block.clone();
    let work = move || {
        let failed = |path: &Path, error| {
            answer::failed(
                format!("{PLUGIN} failed to remove [{}]", path.display()),
                error,
            )
        };
        if folder::is_mounted(&block.staging)? {
            return Err(still_mounted(&block.staging, "NodeUnstageVolume"));
        }
        device::empty(&block.staging)?;
        for path in [&block.publish, &block.staging, &block.map] {
            folder::remove(path).map_err(|error| failed(path, error))?;
        }
        data::remove(&block.data).map_err(|error| failed(&block.data, error))?;
        for path in [&block.data, &block.own] {
            folder::remove(path).map_err(|error| failed(path, error))?;
        }
        Ok(())
    };
    job.on_disk(&what, work).await
}
