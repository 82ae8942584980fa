//! Samples for eviction where something hangs, fails or lies.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kernel::testing::{inbox, pass, run_paused};
use logic_pods::PodWorkerConfig;
use logic_resources::cgroups::{CgroupDriver, CgroupPolicy};
use logic_resources::eviction::{EvictionPolicy, StorageLimitPolicy};
use logic_resources::node::policy::NodePolicy;
use logic_resources::thresholds::{Signal, Threshold, ThresholdLimit};

use super::testing::{Machine, hang, peers};
use super::usage::{SampleError, SampleExtent, UsageSample, UsageSampler};
use super::*;

/// Thresholds that are always met.
fn short_of(signals: &[Signal]) -> EvictionPolicy {
    let mut policy = EvictionPolicy {
        storage_limits: StorageLimitPolicy::Ignored,
        ..EvictionPolicy::default()
    };
    policy.pressure.thresholds = signals.iter().map(|signal| met(*signal)).collect();
    policy
}

fn met(signal: Signal) -> Threshold {
    Threshold {
        signal,
        grace: Duration::ZERO,
        limit: ThresholdLimit::PerMillion(999_999),
        min_reclaim: ThresholdLimit::amount(0),
    }
}

async fn sample(
    sampler: &UsageSampler,
    policy: &EvictionPolicy,
) -> Result<UsageSample, SampleError> {
    let nothing = BTreeSet::new();
    sampler
        .sample(policy, &nothing, SampleExtent::Everything)
        .await
}

fn has(sample: &UsageSample, signals: &[Signal]) -> Vec<bool> {
    let is_there = |signal| sample.observations.contains_key(signal);
    signals.iter().map(is_there).collect()
}

/// What hangs of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stuck {
    Root,
    Images,
    Machine,
}

const LOOKED_AT: [Signal; 3] = [
    Signal::NodeFsAvailable,
    Signal::ImageFsAvailable,
    Signal::MemoryAvailable,
];

#[test]
fn what_hangs_costs_its_own_signals_and_is_told() {
    for stuck in [Stuck::Root, Stuck::Images, Stuck::Machine] {
        run_paused(move || async move {
            let machine = Machine::start().await;
            let summaries = machine.provider(StatsSource::Groups);
            let sampler = UsageSampler::new(summaries.clone());
            let policy = short_of(&[]);
            let whole = sample(&sampler, &policy).await.unwrap();
            assert_eq!(has(&whole, &LOOKED_AT), [true; 3]);
            let reader = &summaries.0.file_systems;
            let held = match stuck {
                Stuck::Root => hang(&reader.io(&machine.node.rules.node.root_dir)).await,
                Stuck::Images => {
                    let images = machine.node.runtime.file_systems().await.unwrap().images;
                    hang(&reader.io(Path::new(&images.unwrap().mountpoint))).await
                }
                Stuck::Machine => hang(sampler.machine_io()).await,
            };
            let part = sample(&sampler, &policy).await.unwrap();
            let expected = [Stuck::Root, Stuck::Images, Stuck::Machine].map(|one| one != stuck);
            assert_eq!(has(&part, &LOOKED_AT), expected, "{stuck:?}");
            assert_eq!(part.layout, whole.layout, "it is as it was");
            assert!(part.missing.unwrap().contains("has not answered"));
            drop(held);
        });
    }
}

