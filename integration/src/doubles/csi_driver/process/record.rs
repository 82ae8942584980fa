//! The driver's record of a volume, in a file that is replaced atomically; and the path of the volume's data.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::doubles::csi_driver::faults::replace;

/// A volume on this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct VolumeRecord {
    pub(super) staged: Option<StagedRecord>,
    /// By target path.
    pub(super) published: BTreeMap<PathBuf, PublishedTarget>,
    /// The volume's capacity in bytes; 0 is unknown.
    pub(super) size: i64,
    /// It ends with its pod.
    pub(super) ephemeral: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StagedRecord {
    pub(super) path: PathBuf,
    pub(super) arguments: Value,
    pub(super) step: OperationStep,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PublishedTarget {
    pub(super) arguments: Value,
    pub(super) step: OperationStep,
}

/// How far it has come; only `Done` says for sure that there is a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum OperationStep {
    Doing,
    Done,
    Undoing,
}

/// The data of a volume: a folder, or the file behind a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DriverVolume {
    Folder(PathBuf),
    /// Shown as a device.
    File(PathBuf),
}

impl VolumeRecord {
    pub(super) fn load(dir: &Path, volume: &str) -> Result<Self> {
        let file = file_of(dir, volume);
        if !file.exists() {
            return Ok(Self::default());
        }
        let text = fs::read(&file).with_context(|| file.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| file.display().to_string())
    }

    pub(super) fn save(&self, dir: &Path, volume: &str) -> Result<()> {
        let file = file_of(dir, volume);
        fs::create_dir_all(dir.join("volumes"))?;
        replace(&file, &serde_json::to_vec_pretty(self)?)
    }

    pub(super) fn forget(dir: &Path, volume: &str) -> Result<()> {
        let file = file_of(dir, volume);
        fs::remove_file(&file).with_context(|| file.display().to_string())
    }

    /// Every volume that the driver has on record.
    pub(super) fn all(dir: &Path) -> Result<Vec<Self>> {
        let Ok(files) = fs::read_dir(dir.join("volumes")) else {
            return Ok(Vec::new());
        };
        let mut records = Vec::new();
        for file in files {
            let file = file?.path();
            if file.extension().is_some_and(|end| end == "json") {
                records.push(serde_json::from_slice(&fs::read(&file)?)?);
            }
        }
        Ok(records)
    }
}

impl DriverVolume {
    /// Finds the data of a volume that exists.
    pub(super) fn find(dir: &Path, volume: &str) -> Option<Self> {
        let (folder, file) = (folder(dir, volume), block_file(dir, volume));
        if folder.is_dir() {
            return Some(Self::Folder(folder));
        }
        file.is_file().then_some(Self::File(file))
    }
}

/// Every path at which a volume is staged or published, or may be.
pub(in crate::doubles::csi_driver) fn places_in_use(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut mount_table = Vec::new();
    for record in VolumeRecord::all(dir)? {
        mount_table.extend(record.staged.map(|staged| staged.path));
        mount_table.extend(record.published.into_keys());
    }
    Ok(mount_table)
}

fn file_of(dir: &Path, volume: &str) -> PathBuf {
    dir.join("volumes").join(format!("{}.json", plain(volume)))
}

/// The folder of a volume's files.
pub(in crate::doubles::csi_driver) fn folder(dir: &Path, volume: &str) -> PathBuf {
    dir.join("backing").join(plain(volume))
}

/// The file that a block volume shows as its device.
pub(in crate::doubles::csi_driver) fn block_file(dir: &Path, volume: &str) -> PathBuf {
    dir.join("blocks").join(format!("{}.img", plain(volume)))
}

/// A handle may be anything: here it is a name of one file, its own.
fn plain(volume: &str) -> String {
    let plain = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        other => format!("~{other:02x}"),
    };
    format!("v-{}", volume.bytes().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_handle_has_a_file_of_its_own_within_the_folder() {
        let dir = Path::new("/driver");
        let handles = ["a", "a/b", "a~2fb", "..", "", "a b", "ä"];
        let files: std::collections::BTreeSet<PathBuf> =
            handles.iter().map(|handle| folder(dir, handle)).collect();
        assert_eq!(files.len(), handles.len(), "{files:?}");
        let within = |path: &PathBuf| path.parent() == Some(Path::new("/driver/backing"));
        assert!(files.iter().all(within), "{files:?}");
    }
}
