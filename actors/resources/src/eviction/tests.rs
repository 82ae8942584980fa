//! The eviction manager on a whole node whose runtime is in this process.

use std::collections::BTreeMap;
use std::io;

use clients::storage::testing::StorageFault;
use k8s_openapi::api::core::v1::PodStatus;
use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::{ChildSpec, Reply, mailbox};
use logic_api::testing::yaml::pod;
use logic_resources::eviction::StorageLimitPolicy;
use logic_resources::thresholds::{AllocatableThresholds, ThresholdPolicy, ThresholdTexts, parse};
use pods::testing::TestNode;

use super::*;
use crate::stats::{self, SummaryProvider};

/// Hard thresholds in the words of the configuration.
pub(super) fn policy(hard: &[(&str, &str)]) -> EvictionPolicy {
    let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    let (hard, none) = (hard.iter().map(own).collect(), BTreeMap::new());
    let thresholds = parse(&ThresholdTexts {
        hard: &hard,
        soft: &none,
        soft_grace: &none,
        min_reclaim: &none,
        allocatable: AllocatableThresholds::Left,
    });
    EvictionPolicy {
        pressure: ThresholdPolicy {
            thresholds: thresholds.unwrap(),
            transition: Duration::from_secs(300),
        },
        ..EvictionPolicy::default()
    }
}

/// A threshold that is always met: less than all of the memory is available.
pub(super) fn always_short() -> EvictionPolicy {
    policy(&[("memory.available", "99.99%")])
}

fn spawn(node: &TestNode, policy: EvictionPolicy) -> Addr<Msg> {
    spawn_with(node, policy, None, Collectors::default())
}

fn spawn_with(
    node: &TestNode,
    policy: EvictionPolicy,
    object: Option<Recipient<BTreeSet<Signal>>>,
    collectors: Collectors,
) -> Addr<Msg> {
    let peers = Peers {
        pod_manager: node.node.pod_manager.clone(),
        node: object,
        recorder: node.node.recorder.clone(),
        collectors,
    };
    spawn_among(
        node,
        SummaryProvider::new(stats::testing::peers(node)),
        policy,
        peers,
    )
}

pub(super) fn spawn_among(
    node: &TestNode,
    summaries: SummaryProvider,
    policy: EvictionPolicy,
    peers: Peers,
) -> Addr<Msg> {
    let (addr, port) = mailbox(MAILBOX);
    let sampler = UsageSampler::new(summaries);
    let spec = ChildSpec::permanent("eviction");
    node.node.root.spawn(spec, port, move || {
        EvictionManager::new(
            policy.clone(),
            sampler.clone(),
            peers.clone(),
            "node".into(),
        )
    });
    addr
}

#[derive(Debug, strum::IntoStaticStr)]
enum EvictionMessage {
    Pressures(BTreeSet<Signal>),
}

#[test]
fn the_nodes_object_is_told_what_changes_and_again_when_it_asks() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let (to_object, mut object) = inbox(64);
        let to_object = Recipient::new(to_object, EvictionMessage::Pressures);
        let eviction = spawn_with(
            &node,
            always_short(),
            Some(to_object),
            Collectors::default(),
        );
        eviction.tell(Msg::Resync).unwrap();
        pass(FIRST_SAMPLE_DELAY / 2).await;
        assert_eq!(object.drain().len(), 0, "there is no sample yet");
        pass(MONITORING_PERIOD * 10).await;
        let last_reported = object.drain();
        let [EvictionMessage::Pressures(pressures)] = last_reported.as_slice() else {
            panic!("{last_reported:?}");
        };
        assert_eq!(*pressures, BTreeSet::from([Signal::MemoryAvailable]));
        eviction.tell(Msg::Resync).unwrap();
        pass(MONITORING_PERIOD / 2).await;
        assert_eq!(object.drain().len(), 1);
    });
}

const GUEST: &str = "
metadata: {name: guest}
spec:
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";
const STATIC: &str = "
metadata: {name: static, annotations: {kubernetes.io/config.source: file}}
spec:
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";

pub(super) async fn with_guests(names: &[&str]) -> TestNode {
    let node = TestNode::start().await;
    let guest = |name: &&str| pod(&GUEST.replace("guest", name));
    let mut pods: Vec<_> = names.iter().map(guest).collect();
    pods.push(pod(STATIC));
    node.desire(&pods);
    for name in names.iter().chain(&["static"]) {
        node.until(name, is_running).await;
    }
    node
}

