//! What is remembered of one file between two readings.

use kernel::error_chain;
use logic_api::objects::StaticObjects;

use super::folder_reader::FileReading;
use crate::folder::Stamp;

/// The objects of one file, and its version.
#[derive(Debug, Default)]
pub(super) struct ManifestFile {
    /// The version that needs no second reading.
    pub(super) stamp: Option<Stamp>,
    /// The file's objects; if it is bad or being written, also the ones of before.
    pub(super) objects: StaticObjects,
    pub(super) problems: Vec<String>,
    /// Read while it was perhaps being written: it is read again before an error is reported.
    pub(super) settled: bool,
}

impl ManifestFile {
    /// What is held after this reading.
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
                    problems: problems
                        .into_iter()
                        .map(|problem| error_chain(&problem))
                        .collect(),
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
                self.problems = vec![error_chain(&refused)];
                self
            }
        }
    }

    fn keep(&mut self, mut before: StaticObjects) {
        before.refused.clear();
        drop(self.objects.merge(before));
    }
}
