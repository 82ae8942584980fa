//! A node in time: graces, reclaims, transitions, and what a round comes to.

use logic_api::quantity::Quantity;
use logic_api::types::PodUid;
use proptest::prelude::*;

use super::rank::any_pods;
use super::*;

/// Each look decides, and what is to be remembered is.
struct PressuredNode {
    policy: EvictionPolicy,
    state: ThresholdState,
    pods: Vec<PodUsage>,
    leaving: BTreeSet<PodUid>,
}

impl PressuredNode {
    fn new(thresholds: &[Threshold]) -> Self {
        let pods = vec![pod("big", 0, 10, 90), pod("small", 0, 10, 20)];
        Self {
            policy: policy(thresholds),
            state: ThresholdState::default(),
            pods,
            leaving: BTreeSet::new(),
        }
    }

    fn look(&mut self, second: u64, observations: &Observations) -> Assessment {
        let found = assess(
            at(second),
            &self.policy,
            &self.state,
            (observations, &self.pods),
            &self.leaving,
        );
        self.state = found.state.clone();
        found
    }

    fn chosen(&self, shortage: Threshold, observations: &Observations) -> Option<EvictedPod> {
        choose(
            &self.policy,
            shortage,
            FsLayout::Shared,
            (observations, &self.pods),
            &self.leaving,
        )
        .0
    }

    /// The pod chosen and its grace in seconds.
    fn evicts_at(&mut self, second: u64, observations: &Observations) -> Option<(String, u64)> {
        let shortage = self.look(second, observations).shortage?;
        let evicted = self.chosen(shortage, observations)?;
        Some((evicted.uid.to_string(), evicted.grace.as_secs()))
    }

    fn evicts(&mut self, second: u64, available: u64) -> Option<(String, u64)> {
        self.evicts_at(second, &memory(available, second))
    }
}

fn chosen(name: &str, grace: u64) -> Option<(String, u64)> {
    Some((name.to_owned(), grace))
}

/// Upstream's TestMemoryPressure, in time.
#[test]
fn hard_evicts_at_once_soft_after_its_grace_and_pressure_outlasts_both() {
    let mut node = PressuredNode::new(&[
        hard(Signal::MemoryAvailable, 100 * MIB),
        soft(Signal::MemoryAvailable, 200 * MIB, 120),
    ]);
    assert_eq!(node.evicts(0, 500), None);
    assert!(node.state.pressure_seen.is_empty());

    assert_eq!(node.evicts(10, 150), None, "soft, within its grace");
    assert!(!node.state.pressure_seen.is_empty());
    assert_eq!(node.evicts(129, 150), None);
    assert_eq!(
        node.evicts(130, 150),
        chosen("big", 5),
        "soft, past its grace"
    );
    assert_eq!(node.evicts(140, 50), chosen("big", 1), "hard");

    assert_eq!(node.evicts(150, 500), None);
    let pressures = |found: Assessment| found.pressures.len();
    assert_eq!(
        pressures(node.look(439, &memory(500, 439))),
        1,
        "the transition is not over"
    );
    assert_eq!(pressures(node.look(440, &memory(500, 440))), 0);
}

