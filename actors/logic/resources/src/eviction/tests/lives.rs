//! Random lives of a node under pressure: pods come, grow and go, disks fill, figures are missing, kills fail.

use logic_api::types::PodUid;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

const CAPACITY: u64 = 1000;
const LIMIT: u64 = 100;
/// Between two looks.
const PERIOD: u64 = 10;

/// What happens between two looks at the node.
#[derive(Clone, Debug)]
enum LifeEvent {
    /// A pod comes: its priority, request, use, and whether it is critical.
    Comes(i32, u64, u64, bool),
    /// The pod of this place takes so much more of everything.
    Grows(usize, u64),
    /// Something that is no pod takes so much.
    Fills(u64),
    /// Something that is no pod gives all back.
    Frees,
    /// The figures of this signal are missing once.
    Missing(Signal),
    /// The stats of the pod of this place are missing once.
    Unmeasured(usize),
    /// The next kill does not end its pod.
    Hangs,
}

fn life_event() -> impl Strategy<Value = LifeEvent> {
    prop_oneof![
        4 => (0_i32..3, 0_u64..200, 0_u64..100, prop::bool::weighted(0.2))
            .prop_map(|(p, request, used, critical)| LifeEvent::Comes(p, request, used, critical)),
        4 => (0_usize..8, 0_u64..200).prop_map(|(place, more)| LifeEvent::Grows(place, more)),
        1 => (0_u64..600).prop_map(LifeEvent::Fills),
        2 => Just(LifeEvent::Frees),
        1 => prop::sample::select(Signal::ALL.to_vec()).prop_map(LifeEvent::Missing),
        1 => (0_usize..8).prop_map(LifeEvent::Unmeasured),
        1 => Just(LifeEvent::Hangs),
    ]
}

#[derive(Default)]
struct Life {
    state: ThresholdState,
    pods: Vec<PodUsage>,
    leaving: BTreeSet<PodUid>,
    others: u64,
    made: u64,
    second: u64,
    hangs: bool,
}

impl Life {
    /// A pod takes as many MiB of memory as MiB of layers, inodes, and process ids: units do not matter here.
    fn pod(&mut self, priority: i32, request: u64, used: u64, is_critical: bool) -> PodUsage {
        self.made += 1;
        let mut made = pod(&format!("p{}", self.made), priority, 0, 0);
        made.requests.memory = request;
        made.requests.ephemeral_storage = request;
        set(&mut made, used);
        if is_critical { critical(made) } else { made }
    }

    fn left(&self) -> u64 {
        let used: u64 = self.pods.iter().map(amount).sum();
        CAPACITY.saturating_sub(used + self.others)
    }

    fn observations(&self) -> Observations {
        let figures = (self.left(), CAPACITY);
        let all = Signal::ALL.iter();
        all.flat_map(|signal| observed(*signal, figures, self.second))
            .collect()
    }

    /// A look at the node: what is chosen is checked, goes, and whether the node is still short is told.
    fn look(
        &mut self,
        policy: &EvictionPolicy,
        missing: Option<Signal>,
        unmeasured: Option<usize>,
    ) {
        let mut observations = self.observations();
        missing.map(|signal| observations.remove(&signal));
        let mut pods = self.pods.clone();
        if let Some(pod) = unmeasured.and_then(|place| pods.get_mut(place)) {
            pod.used = None;
        }
        let found = assess(
            at(self.second),
            policy,
            &self.state,
            (&observations, &pods),
            &self.leaving,
        );
        self.state = found.state;
        if missing.is_none() && self.left() < LIMIT {
            assert!(!found.pressures.is_empty(), "a shortage is told");
            assert!(found.shortage.is_some(), "and acted upon");
        }
        let Some(shortage) = found.shortage else {
            return;
        };
        let (evicted, _) = choose(
            policy,
            shortage,
            FsLayout::Shared,
            (&observations, &pods),
            &self.leaving,
        );
        let can_go = |pod: &&PodUsage| {
            pod.standing == EvictionClass::Evictable && !self.leaving.contains(&pod.uid)
        };
        let Some(evicted) = evicted else {
            assert_eq!(pods.iter().find(can_go), None, "somebody could go");
            return;
        };
        let victim = pods.iter().find(|pod| pod.uid == evicted.uid).unwrap();
        assert!(can_go(&victim), "no critical pod goes, and none twice");
        if shortage.signal.condition() == crate::thresholds::PressureCondition::MemoryPressure {
            let is_above = |pod: &PodUsage| pod.used.is_none() || amount(pod) > pod.requests.memory;
            let above = pods.iter().filter(can_go).any(is_above);
            assert!(
                is_above(victim) || !above,
                "nobody within its request goes before one above"
            );
        }
        let uid = evicted.uid;
        match std::mem::take(&mut self.hangs) {
            true => drop(self.leaving.insert(uid)),
            false => self.pods.retain(|pod| pod.uid != uid),
        }
    }

