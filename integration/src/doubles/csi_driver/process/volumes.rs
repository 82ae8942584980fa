//! Stage, publish, unpublish, unstage, carried out. Each step is written down before it is begun and when it is done,
//! so that whatever kills the driver, its successor knows what may be there.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use proto::csi::volume_capability::AccessType;
use proto::csi::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, VolumeCapability,
};
use tonic::{Code, Status};

use super::dispatcher::{CallContext, ProtocolError, failed};
use super::record::{
    self, DriverVolume, OperationStep, PublishedTarget, StagedRecord, VolumeRecord,
};
use super::{group, rules};
use crate::doubles::csi_driver::DriverCapability;
use crate::doubles::csi_driver::mount_table::{self, MountMode, mounted_at};

impl CallContext {
    pub(super) fn load(&self, volume: &str) -> Result<VolumeRecord, Status> {
        VolumeRecord::load(&self.options.dir, volume).map_err(failed)
    }

    pub(super) fn save(&self, volume: &str, record: &VolumeRecord) -> Result<(), Status> {
        record.save(&self.options.dir, volume).map_err(failed)
    }

    fn data(
        &self,
        volume: &str,
        capability: Option<&VolumeCapability>,
    ) -> Result<DriverVolume, Status> {
        let data = DriverVolume::find(&self.options.dir, volume)
            .ok_or_else(|| Status::not_found(format!("there is no volume {volume}")))?;
        let wanted = capability.and_then(|capability| capability.access_type.as_ref());
        let block = matches!(wanted, Some(AccessType::Block(_)));
        if block != matches!(data, DriverVolume::File(_)) {
            let text = format!("volume {volume} is {data:?}, wanted as {wanted:?}");
            return Err(Status::invalid_argument(text));
        }
        Ok(data)
    }

    /// One mount at most, and where one must be, one.
    fn look(&self, point: &Path, step: Option<OperationStep>) -> Result<usize, Status> {
        let count = mounted_at(point).len();
        if count > 1 {
            let text = format!("mounted {count} times at {}", point.display());
            return Err(self.refuse(ProtocolError::new(Code::FailedPrecondition, text)));
        }
        if count == 0 && step == Some(OperationStep::Done) {
            let what = "was unmounted behind the driver's back";
            self.complain(&format!("{} {what}", point.display()));
        }
        Ok(count)
    }

    /// What is to be mounted over must not hide anything.
    fn refuse_hidden(&self, folder: &Path) -> Result<(), Status> {
        let mut entries = fs::read_dir(folder).map_err(|error| failed(error.into()))?;
        match entries.next() {
            None => Ok(()),
            Some(_) => {
                let text = format!("{} holds data, and is no mount", folder.display());
                Err(self.refuse(ProtocolError::new(Code::FailedPrecondition, text)))
            }
        }
    }
}

pub(super) fn stage(
    context: &CallContext,
    request: NodeStageVolumeRequest,
) -> Result<NodeStageVolumeResponse, Status> {
    let volume = &request.volume_id;
    let mut record = context.load(volume)?;
    rules::stage(&context.options, &record, &request).map_err(|wrong| context.refuse(wrong))?;
    let data = context.data(volume, request.volume_capability.as_ref())?;
    let path = PathBuf::from(&request.staging_target_path);
    let mut staged = StagedRecord {
        path: path.clone(),
        arguments: rules::stage_arguments(&request),
        step: OperationStep::Doing,
    };
    let before = record.staged.replace(staged.clone());
    context.save(volume, &record)?;
    match data {
        DriverVolume::File(file) => {
            mount_table::loop_device(&file).map_err(failed)?;
        }
        DriverVolume::Folder(folder) => {
            if context.look(&path, before.map(|staged| staged.step))? == 0 {
                context.refuse_hidden(&path)?;
                mount_table::bind(&folder, &path, MountMode::ReadWrite).map_err(failed)?;
            }
        }
    }
    context.between();
    staged.step = OperationStep::Done;
    record.staged = Some(staged);
    context.save(volume, &record)?;
    Ok(NodeStageVolumeResponse {})
}

pub(super) fn publish(
    context: &CallContext,
    request: NodePublishVolumeRequest,
) -> Result<NodePublishVolumeResponse, Status> {
    let volume = &request.volume_id;
    let mut record = context.load(volume)?;
    rules::publish(&context.options, &record, &request).map_err(|wrong| context.refuse(wrong))?;
    let data = match rules::is_ephemeral(&request) {
        true => {
            record.ephemeral = true;
            DriverVolume::Folder(record::folder(&context.options.dir, volume))
        }
        false => context.data(volume, request.volume_capability.as_ref())?,
    };
    let target = PathBuf::from(&request.target_path);
    let mut published = PublishedTarget {
        arguments: rules::publish_arguments(&request),
        step: OperationStep::Doing,
    };
    let before = record.published.insert(target.clone(), published.clone());
    context.save(volume, &record)?;
    // Only after the record is saved, so that the next process finds the folder after a crash.
    if let (true, DriverVolume::Folder(folder)) = (record.ephemeral, &data) {
        fs::create_dir_all(folder).map_err(|error| failed(error.into()))?;
    }
    make(&data, &target).map_err(failed)?;
    if context.look(&target, before.map(|published| published.step))? == 0 {
        show(context, &data, &target, &request)?;
    }
    group::apply(&data, request.volume_capability.as_ref()).map_err(failed)?;
    context.between();
    published.step = OperationStep::Done;
    record.published.insert(target, published);
    context.save(volume, &record)?;
    Ok(NodePublishVolumeResponse {})
}

