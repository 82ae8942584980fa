//! The files of a mount labelled for its container, where the node has SELinux: a container with a label of its own
//! reaches no others. As containerd does it by `github.com/opencontainers/selinux`.
//!
//! A volume is its pod's, which may put links in the way at any moment: every entry is reached by descriptors, and no link
//! is followed.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use blocking_pool::Cancel;
use files::walk::{Crossing, Go, Spot, Visitor, walk};
use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, XattrFlags, fstat, getxattr, openat2, setxattr,
};
use rustix::io::Errno;

/// The attribute that has a file's label.
pub(super) const ATTRIBUTE: &str = "security.selinux";
/// Folders of the node that are never labelled for a container; upstream's list.
const NEVER: [&str; 24] = [
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/etc/passwd",
    "/etc/pki",
    "/etc/shadow",
    "/home",
    "/lib",
    "/lib64",
    "/media",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/var",
    "/var/lib",
    "/var/log",
];
const LABEL_BYTES: usize = 4096;
const ENTRY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Gives a path and everything below it this attribute, the path itself last. A file system without such attributes is
/// left as it is. The path must have no links.
pub(super) fn relabel(path: &Path, attribute: &str, label: &str) -> io::Result<()> {
    if NEVER.iter().any(|never| Path::new(never) == path) {
        let why = "SELinux relabeling of this path is not allowed";
        return Err(io::Error::other(why));
    }
    let root = openat2(CWD, path, ENTRY, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let set = || {
        if is_folder(&root)? {
            below(path, attribute, label)?;
        }
        set(&root, attribute, label)
    };
    match set() {
        Err(Errno::OPNOTSUPP) => Ok(()),
        done => Ok(done?),
    }
}

fn below(path: &Path, attribute: &str, label: &str) -> Result<(), Errno> {
    let root = openat2(CWD, path, FOLDER, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    walk(
        root,
        path,
        Crossing::Allowed,
        &mut Labels { attribute, label },
    )
}

/// Labels what a walk finds.
struct Labels<'a> {
    attribute: &'a str,
    label: &'a str,
}

impl Labels<'_> {
    fn set(&self, spot: &Spot<'_>) -> Result<(), Errno> {
        match openat2(spot.folder, spot.name, ENTRY, Mode::empty(), BENEATH) {
            // Gone meanwhile.
            Err(Errno::NOENT) => Ok(()),
            opened => set(&opened?, self.attribute, self.label),
        }
    }
}

impl Visitor for Labels<'_> {
    type Error = Errno;

    fn check(&mut self) -> Result<(), Errno> {
        match Cancel::current().is_set() {
            true => Err(Errno::TIMEDOUT),
            false => Ok(()),
        }
    }

    fn thing(&mut self, spot: &Spot<'_>) -> Result<(), Errno> {
        self.set(spot)
    }

    fn enter(&mut self, spot: &Spot<'_>) -> Result<Go, Errno> {
        self.set(spot).map(|()| Go::In)
    }

    fn leave(&mut self, _: &Spot<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn failed(&mut self, _: &Path, error: Errno) -> Result<(), Errno> {
        match error {
            // Gone, or another thing by now.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Ok(()),
            error => Err(error),
        }
    }

    fn lost(&mut self, _: &Path, error: Errno) -> Errno {
        error
    }
}

fn is_folder(file: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::Directory)
}

/// Sets the attribute of what a descriptor stands for, a link too, unless it has it.
fn set(file: &OwnedFd, attribute: &str, label: &str) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut buffer = [0; LABEL_BYTES];
    if let Ok(length) = getxattr(&path, attribute, &mut buffer) {
        // The kernel ends a label with a zero.
        let known = buffer[..length].strip_suffix(b"\0");
        if known.unwrap_or(&buffer[..length]) == label.as_bytes() {
            return Ok(());
        }
    }
    setxattr(&path, attribute, label.as_bytes(), XattrFlags::empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Files may have it of any user; links and other special files may not.
    const TESTED: &str = "trusted.oxlet-test";

    fn label_of(path: &Path) -> Option<Vec<u8>> {
        let mut buffer = [0; 64];
        let length = rustix::fs::lgetxattr(path, TESTED, &mut buffer).ok()?;
        Some(buffer[..length].to_vec())
    }

    #[test]
    fn everything_below_a_path_is_labelled_and_nothing_that_a_link_leads_to() {
        let home = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(home.path()).unwrap();
        let volume = home.join("volume");
        fs::create_dir_all(volume.join("a/b")).unwrap();
        fs::create_dir(home.join("outside")).unwrap();
        for file in ["volume/a/b/file", "outside/file"] {
            fs::write(home.join(file), "").unwrap();
        }
        symlink(home.join("outside"), volume.join("a/link")).unwrap();
        relabel(&volume, TESTED, "s:o:t:s0").unwrap();
        for path in [
            "volume",
            "volume/a",
            "volume/a/b",
            "volume/a/b/file",
            "volume/a/link",
        ] {
            let label = label_of(&home.join(path));
            assert_eq!(label.as_deref(), Some(&b"s:o:t:s0"[..]), "{path}");
        }
        for path in ["", "outside", "outside/file"] {
            assert_eq!(label_of(&home.join(path)), None, "{path}");
        }
        // One file, and once more.
        relabel(&home.join("outside/file"), TESTED, "x").unwrap();
        relabel(&volume, TESTED, "s:o:t:s0").unwrap();
        assert_eq!(label_of(&home.join("outside")), None);
    }

    #[test]
    fn the_nodes_own_folders_are_not_labelled() {
        for path in ["/", "/etc", "/var/lib"] {
            relabel(Path::new(path), TESTED, "x").unwrap_err();
            assert_eq!(label_of(Path::new(path)), None, "{path}");
        }
    }
}
