//! `vol_data.json`: what is written down beside a path that a driver is given, so that a later process, a kubelet
//! too, can take the volume away again.
//!
//! It is there, whole, before the driver is called, and removed after what the driver made is gone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::layout::{self, DATA_FILE};

/// Ours are a few hundred bytes.
const LARGEST: u64 = 64 << 10;
const UNFINISHED: &str = ".vol_data.json.new";

const SPEC_VOL_ID: &str = "specVolID";
const VOLUME_HANDLE: &str = "volumeHandle";
const DRIVER_NAME: &str = "driverName";
const NODE_NAME: &str = "nodeName";
const ATTACHMENT_ID: &str = "attachmentID";
const LIFECYCLE_MODE: &str = "volumeLifecycleMode";
const SELINUX_CONTEXT: &str = "seLinuxMountContext";

const EPHEMERAL: &str = "Ephemeral";
const PERSISTENT: &str = "Persistent";

/// One file's content: upstream's keys, and whatever else stands there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct VolumeData(BTreeMap<String, String>);

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataError {
    #[error(
        "kubernetes.io/csi: failed to open volume data file [{path}]: open {path}: no such file or directory"
    )]
    Missing { path: PathBuf },
    #[error("kubernetes.io/csi: failed to open volume data file [{path}]: {words}")]
    Unreadable { path: PathBuf, words: String },
    #[error("kubernetes.io/csi: failed to parse volume data file [{path}]: {words}")]
    Damaged { path: PathBuf, words: String },
}

/// Whose volume, and of which driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) driver: &'a str,
    pub(crate) handle: &'a str,
    /// The persistent volume's name, or the pod's name of an inline volume.
    pub(crate) name: &'a str,
    pub(crate) node: &'a str,
}

impl VolumeData {
    /// Returns the data that is written beside a staging path.
    pub(crate) fn staged(subject: &Subject<'_>) -> Self {
        let mut data = Self::default();
        data.set(VOLUME_HANDLE, subject.handle);
        data.set(DRIVER_NAME, subject.driver);
        data
    }

    /// Returns the data that is written for a raw block volume.
    pub(crate) fn block(subject: &Subject<'_>) -> Self {
        let mut data = Self::staged(subject);
        data.set(SPEC_VOL_ID, subject.name);
        data.set(NODE_NAME, subject.node);
        let attachment = layout::attachment(subject.handle, subject.driver, subject.node);
        data.set(ATTACHMENT_ID, &attachment);
        data
    }

    /// Returns the data that is written beside a pod's target path.
    pub(crate) fn published(subject: &Subject<'_>, ephemeral: bool) -> Self {
        let mut data = Self::block(subject);
        let mode = if ephemeral { EPHEMERAL } else { PERSISTENT };
        data.set(LIFECYCLE_MODE, mode);
        data
    }

    /// Adds the label that the mount carries.
    pub(crate) fn labelled(mut self, label: Option<&str>) -> Self {
        if let Some(label) = label {
            self.set(SELINUX_CONTEXT, label);
        }
        self
    }

    pub(crate) fn driver(&self) -> &str {
        self.get(DRIVER_NAME)
    }

    pub(crate) fn handle(&self) -> &str {
        self.get(VOLUME_HANDLE)
    }

    pub(crate) fn name(&self) -> &str {
        self.get(SPEC_VOL_ID)
    }

    pub(crate) fn ephemeral(&self) -> bool {
        self.get(LIFECYCLE_MODE) == EPHEMERAL
    }

    /// Tells whether both are about the same volume.
    pub(crate) fn same_volume(&self, other: &Self) -> bool {
        self.driver() == other.driver() && self.handle() == other.handle()
    }

