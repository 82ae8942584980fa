//! One process at a time: while a plugin is replaced, two of them live for a moment, and the earlier one may still be
//! at work on a volume that its successor is asked for.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use blocking_pool::Cancel;
use mounts::answer::failed;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use tonic::Status;

use crate::state::place::Place;

const RETRY_BACKOFF_INITIAL: Duration = Duration::from_millis(1);
const RETRY_BACKOFF_MAX: Duration = Duration::from_millis(20);

/// The right to work on the volumes of one kind of one pod, until it is dropped or its process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _folder: OwnedFd,
}

/// Waits for the right to work on a volume; none is needed where its folder is not there.
///
/// The lock is on the folder above: the volume's own may be mounted on.
pub(crate) fn take(place: &Place) -> Result<Option<Lock>, Status> {
    let folder = place.target.parent().unwrap_or(&place.pod);
    let what = |error: io::Error| failed(format!("lock {}", folder.display()), error);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match open(folder, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(|error| what(error.into()))?,
    };
    let mut pause = RETRY_BACKOFF_INITIAL;
    loop {
        match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(Lock { _folder: opened })),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(what(error.into())),
        }
        Cancel::current().sleep(pause).map_err(|_| {
            Status::deadline_exceeded(format!(
                "another process works on the volumes in {}",
                folder.display()
            ))
        })?;
        pause = (pause * 2).min(RETRY_BACKOFF_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Node;

    #[test]
    fn a_volume_is_worked_on_by_one_at_a_time() {
        let node = Node::new();
        let place = node.place("u", "secret", "v");
        assert!(take(&place).unwrap().is_none());
        place.make_parents().unwrap();
        let first = take(&place).unwrap();
        assert!(first.is_some());
        let waiting = {
            let place = place.clone();
            std::thread::spawn(move || take(&place).unwrap().is_some())
        };
        let other = take(&node.place("other", "secret", "v"));
        assert!(other.unwrap().is_none());
        drop(first);
        assert!(waiting.join().unwrap());
    }
}
