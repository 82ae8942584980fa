//! The three streams of a container's process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Stat, Uid, fchown, fstat};
use rustix::io::Errno;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout};

use super::{InitError, cannot};
use crate::rootfs::{Root, devices};

fn all() -> [BorrowedFd<'static>; 3] {
    [stdin(), stdout(), stderr()]
}

/// Gives the streams to a user: whoever is not root may write to `/dev/stdout` only if the pipe is its own. As runc
/// (`fixStdioPermissions`): not `/dev/null`, not the group, and what this process may not give away stays as it is.
pub(crate) fn own_by(user: u32) -> io::Result<()> {
    for stream in all() {
        let found = fstat(stream)?;
        if !is_given(&found, user) {
            continue;
        }
        match fchown(stream, Some(Uid::from_raw(user)), None) {
            // The owner is none of this user namespace; the user is none of it; a read-only file system.
            Ok(()) | Err(Errno::PERM | Errno::INVAL | Errno::ROFS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn is_given(found: &Stat, user: u32) -> bool {
    found.st_uid != user && !devices::is_null(found)
}

/// Has streams that are the node's `/dev/null` lead to the container's: the node's is a way to a file system of the node.
pub(crate) fn reopen_null(root: &Root) -> Result<(), InitError> {
    let null = devices::open_null(root).map_err(cannot("open /dev/null of the container"))?;
    let is_null = |stream: BorrowedFd<'_>| fstat(stream).map(|found| devices::is_null(&found));
    let failed = || cannot("open /dev/null of the container");
    if is_null(stdin()).map_err(failed())? {
        dup2_stdin(&null).map_err(failed())?;
    }
    if is_null(stdout()).map_err(failed())? {
        dup2_stdout(&null).map_err(failed())?;
    }
    if is_null(stderr()).map_err(failed())? {
        dup2_stderr(&null).map_err(failed())?;
    }
    Ok(())
}

/// Has a terminal be all three streams.
pub(super) fn replace(terminal: impl AsFd) -> io::Result<()> {
    dup2_stdin(&terminal)?;
    dup2_stdout(&terminal)?;
    dup2_stderr(&terminal)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_given_to_whoever_does_not_own_it_unless_it_is_null() {
        let (read, _write) = rustix::pipe::pipe().unwrap();
        let pipe = fstat(&read).unwrap();
        assert!(is_given(&pipe, pipe.st_uid + 1));
        assert!(!is_given(&pipe, pipe.st_uid));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(!is_given(&fstat(&null).unwrap(), 1000));
    }
}
