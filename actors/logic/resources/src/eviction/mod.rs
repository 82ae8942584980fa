//! Which pod is evicted when the node is short of memory, disk or process ids, or when a pod takes more of the disk
//! than it may.
//!
//! [`observe()`] says what is left, [`crate::thresholds`] which signals are under pressure, [`rank()`] which pod would be
//! evicted first and why, [`message()`] is the pod's event. [`assess`] puts the first steps together: what is to be done;
//! [`choose`] names the pod, once the node itself has given back what it could. At most one pod is evicted at a time for
//! a shortage: the next sample shows whether it was enough. Mirrors upstream's eviction/{eviction_manager,helpers}.go at
//! v1.36.
//!
//! **Invariant:** a static, mirror or system-critical pod is never chosen.

mod layout;
mod limits;
mod message;
mod observe;
mod rank;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

pub use layout::{FsDevices, FsLayout, NodeReclaim};
pub use limits::{LimitBreach, StorageLimit, breach, is_limited};
use logic_api::types::{PodFailure, PodUid};
pub use message::{annotations, message};
pub use observe::{notify_at, observe};
pub use rank::{PodRanking, RankedPod, rank};
use serde::{Deserialize, Serialize};
pub use usage::{ContainerUsage, DiskAmount, MeasuredUsage, PodRequests, PodUsage};

use crate::thresholds::{
    self, Observations, Reclaim, Signal, Threshold, ThresholdState, thresholds_met,
    with_container_fs,
};

/// Eviction's own section of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionPolicy {
    /// The thresholds, and how long a pressure lasts.
    pub pressure: thresholds::ThresholdPolicy,
    /// The longest grace that a pod gets at a soft threshold.
    pub max_pod_grace: Duration,
    /// Whether limits of local storage are kept: `localStorageCapacityIsolation`.
    pub storage_limits: StorageLimitPolicy,
    /// Whether the kernel is asked to tell when memory runs short: `kernelMemcgNotification`.
    pub notification: MemoryNotification,
}

/// Whether pods are measured against their limits of local storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageLimitPolicy {
    #[default]
    Kept,
    Ignored,
}

/// Whether the kernel tells of memory that runs short between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryNotification {
    #[default]
    Off,
    On,
}

impl EvictionPolicy {
    /// Whether there is nothing to look for.
    pub fn is_idle(&self) -> bool {
        self.pressure.thresholds.is_empty() && self.storage_limits == StorageLimitPolicy::Ignored
    }

    /// The policy with the thresholds that follow from where the runtime keeps what it has.
    #[must_use]
    pub fn on(&self, layout: FsLayout) -> EvictionPolicy {
        let mut policy = self.clone();
        policy.pressure.thresholds = with_container_fs(&self.pressure.thresholds, layout).0;
        policy
    }
}

/// Whether a pod may be chosen at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EvictionClass {
    Evictable,
    /// Static, mirror, or of a system-critical priority ([`logic_api::pod::PodView::is_critical`]).
    Critical,
}

/// The pod to evict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictedPod {
    pub uid: PodUid,
    pub cause: EvictionCause,
    /// The time that the pod gets.
    pub grace: Duration,
    /// The status that it fails with.
    pub failure: PodFailure,
}

/// Why a pod is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionCause {
    /// The node is short of this.
    Shortage(Threshold),
    /// The pod takes more than this allows.
    Limit(StorageLimit),
}

impl EvictionCause {
    /// The value of the label `eviction_signal`.
    pub fn signal(&self) -> &'static str {
        match self {
            Self::Shortage(threshold) => threshold.signal.name(),
            Self::Limit(limit) => limit.signal(),
        }
    }
}

/// What one sample of the node and its pods comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// Pods above their limits of local storage: all of them go, and nobody else in this round, as upstream.
    pub over_limit: Vec<EvictedPod>,
    /// The shortage to act upon; none in a round in which pods go for their limits.
    pub shortage: Option<Threshold>,
    /// All whose grace is over and whose figures are new: those whose samples' age is measured.
    pub due: BTreeSet<Threshold>,
    /// The node is under pressure of these.
    pub pressures: BTreeSet<Signal>,
    /// For the next round.
    pub state: ThresholdState,
}

