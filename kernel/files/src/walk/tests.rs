//! Deep trees, wide folders, mounts on the way, and entries that are moved meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, mkdirat};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use super::*;
/// A folder of one test, with the mounts that the test makes in it: both are gone at its end.
struct TestDir {
    folder: tempfile::TempDir,
    mounts: Vec<PathBuf>,
}

impl TestDir {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            mounts: Vec::new(),
        }
    }

    /// A path in it, whose folders exist.
    fn path(&self, relative: &str) -> PathBuf {
        let path = self.folder.path().join(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// A new folder in it.
    fn folder(&self, relative: &str) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// A new empty file in it.
    fn file(&self, relative: &str) -> PathBuf {
        let path = self.path(relative);
        fs::write(&path, "").unwrap();
        path
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        for point in self.mounts.iter().rev() {
            unmount(point, UnmountFlags::DETACH).unwrap();
        }
    }
}

/// Why a walk ended early.
#[derive(Debug, PartialEq)]
enum Stop {
    Cancelled,
    Lost(PathBuf),
}

/// Writes down where it was.
#[derive(Default)]
struct Notes {
    cancelled: bool,
    things: BTreeSet<PathBuf>,
    entered: Vec<PathBuf>,
    left: Vec<PathBuf>,
    failures: Vec<(PathBuf, Errno)>,
    past: Option<PathBuf>,
}

impl Visitor for Notes {
    type Error = Stop;

    fn check(&mut self) -> Result<(), Stop> {
        if self.cancelled {
            return Err(Stop::Cancelled);
        }
        Ok(())
    }

    fn lost(&mut self, path: &Path, _: Errno) -> Stop {
        Stop::Lost(path.to_owned())
    }

    fn thing(&mut self, spot: &Spot<'_>) -> Result<(), Stop> {
        assert!(self.things.insert(spot.path.to_owned()), "twice: {spot:?}");
        Ok(())
    }

    fn enter(&mut self, spot: &Spot<'_>) -> Result<Go, Stop> {
        self.entered.push(spot.path.to_owned());
        if self.past.as_deref() == Some(spot.path) {
            return Ok(Go::Past);
        }
        Ok(Go::In)
    }

    fn leave(&mut self, spot: &Spot<'_>) -> Result<(), Stop> {
        let seen = statat(spot.folder, spot.name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        assert_eq!(seen.st_ino, spot.stat.st_ino, "{spot:?}");
        self.left.push(spot.path.to_owned());
        Ok(())
    }

    fn failed(&mut self, path: &Path, error: Errno) -> Result<(), Stop> {
        self.failures.push((path.to_owned(), error));
        Ok(())
    }
}

fn go(path: &Path, crossing: Crossing) -> Notes {
    let mut notes = Notes::default();
    walk(open(path).unwrap(), path, crossing, &mut notes).unwrap();
    notes
}

/// Makes a folder in a folder in a folder; returns the innermost one.
fn deep(path: &Path, depth: usize) -> OwnedFd {
    let mut at = open(path).unwrap();
    for _ in 0..depth {
        mkdirat(&at, c"d", Mode::RWXU).unwrap();
        at = openat(&at, c"d", FOLDER, Mode::empty()).unwrap();
    }
    at
}

#[test]
fn each_thing_is_visited_once_and_folders_after_their_content() {
    let test_dir = TestDir::new();
    for file in ["a/1", "a/b/2", "a/b/c/3", "4"] {
        test_dir.file(&format!("top/{file}"));
    }
    let top = test_dir.folder("top");
    symlink("..", top.join("a/link")).unwrap();
    symlink("b", top.join("a/to-folder")).unwrap();
    let notes = go(&top, Crossing::Refused);
    let expected = ["4", "a/1", "a/b/2", "a/b/c/3", "a/link", "a/to-folder"];
    let expected: BTreeSet<_> = expected.iter().map(|name| top.join(name)).collect();
    assert_eq!(notes.things, expected);
    assert_eq!(
        notes.entered,
        ["a", "a/b", "a/b/c"].map(|name| top.join(name))
    );
    assert_eq!(notes.left, ["a/b/c", "a/b", "a"].map(|name| top.join(name)));
    assert!(notes.failures.is_empty());
}

#[test]
fn a_folder_passed_is_not_gone_into() {
    let test_dir = TestDir::new();
    test_dir.file("top/a/1");
    test_dir.file("top/b/2");
    let top = test_dir.folder("top");
    let mut notes = Notes {
        past: Some(top.join("a")),
        ..Notes::default()
    };
    walk(open(&top).unwrap(), &top, Crossing::Refused, &mut notes).unwrap();
    assert_eq!(notes.things, BTreeSet::from([top.join("b/2")]));
    assert_eq!(notes.left, [top.join("b")]);
}

#[test]
fn a_tree_deeper_than_any_path_is_gone_through_with_few_open_folders() {
    let test_dir = TestDir::new();
    let top = test_dir.folder("top");
    deep(&top, 6_000);
    // Beside the way down, so that reading goes on in folders that were closed.
    for depth in [0, 1, 10, 400] {
        let folder = top.join(vec!["d"; depth].join("/"));
        for name in ["a", "z"] {
            fs::write(folder.join(name), "").unwrap();
        }
    }
    let notes = go(&top, Crossing::Refused);
    assert_eq!((notes.entered.len(), notes.left.len()), (6_000, 6_000));
    assert_eq!(notes.things.len(), 8);
    assert!(notes.failures.is_empty());
    crate::remove_tree(&top).unwrap();
    assert!(!top.exists());
}

#[test]
fn a_wide_folder_is_read_to_its_end_though_it_was_closed_in_between() {
    let test_dir = TestDir::new();
    let top = test_dir.folder("top");
    for number in 0..2_000 {
        fs::write(top.join(format!("file-{number}")), "").unwrap();
    }
    deep(&top, MAX_OPEN * 3);
    for number in 0..50 {
        let folder = test_dir.folder(&format!("top/folder-{number}"));
        deep(&folder, MAX_OPEN * 2);
    }
    let notes = go(&top, Crossing::Refused);
    assert_eq!(notes.things.len(), 2_000);
    assert_eq!(notes.left.len(), MAX_OPEN * 3 + 50 * (MAX_OPEN * 2 + 1));
}

#[test]
fn a_mount_on_the_way_is_a_failure_unless_crossing_is_allowed() {
    let mut test_dir = TestDir::new();
    let top = test_dir.folder("top");
    let other = test_dir.folder("top/other");
    mount("tmpfs", &other, "tmpfs", MountFlags::empty(), None).unwrap();
    test_dir.mounts.push(other.clone());
    fs::write(other.join("there"), "").unwrap();
    // Of the same device, which st_dev does not tell.
    let (same, source) = (test_dir.folder("top/same"), test_dir.folder("source"));
    fs::write(source.join("here"), "").unwrap();
    mount_bind(&source, &same).unwrap();
    test_dir.mounts.push(same.clone());

    let mut notes = go(&top, Crossing::Refused);
    notes.failures.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [(other.clone(), Errno::XDEV), (same.clone(), Errno::XDEV)];
    assert_eq!(notes.failures, expected);
    assert!(notes.things.is_empty());

    let notes = go(&top, Crossing::Allowed);
    let expected = [other.join("there"), same.join("here")];
    assert_eq!(notes.things, BTreeSet::from(expected));
}

#[test]
fn a_folder_moved_away_with_the_walk_in_it_ends_the_walk() {
    struct Mover {
        test_dir: TestDir,
        visited: Vec<PathBuf>,
    }
    impl Visitor for Mover {
        type Error = Stop;
        fn check(&mut self) -> Result<(), Stop> {
            Ok(())
        }
        fn lost(&mut self, path: &Path, _: Errno) -> Stop {
            Stop::Lost(path.to_owned())
        }
        fn thing(&mut self, spot: &Spot<'_>) -> Result<(), Stop> {
            self.visited.push(spot.path.to_owned());
            Ok(())
        }
        fn leave(&mut self, spot: &Spot<'_>) -> Result<(), Stop> {
            let moved = self.test_dir.path("elsewhere/moved");
            if !moved.exists() {
                // The folder that is left is the innermost; far above it, one is moved out of the tree.
                fs::rename(self.test_dir.path("top/d/d"), moved).unwrap();
            }
            self.visited.push(spot.path.to_owned());
            Ok(())
        }
        fn failed(&mut self, path: &Path, error: Errno) -> Result<(), Stop> {
            panic!("{path:?} {error}")
        }
    }
    let test_dir = TestDir::new();
    let top = test_dir.folder("top");
    test_dir.file("elsewhere/secret");
    deep(&top, MAX_OPEN * 2);
    let mut mover = Mover {
        test_dir,
        visited: Vec::new(),
    };
    let end = walk(open(&top).unwrap(), &top, Crossing::Refused, &mut mover).unwrap_err();
    assert!(matches!(end, Stop::Lost(_)), "{end:?}");
    assert!(mover.visited.iter().all(|path| path.ends_with("d")));
}

#[test]
fn a_walk_that_should_end_ends() {
    let test_dir = TestDir::new();
    let top = test_dir.folder("top");
    fs::write(top.join("file"), "").unwrap();
    let mut notes = Notes {
        cancelled: true,
        ..Notes::default()
    };
    let end = walk(open(&top).unwrap(), &top, Crossing::Refused, &mut notes);
    assert_eq!(end, Err(Stop::Cancelled));
    assert!(notes.things.is_empty());
}

#[test]
fn odd_names_and_kinds_are_visited_like_others() {
    let test_dir = TestDir::new();
    let top = test_dir.folder("top");
    let odd = [&b"\xff\xfe"[..], b"a\nb", b"...", b" ", b"-rf"];
    for name in odd {
        fs::write(top.join(OsStr::from_bytes(name)), "").unwrap();
    }
    rustix::fs::mkfifoat(CWD, top.join("pipe"), Mode::RUSR).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
    assert_eq!(go(&top, Crossing::Refused).things.len(), odd.len() + 2);
    drop(socket);
}
