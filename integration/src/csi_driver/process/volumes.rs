//! Stage, publish, unpublish, unstage, carried out. Each step is written down before it is begun and when it is done, so
//! that whatever kills the driver, its successor knows what may be there.

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

use super::desk::{Bench, Wrong, failed};
use super::group;
use super::record::{self, Data, Published, Record, Staged, Step};
use super::rules;
use crate::csi_driver::Ability;
use crate::csi_driver::places::{self, Access, mounted_at};

impl Bench {
    pub(super) fn load(&self, volume: &str) -> Result<Record, Status> {
        Record::load(&self.options.dir, volume).map_err(failed)
    }

    pub(super) fn save(&self, volume: &str, record: &Record) -> Result<(), Status> {
        record.save(&self.options.dir, volume).map_err(failed)
    }

    fn data(&self, volume: &str, capability: Option<&VolumeCapability>) -> Result<Data, Status> {
        let data = Data::find(&self.options.dir, volume)
            .ok_or_else(|| Status::not_found(format!("there is no volume {volume}")))?;
        let wanted = capability.and_then(|capability| capability.access_type.as_ref());
        let block = matches!(wanted, Some(AccessType::Block(_)));
        if block != matches!(data, Data::File(_)) {
            let text = format!("volume {volume} is {data:?}, wanted as {wanted:?}");
            return Err(Status::invalid_argument(text));
        }
        Ok(data)
    }

    /// One mount at most, and where one must be, one.
    fn look(&self, point: &Path, step: Option<Step>) -> Result<usize, Status> {
        let count = mounted_at(point).len();
        if count > 1 {
            let text = format!("mounted {count} times at {}", point.display());
            return Err(self.refuse(Wrong::new(Code::FailedPrecondition, text)));
        }
        if count == 0 && step == Some(Step::Done) {
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
                Err(self.refuse(Wrong::new(Code::FailedPrecondition, text)))
            }
        }
    }
}

pub(super) fn stage(
    bench: &Bench,
    request: NodeStageVolumeRequest,
) -> Result<NodeStageVolumeResponse, Status> {
    let volume = &request.volume_id;
    let mut record = bench.load(volume)?;
    rules::stage(&bench.options, &record, &request).map_err(|wrong| bench.refuse(wrong))?;
    let data = bench.data(volume, request.volume_capability.as_ref())?;
    let path = PathBuf::from(&request.staging_target_path);
    let mut staged = Staged {
        path: path.clone(),
        arguments: rules::stage_arguments(&request),
        step: Step::Doing,
    };
    let before = record.staged.replace(staged.clone());
    bench.save(volume, &record)?;
    match data {
        Data::File(file) => {
            places::loop_device(&file).map_err(failed)?;
        }
        Data::Folder(folder) => {
            if bench.look(&path, before.map(|staged| staged.step))? == 0 {
                bench.refuse_hidden(&path)?;
                places::bind(&folder, &path, Access::ReadWrite).map_err(failed)?;
            }
        }
    }
    bench.between();
    staged.step = Step::Done;
    record.staged = Some(staged);
    bench.save(volume, &record)?;
    Ok(NodeStageVolumeResponse {})
}

pub(super) fn publish(
    bench: &Bench,
    request: NodePublishVolumeRequest,
) -> Result<NodePublishVolumeResponse, Status> {
    let volume = &request.volume_id;
    let mut record = bench.load(volume)?;
    rules::publish(&bench.options, &record, &request).map_err(|wrong| bench.refuse(wrong))?;
    let data = match rules::is_ephemeral(&request) {
        true => {
            record.ephemeral = true;
            Data::Folder(record::folder(&bench.options.dir, volume))
        }
        false => bench.data(volume, request.volume_capability.as_ref())?,
    };
    let target = PathBuf::from(&request.target_path);
    let mut published = Published {
        arguments: rules::publish_arguments(&request),
        step: Step::Doing,
    };
    let before = record.published.insert(target.clone(), published.clone());
    bench.save(volume, &record)?;
    // Only now: what is made must be known to whoever comes after a crash.
    if let (true, Data::Folder(folder)) = (record.ephemeral, &data) {
        fs::create_dir_all(folder).map_err(|error| failed(error.into()))?;
    }
    make(&data, &target).map_err(failed)?;
    if bench.look(&target, before.map(|published| published.step))? == 0 {
        show(bench, &data, &target, &request)?;
    }
    group::apply(&data, request.volume_capability.as_ref()).map_err(failed)?;
    bench.between();
    published.step = Step::Done;
    record.published.insert(target, published);
    bench.save(volume, &record)?;
    Ok(NodePublishVolumeResponse {})
}

