//! A source's problems, reported to the operator when they change and not at every reading.

use std::collections::BTreeSet;
use std::time::SystemTime;

use state::events::{EventType, InvolvedObject, Recorder, UNKNOWN_FIELDS};

/// The reason of the event about a manifest that does not run. Upstream only logs.
const INVALID: &str = "InvalidManifest";

/// One problem; an equal one is the same problem again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SourceProblem {
    /// A manifest or pod does not run; `version` is its file's.
    Refused { text: String, version: u64 },
    /// The pod runs, but not exactly as written.
    Doubtful {
        text: String,
        version: u64,
        /// None where it is about the whole manifest.
        pod: Option<InvolvedObject>,
    },
}

/// All current problems of a source.
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

    /// Reports the problems in `all` that are new.
    pub(super) fn tell(&mut self, now: SystemTime, all: BTreeSet<SourceProblem>) {
        let at = kernel::timestamp_of(now);
        for complaint in all.difference(&self.told) {
            match complaint {
                SourceProblem::Refused { text, .. } => {
                    tracing::error!("{text}");
                    let node = self.node.clone();
                    self.recorder
                        .record(at, EventType::Warning, node, INVALID, text.clone());
                }
                SourceProblem::Doubtful { text, pod, .. } => {
                    tracing::warn!("{text}");
                    let about = pod.as_ref().unwrap_or(&self.node).clone();
                    self.recorder.record(
                        at,
                        EventType::Warning,
                        about,
                        UNKNOWN_FIELDS,
                        text.clone(),
                    );
                }
            }
        }
        self.told = all;
    }
}
