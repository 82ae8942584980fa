//! One probe of one container instance.

use std::time::Instant;

use kernel::{TaskId, TimerId};
use logic_api::types::{ContainerId, PodUid};
use logic_pods::probes::ProbeKind;
use logic_pods::probes::result::ResultRun;

/// Names a probe; never given twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeId(u64);

impl ProbeId {
    pub(super) fn next(self) -> Self {
        ProbeId(self.0 + 1)
    }
}

#[derive(Debug)]
pub(super) struct ProbeWorker {
    pub(super) pod: PodUid,
    pub(super) container: String,
    pub(super) instance: ContainerId,
    pub(super) kind: ProbeKind,
    /// When the turn was or is; none before the first one.
    pub(super) at: Option<Instant>,
    /// The beat of the period that the turn stands for.
    pub(super) beat: Option<Instant>,
    pub(super) streak: ResultRun,
    pub(super) work: ProbeState,
}

/// What a probe is doing.
#[derive(Debug)]
pub(super) enum ProbeState {
    /// Waits for its turn, or rests for good.
    Idle,
    /// Its turn has come; it waits for a place below the limit of execs.
    Queued,
    Running {
        task: TaskId,
        /// Of an exec: when it is taken for one that takes long.
        patience: Option<TimerId>,
    },
}

impl ProbeWorker {
    pub(super) fn new(
        pod: &PodUid,
        container: &str,
        instance: &ContainerId,
        kind: ProbeKind,
    ) -> Self {
        ProbeWorker {
            pod: pod.clone(),
            container: container.to_owned(),
            instance: instance.clone(),
            kind,
            at: None,
            beat: None,
            streak: ResultRun::default(),
            work: ProbeState::Idle,
        }
    }
}
