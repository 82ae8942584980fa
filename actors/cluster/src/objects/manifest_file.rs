//! What is remembered of one file between two readings.

use logic_api::objects::StaticObjects;

use super::folder_reader::FileReading;
use crate::folder::Stamp;

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct ManifestFile {
    /// The version that needs no second reading.
    pub(super) stamp: Option<Stamp>,
    /// What it holds now, and if it is bad or being written, also what it held before.
    pub(super) objects: StaticObjects,
    pub(super) problems: Vec<String>,
    /// It was read while it was perhaps being written: it is read again before anybody complains.
    pub(super) settled: bool,
}

impl ManifestFile {
    /// What is held after this look at the file.
    pub(super) fn after(mut self, look: FileReading) -> ManifestFile {
        match look {
            FileReading::Unchanged => self,
            FileReading::Read {
                stamp,
                objects,
                problems,
            } => {
                let mut next = ManifestFile {
                    stamp,
                    objects: *objects,
                    problems: problems.into_iter().map(sentence).collect(),
                    settled: stamp.is_some(),
                };
                if !next.problems.is_empty() || !next.settled {
                    next.keep(self.objects);
                }
                next
            }
            FileReading::Refused(refused) => {
                self.stamp = None;
                self.settled = true;
                self.problems = vec![sentence(refused)];
                self
            }
        }
    }

    fn keep(&mut self, mut before: StaticObjects) {
        before.refused.clear();
        drop(self.objects.merge(before));
    }
}

pub(super) fn sentence(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}
