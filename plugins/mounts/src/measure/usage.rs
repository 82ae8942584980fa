//! A walk through a volume that leaves the disk to others.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
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
/// How many characters of a path a log line has: a path in a deep tree has megabytes.
const MAX_LOGGED_PATH: usize = 256;
/// One inode, where its names are counted as parts of it.
const WHOLE: u64 = 1 << 20;

/// The disk usage of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
    /// Whether there may be more.
    pub(super) at_least: bool,
}

/// Why a walk ends before everything is counted.
#[derive(Debug)]
enum Stop {
    /// Its time is over.
    Late,
    /// A folder on the way back was moved elsewhere.
    Lost,
    Failed(Status),
}

/// Counts a folder and all below it on the same device; an inode with several names counts once.
///
/// What a pod makes too large for one walk is held against it all the same, and so is what it moves meanwhile: if the walk
/// does not reach everything, what it has reached counts.
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
        match walk::walk(folder, path, Crossing::Refused, &mut count) {
            Ok(()) => {}
            Err(Stop::Late) => count.leave_out(path, "it takes too long"),
            Err(Stop::Lost) => count.leave_out(path, "folders are moved meanwhile"),
            Err(Stop::Failed(status)) => return Err(status),
        }
    }
    if let Some(deep) = count.too_deep.take() {
        count.leave_out(&deep, "it lies too deep");
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
    at_least: bool,
    /// The first folder whose content is deeper than a walk goes.
    too_deep: Option<PathBuf>,
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
            at_least: false,
            too_deep: None,
        }
    }

    /// Notes that not everything is counted.
    fn leave_out(&mut self, path: &Path, why: &str) {
        self.at_least = true;
        let inodes = self.usage().inodes;
        // A path of thousands of levels says no more than its beginning.
        let path: String = path
            .display()
            .to_string()
            .chars()
            .take(MAX_LOGGED_PATH)
            .collect();
        tracing::warn!(path, inodes, "a volume is not counted to its end: {why}");
    }

    fn usage(&self) -> Usage {
        Usage {
            bytes: self.bytes,
            inodes: self.inodes + self.shares.div_ceil(WHOLE),
            at_least: self.at_least,
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

    fn pace(&mut self) -> Result<(), Stop> {
        self.run += 1;
        if self.run.is_multiple_of(RUN) {
            self.cancel.sleep(REST).map_err(|_| Stop::Late)?;
        }
        Ok(())
    }
}

impl Visitor for Count {
    type Error = Stop;

    fn check(&mut self) -> Result<(), Stop> {
        self.cancel.check().map_err(|_| Stop::Late)
    }

    fn thing(&mut self, spot: &Spot<'_>) -> Result<(), Stop> {
        if spot.stat.st_dev == self.device {
            self.add(spot.stat);
        }
        self.pace()
    }

    fn enter(&mut self, spot: &Spot<'_>) -> Result<Go, Stop> {
        self.pace()?;
        if spot.stat.st_dev != self.device {
            return Ok(Go::Past);
        }
        self.add(spot.stat);
        Ok(Go::In)
    }

    fn leave(&mut self, _: &Spot<'_>) -> Result<(), Stop> {
        Ok(())
    }

    fn failed(&mut self, path: &Path, error: Errno) -> Result<(), Stop> {
        match error {
            // Another mount: not this volume's.
            Errno::XDEV => Ok(()),
            Errno::NAMETOOLONG => {
                self.too_deep.get_or_insert_with(|| path.to_owned());
                Ok(())
            }
            error => Err(Stop::Failed(unable(path, error))),
        }
    }

    fn lost(&mut self, path: &Path, error: Errno) -> Stop {
        if error == Errno::STALE {
            Stop::Lost
        } else {
            Stop::Failed(answer::lost(path, error))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::mkdirat;

    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn a_walk_that_takes_too_long_counts_what_it_has_reached() {
        let test_dir = TestDir::new();
        let top = test_dir.folder("top");
        for file in 0..1_000 {
            fs::write(top.join(file.to_string()), "").unwrap();
        }
        let late = Cancel::default();
        late.set();
        let reached = |usage: Usage| (usage.inodes, usage.at_least);
        assert_eq!(
            late.scope(|| measure(&top)).map(reached).unwrap(),
            (1, true)
        );
        assert_eq!(measure(&top).map(reached).unwrap(), (1_001, false));
    }

    #[test]
    fn what_is_deeper_than_a_walk_goes_does_not_keep_the_rest_from_counting() {
        // The longest names reach the bound on a path's bytes with the fewest folders.
        const LEVELS: u64 = 16_700;
        let test_dir = TestDir::new();
        let top = test_dir.folder("top");
        let name = "d".repeat(255);
        let mut folder = walk::open(&top).unwrap();
        for _ in 0..LEVELS {
            mkdirat(&folder, &name, Mode::RWXU).unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            folder = openat(&folder, &name, flags, Mode::empty()).unwrap();
        }
        drop(folder);
        test_dir.file("top/zz", &"x".repeat(1 << 20));
        let found = measure(&top).unwrap();
        files::remove_tree(&top).unwrap();
        assert!(found.bytes >= 1 << 20 && found.at_least, "{found:?}");
        assert!((16_000..LEVELS).contains(&found.inodes), "{found:?}");
    }

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
