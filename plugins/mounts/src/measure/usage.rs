//! A walk through a volume that leaves the disk to others.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use blocking_pool::Cancel;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use tonic::Status;

use crate::answer;
use files::walk::{self, Crossing, Go, Spot, Visitor};

/// At most 20,000 entries a second: a rest after so many of them.
const RUN: u32 = 200;
const REST: Duration = Duration::from_millis(10);

/// Blocks of stat(2), whatever the file system's own are.
const BLOCK: u64 = 512;
/// So many inodes with several names are remembered: two megabytes at most.
const LINKED_MAX: usize = 1 << 16;
/// One inode, where its names are counted as parts of it.
const WHOLE: u64 = 1 << 20;

/// The disk usage of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

/// Counts a folder and all below it on the same device; an inode with several names counts once.
pub(super) fn measure(path: &Path) -> Result<Usage, Status> {
    let unable = |error| unable(path, error);
    // Opened for a look only: a device must not notice.
    let root = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let root = root.map_err(unable)?;
    let stat = fstat(&root).map_err(unable)?;
    let mut count = Count::new(stat.st_dev);
    count.add(&stat);
    if FileType::from_raw_mode(stat.st_mode).is_dir() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&root, c".", flags, Mode::empty()).map_err(unable)?;
        walk::walk(folder, path, Crossing::Refused, &mut count)?;
    }
    Ok(count.usage())
}

fn unable(path: &Path, error: Errno) -> Status {
    let path = path.display();
    answer::failed(format!("unable to count inodes for {path}"), error)
}

struct Count {
    device: u64,
    bytes: u64,
    inodes: u64,
    /// In parts of an inode.
    shares: u64,
    linked: HashSet<u64>,
    linked_most: usize,
    run: u32,
    cancel: Cancel,
}

impl Count {
    fn new(device: u64) -> Self {
        Self {
            device,
            bytes: 0,
            inodes: 0,
            shares: 0,
            linked: HashSet::new(),
            linked_most: LINKED_MAX,
            run: 0,
            cancel: Cancel::current(),
        }
    }

    fn usage(&self) -> Usage {
        Usage {
            bytes: self.bytes,
            inodes: self.inodes + self.shares.div_ceil(WHOLE),
        }
    }

    fn add(&mut self, stat: &Stat) {
        let bytes = u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK;
        #[allow(clippy::useless_conversion, reason = "narrower on other machines")]
        let names = u64::from(stat.st_nlink);
        let folder = FileType::from_raw_mode(stat.st_mode).is_dir();
        if folder || names < 2 {
            self.bytes += bytes;
            self.inodes += 1;
        } else if self.linked.contains(&stat.st_ino) {
            // Counted under another name.
        } else if self.linked.len() < self.linked_most {
            self.linked.insert(stat.st_ino);
            self.bytes += bytes;
            self.inodes += 1;
        } else {
            // Too many inodes to keep: each name counts for its share.
            self.bytes += bytes / names;
            self.shares += WHOLE / names;
        }
    }

    fn pace(&mut self) -> Result<(), Status> {
        self.run += 1;
        if self.run.is_multiple_of(RUN) {
            self.cancel.sleep(REST)?;
        }
        Ok(())
    }
}

impl Visitor for Count {
    type Error = Status;

    fn check(&mut self) -> Result<(), Status> {
        Cancel::current().check()
    }

    fn thing(&mut self, spot: &Spot<'_>) -> Result<(), Status> {
        if spot.stat.st_dev == self.device {
            self.add(spot.stat);
        }
        self.pace()
    }

    fn enter(&mut self, spot: &Spot<'_>) -> Result<Go, Status> {
        self.pace()?;
        if spot.stat.st_dev != self.device {
            return Ok(Go::Past);
        }
        self.add(spot.stat);
        Ok(Go::In)
    }

    fn leave(&mut self, _: &Spot<'_>) -> Result<(), Status> {
        Ok(())
    }

    fn failed(&mut self, path: &Path, error: Errno) -> Result<(), Status> {
        match error {
            // Another mount: not this volume's.
            Errno::XDEV => Ok(()),
            error => Err(unable(path, error)),
        }
    }

    fn lost(&mut self, path: &Path, error: Errno) -> Status {
        answer::lost(path, error)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn names_beyond_memory_count_for_their_share() {
        let test_dir = TestDir::new();
        let top = test_dir.folder("top");
        for file in 0..4 {
            let first = test_dir.file(&format!("top/{file}-0"), &"x".repeat(8192));
            for name in 1..4 {
                fs::hard_link(&first, top.join(format!("{file}-{name}"))).unwrap();
            }
        }
        let exact = measure(&top).unwrap();
        let folder = walk::open(&top).unwrap();
        let stat = fstat(&folder).unwrap();
        let mut count = Count::new(stat.st_dev);
        count.linked_most = 1;
        count.add(&stat);
        walk::walk(folder, &top, Crossing::Refused, &mut count).unwrap();
        assert_eq!(count.usage(), exact);
        assert_eq!(exact.inodes, 5);
    }
}