/// Each signal that the machine can always be short of has its pods evicted, one after the other, and their words.
#[test]
fn a_node_that_is_short_evicts_its_guests_and_spares_its_static_pod() {
    let cases = [
        ("memory.available", "99.99%", "memory"),
        ("nodefs.available", "99.99%", "ephemeral-storage"),
        ("nodefs.inodesFree", "99.99%", "inodes"),
        ("pid.available", "99.99%", "pids"),
    ];
    for (signal, limit, resource) in cases {
        run_paused(move || async move {
            let node = with_guests(&["guest", "other"]).await;
            spawn(&node, policy(&[(signal, limit)]));
            for name in ["guest", "other"] {
                let status = node.until(name, is_failed).await;
                assert_eq!(status.reason.as_deref(), Some("Evicted"));
                let message = status.message.clone().unwrap_or_default();
                let low = format!("The node was low on resource: {resource}. Threshold quantity: ");
                assert!(message.starts_with(&low), "{message}");
                let conditions = status.conditions.clone().unwrap_or_default();
                let target = conditions.iter().find(|c| c.type_ == "DisruptionTarget");
                let target = target.expect("it is one");
                assert_eq!(target.reason.as_deref(), Some("TerminationByKubelet"));
                assert_eq!(target.message.as_ref(), Some(&message));
            }
            pass(Duration::from_secs(120)).await;
            node.until("static", is_running).await;
            let events = node.events().await;
            let event = |reason: &str| events.iter().find(|event| event.reason == reason);
            assert!(
                event("EvictionThresholdMet")
                    .unwrap()
                    .annotations
                    .is_empty()
            );
            let told = &event("Evicted").unwrap().annotations;
            assert_eq!(told["starved_resource"], resource);
            let offenders = (
                &told["offending_containers"],
                &told["offending_containers_usage"],
            );
            assert_eq!(offenders.0.is_empty(), offenders.1.is_empty());
        });
    }
}

/// Two guests with a volume each, whose unmounts hang; one of them has been evicted for the disk.
async fn with_held_volumes() -> TestNode {
    const VOLUMES: &str = "  volumes: [{name: data, emptyDir: {}}]\n";
    const MOUNTS: &str = "volumeMounts: [{name: data, mountPath: /data}], command";
    let node = TestNode::start().await;
    let guest = GUEST.replace("command", MOUNTS) + VOLUMES;
    let names = ["guest", "other"];
    node.desire(&names.map(|name| pod(&guest.replace("guest", name))));
    for name in names {
        node.until(name, is_running).await;
        let volume = format!("kubernetes.io/empty-dir/{name}-data");
        node.storage.fault("unmount", &volume, StorageFault::Held);
    }
    spawn(&node, policy(&[("nodefs.available", "99.99%")]));
    pass(MONITORING_PERIOD * 2).await;
    assert_eq!(failures(&node).await, 1, "its volume is not unmounted");
    node
}

async fn failures(node: &TestNode) -> usize {
    let statuses = node.statuses().await;
    statuses.values().filter(|status| is_failed(status)).count()
}

/// What a pod wrote is on the disk until its volumes are gone.
#[test]
fn the_next_pod_goes_when_nothing_of_the_last_one_is_mounted() {
    run_paused(|| async {
        let node = with_held_volumes().await;
        node.storage.release();
        pass(MONITORING_PERIOD).await;
        assert_eq!(failures(&node).await, 2);
    });
}

#[test]
fn a_volume_that_is_never_unmounted_shields_nobody() {
    run_paused(|| async {
        let node = with_held_volumes().await;
        pass(Duration::from_secs(30)).await;
        assert_eq!(failures(&node).await, 2);
    });
}

#[test]
fn a_node_with_enough_evicts_nobody() {
    run_paused(|| async {
        let node = with_guests(&["guest"]).await;
        spawn(&node, EvictionPolicy::default());
        pass(Duration::from_secs(120)).await;
        node.until("guest", is_running).await;
    });
}

#[test]
fn what_the_kernel_reports_is_looked_at_at_once_and_not_more_than_once_a_second() {
    run_paused(|| async {
        let node = with_guests(&["guest", "other"]).await;
        let eviction = spawn(&node, always_short());
        for _ in 0..3 {
            eviction.tell(Msg::MemoryThresholdCrossed).unwrap();
        }
        pass(Duration::from_secs(4)).await;
        let gone = node.until("guest", |_| true).await;
        let other = node.until("other", |_| true).await;
        assert!(
            is_failed(&gone) || is_failed(&other),
            "long before the next tick"
        );
    });
}

