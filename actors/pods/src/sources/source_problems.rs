//! A source's problems, reported to the operator when they change and not at every reading.
//!
//! The pod manager gets the refused manifests as well, for `oxctl pods` and `oxctl why`: an event is gone some day.

use std::collections::BTreeSet;
use std::time::SystemTime;

use kernel::Addr;
use logic_pods::probes::messages;
use state::events::{EventType, InvolvedObject, Recorder, UNKNOWN_FIELDS};

use crate::pod_manager::{self, PodSource, RefusedManifests};

/// The reason of the event about a manifest that does not run. Upstream only logs.
const INVALID: &str = "InvalidManifest";

/// Bytes of one problem's text that the pod manager keeps.
const MAX_PROBLEM_BYTES: usize = 4 << 10;
/// The refused manifests of a source that the pod manager keeps.
const MAX_REFUSED: usize = 256;

/// One problem; an equal one is the same problem again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SourceProblem {
    /// A manifest or pod does not run; `version` is its file's.
    Refused {
        /// The file's path or the URL.
        manifest: String,
        why: String,
        version: u64,
    },
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
    source: PodSource,
    recorder: Recorder,
    pod_manager: Addr<pod_manager::Msg>,
    node: InvolvedObject,

    told: BTreeSet<SourceProblem>,
}

impl SourceProblems {
    pub(super) fn new(
        source: PodSource,
        recorder: Recorder,
        pod_manager: Addr<pod_manager::Msg>,
        node_name: &str,
    ) -> Self {
        let node = InvolvedObject::node(node_name);
        SourceProblems {
            source,
            recorder,
            pod_manager,
            node,
            told: BTreeSet::new(),
        }
    }

    /// Reports the problems in `all` that are new.
    pub(super) fn tell(&mut self, now: SystemTime, all: BTreeSet<SourceProblem>) {
        let at = kernel::timestamp_of(now);
        for complaint in all.difference(&self.told) {
            match complaint {
                SourceProblem::Refused { manifest, why, .. } => {
                    let text = format!("{manifest}: {why}");
                    tracing::error!("{text}");
                    let node = self.node.clone();
                    self.recorder
                        .record(at, EventType::Warning, node, INVALID, text);
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
        let before = std::mem::replace(&mut self.told, all);
        let refused = refused(&self.told);
        // Each time while there are some: a restarted pod manager knows of none.
        if !refused.is_empty() || !self::refused(&before).is_empty() {
            let set = pod_manager::Msg::SetRefused {
                source: self.source,
                manifests: refused,
            };
            if let Err(full) = self.pod_manager.tell(set) {
                tracing::warn!("refused manifests are shown after the next reading: {full}");
            }
        }
    }
}

fn refused(problems: &BTreeSet<SourceProblem>) -> RefusedManifests {
    let mut refused = RefusedManifests::new();
    for problem in problems {
        let SourceProblem::Refused { manifest, why, .. } = problem else {
            continue;
        };
        if refused.len() < MAX_REFUSED || refused.contains_key(manifest) {
            let why = messages::truncate(why.clone(), MAX_PROBLEM_BYTES);
            refused.entry(manifest.clone()).or_default().push(why);
        }
    }
    refused
}