    /// Looks until nobody can go any more; returns whether the node has enough then.
    fn settle(&mut self, policy: &EvictionPolicy) -> bool {
        for _ in 0..=self.pods.len() {
            self.second += PERIOD;
            self.look(policy, None, None);
        }
        self.left() >= LIMIT
    }
}

fn amount(pod: &PodUsage) -> u64 {
    pod.used.as_ref().map_or(0, |used| used.memory)
}

fn set(pod: &mut PodUsage, amount: u64) {
    pod.used = Some(MeasuredUsage {
        memory: amount,
        pids: amount,
        root: DiskAmount {
            bytes: amount,
            inodes: amount,
        },
        ..MeasuredUsage::default()
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(14),
        ..ProptestConfig::default()
    })]

    #[test]
    fn in_every_life_the_critical_stay_those_within_their_requests_go_last_and_pressure_ends_or_is_told(
        life in prop::collection::vec(life_event(), 1..60),
        signals in prop::sample::subsequence(Signal::ALL.to_vec(), 1..=9),
    ) {
        let thresholds: Vec<Threshold> = signals.iter().map(|signal| hard(*signal, LIMIT)).collect();
        let policy = policy(&thresholds);
        let mut node = Life::default();
        for event in life {
            node.second += PERIOD;
            let (mut missing, mut unmeasured) = (None, None);
            match event {
                LifeEvent::Comes(priority, request, used, critical) => {
                    let pod = node.pod(priority, request, used, critical);
                    node.pods.push(pod);
                }
                LifeEvent::Grows(place, more) => if let Some(pod) = node.pods.get_mut(place) {
                    let now = amount(pod);
                    set(pod, now + more);
                }
                LifeEvent::Fills(more) => node.others += more,
                LifeEvent::Frees => node.others = 0,
                LifeEvent::Missing(signal) => missing = Some(signal),
                LifeEvent::Unmeasured(place) => unmeasured = Some(place),
                LifeEvent::Hangs => node.hangs = true,
            }
            // A signal that is missing may hide the only shortage: others are looked at all the same.
            node.look(&policy, missing, unmeasured);
        }
        node.hangs = false;
        let critical_before = node.pods.iter().filter(|pod| pod.standing == EvictionClass::Critical).count();
        let is_enough = node.settle(&policy);
        let can_go = |pod: &&PodUsage| pod.standing == EvictionClass::Evictable && !node.leaving.contains(&pod.uid);
        let stuck = node.pods.iter().find(can_go).is_none();
        prop_assert!(is_enough || stuck, "while the node is short and somebody can go, somebody goes");
        let critical_now = node.pods.iter().filter(|pod| pod.standing == EvictionClass::Critical).count();
        prop_assert_eq!(critical_before, critical_now);
        prop_assert!(is_enough || !node.state.pressure_seen.is_empty(), "what does not end is told");

        // Once everybody is gone, the pressure ends with its transition.
        node.pods.clear();
        node.others = 0;
        node.second += PERIOD;
        node.look(&policy, None, None);
        node.second += 300;
        node.look(&policy, None, None);
        prop_assert!(node.state.pressure_seen.is_empty());
    }
}
