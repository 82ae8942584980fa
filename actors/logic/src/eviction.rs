//! Which pod has to go when the node runs short of memory or process ids.
//!
//! Four steps, each a function: [`thresholds_met`] compares what is left with what must be,
//! [`rank`] says which pod would go first and why, [`message`] says it to the pod's owner, and
//! [`decide`] puts them together with the time that has passed. At most one pod goes at a time: the
//! next sample shows whether it was enough. Mirrors upstream's eviction/{eviction_manager,helpers}.go at
//! v1.36.
//!
//! **Invariant:** a static, mirror or system-critical pod is never chosen.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::types::{Failure, PodUid};

/// What can run short; the order is the order in which shortages are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Signal {
    MemoryAvailable,
    PidAvailable,
}

impl Signal {
    pub fn resource(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory",
            Self::PidAvailable => "pids",
        }
    }

    pub fn node_condition(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "MemoryPressure",
            Self::PidAvailable => "PIDPressure",
        }
    }

    /// An amount as upstream prints it: memory by 1024, process ids by 1000.
    fn amount(self, mut value: u64) -> String {
        let (base, units) = match self {
            Self::MemoryAvailable => (1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi"]),
            Self::PidAvailable => (1000, ["", "k", "M", "G", "T", "P"]),
        };
        let mut unit = 0;
        while value != 0 && value.is_multiple_of(base) && unit + 1 < units.len() {
            (value, unit) = (value / base, unit + 1);
        }
        format!("{value}{}", units[unit])
    }
}

/// How much: so many, or a part of what the node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Limit {
    Amount(u64),
    PerMillion(u32),
}

impl Limit {
    fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Amount(amount) => amount,
            Self::PerMillion(part) => {
                let share = u128::from(capacity) * u128::from(part) / 1_000_000;
                u64::try_from(share).unwrap_or(u64::MAX)
            }
        }
    }
}

/// What must be left, and for how long it may not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Threshold {
    pub signal: Signal,
    /// Nought makes the threshold a hard one.
    pub grace: Duration,
    pub limit: Limit,
    /// Once met, so much more must be left before it counts as resolved.
    pub min_reclaim: Limit,
}

/// Eviction's own section of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub thresholds: BTreeSet<Threshold>,
    /// The longest grace that a pod gets at a soft threshold.
    pub max_pod_grace: Duration,
    /// How long the node stays under pressure after the last time it was.
    pub pressure_transition: Duration,
}

/// One look at what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    pub capacity: u64,
    pub available: u64,
    /// When the sample was taken: no pod is evicted twice for one sample.
    pub sampled_at: Timestamp,
}

pub type Observations = BTreeMap<Signal, Observation>;

/// What has to be remembered from one decision to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub first_met: BTreeMap<Threshold, Timestamp>,
    pub pressure_seen: BTreeMap<Signal, Timestamp>,
    /// Thresholds whose grace has passed, and that are not resolved yet.
    pub unresolved: BTreeSet<Threshold>,
    pub sampled_at: BTreeMap<Signal, Timestamp>,
}

/// Whether a pod may be chosen at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Standing {
    Evictable,
    /// Static, mirror, or of a system-critical priority ([`crate::pod::PodView::is_critical`]).
    Critical,
}

/// What one pod asks for and takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodUsage {
    pub uid: PodUid,
    pub standing: Standing,
    pub priority: i32,
    pub termination_grace: Option<Duration>,
    /// The memory that the whole pod asks for.
    pub memory_request: u64,
    /// None where nobody has measured the pod.
    pub used: Option<Used>,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    pub memory: u64,
    pub pids: u64,
    pub containers: Vec<ContainerUsage>,
}

/// One container's share, for the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerUsage {
    pub name: String,
    pub memory: u64,
    pub memory_request: u64,
}

/// All pods, first to go first, and those that stay whatever happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranking {
    pub victims: Vec<Ranked>,
    pub spared: Vec<Ranked>,
}

/// A pod and the reason for its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranked {
    pub uid: PodUid,
    pub why: String,
}

/// The pod that has to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    pub uid: PodUid,
    pub threshold: Threshold,
    pub grace: Duration,
    pub failure: Failure,
}