#[test]
fn a_machine_of_which_nothing_answers_gives_no_sample() {
    run_paused(|| async {
        let machine = Machine::start().await;
        machine
            .node
            .script(r#"{"faults": [{"call": "ImageFsInfo", "times": 1000, "code": "Internal"}]}"#);
        let summaries = machine.provider(StatsSource::Groups);
        let sampler = UsageSampler::new(summaries.clone());
        let root = summaries
            .0
            .file_systems
            .io(&machine.node.rules.node.root_dir);
        let held = (hang(&root).await, hang(sampler.machine_io()).await);
        let error = sample(&sampler, &short_of(&[])).await.unwrap_err();
        assert!(matches!(error, SampleError::Node(_)), "{error}");
        drop(held);
    });
}

/// A runtime that never told where images are is asked by each sample, one that did is believed for a while.
#[test]
fn a_runtime_that_does_not_tell_where_images_are_hides_no_other_signal() {
    for fault in [r#""hang": true"#, r#""code": "Internal""#] {
        run_paused(move || async move {
            let machine = Machine::start().await;
            let faults =
                format!(r#"{{"faults": [{{"call": "ImageFsInfo", "times": 1000, {fault}}}]}}"#);
            machine.node.script(&faults);
            let sampler = UsageSampler::new(machine.provider(StatsSource::Groups));
            let policy = short_of(&[]);
            let part = sample(&sampler, &policy).await.unwrap();
            assert_eq!(has(&part, &LOOKED_AT), [true, false, true], "{fault}");
            machine.node.script("{}");
            let whole = sample(&sampler, &policy).await.unwrap();
            assert_eq!(has(&whole, &LOOKED_AT), [true; 3], "{fault}");
            machine.node.script(&faults);
            pass(Duration::from_secs(120)).await;
            let whole = sample(&sampler, &policy).await.unwrap();
            assert_eq!(has(&whole, &LOOKED_AT), [true; 3], "{fault}");
        });
    }
}

/// A limit that cannot be read is none: nobody is evicted for it.
#[test]
fn a_limit_of_the_pods_that_makes_no_sense_is_no_shortage() {
    for text in ["", "-1\n", "99999999999999999999999\n", "max\n", "\0"] {
        run_paused(move || async move {
            let machine = Machine::start().await;
            let sampler = UsageSampler::new(machine.provider(StatsSource::Groups));
            let policy = short_of(&[]);
            let of_pods = [Signal::AllocatableMemoryAvailable];
            let limit = machine.group("kubepods").join("memory.max");
            fs::write(&limit, "5000\n").unwrap();
            let whole = sample(&sampler, &policy).await.unwrap();
            assert_eq!(has(&whole, &of_pods), [true]);
            fs::write(&limit, text).unwrap();
            let part = sample(&sampler, &policy).await.unwrap();
            assert_eq!(has(&part, &of_pods), [false], "{text:?}");
            assert_eq!(has(&part, &LOOKED_AT), [true; 3], "{text:?}");
        });
    }
}

/// Where the pods are not known, or the runtime answers too late, the node's own figures count all the same.
#[test]
fn pods_that_are_not_known_or_measured_in_time_cost_the_sample_themselves_alone() {
    run_paused(|| async {
        let machine = Machine::start().await;
        let (pod_manager, _unanswered) = inbox(64);
        let unknown = UsageSampler::new(machine.provider_of(Peers {
            pod_manager,
            ..peers(&machine.node)
        }));
        let late = UsageSampler::new(machine.provider(StatsSource::Runtime));
        machine
            .node
            .script(r#"{"delays": {"ListPodSandboxStats": "30s"}}"#);
        for (sampler, told) in [(unknown, "the pods are not known"), (late, "after 10 s")] {
            let policy = short_of(&[Signal::NodeFsAvailable]);
            let part = sample(&sampler, &policy).await.unwrap();
            assert_eq!(has(&part, &LOOKED_AT), [true; 3]);
            assert!(part.pods.is_empty());
            let missing = part.missing.unwrap();
            assert!(missing.contains(told), "{missing}");
        }
    });
}

/// Memory runs out within a second: a runtime that does not answer by then is passed over.
#[test]
fn the_memory_of_pods_comes_from_their_groups_where_the_runtime_hangs() {
    run_paused(|| async {
        let machine = Machine::start().await;
        machine.write("", 1 << 30);
        machine.write("kubepods/besteffort/podweb", 300);
        machine
            .node
            .script(r#"{"faults": [{"call": "ListContainers", "times": 1000, "hang": true}]}"#);
        let policy = CgroupPolicy {
            driver: CgroupDriver::Cgroupfs,
            root: "/".to_owned(),
            pids: None,
        };
        let rules = PodWorkerConfig {
            node: NodePolicy {
                cgroups: Some(policy),
                ..machine.node.rules.node.clone()
            },
            ..machine.node.rules.as_ref().clone()
        };
        let summaries = machine.provider_of(Peers {
            rules: Arc::new(rules),
            ..peers(&machine.node)
        });
        let sampler = UsageSampler::new(summaries);
        let policy = short_of(&[Signal::MemoryAvailable]);
        let began = kernel::now();
        let nothing = BTreeSet::new();
        let found = sampler
            .sample(&policy, &nothing, SampleExtent::Memory)
            .await;
        let sample = found.unwrap();
        assert!(kernel::now() - began <= Duration::from_secs(1));
        let used = sample.pods[0].used.as_ref().unwrap();
        assert_eq!((used.memory, sample.pods.len()), (300, 1));
        assert_eq!(sample.missing, None);
    });
}

/// Memory runs out within a second: what the last answer said of it is none for the next.
#[test]
fn each_sample_of_memory_is_new() {
    run_paused(|| async {
        let machine = Machine::start().await;
        machine.write("", 1 << 30);
        let sampler = UsageSampler::new(machine.provider(StatsSource::Groups));
        let listed = machine.node.runtime.pods().await.unwrap();
        let web = listed.values().next().unwrap();
        let policy = short_of(&[Signal::MemoryAvailable]);
        let nothing = BTreeSet::new();
        for used in [300, 5000, 400] {
            machine.write(&format!("kubepods/pod{}", web.uid), used);
            let sample = sampler
                .sample(&policy, &nothing, SampleExtent::Memory)
                .await;
            let sample = sample.unwrap();
            let found = sample.pods[0].used.as_ref().unwrap();
            assert_eq!((found.memory, found.has_memory), (used, true));
        }
    });
}
