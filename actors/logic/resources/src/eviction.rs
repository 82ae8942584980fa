//! Which pod is evicted when the node is short of memory or process ids.
//!
//! [`crate::thresholds`] decides which signals are under pressure, [`rank`] which pod would be evicted first and why,
//! [`message`] is the pod's event, and [`decide`] puts them together. At most one pod is evicted at a time: the next
//! sample shows whether it was enough. Mirrors upstream's eviction/{eviction_manager,helpers}.go at v1.36.
//!
//! **Invariant:** a static, mirror or system-critical pod is never chosen.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use logic_api::types::{PodFailure, PodUid};
use serde::{Deserialize, Serialize};

use crate::thresholds::{self, Observations, Signal, Threshold, ThresholdState};

/// Eviction's own section of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionPolicy {
    /// The thresholds, and how long a pressure lasts.
    pub pressure: thresholds::ThresholdPolicy,
    /// The longest grace that a pod gets at a soft threshold.
    pub max_pod_grace: Duration,
}

/// Whether a pod may be chosen at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EvictionClass {
    Evictable,
    /// Static, mirror, or of a system-critical priority ([`logic_api::pod::PodView::is_critical`]).
    Critical,
}

/// One pod's requests and usage, for the ranking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodUsage {
    pub uid: PodUid,
    /// Whether the pod may be evicted.
    pub standing: EvictionClass,
    /// Lower ones go first.
    pub priority: i32,
    /// The pod's own; none for upstream's 30 s.
    pub termination_grace: Option<Duration>,
    /// The whole pod's memory request in bytes.
    pub memory_request: u64,
    /// None where the pod has not been measured.
    pub used: Option<MeasuredUsage>,
}

/// A pod's measured usage: memory in bytes, and the number of process ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredUsage {
    /// Bytes of working set.
    pub memory: u64,
    /// Processes.
    pub pids: u64,
    pub containers: Vec<ContainerUsage>,
}

/// One container's share, for the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerUsage {
    pub name: String,
    /// Bytes of working set.
    pub memory: u64,
    /// Bytes.
    pub memory_request: u64,
}

/// All pods, the first to evict first, and those that are never evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRanking {
    /// In the order in which they would go.
    pub victims: Vec<RankedPod>,
    /// Pods that are never evicted.
    pub spared: Vec<RankedPod>,
}

/// A pod and the reason for its rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankedPod {
    pub uid: PodUid,
    /// The rank's reason, for the log.
    pub why: String,
}

/// The pod to evict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictedPod {
    pub uid: PodUid,
    /// The threshold that was passed.
    pub threshold: Threshold,
    /// The time that the pod gets.
    pub grace: Duration,
    /// The status that it fails with.
    pub failure: PodFailure,
}

/// The decision of one round: the pod to evict, what to report, and the state for the next round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionDecision {
    /// At most one pod a round, as upstream.
    pub evict: Option<EvictedPod>,
    /// The node is under pressure of these.
    pub pressures: BTreeSet<Signal>,
    /// Present when a pod has to be evicted, even if none can be.
    pub ranking: Option<PodRanking>,
    /// For the next round.
    pub memory: ThresholdState,
}

/// The grace of a pod evicted at a hard threshold.
pub const HARD_GRACE: Duration = Duration::from_secs(1);
/// The reason of an evicted pod's status.
pub const REASON: &str = "Evicted";

/// Decides whether a pod is evicted, and which.
pub fn decide(
    now: Timestamp,
    policy: &EvictionPolicy,
    before: &ThresholdState,
    observations: &Observations,
    pods: &[PodUsage],
) -> EvictionDecision {
    let memory = before.after(now, &policy.pressure, observations);
    let is_news = |threshold: &&Threshold| before.is_news(threshold.signal, observations);
    let due = memory.unresolved.iter().find(is_news).copied();
    let ranking = due.map(|threshold| rank(threshold.signal, pods));
    let evict = due.zip(ranking.as_ref()).and_then(|(threshold, ranking)| {
        let first = ranking.victims.first()?;
        let pod = pods.iter().find(|pod| pod.uid == first.uid)?;
        let message = message(&threshold, observations, pod);
        Some(EvictedPod {
            uid: pod.uid.clone(),
            threshold,
            grace: grace(policy, &threshold, pod),
            failure: PodFailure {
                reason: REASON.to_owned(),
                disruption: Some(message.clone()),
                message,
            },
        })
    });
    let pressures = memory.pressure_seen.keys().copied().collect();
    let decision = EvictionDecision {
        evict,
        pressures,
        ranking,
        memory,
    };
    debug_assert!(decision.spares_the_critical(pods));
    decision
}

