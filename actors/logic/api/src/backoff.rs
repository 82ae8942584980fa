//! Exponential back-off by key: 10 s, 20 s, 40 s ... 5 min, forgotten after ten quiet minutes.
//!
//! Mirrors client-go's `util/flowcontrol/backoff.go` as the kubelet uses it for containers and
//! images. The table is plain data: the actor that owns it checkpoints it, so that a crash loop is
//! remembered over a restart of the agent.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde::{Deserialize, Serialize};

use crate::pod::PodView;
use crate::pod::hash::{container_hash, fnv32a};

/// How long to back off, and when to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffPolicy {
    /// The first wait.
    pub initial: Duration,
    /// The longest wait.
    pub max: Duration,
    /// A key quiet for longer than this starts anew.
    pub reset_after: Duration,
}

impl Default for BackoffPolicy {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            max: Duration::from_secs(300),
            reset_after: Duration::from_secs(600),
        }
    }
}

/// The back-off of one key: its current delay, and when it last grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffEntry {
    /// The current wait.
    pub delay: Duration,
    /// When it was last lengthened; long after that it begins anew.
    pub updated_at: Timestamp,
}

/// Back-off entries by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffTable(BTreeMap<String, BackoffEntry>);

impl BackoffTable {
    /// Notes an attempt made after a failure seen at `since`, and returns the delay before the next.
    pub fn next(
        &mut self,
        key: &str,
        since: Timestamp,
        now: Timestamp,
        policy: &BackoffPolicy,
    ) -> Duration {
        let delay = match self.0.get(key) {
            Some(entry) if !expired(entry, since, policy) => {
                entry.delay.saturating_mul(2).min(policy.max)
            }
            _ => policy.initial.min(policy.max),
        };
        let entry = BackoffEntry {
            delay,
            updated_at: now,
        };
        self.0.insert(key.to_owned(), entry);
        delay
    }

    /// How long to wait yet, for a failure seen at `since`; none when the way is free.
    pub fn remaining(
        &self,
        key: &str,
        since: Timestamp,
        now: Timestamp,
        policy: &BackoffPolicy,
    ) -> Option<Duration> {
        let entry = self.0.get(key)?;
        if expired(entry, since, policy) {
            return None;
        }
        // A clock set back must not stretch the wait beyond the delay itself.
        let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        entry
            .delay
            .checked_sub(waited)
            .filter(|left| !left.is_zero())
    }

    /// How long to wait yet, counted from the last attempt instead of a failure: how images back off.
    pub fn remaining_since_update(
        &self,
        key: &str,
        now: Timestamp,
        policy: &BackoffPolicy,
    ) -> Option<Duration> {
        let entry = self
            .0
            .get(key)
            .filter(|entry| !expired(entry, now, policy))?;
        let waited = Duration::try_from(now.duration_since(entry.updated_at)).unwrap_or_default();
        entry
            .delay
            .checked_sub(waited)
            .filter(|left| !left.is_zero())
    }

    /// The whole delay in force for a key.
    pub fn delay(&self, key: &str) -> Option<Duration> {
        self.0.get(key).map(|entry| entry.delay)
    }

    /// Drops every key that starts with `prefix`: a pod that is gone.
    pub fn forget(&mut self, prefix: &str) {
        self.0.retain(|key, _| !key.starts_with(prefix));
    }

