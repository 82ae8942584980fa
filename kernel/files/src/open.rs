//! Opening beneath a folder.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
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
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut parent = openat(CWD, folder, directory, Mode::empty())?;
    let mut names = relative.components().map(name).peekable();
    // One component at a time instead of openat2, so that this also works on kernels without it.
    while let Some(name) = names.next() {
        let name = name?;
        if names.peek().is_some() {
            parent = openat(&parent, name, directory | OFlags::NOFOLLOW, Mode::empty())?;
            continue;
        }
        // O_NONBLOCK: opening a FIFO for reading would wait for a writer.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = openat(&parent, name, flags, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&opened)?.st_mode) != FileType::RegularFile {
            return Err(invalid(relative, "is not a regular file"));
        }
        return Ok(File::from(opened));
    }
    Err(invalid(relative, "is empty"))
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