/// The target is the driver's to make: a folder, or a file for a device.
fn make(data: &DriverVolume, target: &Path) -> anyhow::Result<()> {
    let made = match data {
        DriverVolume::Folder(_) => DirBuilder::new().mode(0o750).create(target),
        DriverVolume::File(_) => File::create_new(target).map(drop),
    };
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| target.display().to_string())
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn show(
    context: &CallContext,
    data: &DriverVolume,
    target: &Path,
    request: &NodePublishVolumeRequest,
) -> Result<(), Status> {
    let source = match data {
        DriverVolume::File(file) => mount_table::loop_device(file).map_err(failed)?,
        DriverVolume::Folder(folder) => {
            context.refuse_hidden(target)?;
            let staged = &request.staging_target_path;
            match staged.is_empty() {
                true => folder.clone(),
                false => PathBuf::from(staged),
            }
        }
    };
    let access = match request.readonly {
        true => MountMode::ReadOnly,
        false => MountMode::ReadWrite,
    };
    mount_table::bind(&source, target, access).map_err(failed)
}

pub(super) fn unpublish(
    context: &CallContext,
    request: NodeUnpublishVolumeRequest,
) -> Result<NodeUnpublishVolumeResponse, Status> {
    let volume = &request.volume_id;
    let target = PathBuf::from(&request.target_path);
    let mut record = context.load(volume)?;
    let Some(published) = record.published.get_mut(&target) else {
        return refuse_strangers(context, &target);
    };
    let before = std::mem::replace(&mut published.step, OperationStep::Undoing);
    context.save(volume, &record)?;
    if context.look(&target, Some(before))? > 0 {
        mount_table::unmount(&target).map_err(failed)?;
    }
    context.between();
    remove(context, &target)?;
    record.published.remove(&target);
    end(context, volume, &record)?;
    Ok(NodeUnpublishVolumeResponse {})
}

/// Nothing is known of this target with this volume: it may have been taken away before, but must not be another's.
fn refuse_strangers(
    context: &CallContext,
    target: &Path,
) -> Result<NodeUnpublishVolumeResponse, Status> {
    let all = VolumeRecord::all(&context.options.dir).map_err(failed)?;
    let others = all
        .iter()
        .any(|record| record.published.contains_key(target));
    if others || !mounted_at(target).is_empty() {
        let text = format!("{} is another volume's", target.display());
        return Err(context.refuse(ProtocolError::new(Code::InvalidArgument, text)));
    }
    if target.is_dir() {
        remove(context, target)?;
    }
    Ok(NodeUnpublishVolumeResponse {})
}

/// Only what is empty is removed.
fn remove(context: &CallContext, target: &Path) -> Result<(), Status> {
    let removed = match target.is_dir() {
        true => fs::remove_dir(target),
        false => fs::remove_file(target),
    };
    match removed {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            let text = format!("{} holds data beside the volume", target.display());
            Err(context.refuse(ProtocolError::new(Code::FailedPrecondition, text)))
        }
        Err(error) => Err(failed(error.into())),
    }
}

/// What ends when a target is gone: the pod's own volume, the device of a volume that is not staged.
fn end(context: &CallContext, volume: &str, record: &VolumeRecord) -> Result<(), Status> {
    let dir = &context.options.dir;
    if record.ephemeral && record.published.is_empty() {
        let folder = record::folder(dir, volume);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error.into())),
            Ok(()) | Err(_) => {}
        }
        return VolumeRecord::forget(dir, volume).map_err(failed);
    }
    if !context.options.can(DriverCapability::Stage) && record.published.is_empty() {
        detach(context, volume)?;
    }
    context.save(volume, record)
}

fn detach(context: &CallContext, volume: &str) -> Result<(), Status> {
    match DriverVolume::find(&context.options.dir, volume) {
        Some(DriverVolume::File(file)) => mount_table::detach_loops(&file).map_err(failed),
        Some(DriverVolume::Folder(_)) | None => Ok(()),
    }
}

pub(super) fn unstage(
    context: &CallContext,
    request: NodeUnstageVolumeRequest,
) -> Result<NodeUnstageVolumeResponse, Status> {
    let volume = &request.volume_id;
    let path = PathBuf::from(&request.staging_target_path);
    let mut record = context.load(volume)?;
    rules::unstage(&record, &request).map_err(|wrong| context.refuse(wrong))?;
    let Some(staged) = &mut record.staged else {
        if !mounted_at(&path).is_empty() {
            let text = format!("what is mounted at {} is not the driver's", path.display());
            return Err(context.refuse(ProtocolError::new(Code::InvalidArgument, text)));
        }
        return Ok(NodeUnstageVolumeResponse {});
    };
    let before = std::mem::replace(&mut staged.step, OperationStep::Undoing);
    context.save(volume, &record)?;
    if matches!(
        DriverVolume::find(&context.options.dir, volume),
        Some(DriverVolume::File(_))
    ) {
        detach(context, volume)?;
    } else if context.look(&path, Some(before))? > 0 {
        mount_table::unmount(&path).map_err(failed)?;
    }
    context.between();
    record.staged = None;
    context.save(volume, &record)?;
    Ok(NodeUnstageVolumeResponse {})
}