impl EvictionDecision {
    fn spares_the_critical(&self, pods: &[PodUsage]) -> bool {
        let critical = |uid: &PodUid| {
            let pod = pods.iter().find(|pod| pod.uid == *uid);
            pod.is_none_or(|pod| pod.standing == EvictionClass::Critical)
        };
        self.evict
            .as_ref()
            .is_none_or(|evict| !critical(&evict.uid))
    }
}

/// Orders the pods, the first to evict first.
///
/// Short of memory: unmeasured pods, then pods above their request; among equals the lower priority,
/// then the larger excess. Short of process ids: the lower priority, then the larger count.
pub fn rank(signal: Signal, pods: &[PodUsage]) -> PodRanking {
    let mut ordered: Vec<_> = pods.iter().collect();
    ordered.sort_by_cached_key(|pod| (place(signal, pod), pod.uid.clone()));
    let (spared, victims): (Vec<_>, Vec<_>) = ordered
        .into_iter()
        .partition(|pod| pod.standing == EvictionClass::Critical);
    let ranked = |list: Vec<&PodUsage>| list.into_iter().map(|pod| why(signal, pod)).collect();
    PodRanking {
        victims: ranked(victims),
        spared: ranked(spared),
    }
}

/// The sort key, smaller is evicted earlier: measured or not, within its request or above, priority, how far above.
fn place(signal: Signal, pod: &PodUsage) -> (bool, bool, i32, bool, Reverse<i128>) {
    let measured = pod.used.is_some();
    let excess = excess(signal, pod);
    match signal {
        Signal::MemoryAvailable => (
            measured,
            excess <= 0,
            pod.priority,
            measured,
            Reverse(excess),
        ),
        Signal::PidAvailable => (false, false, pod.priority, measured, Reverse(excess)),
    }
}

/// The pod's usage beyond its request; process ids have no request.
fn excess(signal: Signal, pod: &PodUsage) -> i128 {
    let Some(used) = &pod.used else { return 0 };
    match signal {
        Signal::MemoryAvailable => i128::from(used.memory) - i128::from(pod.memory_request),
        Signal::PidAvailable => i128::from(used.pids),
    }
}

fn why(signal: Signal, pod: &PodUsage) -> RankedPod {
    let priority = pod.priority;
    let why = match (&pod.used, signal) {
        _ if pod.standing == EvictionClass::Critical => {
            "critical pods are never evicted".to_owned()
        }
        (None, _) => format!("nothing is known of its usage, priority {priority}"),
        (Some(used), Signal::MemoryAvailable) => {
            let relation = if excess(signal, pod) > 0 {
                "exceeds"
            } else {
                "is within"
            };
            let (used, request) = (
                signal.amount(used.memory),
                signal.amount(pod.memory_request),
            );
            format!("memory {used} {relation} its request {request}, priority {priority}")
        }
        (Some(used), Signal::PidAvailable) => {
            format!("{} processes, priority {priority}", used.pids)
        }
    };
    RankedPod {
        uid: pod.uid.clone(),
        why,
    }
}

