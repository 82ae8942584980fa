//! Before it enters a container, the program becomes a copy of itself in sealed memory: a process in the container
//! that gets hold of `/proc/PID/exe` (CVE-2019-5736) then has a file that nobody can write, and that is gone soon.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

const NAME: &str = "oxlet-oci";
/// How often sealing is tried while the kernel itself holds pages of the memory: five seconds in all.
const MAX_TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Why the program is no sealed copy of itself.
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

/// Goes on as the sealed copy; returns at once when it is that already.
pub(crate) fn become_sealed() -> Result<(), SealedError> {
    let exe = fs::read_link("/proc/self/exe").map_err(SealedError::Copy)?;
    if exe
        .as_os_str()
        .as_bytes()
        .starts_with(format!("/memfd:{NAME}").as_bytes())
    {
        return Ok(());
    }
    let memory = copy().map_err(SealedError::Copy)?;
    while_busy(|| seal(&memory), pause).map_err(SealedError::Seal)?;
    run(&memory)
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
    io::copy(&mut File::open("/proc/self/exe")?, &mut &memory)?;
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

fn run(memory: &File) -> Result<(), SealedError> {
    let text = |error: std::ffi::NulError| SealedError::Copy(error.into());
    let path = CString::new(format!("/proc/self/fd/{}", memory.as_raw_fd())).map_err(text)?;
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
    fn memory_that_is_busy_is_sealed_later_and_another_error_is_told_at_once() {
        let (mut tries, mut pauses) = (0, 0);
        let seal = || {
            tries += 1;
            if tries < 3 { Err(Errno::BUSY) } else { Ok(()) }
        };
        assert_eq!(while_busy(seal, || pauses += 1), Ok(()));
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
