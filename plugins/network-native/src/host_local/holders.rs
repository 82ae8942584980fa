//! Who holds which address, as the files of a network's folder say, remembered from call to call.
//!
//! Whether a holder has an address already is asked at each attachment, and the answer is in the files of all others: with
//! a thousand pods that are two thousand files to read. A file is read again only if it is another one than before, by
//! inode and time of change. The folder is shared with the program host-local, whose lock the caller holds.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How exact times of change are at the least (CONFIG_HZ), many times over: a file that was changed within it may change
/// again and look the same.
const CLOCK_STEP: Duration = Duration::from_millis(200);
/// How many folders are remembered: networks of this node.
const MAX_FOLDERS: usize = 64;

static REMEMBERED: Mutex<BTreeMap<PathBuf, Files>> = Mutex::new(BTreeMap::new());

type Files = BTreeMap<OsString, KnownFile>;

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownFile {
    stamp: Stamp,
    /// `None` for what is no text.
    holder: Option<String>,
}

/// What changes with a file's content or when another file takes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Stamp {
    fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let changed = u64::try_from(self.seconds)
            .ok()
            .zip(u32::try_from(self.nanoseconds).ok());
        changed.is_some_and(|(seconds, nanoseconds)| {
            Duration::new(seconds, nanoseconds) + CLOCK_STEP < now
        })
    }
}

/// Returns the files of a folder whose text, without white space around it, is the first of `keys` that any has.
pub(super) fn files_of(folder: &Path, keys: &[&str]) -> Vec<PathBuf> {
    let mut all = remembered();
    if all.len() >= MAX_FOLDERS && !all.contains_key(folder) {
        all.clear();
    }
    let files = all.entry(folder.to_owned()).or_default();
    let known = std::mem::take(files);
    *files = read(folder, known);
    let names = keys
        .iter()
        .map(|key| held_by(files, key))
        .find(|names| !names.is_empty());
    let found = names
        .into_iter()
        .flatten()
        .map(|name| folder.join(name))
        .collect();
    let now = wall();
    // What was changed a moment ago is read again the next time.
    files.retain(|_, file| file.stamp.is_settled(now));
    found
}

fn held_by<'a>(files: &'a Files, key: &str) -> Vec<&'a OsString> {
    let held = files
        .iter()
        .filter(|(_, file)| file.holder.as_deref() == Some(key));
    held.map(|(name, _)| name).collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "compared with times of files, which are the machine's"
)]
fn wall() -> SystemTime {
    SystemTime::now()
}

fn remembered() -> MutexGuard<'static, BTreeMap<PathBuf, Files>> {
    REMEMBERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a folder's files, but for those that are known.
fn read(folder: &Path, mut known: Files) -> Files {
    let mut files = Files::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(found) = entry.metadata() else {
            continue;
        };
        let stamp = Stamp {
            inode: found.ino(),
            seconds: found.ctime(),
            nanoseconds: found.ctime_nsec(),
        };
        let name = entry.file_name();
        let file = match known.remove(&name) {
            Some(file) if file.stamp == stamp => file,
            Some(_) | None => KnownFile {
                stamp,
                holder: fs::read_to_string(entry.path())
                    .ok()
                    .map(|text| text.trim().to_owned()),
            },
        };
        files.insert(name, file);
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path, key: &str) -> Vec<String> {
        let files = files_of(folder, &[key]).into_iter();
        files
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_change_by_another_program_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("10.0.0.1", "a\r\neth0\n");
        write("10.0.0.2", "b\r\neth0");
        assert_eq!(names(folder.path(), "a\r\neth0"), ["10.0.0.1"]);
        write("10.0.0.2", "a\r\neth0");
        assert_eq!(names(folder.path(), "a\r\neth0"), ["10.0.0.1", "10.0.0.2"]);
        fs::remove_file(folder.path().join("10.0.0.1")).unwrap();
        assert_eq!(names(folder.path(), "a\r\neth0"), ["10.0.0.2"]);
        assert!(names(folder.path(), "b\r\neth0").is_empty());
        assert!(names(Path::new("/no/such"), "a").is_empty());
    }

    #[test]
    fn a_file_that_is_the_same_is_not_read_again_and_a_new_one_of_its_name_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("10.0.0.1");
        fs::write(&path, "a").unwrap();
        let mut known = read(folder.path(), Files::new());
        known.get_mut(path.file_name().unwrap()).unwrap().holder = Some("remembered".to_owned());
        assert_eq!(read(folder.path(), known.clone()), known);
        fs::write(folder.path().join("new"), "b").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        let file = &read(folder.path(), known)[path.file_name().unwrap()];
        assert_eq!(file.holder.as_deref(), Some("b"));
    }

    #[test]
    fn what_was_changed_a_moment_ago_is_not_relied_on() {
        let at = |seconds| Stamp {
            inode: 1,
            seconds,
            nanoseconds: 0,
        };
        let now = UNIX_EPOCH + Duration::from_secs(10);
        assert!(at(9).is_settled(now));
        assert!(!at(10).is_settled(now) && !at(11).is_settled(now) && !at(-1).is_settled(now));
    }
}
