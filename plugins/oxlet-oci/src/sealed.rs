//! Before it enters a container, the program becomes one that nobody can write: a process in the container that gets hold
//! of `/proc/PID/exe` (CVE-2019-5736) then has nothing to gain.
//!
//! It is its own file seen through an overlay without an upper layer, mounted nowhere and gone with this process; where the
//! kernel makes none (before 5.2, or not above this file system), a copy in sealed memory, which costs the time and the
//! memory of a copy.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, openat, statfs,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

const NAME: &str = "oxlet-oci";
const OWN: &str = "/proc/self/exe";
/// As in linux/magic.h.
const OVERLAYFS: i64 = 0x794c_7630;
/// How often sealing is tried while the kernel itself holds pages of the memory: five seconds in all.
const MAX_TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Why the program is not one that nobody can write.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealedError {
    #[error("cannot copy this program into memory")]
    Copy(#[source] io::Error),
    #[error("cannot seal the copy of this program")]
    Seal(#[source] Errno),
    #[error("cannot run the sealed copy of this program")]
    Run(#[source] nix::Error),
}

/// Closes every descriptor but the streams: none of the caller's can leak into a container (CVE-2024-21626).
pub(crate) fn close_inherited() {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let open: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // One of them was the folder's own, which is closed already.
        let _ = nix::unistd::close(fd);
    }
}

/// Goes on as the program that nobody can write; returns at once when it is that already. An overlay without an
/// upper layer has two others at least: `second` is one that goes with the container.
pub(crate) fn become_sealed(second: &Path) -> Result<(), SealedError> {
    let own = fs::read_link(OWN).map_err(SealedError::Copy)?;
    if is_sealed(&own) {
        return Ok(());
    }
    if let Ok(program) = overlaid(&own, second) {
        return run(program.as_fd());
    }
    let memory = copy().map_err(SealedError::Copy)?;
    while_busy(|| seal(&memory), pause).map_err(SealedError::Seal)?;
    run(memory.as_fd())
}

/// Whether the program that runs, by its path, is in sealed memory or on such an overlay: at the top of a file system of
/// that kind which nobody can write to.
fn is_sealed(own: &Path) -> bool {
    let in_memory = format!("/memfd:{NAME}");
    if own.as_os_str().as_bytes().starts_with(in_memory.as_bytes()) {
        return true;
    }
    own.parent() == Some(Path::new("/")) && is_on_overlay(Path::new(OWN))
}

fn is_on_overlay(program: &Path) -> bool {
    let overlay = statfs(program).is_ok_and(|found| found.f_type == OVERLAYFS);
    let read_only = File::options().write(true).open(program);
    overlay
        && read_only.is_err_and(|error| error.raw_os_error() == Some(Errno::ROFS.raw_os_error()))
}

/// The program at this path, as an overlay shows it that is mounted nowhere.
fn overlaid(program: &Path, second: &Path) -> io::Result<OwnedFd> {
    let (Some(folder), Some(name)) = (program.parent(), program.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    fs::create_dir_all(second)?;
    let layers = layers(&[folder, second]).ok_or(io::ErrorKind::InvalidInput)?;
    let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(overlay.as_fd(), "lowerdir", OsStr::from_bytes(&layers))?;
    fsconfig_create(overlay.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(openat(mount, name, flags, Mode::empty())?)
}

/// Folders as an overlay's option; none where one has a character that the option takes for its own.
fn layers(folders: &[&Path]) -> Option<Vec<u8>> {
    let names: Vec<&[u8]> = folders
        .iter()
        .map(|folder| folder.as_os_str().as_bytes())
        .collect();
    let are_plain = names
        .iter()
        .all(|name| !name.iter().any(|byte| b":,\\".contains(byte)));
    are_plain.then(|| names.join(&b':'))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program of one thread, whose time is no actor's"
)]
fn pause() {
    thread::sleep(PAUSE);
}

fn copy() -> io::Result<File> {
    let memory = File::from(memfd_create(
        NAME,
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?);
    io::copy(&mut File::open(OWN)?, &mut &memory)?;
    Ok(memory)
}

fn seal(memory: &File) -> Result<(), Errno> {
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(memory, seals)
}

/// Seals again while the memory is busy. Pages that were just written may still be held by the kernel, on a machine
/// with much to do for longer than it waits for them by itself.
fn while_busy(
    mut seal: impl FnMut() -> Result<(), Errno>,
    mut pause: impl FnMut(),
) -> Result<(), Errno> {
    for _ in 1..MAX_TRIES {
        match seal() {
            Err(Errno::BUSY) => pause(),
            tried => return tried,
        }
    }
    seal()
}

fn run(program: BorrowedFd<'_>) -> Result<(), SealedError> {
    let text = |error: std::ffi::NulError| SealedError::Copy(error.into());
    let path = CString::new(format!("/proc/self/fd/{}", program.as_raw_fd())).map_err(text)?;
    let args: Result<Vec<CString>, _> = std::env::args_os()
        .map(|arg| CString::new(arg.as_bytes()))
        .collect();
    match nix::unistd::execv(&path, &args.map_err(text)?) {
        Ok(never) => match never {},
        Err(error) => Err(SealedError::Run(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_copy_cannot_be_written_to() {
        let memory = copy().unwrap();
        seal(&memory).unwrap();
        assert!((&memory).write_all(b"x").is_err());
    }

    #[test]
    fn an_overlay_shows_the_program_and_nobody_can_write_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bin/program");
        fs::create_dir(program.parent().unwrap()).unwrap();
        fs::write(&program, "content").unwrap();
        let shown = overlaid(&program, &folder.path().join("second")).unwrap();
        let path = format!("/proc/self/fd/{}", shown.as_raw_fd());
        let path = Path::new(&path);
        assert_eq!(fs::read(path).unwrap(), b"content");
        assert_eq!(fs::read_link(path).unwrap(), Path::new("/program"));
        assert!(is_on_overlay(path));
        assert!(!is_on_overlay(&program));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&folder.path().display().to_string()));
    }

    #[test]
    fn a_folder_that_the_option_of_layers_would_read_otherwise_is_not_named() {
        let layers = |folders: &[&str]| {
            let folders = folders.iter().map(Path::new).collect::<Vec<_>>();
            super::layers(&folders)
        };
        assert_eq!(layers(&["/a", "/b"]), Some(b"/a:/b".to_vec()));
        for odd in ["/a:b", "/a,b", "/a\\b"] {
            assert_eq!(layers(&[odd, "/b"]), None, "{odd}");
        }
    }

    #[test]
    fn memory_that_is_busy_is_sealed_later_and_another_error_is_told_at_once() {
        let (mut tries, mut pauses) = (0, 0);
        let sealed = while_busy(
            || {
                tries += 1;
                if tries < 3 { Err(Errno::BUSY) } else { Ok(()) }
            },
            || pauses += 1,
        );
        assert_eq!(sealed, Ok(()));
        assert_eq!((tries, pauses), (3, 2));
        let mut pauses = 0;
        let never = while_busy(|| Err(Errno::BUSY), || pauses += 1);
        assert_eq!((never, pauses), (Err(Errno::BUSY), MAX_TRIES - 1));
        assert_eq!(
            while_busy(|| Err(Errno::PERM), || unreachable!()),
            Err(Errno::PERM)
        );
    }
}
