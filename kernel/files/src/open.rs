//! Opening beneath a folder.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2};
use rustix::io::Errno;

/// How often `openat2` is repeated after EAGAIN: the kernel gives up when anything is renamed while it follows "..".
const MAX_TRIES: usize = 64;

/// Opens `path` as a process would whose root folder is `root`: an absolute path, an absolute link and ".." all stay
/// inside, and links of procfs ("magic links") are not followed.
///
/// # Errors
/// The kernel's, openat2(2): ELOOP for a magic link, ENOSYS before Linux 5.6.
pub fn open_in_root(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    for _ in 1..MAX_TRIES {
        match openat2(root, path, flags | OFlags::CLOEXEC, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return Ok(opened?),
        }
    }
    Ok(openat2(root, path, flags | OFlags::CLOEXEC, mode, resolve)?)
}

/// Opens the regular file `relative` below `folder` for reading. No component of `relative` may be a link, and a FIFO
/// or a device is refused without waiting for it. `folder` itself is the caller's, and links in it are followed.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for an empty path, an absolute one or one with "..", and for what is not a regular
/// file; `FilesystemLoop` or `NotADirectory` for a link; the kernel's for all else.
pub fn open_regular(folder: &Path, relative: &Path) -> io::Result<File> {
    let (parent, name) = open_parent(folder, relative)?;
    open_regular_at(parent.as_fd(), name)
}

/// As [`open_regular`], and the file must belong to the user that this process runs as: whoever can write to the
/// folder cannot have put a file of other users in its place.
///
/// # Errors
/// Those of [`open_regular`]; [`ErrorKind::PermissionDenied`] for a file of another user.
pub fn open_owned(folder: &Path, relative: &Path) -> io::Result<File> {
    let (parent, name) = open_parent(folder, relative)?;
    open_owned_at(parent.as_fd(), name)
}

/// As [`open_owned`], for an entry of an open folder.
///
/// # Errors
/// Those of [`open_owned`].
pub fn open_owned_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<File> {
    let file = open_regular_at(folder, name)?;
    let owner = fstat(&file)?.st_uid;
    let own = rustix::process::geteuid().as_raw();
    if owner != own {
        let text = format!("{name:?} belongs to user {owner}, expected {own}");
        return Err(io::Error::new(ErrorKind::PermissionDenied, text));
    }
    Ok(file)
}

/// Opens the folder `relative` below `folder`, no component of which may be a link.
///
/// # Errors
/// Those of [`open_regular`].
pub fn open_folder(folder: &Path, relative: &Path) -> io::Result<OwnedFd> {
    let (parent, name) = open_parent(folder, relative)?;
    Ok(openat(&parent, name, FOLDER, Mode::empty())?)
}

