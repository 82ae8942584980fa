//! A volume's usage, condition and expansion.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proto::csi::volume_usage::Unit;
use proto::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, VolumeCondition, VolumeUsage,
};
use serde::{Deserialize, Serialize};
use tonic::Status;

use super::dispatcher::{CallContext, failed};
use super::record::{DriverVolume, VolumeRecord};
use super::rules;
use crate::doubles::csi_driver::{DriverCapability, mount_table};

/// Capacity in bytes of a volume of unknown size.
const DEFAULT_SIZE: i64 = 64 << 20;
/// The inodes that a volume claims to have.
const INODES: i64 = 10_000;

/// A volume's condition, as a test has set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doubles::csi_driver) struct DriverHealth {
    pub(in crate::doubles::csi_driver) abnormal: bool,
    pub(in crate::doubles::csi_driver) message: String,
}

/// The file with what to say, by volume.
pub(in crate::doubles::csi_driver) fn health_file(dir: &Path) -> PathBuf {
    dir.join("health.json")
}

pub(in crate::doubles::csi_driver) fn read_health(dir: &Path) -> BTreeMap<String, DriverHealth> {
    let text = fs::read(health_file(dir)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

pub(super) fn stats(
    context: &CallContext,
    request: NodeGetVolumeStatsRequest,
) -> Result<NodeGetVolumeStatsResponse, Status> {
    if !context.options.can(DriverCapability::Stats) {
        return Err(Status::unimplemented("the driver tells no figures"));
    }
    let record = context.load(&request.volume_id)?;
    let path = PathBuf::from(&request.volume_path);
    let staged = record.staged.as_ref();
    if !record.published.contains_key(&path) && staged.is_none_or(|staged| staged.path != path) {
        let text = format!("the volume is not at {}", path.display());
        return Err(Status::not_found(text));
    }
    let data = DriverVolume::find(&context.options.dir, &request.volume_id);
    let (bytes, files) = used(data.as_ref());
    let health = read_health(&context.options.dir).remove(&request.volume_id);
    let condition = health.unwrap_or(DriverHealth {
        abnormal: false,
        message: "all is well".to_owned(),
    });
    let says = context.options.can(DriverCapability::Condition);
    Ok(NodeGetVolumeStatsResponse {
        usage: vec![
            usage(Unit::Bytes, size(&record, data.as_ref()), bytes),
            usage(Unit::Inodes, INODES, files),
        ],
        volume_condition: says.then_some(VolumeCondition {
            abnormal: condition.abnormal,
            message: condition.message,
        }),
    })
}

fn usage(unit: Unit, total: i64, used: i64) -> VolumeUsage {
    VolumeUsage {
        available: (total - used).max(0),
        total,
        used,
        unit: unit.into(),
    }
}

fn size(record: &VolumeRecord, data: Option<&DriverVolume>) -> i64 {
    match (record.size, data) {
        (0, Some(DriverVolume::File(file))) => length(file),
        (0, Some(DriverVolume::Folder(_)) | None) => DEFAULT_SIZE,
        (size, _) => size,
    }
}

/// Returns the used bytes and the number of files.
fn used(data: Option<&DriverVolume>) -> (i64, i64) {
    match data {
        Some(DriverVolume::Folder(folder)) => walk(folder),
        Some(DriverVolume::File(file)) => (length(file), 1),
        None => (0, 0),
    }
}

fn walk(folder: &Path) -> (i64, i64) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.fold((0, 1), |(bytes, files), entry| {
        let path = entry.path();
        let (more, others) = match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => walk(&path),
            false => (length(&path), 1),
        };
        (bytes + more, files + others)
    })
}

fn length(file: &Path) -> i64 {
    let length = fs::symlink_metadata(file).map_or(0, |metadata| metadata.len());
    i64::try_from(length).unwrap_or(i64::MAX)
}

pub(super) fn expand(
    context: &CallContext,
    request: NodeExpandVolumeRequest,
) -> Result<NodeExpandVolumeResponse, Status> {
    let volume = &request.volume_id;
    let mut record = context.load(volume)?;
    rules::expand(&context.options, &record, &request).map_err(|wrong| context.refuse(wrong))?;
    let wanted = request.capacity_range.unwrap_or_default().required_bytes;
    let data = DriverVolume::find(&context.options.dir, volume);
    record.size = size(&record, data.as_ref()).max(wanted);
    if let Some(DriverVolume::File(file)) = data {
        grow(&file, record.size).map_err(failed)?;
    }
    context.between();
    context.save(volume, &record)?;
    Ok(NodeExpandVolumeResponse {
        capacity_bytes: record.size,
    })
}

fn grow(file: &Path, size: i64) -> anyhow::Result<()> {
    let size = u64::try_from(size)?;
    let opened = fs::File::options().write(true).open(file)?;
    if opened.metadata()?.len() < size {
        opened.set_len(size)?;
    }
    mount_table::resize_loops(file)
}