    /// Reads the file of a folder. One without a driver and a handle is damaged.
    pub(crate) fn load(folder: &Path) -> Result<Self, DataError> {
        let path = folder.join(DATA_FILE);
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DataError::Missing { path });
            }
            Err(error) => {
                let words = mounts::answer::os_error_text(&error);
                return Err(DataError::Unreadable { path, words });
            }
        };
        let data: Self = match serde_json::from_slice(&bytes) {
            Ok(data) => data,
            Err(error) => {
                let words = error.to_string();
                return Err(DataError::Damaged { path, words });
            }
        };
        let missing = [DRIVER_NAME, VOLUME_HANDLE]
            .into_iter()
            .find(|key| data.get(key).is_empty());
        match missing {
            Some(key) => Err(DataError::Damaged {
                path,
                words: format!("{key} is missing"),
            }),
            None => Ok(data),
        }
    }

    /// Writes the file of a folder, so that it is there as a whole or not at all.
    pub(crate) fn save(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(DATA_FILE);
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        if read(&path).is_ok_and(|there| there == text) {
            return Ok(());
        }
        let unfinished = folder.join(UNFINISHED);
        let mut file = File::create(&unfinished)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        File::open(folder)?.sync_all()
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).map(String::as_str).unwrap_or_default()
    }

    fn set(&mut self, key: &str, value: &str) {
        self.0.insert(key.to_owned(), value.to_owned());
    }
}

/// Removes the file of a folder, and one that was not finished. Nothing there is fine.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    for name in [UNFINISHED, DATA_FILE] {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LARGEST + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other(format!(
            "it is larger than {LARGEST} bytes"
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBJECT: Subject<'static> = Subject {
        driver: "d.example.com",
        handle: "vol<1>",
        name: "pv-1",
        node: "node-1",
    };

    /// Upstream's TestSaveVolumeData: the keys are upstream's.
    #[test]
    fn a_pod_s_file_has_upstream_s_keys() {
        let folder = tempfile::tempdir().unwrap();
        let data = VolumeData::published(&SUBJECT, false).labelled(Some("u:r:t:s0:c1,c2"));
        data.save(folder.path()).unwrap();
        let text = fs::read(folder.path().join(DATA_FILE)).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let attachment = layout::attachment("vol<1>", "d.example.com", "node-1");
        assert_eq!(
            json,
            serde_json::json!({
                "specVolID": "pv-1",
                "volumeHandle": "vol<1>",
                "driverName": "d.example.com",
                "nodeName": "node-1",
                "attachmentID": attachment,
                "volumeLifecycleMode": "Persistent",
                "seLinuxMountContext": "u:r:t:s0:c1,c2",
            })
        );
        assert_eq!(VolumeData::load(folder.path()).unwrap(), data);
        assert!(VolumeData::published(&SUBJECT, true).ephemeral());
    }

    #[test]
    fn a_staged_volume_s_file_names_driver_and_handle_only() {
        let keys: Vec<_> = VolumeData::staged(&SUBJECT).0.into_keys().collect();
        assert_eq!(keys, [DRIVER_NAME, VOLUME_HANDLE]);
    }

    #[test]
    fn a_file_half_written_is_never_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(UNFINISHED), "{\"driverName\":").unwrap();
        let missing = VolumeData::load(folder.path()).unwrap_err();
        assert!(matches!(missing, DataError::Missing { .. }), "{missing}");
        VolumeData::staged(&SUBJECT).save(folder.path()).unwrap();
        assert!(VolumeData::load(folder.path()).is_ok());
        assert!(!folder.path().join(UNFINISHED).exists());
        fs::write(folder.path().join(UNFINISHED), "").unwrap();
        remove(folder.path()).unwrap();
        remove(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_file_says_so_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(DATA_FILE);
        let large = format!("{{\"driverName\":\"{}\"}}", "x".repeat(70_000));
        for text in [
            "",
            "[]",
            "{\"driverName\":1}",
            "{\"driverName\":\"d\"}",
            &large,
        ] {
            fs::write(&path, text).unwrap();
            let error = VolumeData::load(folder.path()).unwrap_err();
            assert!(!matches!(error, DataError::Missing { .. }), "{error}");
            assert!(
                error.to_string().contains(path.to_str().unwrap()),
                "{error}"
            );
        }
    }
}