/// Opens the folder `relative` below `folder`, and makes those of its components that are missing, with `mode` and the
/// umask. No component may be a link.
///
/// # Errors
/// Those of [`open_regular`].
pub fn make_folder(folder: &Path, relative: &Path, mode: Mode) -> io::Result<OwnedFd> {
    let mut current = openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    for component in relative.components() {
        let name = name(component)?;
        match mkdirat(&current, name, mode) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        current = openat(&current, name, FOLDER, Mode::empty())?;
    }
    Ok(current)
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The folder that the last component of `relative` is in, and that component. One component at a time instead of
/// openat2, so that this also works on kernels without it.
fn open_parent<'p>(folder: &Path, relative: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut parent = openat(CWD, folder, directory, Mode::empty())?;
    let mut names = relative.components().map(name).peekable();
    while let Some(name) = names.next() {
        let name = name?;
        if names.peek().is_none() {
            return Ok((parent, name));
        }
        parent = openat(&parent, name, directory | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Err(invalid(relative, "is empty"))
}

fn open_regular_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<File> {
    // O_NONBLOCK: opening a FIFO for reading would wait for a writer.
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat(folder, name, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&opened)?.st_mode) != FileType::RegularFile {
        return Err(invalid(Path::new(name), "is not a regular file"));
    }
    Ok(File::from(opened))
}

/// Reads the regular file `relative` below `folder`, opened as by [`open_regular`].
///
/// # Errors
/// [`ErrorKind::FileTooLarge`] for a file of more than `max_bytes`; those of [`open_regular`].
pub fn read_regular(folder: &Path, relative: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(folder, relative)?;
    let mut bytes = Vec::new();
    file.take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > max_bytes) {
        let text = format!("{} has more than {max_bytes} bytes", relative.display());
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

fn name(component: Component<'_>) -> io::Result<&OsStr> {
    match component {
        Component::Normal(name) => Ok(name),
        Component::CurDir => Ok(OsStr::new(".")),
        Component::ParentDir | Component::RootDir | Component::Prefix(_) => Err(invalid(
            Path::new(component.as_os_str()),
            "is not allowed in a path beneath a folder",
        )),
    }
}

fn invalid(path: &Path, problem: &str) -> io::Error {
    let text = format!("{path:?} {problem}");
    io::Error::new(ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_of_another_user_is_not_our_own() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("log"), "text").unwrap();
        let log = Path::new("log");
        assert!(open_owned(folder.path(), log).is_ok());
        std::os::unix::fs::chown(folder.path().join("log"), Some(4_711), None).unwrap();
        let refused = open_owned(folder.path(), log).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert!(
            refused.to_string().contains("belongs to user 4711"),
            "{refused}"
        );
        assert!(open_regular(folder.path(), log).is_ok());
    }

    #[test]
    fn folders_are_made_and_opened_but_never_through_a_link() {
        let top = tempfile::tempdir().unwrap();
        let mode = Mode::from_raw_mode(0o750);
        for _ in 0..2 {
            make_folder(top.path(), Path::new("a/b/c"), mode).unwrap();
        }
        assert!(top.path().join("a/b/c").is_dir());
        symlink(top.path().join("a"), top.path().join("link")).unwrap();
        symlink(top.path().join("a/b"), top.path().join("a/link")).unwrap();
        for path in ["link/d", "a/link", "a/link/d", "../x", "/x"] {
            make_folder(top.path(), Path::new(path), mode).unwrap_err();
            open_folder(top.path(), Path::new(path)).unwrap_err();
        }
        assert!(!top.path().join("a/d").exists() && !top.path().join("a/b/d").exists());
        assert!(open_folder(top.path(), Path::new("a/b")).is_ok());
    }

    #[test]
    fn a_regular_file_is_read_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("a")).unwrap();
        fs::write(path("a/log"), "text").unwrap();
        fs::write(path("secret"), "secret").unwrap();
        symlink(path("secret"), path("a/link")).unwrap();
        symlink(path("a"), path("b")).unwrap();
        rustix::fs::mknodat(
            CWD,
            path("a/fifo"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let read = |name: &str, max| read_regular(folder.path(), Path::new(name), max);
        assert_eq!(read("a/log", 4).unwrap(), b"text");
        assert_eq!(
            read("a/log", 3).unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
        for refused in [
            "a/link",
            "b/log",
            "a/fifo",
            "a",
            "../secret",
            "a/../secret",
            "",
        ] {
            assert!(read(refused, 100).is_err(), "{refused}");
        }
        let absolute = path("secret");
        assert!(read(absolute.to_str().unwrap(), 100).is_err());
    }

    #[test]
    fn a_path_in_a_root_never_leaves_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/inside"), "inside").unwrap();
        fs::write(folder.path().join("outside"), "outside").unwrap();
        symlink("/etc/inside", root.join("absolute")).unwrap();
        symlink("../../../etc/inside", root.join("upwards")).unwrap();
        symlink(folder.path().join("outside"), root.join("outside")).unwrap();
        symlink("/proc/self/root/etc/inside", root.join("magic")).unwrap();
        let opened = File::open(&root).unwrap();
        let read = |path: &str| {
            let file = open_in_root(
                opened.as_fd(),
                Path::new(path),
                OFlags::RDONLY,
                Mode::empty(),
            )?;
            io::read_to_string(File::from(file))
        };
        for inside in ["/etc/inside", "absolute", "upwards", "../../etc/inside"] {
            assert_eq!(read(inside).unwrap(), "inside", "{inside}");
        }
        assert_eq!(read("outside").unwrap_err().kind(), ErrorKind::NotFound);
        assert!(read("magic").is_err());
    }
}
