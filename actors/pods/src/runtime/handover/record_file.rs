//! The record on disk, twice: a runtime that a damaged file has forgotten would run its pods beside the next one's.

use std::path::{Path, PathBuf};

use kernel::checkpoint::{CheckpointError, CheckpointFile, LoadOutcome, Schema};

use super::record::RuntimeRecord;

const SCHEMA: Schema = Schema {
    kind: 2,
    version: 1,
};

/// The record's two files, `runtime.checkpoint` and `runtime-copy.checkpoint`.
///
/// The copy is at most one step of a hand-over behind. Going on from there ends what has ended, and swaps what is swapped.
#[derive(Debug, Clone)]
pub struct RecordFile {
    paths: [PathBuf; 2],
}

/// What [`RecordFile::load`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundRecord {
    /// A first start.
    None,
    Record(Box<RuntimeRecord>),
    /// No copy is left that can be read. Says why, and where the damaged files are now.
    Lost(String),
}

impl RecordFile {
    /// `folder` is the agent's own.
    pub fn new(folder: &Path) -> RecordFile {
        RecordFile {
            paths: ["runtime.checkpoint", "runtime-copy.checkpoint"].map(|name| folder.join(name)),
        }
    }

    /// Reads the newest copy that can be read. Blocking; a damaged file is set aside.
    ///
    /// # Errors
    /// Where a file is there and the disk does not give it.
    pub fn load(&self) -> Result<FoundRecord, CheckpointError> {
        let mut damaged = Vec::new();
        for path in &self.paths {
            match CheckpointFile::new(path.clone(), SCHEMA).load()? {
                LoadOutcome::Found(record) => return Ok(FoundRecord::Record(Box::new(record))),
                LoadOutcome::Fresh => {}
                LoadOutcome::SetAside { moved_to, why } => {
                    damaged.push(format!("{} ({why})", moved_to.display()));
                }
            }
        }
        Ok(match damaged.is_empty() {
            true => FoundRecord::None,
            false => FoundRecord::Lost(damaged.join(", ")),
        })
    }

    /// Has it on the disk, in both files. Blocking.
    ///
    /// # Errors
    /// Where a file could not be written; the first of the two may hold it all the same.
    pub fn save(&self, record: &RuntimeRecord) -> Result<(), CheckpointError> {
        for path in &self.paths {
            CheckpointFile::new(path.clone(), SCHEMA).save(record)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use plugin_host::{Declaration, LaunchMethod, ServiceKind};

    use super::super::record::RuntimeChoice;
    use super::*;

    fn record(name: &str) -> RuntimeRecord {
        let endpoint = LaunchMethod::External {
            endpoint: name.into(),
        };
        let declared = Declaration::new("runtime", ServiceKind::Runtime, endpoint);
        let choice = RuntimeChoice::of(name, &declared);
        RuntimeRecord::at_start(None, choice)
    }

    #[test]
    fn a_damaged_record_does_not_forget_the_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let file = RecordFile::new(folder.path());
        assert_eq!(file.load().unwrap(), FoundRecord::None);
        file.save(&record("old")).unwrap();
        file.save(&record("new")).unwrap();

        let [first, copy] = ["runtime.checkpoint", "runtime-copy.checkpoint"];
        for damaged in [first, copy] {
            fs::write(folder.path().join(damaged), "nonsense").unwrap();
            let found = file.load().unwrap();
            assert_eq!(
                found,
                FoundRecord::Record(record("new").into()),
                "{damaged}"
            );
            file.save(&record("new")).unwrap();
        }

        fs::remove_file(folder.path().join(copy)).unwrap();
        fs::write(folder.path().join(first), "nonsense").unwrap();
        let FoundRecord::Lost(why) = file.load().unwrap() else {
            panic!("nothing can be read");
        };
        assert!(why.contains("runtime.checkpoint"), "{why}");
    }
}