/// What to do now, what to report, and what to remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub evict: Option<Eviction>,
    /// The node is under pressure of these.
    pub pressures: BTreeSet<Signal>,
    /// Present when something has to go, even if nothing can.
    pub ranking: Option<Ranking>,
    pub memory: Memory,
}

/// The grace of a pod evicted at a hard threshold.
pub const HARD_GRACE: Duration = Duration::from_secs(1);
/// The reason of an evicted pod's status.
pub const REASON: &str = "Evicted";

/// Decides whether a pod has to go, and which.
pub fn decide(
    now: Timestamp,
    policy: &Policy,
    before: &Memory,
    observations: &Observations,
    pods: &[PodUsage],
) -> Decision {
    let memory = remember(now, policy, before, observations);
    let fresh = |signal: Signal| {
        let sampled_at = observations.get(&signal).map(|o| o.sampled_at);
        sampled_at > before.sampled_at.get(&signal).copied()
    };
    let due = memory.unresolved.iter().find(|t| fresh(t.signal)).copied();
    let ranking = due.map(|threshold| rank(threshold.signal, pods));
    let evict = due.zip(ranking.as_ref()).and_then(|(threshold, ranking)| {
        let first = ranking.victims.first()?;
        let pod = pods.iter().find(|pod| pod.uid == first.uid)?;
        Some(Eviction {
            uid: pod.uid.clone(),
            threshold,
            grace: grace(policy, &threshold, pod),
            failure: Failure {
                reason: REASON.to_owned(),
                message: message(&threshold, observations, pod),
            },
        })
    });
    let pressures = memory.pressure_seen.keys().copied().collect();
    let decision = Decision { evict, pressures, ranking, memory };
    debug_assert!(decision.spares_the_critical(pods));
    decision
}

impl Decision {
    fn spares_the_critical(&self, pods: &[PodUsage]) -> bool {
        let critical = |uid: &PodUid| {
            let pod = pods.iter().find(|pod| pod.uid == *uid);
            pod.is_none_or(|pod| pod.standing == Standing::Critical)
        };
        self.evict.as_ref().is_none_or(|evict| !critical(&evict.uid))
    }
}

/// The thresholds with too little left; with `Reclaim::Enforced`, too little to call it resolved.
pub fn thresholds_met(
    thresholds: &BTreeSet<Threshold>,
    observations: &Observations,
    reclaim: Reclaim,
) -> BTreeSet<Threshold> {
    let is_met = |threshold: &&Threshold| {
        let Some(observed) = observations.get(&threshold.signal) else {
            return false;
        };
        let needed = threshold.limit.of(observed.capacity);
        let more = match reclaim {
            Reclaim::Enforced => threshold.min_reclaim.of(observed.capacity),
            Reclaim::Ignored => 0,
        };
        observed.available < needed.saturating_add(more)
    };
    thresholds.iter().filter(is_met).copied().collect()
}

/// Whether the minimum reclaim counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    Ignored,
    Enforced,
}

/// Carries the past over: since when, until when, and what is still open.
fn remember(now: Timestamp, policy: &Policy, before: &Memory, observations: &Observations) -> Memory {
    let mut met = thresholds_met(&policy.thresholds, observations, Reclaim::Ignored);
    met.extend(thresholds_met(&before.unresolved, observations, Reclaim::Enforced));

    let since = |threshold: &Threshold| before.first_met.get(threshold).copied().unwrap_or(now);
    let first_met: BTreeMap<_, _> = met.iter().map(|t| (*t, since(t))).collect();
    let mut pressure_seen = before.pressure_seen.clone();
    pressure_seen.extend(met.iter().map(|threshold| (threshold.signal, now)));
    pressure_seen.retain(|_, seen| !has_passed(policy.pressure_transition, *seen, now));
    // Even where the transition takes no time: what is met now is pressure now.
    pressure_seen.extend(met.iter().map(|threshold| (threshold.signal, now)));
    let overdue = |(threshold, since): &(&Threshold, &Timestamp)| has_passed(threshold.grace, **since, now);
    Memory {
        unresolved: first_met.iter().filter(overdue).map(|(t, _)| *t).collect(),
        first_met,
        pressure_seen,
        sampled_at: observations.iter().map(|(signal, o)| (*signal, o.sampled_at)).collect(),
    }
}

