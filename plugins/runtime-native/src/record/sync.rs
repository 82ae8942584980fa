//! Records that are written and not on disk yet, and the task that brings them there.
//!
//! A call need not wait for that: what a record is about does not outlive a loss of power, and a successor of this process
//! reads what was written, on disk or not. What is lost with the power is that something was made a moment before.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::file::NAME;

/// How long records are gathered: a crowd of pods is brought to the disk in a few turns.
pub(crate) const GATHERING: Duration = Duration::from_millis(100);

/// The folders of records that are not on disk yet: at most one each of all that there are.
#[derive(Debug, Default)]
pub(crate) struct RecordSync {
    pending: Mutex<BTreeSet<PathBuf>>,
    added: Notify,
}

impl RecordSync {
    /// Has the record in this folder brought to the disk soon.
    pub(crate) fn add(&self, folder: PathBuf) {
        self.pending().insert(folder);
        self.added.notify_one();
    }

    /// Waits until there are some, and a moment for more.
    pub(crate) async fn next(&self) -> BTreeSet<PathBuf> {
        self.added.notified().await;
        tokio::time::sleep(GATHERING).await;
        std::mem::take(&mut *self.pending())
    }

    fn pending(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Brings records to the disk, with the folders that they are in. Blocks.
pub(crate) fn sync(folders: &BTreeSet<PathBuf>) {
    let parents: BTreeSet<_> = folders
        .iter()
        .filter_map(|folder| folder.parent())
        .collect();
    let paths = folders
        .iter()
        .flat_map(|folder| [folder.join(NAME), folder.clone()])
        .chain(parents.into_iter().map(Path::to_owned));
    for path in paths {
        match File::open(&path).and_then(|file| file.sync_all()) {
            Ok(()) => {}
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a record may be lost with the power");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_written_within_a_moment_is_brought_to_the_disk_in_one_turn() {
        let records = RecordSync::default();
        for folder in ["/a", "/b", "/a"] {
            records.add(folder.into());
        }
        let expected = BTreeSet::from(["/a", "/b"].map(PathBuf::from));
        assert_eq!(records.next().await, expected);
        records.add("/c".into());
        assert_eq!(records.next().await, BTreeSet::from(["/c".into()]));
    }

    #[test]
    fn a_record_that_is_gone_holds_up_no_other() {
        let home = tempfile::tempdir().unwrap();
        let kept = home.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join(NAME), "x").unwrap();
        sync(&BTreeSet::from([home.path().join("gone"), kept]));
    }
}
