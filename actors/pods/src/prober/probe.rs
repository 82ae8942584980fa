//! One probe of one container instance.

use std::time::Instant;

use kernel::{TaskId, TimerId};
use logic_api::types::{ContainerId, PodUid};
use logic_pods::probes::ProbeKind;
use logic_pods::probes::result::ResultRun;

/// The id of a probe, unique in one life of the prober.
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
    /// When the next attempt is due, or the last one was; none before the first.
    pub(super) at: Option<Instant>,
    /// The multiple of the period that the attempt stands for.
    pub(super) beat: Option<Instant>,
    pub(super) streak: ResultRun,
    pub(super) work: ProbeState,
}

/// The state of a probe.
#[derive(Debug)]
pub(super) enum ProbeState {
    /// Waits for its next attempt, or has no more to make.
    Idle,
    /// Due, and queued for a slot of the exec limit.
    Queued,
    Running {
        task: TaskId,
        /// Of an exec probe: the timer after which it gives up its slot.
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