fn has_passed(period: Duration, since: Timestamp, now: Timestamp) -> bool {
    let period = SignedDuration::try_from(period).unwrap_or(SignedDuration::MAX);
    now.duration_since(since) >= period
}

/// Orders the pods, first to go first.
///
/// Short of memory: unmeasured pods, then pods above their request; among equals the lower priority,
/// then the larger excess. Short of process ids: the lower priority, then the larger count.
pub fn rank(signal: Signal, pods: &[PodUsage]) -> Ranking {
    let mut ordered: Vec<_> = pods.iter().collect();
    ordered.sort_by_cached_key(|pod| (place(signal, pod), pod.uid.clone()));
    let (spared, victims): (Vec<_>, Vec<_>) = ordered.into_iter().partition(|pod| pod.standing == Standing::Critical);
    let ranked = |list: Vec<&PodUsage>| list.into_iter().map(|pod| why(signal, pod)).collect();
    Ranking { victims: ranked(victims), spared: ranked(spared) }
}

/// Smaller goes earlier: measured or not, within its request or above, priority, how far above.
fn place(signal: Signal, pod: &PodUsage) -> (bool, bool, i32, bool, Reverse<i128>) {
    let measured = pod.used.is_some();
    let excess = excess(signal, pod);
    match signal {
        Signal::MemoryAvailable => (measured, excess <= 0, pod.priority, measured, Reverse(excess)),
        Signal::PidAvailable => (false, false, pod.priority, measured, Reverse(excess)),
    }
}

/// What the pod takes beyond what it asked for; nobody can ask for process ids.
fn excess(signal: Signal, pod: &PodUsage) -> i128 {
    let Some(used) = &pod.used else { return 0 };
    match signal {
        Signal::MemoryAvailable => i128::from(used.memory) - i128::from(pod.memory_request),
        Signal::PidAvailable => i128::from(used.pids),
    }
}

fn why(signal: Signal, pod: &PodUsage) -> Ranked {
    let priority = pod.priority;
    let why = match (&pod.used, signal) {
        _ if pod.standing == Standing::Critical => "critical pods are never evicted".to_owned(),
        (None, _) => format!("nothing is known of its usage, priority {priority}"),
        (Some(used), Signal::MemoryAvailable) => {
            let relation = if excess(signal, pod) > 0 { "exceeds" } else { "is within" };
            let (used, request) = (signal.amount(used.memory), signal.amount(pod.memory_request));
            format!("memory {used} {relation} its request {request}, priority {priority}")
        }
        (Some(used), Signal::PidAvailable) => format!("{} processes, priority {priority}", used.pids),
    };
    Ranked { uid: pod.uid.clone(), why }
}

/// Hard thresholds leave a second, soft ones as long as the pod's own grace and the policy allow.
fn grace(policy: &Policy, threshold: &Threshold, pod: &PodUsage) -> Duration {
    if threshold.grace.is_zero() {
        return HARD_GRACE;
    }
    let own = pod.termination_grace.unwrap_or(policy.max_pod_grace);
    own.min(policy.max_pod_grace)
}

/// Tells the pod's owner what ran short, and which containers took more than they asked for.
pub fn message(threshold: &Threshold, observations: &Observations, pod: &PodUsage) -> String {
    let signal = threshold.signal;
    let resource = signal.resource();
    let mut text = format!("The node was low on resource: {resource}. ");
    if let Some(observed) = observations.get(&signal) {
        let needed = signal.amount(threshold.limit.of(observed.capacity));
        let available = signal.amount(observed.available);
        text += &format!("Threshold quantity: {needed}, available: {available}. ");
    }
    let containers = pod.used.iter().flat_map(|used| &used.containers);
    for container in containers.filter(|_| signal == Signal::MemoryAvailable) {
        if container.memory > container.memory_request {
            let (used, request) = (signal.amount(container.memory), signal.amount(container.memory_request));
            let name = &container.name;
            text += &format!(
                "Container {name} was using {used}, request is {request}, has larger consumption of {resource}. "
            );
        }
    }
    text
}

#[cfg(test)]
mod tests;
