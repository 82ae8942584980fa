//! A disk that loses power: from the cut on nothing succeeds, and what wasn't synced is torn or undone.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A cut before the step of this number.
#[derive(Debug)]
pub(crate) struct Faults {
    left: AtomicU64,
    unsynced: Mutex<Unsynced>,
}

#[derive(Debug, Default)]
struct Unsynced {
    content: BTreeSet<PathBuf>,
    /// From, to, and what a file there held before.
    renames: Vec<(PathBuf, PathBuf, Option<Vec<u8>>)>,
}

impl Faults {
    pub(crate) fn after(steps: u64) -> Self {
        Self {
            left: AtomicU64::new(steps),
            unsynced: Mutex::default(),
        }
    }

    /// Tells whether the power was cut.
    pub(crate) fn is_cut(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn step(&self) -> io::Result<()> {
        let left = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        match left {
            Ok(left) if left > 1 => Ok(()),
            _ => Err(io::Error::other("the power is cut")),
        }
    }

    pub(crate) fn unsynced(&self, path: &Path) {
        self.unsynced
            .lock()
            .unwrap()
            .content
            .insert(path.to_owned());
    }

    pub(crate) fn synced(&self, path: &Path) {
        self.unsynced
            .lock()
            .unwrap()
            .content
            .retain(|torn| !torn.starts_with(path));
    }

    pub(crate) fn renames(&self, from: &Path, to: &Path) {
        let mut unsynced = self.unsynced.lock().unwrap();
        unsynced
            .renames
            .push((from.to_owned(), to.to_owned(), fs::read(to).ok()));
        let torn = std::mem::take(&mut unsynced.content);
        let moved = |path: PathBuf| match path.strip_prefix(from) {
            Ok(rest) if rest.as_os_str().is_empty() => to.to_owned(),
            Ok(rest) => to.join(rest),
            Err(_) => path,
        };
        unsynced.content = torn.into_iter().map(moved).collect();
    }

    pub(crate) fn synced_folder(&self, folder: &Path) {
        let mut unsynced = self.unsynced.lock().unwrap();
        unsynced
            .renames
            .retain(|(_, to, _)| to.parent() != Some(folder));
    }

    /// Does to the disk what the cut does: torn content, and renames that never were.
    pub(crate) fn lose(&self) {
        let unsynced = std::mem::take(&mut *self.unsynced.lock().unwrap());
        for path in unsynced.content {
            tear(&path);
        }
        for (from, to, before) in unsynced.renames.into_iter().rev() {
            if to.exists() && from.parent().is_some_and(Path::exists) {
                fs::rename(&to, &from).unwrap();
                if let Some(content) = before {
                    fs::write(&to, content).unwrap();
                }
            }
        }
    }
}

fn tear(path: &Path) {
    let Ok(stat) = fs::symlink_metadata(path) else {
        return;
    };
    if stat.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            tear(&entry.unwrap().path());
        }
    } else if stat.is_file() {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(stat.len() / 2).unwrap();
    }
}