/// Upstream's TestPIDPressure, TestDiskPressureNodeFs, TestInodePressureFsInodes and TestAllocatableMemoryPressure, and
/// what their `_VerifyPodStatus` kin and TestMemoryPressure_VerifyPodStatus see: one course for every signal.
#[test]
fn each_signal_evicts_at_once_or_after_its_grace_with_a_status_of_its_own() {
    for signal in Signal::ALL {
        let mut node = PressuredNode::new(&[hard(signal, 100), soft(signal, 200, 120)]);
        node.pods = vec![
            critical(pod("critical", 0, 0, 900)),
            unmeasured(pod("guest", 0, 0, 1)),
        ];
        let left = |amount, second| observed(signal, (amount, 1000), second);
        assert_eq!(node.evicts_at(0, &left(500, 0)), None);
        assert_eq!(node.evicts_at(10, &left(150, 10)), None);
        assert_eq!(node.evicts_at(130, &left(150, 130)), chosen("guest", 5));
        let found = node.look(140, &left(50, 140));
        let condition = found.pressures.first().map(|signal| signal.condition());
        assert_eq!(condition, Some(signal.condition()));
        let evicted = node
            .chosen(found.shortage.unwrap(), &left(50, 140))
            .unwrap();
        assert_eq!(evicted.grace, HARD_GRACE);
        assert_eq!(evicted.cause.signal(), signal.name());
        let failure = evicted.failure;
        let said = format!(
            "The node was low on resource: {}. Threshold quantity: 100, available: 50. ",
            signal.resource()
        );
        assert_eq!((failure.reason.as_str(), &failure.message), (REASON, &said));
        assert_eq!(failure.disruption, Some(said));
    }
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
        min_reclaim: ThresholdLimit::amount(50 * MIB),
        ..hard(Signal::MemoryAvailable, 100 * MIB)
    };
    let mut node = PressuredNode::new(&[threshold]);
    assert_eq!(node.evicts(0, 120), None);
    assert_eq!(node.evicts(10, 90), chosen("big", 1));
    assert_eq!(node.evicts(20, 120), chosen("big", 1), "not resolved yet");
    assert!(!is_relieved(&node.policy, &memory(120, 20)));
    assert!(is_relieved(&node.policy, &memory(150, 30)));
    assert_eq!(node.evicts(30, 150), None);
    assert_eq!(node.evicts(40, 120), None);
}

/// Upstream's TestThresholdsUpdatedStats.
#[test]
fn one_sample_evicts_one_pod() {
    let mut node = PressuredNode::new(&[hard(Signal::MemoryAvailable, 100 * MIB)]);
    let sample = memory(50, 0);
    assert!(node.evicts_at(0, &sample).is_some());
    assert!(node.evicts_at(10, &sample).is_none());
    assert!(node.evicts_at(20, &memory(50, 20)).is_some());
}

/// Upstream's TestStaticCriticalPodsAreNotEvicted.
#[test]
fn a_critical_pod_stays_even_if_nobody_else_can_go() {
    let mut node = PressuredNode::new(&[hard(Signal::MemoryAvailable, 100 * MIB)]);
    node.pods = vec![critical(pod("api", 0, 10, 90))];
    assert_eq!(node.evicts(0, 50), None);
    let ranking = rank(Signal::MemoryAvailable, FsLayout::Shared, &node.pods);
    assert_eq!(ranking.spared[0].why, "critical pods are never evicted");
    node.pods.push(pod("web", 1000, 100, 1));
    assert_eq!(node.evicts(10, 50), chosen("web", 1));
}

#[test]
fn a_pod_that_does_not_end_is_not_chosen_again() {
    let mut node = PressuredNode::new(&[hard(Signal::MemoryAvailable, 100 * MIB)]);
    assert_eq!(node.evicts(0, 50), chosen("big", 1));
    node.leaving.insert("big".into());
    assert_eq!(node.evicts(10, 50), chosen("small", 1));
    node.leaving.insert("small".into());
    assert_eq!(node.evicts(20, 50), None);
}

#[test]
fn memory_comes_before_process_ids() {
    let mut node = PressuredNode::new(&[
        hard(Signal::PidAvailable, 100),
        hard(Signal::MemoryAvailable, 100 * MIB),
    ]);
    let mut both = memory(50, 0);
    both.extend(observed(Signal::PidAvailable, (1, 1000), 0));
    let found = node.look(0, &both);
    assert_eq!(found.shortage.unwrap().signal, Signal::MemoryAvailable);
    assert_eq!((found.pressures.len(), found.due.len()), (2, 2));
}

