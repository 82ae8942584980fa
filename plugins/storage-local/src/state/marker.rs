//! Upstream's mark that an emptyDir has been set up: `ROOT/pods/UID/plugins/kubernetes.io~empty-dir/NAME/ready`, with
//! `wrapped_NAME` where the files of another kind lie in it (pkg/volume/util, SetReady).
//!
//! Upstream's file is empty. Ours names the medium, which distinguishes a folder from a memory volume that is not
//! mounted any more.

use std::path::PathBuf;
use std::{fs, io};

use mounts::answer::failed;
use tonic::Status;

use crate::state::place::{self, Place};

const READY: &str = "ready";
const MODE: u32 = 0o750;
const MEMORY: &str = "Memory\n";

/// Where the mark of a volume is.
#[derive(Clone, Debug)]
pub(crate) struct Marker {
    folder: PathBuf,
}

/// The content of a marker file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Missing,
    /// Set up on a disk, or by a kubelet on whatever medium.
    Set,
    /// Set up as a mount of its own.
    Memory,
}

impl Marker {
    /// Returns the marker of an emptyDir.
    pub(crate) fn own(place: &Place) -> Self {
        Self::named(place, &place.name)
    }

    /// That of the emptyDir in which another kind keeps its files.
    pub(crate) fn wrapped(place: &Place) -> Self {
        Self::named(place, &format!("wrapped_{}", place.name))
    }

    fn named(place: &Place, name: &str) -> Self {
        let plugin = place.pod.join("plugins").join(place::folder("empty-dir"));
        Self {
            folder: plugin.join(name),
        }
    }

    /// Reads the marker.
    pub(crate) fn read(&self) -> Mark {
        let path = self.folder.join(READY);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => match fs::read(&path) {
                Ok(text) if text == MEMORY.as_bytes() => Mark::Memory,
                Ok(_) | Err(_) => Mark::Set,
            },
            Ok(_) | Err(_) => Mark::Missing,
        }
    }

    pub(crate) fn set(&self, mark: Mark) -> Result<(), Status> {
        let text = match mark {
            Mark::Missing => return self.clear(),
            Mark::Set => "",
            Mark::Memory => MEMORY,
        };
        place::make(&self.folder, MODE)?;
        let path = self.folder.join(READY);
        fs::write(&path, text)
            .map_err(|error| failed(format!("cannot touch {}", path.display()), error))
    }

    pub(crate) fn clear(&self) -> Result<(), Status> {
        let what = |error| {
            let folder = self.folder.display();
            failed(format!("failed to remove ready dir [{folder}]"), error)
        };
        gone(fs::remove_file(self.folder.join(READY))).map_err(what)?;
        gone(fs::remove_dir(&self.folder)).map_err(what)
    }
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_ready_from_its_mark_on_until_it_is_cleared() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("pods/u/volumes/kubernetes.io~secret/s");
        let place = Place::new(
            root.path(),
            place::VOLUMES,
            "secret",
            target.to_str().unwrap(),
        )
        .unwrap();
        let (own, wrapped) = (Marker::own(&place), Marker::wrapped(&place));
        assert_eq!(own.read(), Mark::Missing);
        own.clear().unwrap();
        own.set(Mark::Set).unwrap();
        wrapped.set(Mark::Memory).unwrap();
        assert_eq!((own.read(), wrapped.read()), (Mark::Set, Mark::Memory));
        let folder = root.path().join("pods/u/plugins/kubernetes.io~empty-dir");
        assert!(folder.join("s/ready").is_file() && folder.join("wrapped_s/ready").is_file());
        wrapped.clear().unwrap();
        assert!(folder.join("s/ready").is_file() && !folder.join("wrapped_s").exists());
    }

    #[test]
    fn a_mark_that_is_no_file_is_none() {
        let root = tempfile::tempdir().unwrap();
        let place = Place {
            target: root.path().join("t"),
            pod: root.path().join("p"),
            uid: "u".to_owned(),
            name: "n".to_owned(),
        };
        let folder = root
            .path()
            .join("p/plugins/kubernetes.io~empty-dir/n/ready");
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(Marker::own(&place).read(), Mark::Missing);
    }
}
