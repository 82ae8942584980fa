//! Which sockets lie below the registration folder (upstream's pluginwatcher, 1.36): recursive, names that begin
//! with a dot left out.
//!
//! A look costs a folder's listing and never opens anything. Links are not followed: nothing outside is ours to watch.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use inotify::{WatchMask, Watches};

/// A node has a handful of drivers; one that leaves sockets behind at every start must not cost more and more.
const SOCKETS_MAX: usize = 256;
const FOLDERS_MAX: usize = 256;
const DEPTH_MAX: usize = 16;
const ENTRIES_MAX: usize = 8192;

/// A file that was made again is another one, whatever its name. Its time of making is its last change: nothing is
/// ever written to a socket's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    made: (i64, i64),
}

/// The result of one scan of the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketScan {
    pub(crate) sockets: BTreeMap<PathBuf, FileIdentity>,
    /// Called a socket, and none.
    pub(crate) files: BTreeMap<PathBuf, FileIdentity>,
    /// Some were left out, because there are too many.
    pub(crate) more: bool,
}

/// Looks below `folder`, which is made if it is missing, and has every folder on the way watched from before it is
/// read.
///
/// It fails as a whole: a folder that cannot be read must not look like one whose drivers have gone.
pub(crate) fn scan(folder: &Path, watches: Option<&mut Watches>) -> io::Result<SocketScan> {
    make(folder)?;
    let mut scan = FolderScan {
        looked: SocketScan::default(),
        watches,
        folders: 0,
        entries: 0,
    };
    scan.folder(folder, 0)?;
    Ok(scan.looked)
}

fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(folder)
}

struct FolderScan<'a> {
    looked: SocketScan,
    watches: Option<&'a mut Watches>,
    folders: usize,
    entries: usize,
}

impl FolderScan<'_> {
    fn folder(&mut self, folder: &Path, depth: usize) -> io::Result<()> {
        self.folders += 1;
        if depth > DEPTH_MAX || self.folders > FOLDERS_MAX {
            self.looked.more = true;
            return Ok(());
        }
        if let Some(watches) = &mut self.watches {
            let mask = WatchMask::CREATE
                | WatchMask::DELETE
                | WatchMask::MOVE
                | WatchMask::DELETE_SELF
                | WatchMask::ONLYDIR
                | WatchMask::DONT_FOLLOW;
            if let Err(error) = watches.add(folder, mask) {
                // The slow look finds what is not reported.
                tracing::debug!("cannot watch {}: {error}", folder.display());
            }
        }
        let entries = match fs::read_dir(folder) {
            // Gone since it was listed.
            Err(error) if depth > 0 && error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            self.entry(&entry?, depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &DirEntry, depth: usize) -> io::Result<()> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            self.looked.more = true;
            return Ok(());
        }
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            return Ok(());
        }
        let metadata = match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata?,
        };
        let path = entry.path();
        if metadata.is_dir() {
            return self.folder(&path, depth + 1);
        }
        let called_socket = path
            .extension()
            .is_some_and(|extension| extension == "sock");
        if metadata.file_type().is_socket() {
            let full = self.looked.sockets.len() >= SOCKETS_MAX;
            self.looked.more |= full;
            if !full {
                self.looked.sockets.insert(path, identity(&metadata));
            }
        } else if called_socket && self.looked.files.len() < SOCKETS_MAX {
            self.looked.files.insert(path, identity(&metadata));
        }
        Ok(())
    }
}

fn identity(metadata: &Metadata) -> FileIdentity {
    FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        made: (metadata.mtime(), metadata.mtime_nsec()),
    }
}

#[cfg(test)]
impl FileIdentity {
    pub(crate) fn number(inode: u64) -> Self {
        Self {
            device: 1,
            inode,
            made: (0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn names(found: &BTreeMap<PathBuf, FileIdentity>, folder: &Path) -> Vec<String> {
        let names = found.keys().map(|path| path.strip_prefix(folder).unwrap());
        names.map(|path| path.display().to_string()).collect()
    }

    /// Upstream's TestPluginRegistration, TestPluginRegistrationAtKubeletStart and
    /// TestFoundPluginInDeprecatedDir's rule for names with a dot.
    #[test]
    fn sockets_are_found_in_every_folder_but_those_with_a_dot() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("plugins_registry");
        assert_eq!(scan(&folder, None).unwrap(), SocketScan::default());
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o755);
        for name in ["a/b", ".hidden"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let sockets = [
            "one.sock",
            "a/two",
            "a/b/three.sock",
            ".four.sock",
            ".hidden/five.sock",
        ];
        let bound: Vec<_> = sockets
            .map(|name| UnixListener::bind(folder.join(name)))
            .into();
        fs::write(folder.join("file.sock"), "").unwrap();
        fs::write(folder.join("notes.txt"), "").unwrap();
        std::os::unix::fs::symlink(folder.join("one.sock"), folder.join("link")).unwrap();
        let looked = scan(&folder, None).unwrap();
        assert_eq!(
            names(&looked.sockets, &folder),
            ["a/b/three.sock", "a/two", "one.sock"]
        );
        assert_eq!(names(&looked.files, &folder), ["file.sock"]);
        assert!(!looked.more);
        drop(bound);
    }

    #[test]
    fn a_socket_that_was_made_again_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.sock");
        let first = UnixListener::bind(&path).unwrap();
        let before = scan(dir.path(), None).unwrap();
        assert_eq!(scan(dir.path(), None).unwrap(), before);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(scan(dir.path(), None).unwrap(), before);
        // Moved and not removed: its inode must not be the next one's.
        fs::rename(&path, dir.path().join(".old")).unwrap();
        let second = UnixListener::bind(&path).unwrap();
        assert_ne!(scan(dir.path(), None).unwrap(), before);
        drop((first, second));
    }

    #[test]
    fn so_many_are_looked_at_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut deep = dir.path().to_owned();
        for _ in 0..=DEPTH_MAX {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        let _bound = UnixListener::bind(deep.join("s")).unwrap();
        let looked = scan(dir.path(), None).unwrap();
        assert!(looked.more && looked.sockets.is_empty(), "{looked:?}");
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_an_error_and_not_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("registry");
        fs::write(&file, "").unwrap();
        assert!(scan(&file, None).is_err());
    }
}