/// A runtime that does not tell what pods take costs no pod its life; the pressure shows, the node gives back what it
/// can, and the reason is told.
#[test]
fn a_runtime_that_does_not_measure_or_hangs_evicts_nobody() {
    for fault in [
        r#""code": "Unknown", "message": "no stats today""#,
        r#""hang": true"#,
    ] {
        run_paused(move || async move {
            let node = with_guests(&["guest"]).await;
            let of = |call: &str| format!(r#"{{"call": "{call}", "times": 1000, {fault}}}"#);
            let calls = [
                "ListPodSandboxStats",
                "PodSandboxStats",
                "ListContainerStats",
                "ListPodSandboxMetrics",
            ];
            let faults = calls.map(of).join(", ");
            node.script(&format!(r#"{{"faults": [{faults}]}}"#));
            let (to_object, mut object) = inbox(64);
            let to_object = Recipient::new(to_object, EvictionMessage::Pressures);
            let (collectors, mut asked) = collectors();
            let policy = policy(&[("nodefs.available", "99.99%")]);
            spawn_with(&node, policy, Some(to_object), collectors);
            for _ in 0..60 {
                pass(Duration::from_secs(1)).await;
                words(asked.drain());
            }
            let EvictionMessage::Pressures(pressures) = object.drain().pop().unwrap();
            assert!(
                pressures.contains(&Signal::NodeFsAvailable),
                "{pressures:?}"
            );
            let told = snapshot(&node).await["last_error"].to_string();
            assert!(told.contains("the pods' usage is not known"), "{told}");
            node.until("guest", is_running).await;
        });
    }
}

#[derive(Debug, strum::IntoStaticStr)]
enum Collect {
    Images(Reply<Result<u64, io::Error>>),
    Containers(Reply<Result<u64, io::Error>>),
}

fn collectors() -> (Collectors, Inbox<Collect>) {
    let (addr, asked) = inbox(64);
    let collectors = Collectors {
        images: Some(Reclaimer::new(addr.clone(), Collect::Images)),
        containers: Some(Reclaimer::new(addr, Collect::Containers)),
    };
    (collectors, asked)
}

fn words(asked: Vec<Collect>) -> Vec<&'static str> {
    let answer = |asked| match asked {
        Collect::Images(reply) => {
            reply.send(Err(io::Error::other("no images today")));
            "images"
        }
        Collect::Containers(reply) => {
            reply.send(Ok(0));
            "containers"
        }
    };
    asked.into_iter().map(answer).collect()
}

/// Upstream's TestNodeReclaimFuncs: dead containers and images first, and a pod if that is not enough, even if a
/// collector fails.
#[test]
fn the_node_gives_back_what_it_can_before_a_pod_goes() {
    run_paused(|| async {
        let node = with_guests(&["guest"]).await;
        let (collectors, mut asked) = collectors();
        let policy = policy(&[("nodefs.available", "99.99%")]);
        spawn_with(&node, policy, None, collectors);
        pass(FIRST_SAMPLE_DELAY + Duration::from_secs(1)).await;
        assert_eq!(words(asked.drain()), ["containers"]);
        node.until("guest", is_running).await;
        pass(Duration::from_secs(1)).await;
        assert_eq!(words(asked.drain()), ["images"]);
        pass(Duration::from_secs(1)).await;
        node.until("guest", is_failed).await;
    });
}

/// Collectors that never answer hold up no eviction for longer than their time.
#[test]
fn collectors_that_hang_are_waited_for_no_longer_than_their_time() {
    run_paused(|| async {
        let node = with_guests(&["guest"]).await;
        let (collectors, _asked) = collectors();
        let policy = policy(&[("nodefs.available", "99.99%")]);
        spawn_with(&node, policy, None, collectors);
        node.until("guest", is_failed).await;
    });
}

/// Memory is nothing that collectors give back.
#[test]
fn short_of_memory_no_collector_is_asked() {
    run_paused(|| async {
        let node = with_guests(&["guest"]).await;
        let (collectors, mut asked) = collectors();
        spawn_with(&node, always_short(), None, collectors);
        node.until("guest", is_failed).await;
        assert_eq!(asked.drain().len(), 0);
    });
}

const GREEDY: &str = "
metadata: {name: greedy}
spec:
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    resources: {limits: {ephemeral-storage: 1Ki}}
";

/// Upstream's TestStorageLimitEvictions and TestManagerWithLocalStorageCapacityIsolationOpen.
#[test]
fn a_pod_that_takes_more_of_the_disk_than_it_may_goes_where_limits_are_kept() {
    for limits in [StorageLimitPolicy::Kept, StorageLimitPolicy::Ignored] {
        run_paused(move || async move {
            let node = with_guests(&["guest"]).await;
            node.desire(&[pod(GREEDY), pod(GUEST)]);
            node.until("greedy", is_running).await;
            let logs = node
                .rules
                .node
                .pod_logs_dir
                .join("default_greedy_greedy/app");
            std::fs::create_dir_all(&logs).unwrap();
            std::fs::write(logs.join("0.log"), "line\n".repeat(1000)).unwrap();
            let policy = EvictionPolicy {
                storage_limits: limits,
                ..EvictionPolicy::default()
            };
            spawn(&node, policy);
            pass(Duration::from_secs(60)).await;
            let status = node.until("greedy", |_| true).await;
            match limits {
                StorageLimitPolicy::Ignored => assert!(is_running(&status)),
                StorageLimitPolicy::Kept => {
                    assert_eq!(status.reason.as_deref(), Some("Evicted"));
                    let expected = "Pod ephemeral local storage usage exceeds the total limit of containers 1Ki. ";
                    assert_eq!(status.message.as_deref(), Some(expected));
                }
            }
            node.until("guest", is_running).await;
        });
    }
}

/// As it shows itself to operators.
pub(super) async fn snapshot(node: &TestNode) -> serde_json::Value {
    let tree = node.node.root.tree().await;
    let mut children = tree.children.iter();
    let own = children.find(|child| child.path.ends_with("eviction"));
    own.unwrap().snapshot.clone()
}

fn is_failed(status: &PodStatus) -> bool {
    phase(status) == Some("Failed")
}

fn is_running(status: &PodStatus) -> bool {
    phase(status) == Some("Running")
}

fn phase(status: &PodStatus) -> Option<&str> {
    status.phase.as_deref()
}