/// The grace of a pod evicted at a hard threshold, or for a limit.
pub const HARD_GRACE: Duration = Duration::from_secs(1);
/// The reason of an evicted pod's status.
pub const REASON: &str = "Evicted";

/// Decides what is to be done about a sample. `policy` is the one of the layout ([`EvictionPolicy::on`]); what is in
/// `leaving` was evicted before.
pub fn assess(
    now: Instant,
    policy: &EvictionPolicy,
    before: &ThresholdState,
    (observations, pods): (&Observations, &[PodUsage]),
    leaving: &BTreeSet<PodUid>,
) -> Assessment {
    let state = before.after(now, &policy.pressure, observations);
    let is_news = |threshold: &&Threshold| before.is_news(threshold.signal, observations);
    let due: BTreeSet<Threshold> = state.unresolved.iter().filter(is_news).copied().collect();
    let over_limit: Vec<EvictedPod> = match policy.storage_limits {
        StorageLimitPolicy::Kept => {
            let staying = pods.iter().filter(|pod| !leaving.contains(&pod.uid));
            staying.filter_map(over_limit).collect()
        }
        StorageLimitPolicy::Ignored => Vec::new(),
    };
    Assessment {
        shortage: due.first().filter(|_| over_limit.is_empty()).copied(),
        over_limit,
        pressures: state.pressure_seen.keys().copied().collect(),
        due,
        state,
    }
}

fn over_limit(pod: &PodUsage) -> Option<EvictedPod> {
    let breach = pod.breach.as_ref()?;
    (pod.standing == EvictionClass::Evictable).then(|| EvictedPod {
        uid: pod.uid.clone(),
        cause: EvictionCause::Limit(breach.kind),
        grace: HARD_GRACE,
        failure: PodFailure {
            reason: REASON.to_owned(),
            message: breach.message.clone(),
            // As upstream: the pod ends by its own doing.
            disruption: None,
            ..PodFailure::default()
        },
    })
}

/// Whether every threshold is above its reclaim again, whatever its grace: then no pod needs to go.
pub fn is_relieved(policy: &EvictionPolicy, observations: &Observations) -> bool {
    thresholds_met(&policy.pressure.thresholds, observations, Reclaim::Enforced).is_empty()
}

/// The pod to evict for a shortage, and all pods in their order; no pod where each is critical or in `leaving`: those
/// evicted before whose containers do not end, which shield nobody else.
pub fn choose(
    policy: &EvictionPolicy,
    shortage: Threshold,
    layout: FsLayout,
    (observations, pods): (&Observations, &[PodUsage]),
    leaving: &BTreeSet<PodUid>,
) -> (Option<EvictedPod>, PodRanking) {
    let ranking = rank(shortage.signal, layout, pods);
    let mut victims = ranking.victims.iter();
    let first = victims.find(|victim| !leaving.contains(&victim.uid));
    let pod = first.and_then(|first| pods.iter().find(|pod| pod.uid == first.uid));
    let evicted = pod.map(|pod| {
        let message = message(&shortage, observations, pod);
        EvictedPod {
            uid: pod.uid.clone(),
            cause: EvictionCause::Shortage(shortage),
            grace: grace(policy, &shortage, pod),
            failure: PodFailure {
                reason: REASON.to_owned(),
                detail: None,
                disruption: Some(message.clone()),
                message,
                annotations: annotations(&shortage, pod),
            },
        }
    });
    debug_assert!(
        pod.is_none_or(|pod| pod.standing == EvictionClass::Evictable),
        "a critical pod is spared"
    );
    (evicted, ranking)
}

/// Hard thresholds leave a second, soft ones as long as the pod's own grace and the policy allow.
fn grace(policy: &EvictionPolicy, threshold: &Threshold, pod: &PodUsage) -> Duration {
    if threshold.is_hard() {
        return HARD_GRACE;
    }
    let own = pod.termination_grace.unwrap_or(policy.max_pod_grace);
    own.min(policy.max_pod_grace)
}
