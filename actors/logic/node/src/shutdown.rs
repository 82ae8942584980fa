//! Graceful node shutdown: which pods end first, and how long each may take.
//!
//! Upstream: pkg/kubelet/nodeshutdown/nodeshutdown_manager.go (1.36).

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::{PodView, SYSTEM_CRITICAL_PRIORITY};
use logic_api::types::{PodFailure, PodUid};

/// `shutdownGracePeriodByPodPriority`, one entry: pods from this priority up to the next entry's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownGroup {
    pub priority: i32,
    /// For all of them, volumes included.
    pub grace: Duration,
}

/// The most that upstream's durations hold, 292 years: a larger number in a file means this.
const MAX_GRACE: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());

/// The groups, lowest priority first; none switches graceful shutdown off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShutdownPolicy {
    pub groups: Vec<ShutdownGroup>,
}

/// The pods that are terminated together, by priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownStep {
    /// Before the next step begins, whatever is left.
    pub within: Duration,
    /// Each with its own grace.
    pub pods: Vec<(PodUid, Duration)>,
}

impl ShutdownPolicy {
    /// Reads the fields `shutdownGracePeriodByPodPriority`, or else `shutdownGracePeriod` and
    /// `shutdownGracePeriodCriticalPods`.
    pub fn new(
        mut by_priority: Vec<ShutdownGroup>,
        all: Duration,
        critical: Duration,
    ) -> ShutdownPolicy {
        if by_priority.is_empty() && !all.is_zero() && critical <= all {
            by_priority = vec![
                ShutdownGroup {
                    priority: 0,
                    grace: all - critical,
                },
                ShutdownGroup {
                    priority: SYSTEM_CRITICAL_PRIORITY,
                    grace: critical,
                },
            ];
        }
        for group in &mut by_priority {
            group.grace = group.grace.min(MAX_GRACE);
        }
        by_priority.sort_by_key(|group| group.priority);
        ShutdownPolicy {
            groups: by_priority,
        }
    }

    /// How long the machine must wait for the node.
    pub fn total(&self) -> Duration {
        self.groups.iter().map(|group| group.grace).sum()
    }

    /// Orders the end of these pods. A group without pods takes no time.
    pub fn steps<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>) -> Vec<ShutdownStep> {
        let empty = |group: &ShutdownGroup| ShutdownStep {
            within: group.grace,
            pods: Vec::new(),
        };
        let mut steps: Vec<ShutdownStep> = self.groups.iter().map(empty).collect();
        for pod in pods {
            let spec = pod.spec();
            let priority = spec.and_then(|spec| spec.priority).unwrap_or(0);
            let at = self
                .groups
                .iter()
                .rposition(|group| group.priority <= priority);
            let Some(step) = steps.get_mut(at.unwrap_or(0)) else {
                break;
            };
            let own = spec.and_then(|spec| spec.termination_grace_period_seconds);
            let own = own.and_then(|seconds| u64::try_from(seconds).ok());
            let grace = own.map_or(step.within, |own| step.within.min(Duration::from_secs(own)));
            step.pods.push((pod.uid(), grace));
        }
        steps.retain(|step| !step.pods.is_empty());
        steps
    }
}

/// The status of a pod that the shutdown terminates.
pub fn failure() -> PodFailure {
    let message = "Pod was terminated in response to imminent node shutdown.";
    PodFailure {
        reason: "Terminated".to_owned(),
        message: message.to_owned(),
        disruption: Some(message.to_owned()),
        ..PodFailure::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, priority: i32, grace: i64) -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "uid": name},
            "spec": {"containers": [], "priority": priority, "terminationGracePeriodSeconds": grace},
        }))
        .unwrap()
    }

    fn seconds(step: &ShutdownStep) -> (u64, Vec<(&str, u64)>) {
        let pods = step.pods.iter();
        let pods = pods.map(|(uid, grace)| (uid.as_str(), grace.as_secs()));
        (step.within.as_secs(), pods.collect())
    }

    fn group(priority: i32, seconds: u64) -> ShutdownGroup {
        ShutdownGroup {
            priority,
            grace: Duration::from_secs(seconds),
        }
    }

    /// Upstream's Test_migrateConfig.
    #[test]
    fn two_periods_are_two_groups() {
        let policy =
            ShutdownPolicy::new(vec![], Duration::from_secs(300), Duration::from_secs(120));
        assert_eq!(policy.groups, [group(0, 180), group(2_000_000_000, 120)]);
        assert_eq!(policy.total(), Duration::from_secs(300));
        let off = ShutdownPolicy::new(vec![], Duration::ZERO, Duration::from_secs(120));
        assert_eq!(off, ShutdownPolicy::default());
        let wrong = ShutdownPolicy::new(vec![], Duration::from_secs(1), Duration::from_secs(2));
        assert_eq!(wrong, ShutdownPolicy::default());
    }

    #[test]
    fn a_grace_beyond_all_time_is_cut_and_can_be_added() {
        let groups = [1, 2, 3].map(|priority| group(priority, i64::MAX.unsigned_abs()));
        let policy = ShutdownPolicy::new(groups.to_vec(), Duration::ZERO, Duration::ZERO);
        assert_eq!(policy.total(), MAX_GRACE * 3);
    }

    /// Upstream's Test_groupByPriority.
    #[test]
    fn a_pod_belongs_to_the_nearest_priority_at_or_below_its_own() {
        let policy = ShutdownPolicy::new(
            vec![group(10, 10), group(5, 5), group(8, 8)],
            Duration::ZERO,
            Duration::ZERO,
        );
        let pods = [
            pod("p4", 4, 99),
            pod("p5", 5, 99),
            pod("p7", 7, 99),
            pod("p9", 9, 99),
            pod("p11", 11, 99),
        ];
        let steps = policy.steps(&pods);
        let found: Vec<_> = steps.iter().map(seconds).collect();
        assert_eq!(
            found,
            [
                (5, vec![("p4", 5), ("p5", 5), ("p7", 5)]),
                (8, vec![("p9", 8)]),
                (10, vec![("p11", 10)]),
            ]
        );
    }

    /// Upstream's TestManager: the pod's own grace counts where it is shorter.
    #[test]
    fn a_pod_gets_its_own_grace_where_that_is_shorter() {
        let policy = ShutdownPolicy::new(vec![], Duration::from_secs(30), Duration::from_secs(10));
        let steps = policy.steps(&[pod("quick", 0, 2), pod("slow", 0, 60)]);
        let found: Vec<_> = steps.iter().map(seconds).collect();
        assert_eq!(found, [(20, vec![("quick", 2), ("slow", 20)])]);
    }

    /// Upstream's TestManager, its conditions.
    #[test]
    fn a_pod_that_goes_with_the_node_says_so_as_a_disruption_too() {
        let failure = failure();
        let why = "Pod was terminated in response to imminent node shutdown.";
        assert_eq!(failure.reason, "Terminated");
        assert_eq!(failure.message, why);
        assert_eq!(failure.disruption.as_deref(), Some(why));
    }
}