/// Hard thresholds leave a second, soft ones as long as the pod's own grace and the policy allow.
fn grace(policy: &EvictionPolicy, threshold: &Threshold, pod: &PodUsage) -> Duration {
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
            let (used, request) = (
                signal.amount(container.memory),
                signal.amount(container.memory_request),
            );
            let name = &container.name;
            text += &format!(
                "Container {name} was using {used}, request is {request}, has larger consumption of {resource}. "
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use logic_api::testing::at;
    use proptest::prelude::*;

    use super::*;
    use crate::thresholds::{Observation, ThresholdLimit};

    const MIB: u64 = 1 << 20;

    fn hard(signal: Signal, limit: u64) -> Threshold {
        let (limit, min_reclaim) = (ThresholdLimit::Amount(limit), ThresholdLimit::Amount(0));
        Threshold {
            signal,
            grace: Duration::ZERO,
            limit,
            min_reclaim,
        }
    }

    fn soft(signal: Signal, limit: u64, grace: u64) -> Threshold {
        Threshold {
            grace: Duration::from_secs(grace),
            ..hard(signal, limit)
        }
    }

    fn memory(available: u64, second: i64) -> Observations {
        let sampled_at = at(second);
        let observed = Observation {
            capacity: 1000 * MIB,
            available: available * MIB,
            sampled_at,
        };
        Observations::from([(Signal::MemoryAvailable, observed)])
    }

    /// Request and use in MiB.
    fn pod(name: &str, priority: i32, request: u64, used: u64) -> PodUsage {
        let (request, used) = (request * MIB, used * MIB);
        let container = ContainerUsage {
            name: "main".into(),
            memory: used,
            memory_request: request,
        };
        PodUsage {
            uid: name.into(),
            standing: EvictionClass::Evictable,
            priority,
            termination_grace: Some(Duration::from_secs(30)),
            memory_request: request,
            used: Some(MeasuredUsage {
                memory: used,
                pids: used / MIB,
                containers: vec![container],
            }),
        }
    }

    fn critical(pod: PodUsage) -> PodUsage {
        PodUsage {
            standing: EvictionClass::Critical,
            ..pod
        }
    }

    fn unmeasured(pod: PodUsage) -> PodUsage {
        PodUsage { used: None, ..pod }
    }

    fn order(signal: Signal, pods: &[PodUsage]) -> Vec<String> {
        rank(signal, pods)
            .victims
            .into_iter()
            .map(|victim| victim.uid.to_string())
            .collect()
    }

    fn policy(thresholds: &[Threshold]) -> EvictionPolicy {
        let thresholds = thresholds.iter().copied().collect();
        let transition = Duration::from_secs(300);
        EvictionPolicy {
            pressure: thresholds::ThresholdPolicy {
                thresholds,
                transition,
            },
            max_pod_grace: Duration::from_secs(5),
        }
    }

    /// A node in time: each look decides, and what is to be remembered is.
    struct PressuredNode {
        policy: EvictionPolicy,
        memory: ThresholdState,
        pods: Vec<PodUsage>,
    }

    impl PressuredNode {
        fn new(thresholds: &[Threshold]) -> Self {
            let pods = vec![pod("big", 0, 10, 90), pod("small", 0, 10, 20)];
            Self {
                policy: policy(thresholds),
                memory: ThresholdState::default(),
                pods,
            }
        }

        fn look(&mut self, second: i64, observations: &Observations) -> EvictionDecision {
            let decision = decide(
                at(second),
                &self.policy,
                &self.memory,
                observations,
                &self.pods,
            );
            self.memory = decision.memory.clone();
            decision
        }

        /// The pod chosen and its grace in seconds.
        fn evicts(&mut self, second: i64, available: u64) -> Option<(String, u64)> {
            let evict = self.look(second, &memory(available, second)).evict?;
            Some((evict.uid.to_string(), evict.grace.as_secs()))
        }
    }

    fn chosen(name: &str, grace: u64) -> Option<(String, u64)> {
        Some((name.to_owned(), grace))
    }

    /// Upstream's TestOrderedbyExceedsMemoryPriorityMemory and its smaller sisters.
    #[test]
    fn short_of_memory_the_excess_counts_then_priority_then_how_much() {
        let pods = [
            pod("above-high-priority", 10, 100, 200),
            pod("above-low-priority-little", 1, 100, 150),
            pod("above-low-priority-much", 1, 100, 250),
            pod("within-low-priority", 1, 300, 100),
            pod("within-high-priority", 10, 300, 100),
            pod("at-its-request", 0, 100, 100),
            unmeasured(pod("unmeasured", 100, 0, 0)),
        ];
        let expected = [
            "unmeasured",
            "above-low-priority-much",
            "above-low-priority-little",
            "above-high-priority",
            "at-its-request",
            "within-low-priority",
            "within-high-priority",
        ];
        assert_eq!(order(Signal::MemoryAvailable, &pods), expected);
    }

    /// Upstream's TestOrderedbyPriorityProcess.
    #[test]
    fn short_of_process_ids_the_priority_counts_then_how_many() {
        let pods = [
            pod("high-many", 10, 0, 200),
            pod("low-few", 1, 0, 10),
            pod("low-many", 1, 0, 20),
            unmeasured(pod("low-unmeasured", 1, 0, 0)),
        ];
        let expected = ["low-unmeasured", "low-many", "low-few", "high-many"];
        assert_eq!(order(Signal::PidAvailable, &pods), expected);
    }

    /// Upstream's TestMemoryPressure, in time.
    #[test]
    fn hard_evicts_at_once_soft_after_its_grace_and_pressure_outlasts_both() {
        let mut node = PressuredNode::new(&[
            hard(Signal::MemoryAvailable, 100 * MIB),
            soft(Signal::MemoryAvailable, 200 * MIB, 120),
        ]);
        assert_eq!(node.evicts(0, 500), None);
        assert!(node.memory.pressure_seen.is_empty());

        assert_eq!(node.evicts(10, 150), None, "soft, within its grace");
        assert!(!node.memory.pressure_seen.is_empty());
        assert_eq!(node.evicts(129, 150), None);
        assert_eq!(
            node.evicts(130, 150),
            chosen("big", 5),
            "soft, past its grace"
        );
        assert_eq!(node.evicts(140, 50), chosen("big", 1), "hard");

        assert_eq!(node.evicts(150, 500), None);
        let pressures = |decision: EvictionDecision| decision.pressures.len();
        assert_eq!(
            pressures(node.look(439, &memory(500, 439))),
            1,
            "the transition is not over"
        );
        assert_eq!(pressures(node.look(440, &memory(500, 440))), 0);
    }

    #[test]
    fn a_soft_threshold_left_meanwhile_counts_anew() {
        let mut node = PressuredNode::new(&[soft(Signal::MemoryAvailable, 200 * MIB, 120)]);
        assert_eq!(node.evicts(0, 150), None);
        assert_eq!(node.evicts(60, 500), None);
        assert_eq!(node.evicts(130, 150), None);
        assert_eq!(node.evicts(250, 150), chosen("big", 5));
    }

    /// Upstream's TestMinReclaim.
    #[test]
    fn eviction_goes_on_until_the_minimum_is_reclaimed() {
        let threshold = Threshold {
            min_reclaim: ThresholdLimit::Amount(50 * MIB),
            ..hard(Signal::MemoryAvailable, 100 * MIB)
        };
        let mut node = PressuredNode::new(&[threshold]);
        assert_eq!(node.evicts(0, 120), None);
        assert_eq!(node.evicts(10, 90), chosen("big", 1));
        assert_eq!(node.evicts(20, 120), chosen("big", 1), "not resolved yet");
        assert_eq!(node.evicts(30, 150), None);
        assert_eq!(node.evicts(40, 120), None);
    }

    /// Upstream's TestThresholdsUpdatedStats.
    #[test]
    fn one_sample_evicts_one_pod() {
        let mut node = PressuredNode::new(&[hard(Signal::MemoryAvailable, 100 * MIB)]);
        let sample = memory(50, 0);
        assert!(node.look(0, &sample).evict.is_some());
        assert!(node.look(10, &sample).evict.is_none());
        assert!(node.look(20, &memory(50, 20)).evict.is_some());
    }

    /// Upstream's TestCriticalPodsAreNotEvicted.
    #[test]
    fn a_critical_pod_stays_even_if_nobody_else_can_go() {
        let mut node = PressuredNode::new(&[hard(Signal::MemoryAvailable, 100 * MIB)]);
        node.pods = vec![critical(pod("api", 0, 10, 90))];
        let decision = node.look(0, &memory(50, 0));
        assert_eq!(decision.evict, None);
        let ranking = decision.ranking.unwrap();
        assert_eq!(ranking.spared[0].why, "critical pods are never evicted");
        node.pods.push(pod("web", 1000, 100, 1));
        assert_eq!(node.evicts(10, 50), chosen("web", 1));
    }

    #[test]
    fn memory_comes_before_process_ids() {
        let mut node = PressuredNode::new(&[
            hard(Signal::PidAvailable, 100),
            hard(Signal::MemoryAvailable, 100 * MIB),
        ]);
        let pids = Observation {
            capacity: 1000,
            available: 1,
            sampled_at: at(0),
        };
        let mut both = memory(50, 0);
        both.insert(Signal::PidAvailable, pids);
        let decision = node.look(0, &both);
        assert_eq!(
            decision.evict.unwrap().threshold.signal,
            Signal::MemoryAvailable
        );
        assert_eq!(decision.pressures.len(), 2);
    }

    #[test]
    fn the_message_names_limit_usage_and_containers_as_upstream() {
        let threshold = hard(Signal::MemoryAvailable, 100 * MIB);
        let text = message(&threshold, &memory(50, 0), &pod("web", 0, 20, 70));
        let expected = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
                        Container main was using 70Mi, request is 20Mi, has larger consumption of memory. ";
        assert_eq!(text, expected);
        let text = message(
            &hard(Signal::PidAvailable, 1000),
            &Observations::new(),
            &pod("web", 0, 20, 70),
        );
        assert_eq!(text, "The node was low on resource: pids. ");
    }

    fn any_pods() -> impl Strategy<Value = Vec<PodUsage>> {
        let one = (0_i32..3, 0_u64..4, 0_u64..4, any::<bool>(), any::<bool>());
        prop::collection::vec(one, 0..8).prop_map(|list| {
            let build = |(index, (priority, request, used, is_critical, is_measured))| {
                let mut pod = pod(&format!("p{index}"), priority, request, used);
                pod = if is_critical { critical(pod) } else { pod };
                if is_measured { pod } else { unmeasured(pod) }
            };
            list.into_iter().enumerate().map(build).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn ranking_ignores_the_order_of_its_input_and_loses_nobody(pods in any_pods()) {
            for signal in [Signal::MemoryAvailable, Signal::PidAvailable] {
                let ranking = rank(signal, &pods);
                prop_assert_eq!(ranking.victims.len() + ranking.spared.len(), pods.len());
                let mut turned = pods.clone();
                turned.reverse();
                prop_assert_eq!(ranking, rank(signal, &turned));
            }
        }

        #[test]
        fn no_critical_pod_is_ever_chosen(pods in any_pods(), available in 0_u64..300) {
            let policy = policy(&[hard(Signal::MemoryAvailable, 100 * MIB)]);
            let decision = decide(at(0), &policy, &ThresholdState::default(), &memory(available, 0), &pods);
            if let Some(evict) = &decision.evict {
                let pod = pods.iter().find(|pod| pod.uid == evict.uid);
                prop_assert_eq!(pod.map(|pod| pod.standing), Some(EvictionClass::Evictable));
            }
            let must = available < 100 && pods.iter().any(|pod| pod.standing == EvictionClass::Evictable);
            prop_assert_eq!(decision.evict.is_some(), must, "somebody goes exactly when somebody must and can");
        }

        #[test]
        fn more_of_a_higher_priority_never_goes_before_less_of_a_lower_one(pods in any_pods()) {
            let places: Vec<_> = order(Signal::PidAvailable, &pods);
            let priority = |uid: &String| pods.iter().find(|p| p.uid.as_str() == uid).map(|p| p.priority);
            prop_assert!(places.iter().map(priority).is_sorted());
        }
    }
}