    /// Drops what has been quiet for so long that it would start anew anyhow.
    pub fn gc(&mut self, now: Timestamp, policy: &BackoffPolicy) {
        self.0.retain(|_, entry| !expired(entry, now, policy));
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn expired(entry: &BackoffEntry, at: Timestamp, policy: &BackoffPolicy) -> bool {
    let quiet = at.duration_since(entry.updated_at);
    let limit = SignedDuration::try_from(policy.reset_after).unwrap_or(SignedDuration::MAX);
    quiet > limit
}

/// The key of a container's restarts: another image or other resources start with a clean record, as with upstream's
/// `GetBackoffKey` (kuberuntime/helpers.go at v1.36).
pub fn container_key(pod: &Pod, container: &Container) -> String {
    let hash = container_hash(container);
    let resources = container.resources.as_ref();
    let resources = resources.filter(|resources| **resources != ResourceRequirements::default());
    let resources = resources
        .and_then(|resources| serde_json::to_string(resources).ok())
        .map(|json| format!("_{:x}", fnv32a(json.as_bytes())));
    let (prefix, name) = (pod_prefix(pod), &container.name);
    format!("{prefix}{name}_{hash:x}{}", resources.unwrap_or_default())
}

/// The prefix of all keys of a pod's containers.
pub fn pod_prefix(pod: &Pod) -> String {
    format!("{}_{}_{}_", pod.name(), pod.namespace(), pod.uid())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{PodBuilder, pod, quantities};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Upstream's TestGetBackoffKey.
    #[test]
    fn another_image_or_other_resources_begin_a_record_of_their_own() {
        let sized = ResourceRequirements {
            requests: Some(quantities(&[("cpu", "100m"), ("memory", "100Mi")])),
            limits: Some(quantities(&[("cpu", "200m"), ("memory", "200Mi")])),
            claims: None,
        };
        for resources in [None, Some(sized)] {
            let base = pod("p")
                .app_with("c", |c| c.resources.clone_from(&resources))
                .app("d");
            let key = |pod: &Pod| container_key(pod, &pod.app_containers()[0]);
            let own = key(&base);
            let changed = |change: &dyn Fn(&mut Pod)| {
                let mut pod = base.clone();
                change(&mut pod);
                key(&pod)
            };
            let same = changed(&|pod| {
                pod.spec.as_mut().unwrap().active_deadline_seconds = Some(1);
            });
            assert_eq!(same, own);
            let app = |pod: &mut Pod| pod.spec.as_mut().unwrap().containers.remove(0);
            let others = [
                container_key(&base, &base.app_containers()[1]),
                changed(&|pod| pod.metadata.name = Some("other".into())),
                changed(&|pod| pod.metadata.namespace = Some("other".into())),
                changed(&|pod| {
                    let container = Container {
                        image: Some("localhost/c:2".into()),
                        ..app(pod)
                    };
                    pod.spec.as_mut().unwrap().containers.insert(0, container);
                }),
                changed(&|pod| {
                    let mut container = app(pod);
                    let resources = container.resources.get_or_insert_default();
                    let requests = resources.requests.get_or_insert_default();
                    requests.extend(quantities(&[("cpu", "200m")]));
                    pod.spec.as_mut().unwrap().containers.insert(0, container);
                }),
            ];
            for other in others {
                assert_ne!(other, own);
                assert!(own.starts_with(&pod_prefix(&base)));
            }
        }
    }

    #[test]
    fn delay_doubles_from_ten_seconds_to_five_minutes() {
        let policy = BackoffPolicy::default();
        let mut table = BackoffTable::default();
        let delays: Vec<_> = (0..8)
            .map(|n| table.next("k", at(n), at(n), &policy).as_secs())
            .collect();
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn a_key_quiet_for_ten_minutes_starts_anew() {
        let policy = BackoffPolicy::default();
        let cases = [(600, secs(20)), (601, secs(10))];
        for (failed_at, delay) in cases {
            let mut table = BackoffTable::default();
            table.next("k", at(0), at(0), &policy);
            let later = at(failed_at);
            assert_eq!(table.next("k", later, later, &policy), delay, "{failed_at}");
        }
    }

    #[test]
    fn wait_is_counted_from_the_failure() {
        let policy = BackoffPolicy::default();
        let mut table = BackoffTable::default();
        assert_eq!(table.remaining("k", at(0), at(0), &policy), None);
        table.next("k", at(0), at(0), &policy);
        let cases = [
            (5, 5, Some(secs(10))),
            (5, 8, Some(secs(7))),
            (5, 15, None),
            (5, 16, None),
            (700, 700, None),
            (5, -100, Some(secs(10))),
        ];
        for (since, now, left) in cases {
            let found = table.remaining("k", at(since), at(now), &policy);
            assert_eq!(found, left, "failed at {since}, now {now}");
        }
    }

    #[test]
    fn forget_and_gc_drop_only_what_they_should() {
        let policy = BackoffPolicy::default();
        let mut table = BackoffTable::default();
        table.next("a_x_1_c", at(0), at(0), &policy);
        table.next("b_x_2_c", at(500), at(500), &policy);
        table.next("b_x_2_d", at(0), at(0), &policy);
        table.gc(at(601), &policy);
        assert_eq!((table.len(), table.delay("b_x_2_c")), (1, Some(secs(10))));
        table.forget("b_x_2_");
        assert!(table.is_empty());
    }

    proptest! {
        #[test]
        fn delays_stay_within_their_bounds_and_waits_within_delays(
            steps in proptest::collection::vec((0_i64..2000, 0_i64..2000), 1..40)
        ) {
            let policy = BackoffPolicy::default();
            let mut table = BackoffTable::default();
            let mut clock = 0;
            for (ran, waited) in steps {
                let failed = clock + ran;
                let now = failed + waited;
                if let Some(left) = table.remaining("k", at(failed), at(now), &policy) {
                    prop_assert!(left <= table.delay("k").unwrap());
                }
                let delay = table.next("k", at(failed), at(now), &policy);
                prop_assert!(delay >= policy.initial && delay <= policy.max);
                clock = now;
            }
        }
    }
}