/// Upstream's TestStorageLimitEvictions: all that exceed their limits go, and nobody else in that round.
#[test]
fn pods_over_their_limits_go_first_and_all_at_once() {
    let over = |name: &str| PodUsage {
        breach: Some(LimitBreach {
            kind: StorageLimit::Pod,
            message: "too much. ".into(),
        }),
        ..pod(name, 0, 0, 1)
    };
    let mut node = PressuredNode::new(&[hard(Signal::MemoryAvailable, 100 * MIB)]);
    node.pods
        .extend([over("one"), over("two"), critical(over("critical"))]);
    let found = node.look(0, &memory(50, 0));
    let gone: Vec<_> = found
        .over_limit
        .iter()
        .map(|pod| pod.uid.as_str())
        .collect();
    assert_eq!((gone, found.shortage), (vec!["one", "two"], None));
    node.leaving = ["one".into(), "two".into()].into();
    let stuck = node.look(5, &memory(50, 5));
    assert!(stuck.over_limit.is_empty() && stuck.shortage.is_some());
    node.leaving.clear();
    let first = &found.over_limit[0];
    assert_eq!(
        (first.grace, first.cause.signal()),
        (HARD_GRACE, "ephemeralpodfs.limit")
    );
    assert_eq!(first.failure.disruption, None);
    // Upstream's TestManagerWithLocalStorageCapacityIsolationOpen: without the setting they stay.
    node.policy.storage_limits = StorageLimitPolicy::Ignored;
    let found = node.look(10, &memory(50, 10));
    assert!(found.over_limit.is_empty() && found.shortage.is_some());
    assert!(!node.policy.is_idle() && policy(&[]).storage_limits == StorageLimitPolicy::Kept);
}

/// Upstream's TestEvictionMessage.
#[test]
fn the_message_names_limit_usage_and_containers_as_upstream() {
    let threshold = hard(Signal::MemoryAvailable, 100 * MIB);
    let web = pod("web", 0, 20, 70);
    let text = message(&threshold, &memory(50, 0), &web);
    let expected = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
                    Container main was using 70Mi, request is 20Mi, has larger consumption of memory. ";
    assert_eq!(text, expected);
    let all = annotations(&threshold, &web);
    let of = |key: &str| all.get(key).map(String::as_str);
    assert_eq!(of("offending_containers"), Some("main"));
    assert_eq!(of("offending_containers_usage"), Some("70Mi"));
    assert_eq!(of("starved_resource"), Some("memory"));
    assert_eq!(of("offending_pod"), None);
    assert!(annotations(&threshold, &unmeasured(web.clone())).is_empty());

    let nothing = Observations::new();
    let text = message(&hard(Signal::PidAvailable, 1000), &nothing, &web);
    assert_eq!(text, "The node was low on resource: pids. ");

    let mut whole = web;
    whole.requests.pod_level_memory = Some(WrittenAmount::binary(30 * MIB));
    let text = message(&threshold, &nothing, &whole);
    let expected = "The node was low on resource: memory. \
                    Pod web was using 70Mi, request is 30Mi, has larger consumption of memory. \
                    Container main was using 70Mi, request is 20Mi, has larger consumption of memory. ";
    assert_eq!(text, expected);
    assert_eq!(
        annotations(&threshold, &whole)["offending_pod_usage"],
        "70Mi"
    );

    // A request is told in the form in which it was written.
    let written = WrittenAmount::of(&Quantity::parse("20M").unwrap()).unwrap();
    whole.used.as_mut().unwrap().containers[0].memory_request = written;
    let text = message(&threshold, &nothing, &whole);
    assert!(
        text.contains("Container main was using 70Mi, request is 20M, "),
        "{text}"
    );

    let mut disk = on_disk("disk", 0, 0, [1, 1, 1]);
    disk.used.as_mut().unwrap().containers = vec![ContainerUsage {
        name: "main".into(),
        storage: Some(2 * MIB),
        ..ContainerUsage::default()
    }];
    let text = message(&hard(Signal::NodeFsAvailable, 1), &nothing, &disk);
    let expected = "The node was low on resource: ephemeral-storage. \
                    Container main was using 2Mi, request is 0, has larger consumption of ephemeral-storage. ";
    assert_eq!(text, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_critical_pod_is_ever_chosen(pods in any_pods(), available in 0_u64..300) {
        let mut node = PressuredNode::new(&[hard(Signal::MemoryAvailable, 100 * MIB)]);
        node.pods = pods;
        let found = node.evicts(0, available);
        if let Some((uid, _)) = &found {
            let pod = node.pods.iter().find(|pod| pod.uid.as_str() == uid);
            prop_assert_eq!(pod.map(|pod| pod.standing), Some(EvictionClass::Evictable));
        }
        let can = node.pods.iter().any(|pod| pod.standing == EvictionClass::Evictable);
        prop_assert_eq!(found.is_some(), available < 100 && can, "somebody goes exactly when somebody must and can");
    }
}