/// The target is the driver's to make: a folder, or a file for a device.
fn make(data: &Data, target: &Path) -> anyhow::Result<()> {
    let made = match data {
        Data::Folder(_) => DirBuilder::new().mode(0o750).create(target),
        Data::File(_) => File::create_new(target).map(drop),
    };
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| target.display().to_string())
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn show(
    bench: &Bench,
    data: &Data,
    target: &Path,
    request: &NodePublishVolumeRequest,
) -> Result<(), Status> {
    let source = match data {
        Data::File(file) => places::loop_device(file).map_err(failed)?,
        Data::Folder(folder) => {
            bench.refuse_hidden(target)?;
            let staged = &request.staging_target_path;
            match staged.is_empty() {
                true => folder.clone(),
                false => PathBuf::from(staged),
            }
        }
    };
    let access = match request.readonly {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    };
    places::bind(&source, target, access).map_err(failed)
}

pub(super) fn unpublish(
    bench: &Bench,
    request: NodeUnpublishVolumeRequest,
) -> Result<NodeUnpublishVolumeResponse, Status> {
    let volume = &request.volume_id;
    let target = PathBuf::from(&request.target_path);
    let mut record = bench.load(volume)?;
    let Some(published) = record.published.get_mut(&target) else {
        return refuse_strangers(bench, &target);
    };
    let before = std::mem::replace(&mut published.step, Step::Undoing);
    bench.save(volume, &record)?;
    if bench.look(&target, Some(before))? > 0 {
        places::unmount(&target).map_err(failed)?;
    }
    bench.between();
    remove(bench, &target)?;
    record.published.remove(&target);
    end(bench, volume, &record)?;
    Ok(NodeUnpublishVolumeResponse {})
}

/// Nothing is known of this target with this volume: it may have been taken away before, but must not be another's.
fn refuse_strangers(bench: &Bench, target: &Path) -> Result<NodeUnpublishVolumeResponse, Status> {
    let all = Record::all(&bench.options.dir).map_err(failed)?;
    let others = all
        .iter()
        .any(|record| record.published.contains_key(target));
    if others || !mounted_at(target).is_empty() {
        let text = format!("{} is another volume's", target.display());
        return Err(bench.refuse(Wrong::new(Code::InvalidArgument, text)));
    }
    if target.is_dir() {
        remove(bench, target)?;
    }
    Ok(NodeUnpublishVolumeResponse {})
}

/// Only what is empty is removed.
fn remove(bench: &Bench, target: &Path) -> Result<(), Status> {
    let removed = match target.is_dir() {
        true => fs::remove_dir(target),
        false => fs::remove_file(target),
    };
    match removed {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            let text = format!("{} holds data beside the volume", target.display());
            Err(bench.refuse(Wrong::new(Code::FailedPrecondition, text)))
        }
        Err(error) => Err(failed(error.into())),
    }
}

/// What ends when a target is gone: the pod's own volume, the device of a volume that is not staged.
fn end(bench: &Bench, volume: &str, record: &Record) -> Result<(), Status> {
    let dir = &bench.options.dir;
    if record.ephemeral && record.published.is_empty() {
        let folder = record::folder(dir, volume);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error.into())),
            Ok(()) | Err(_) => {}
        }
        return Record::forget(dir, volume).map_err(failed);
    }
    if !bench.options.can(Ability::Stage) && record.published.is_empty() {
        detach(bench, volume)?;
    }
    bench.save(volume, record)
}

fn detach(bench: &Bench, volume: &str) -> Result<(), Status> {
    match Data::find(&bench.options.dir, volume) {
        Some(Data::File(file)) => places::detach_loops(&file).map_err(failed),
        Some(Data::Folder(_)) | None => Ok(()),
    }
}

pub(super) fn unstage(
    bench: &Bench,
    request: NodeUnstageVolumeRequest,
) -> Result<NodeUnstageVolumeResponse, Status> {
    let volume = &request.volume_id;
    let path = PathBuf::from(&request.staging_target_path);
    let mut record = bench.load(volume)?;
    rules::unstage(&record, &request).map_err(|wrong| bench.refuse(wrong))?;
    let Some(staged) = &mut record.staged else {
        if !mounted_at(&path).is_empty() {
            let text = format!("what is mounted at {} is not the driver's", path.display());
            return Err(bench.refuse(Wrong::new(Code::InvalidArgument, text)));
        }
        return Ok(NodeUnstageVolumeResponse {});
    };
    let before = std::mem::replace(&mut staged.step, Step::Undoing);
    bench.save(volume, &record)?;
    if matches!(Data::find(&bench.options.dir, volume), Some(Data::File(_))) {
        detach(bench, volume)?;
    } else if bench.look(&path, Some(before))? > 0 {
        places::unmount(&path).map_err(failed)?;
    }
    bench.between();
    record.staged = None;
    bench.save(volume, &record)?;
    Ok(NodeUnstageVolumeResponse {})
}
