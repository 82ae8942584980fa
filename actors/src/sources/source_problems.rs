//! What is wrong with a source, told to the operator once a change and not at every look.

use std::collections::BTreeSet;
use std::time::SystemTime;

use cluster::events::{EventType, InvolvedObject, Recorder};
use jiff::Timestamp;

/// The reason of the event about a manifest that does not run. Upstream only logs.
const INVALID: &str = "InvalidManifest";

/// One thing that is wrong; an equal one is the same thing seen again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SourceProblem {
    /// Something does not run; of which version of its file.
    Refused { text: String, version: u64 },
    /// It runs, but not quite as it is written.
    Doubtful { text: String, version: u64 },
}

/// Everything that is wrong now.
#[derive(Debug)]
pub(super) struct SourceProblems {
    recorder: Recorder,
    node: InvolvedObject,

    told: BTreeSet<SourceProblem>,
}

impl SourceProblems {
    pub(super) fn new(recorder: Recorder, node_name: &str) -> Self {
        let node = InvolvedObject::node(node_name);
        SourceProblems {
            recorder,
            node,
            told: BTreeSet::new(),
        }
    }

    /// Tells what is new among everything that is wrong now.
    pub(super) fn tell(&mut self, now: SystemTime, all: BTreeSet<SourceProblem>) {
        let at = Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH);
        for complaint in all.difference(&self.told) {
            match complaint {
                SourceProblem::Refused { text, .. } => {
                    tracing::error!("{text}");
                    let node = self.node.clone();
                    self.recorder
                        .record(at, EventType::Warning, node, INVALID, text.clone());
                }
                SourceProblem::Doubtful { text, .. } => tracing::warn!("{text}"),
            }
        }
        self.told = all;
    }
}
