//! Random lives: whatever happens to a pod, and in whatever order, its worker keeps the invariants.
//!
//! The decisions have a model test of their own (`logic_pods::pod_actions`); here the whole tree runs, over the fake
//! runtime, with calls that fail or hang and an agent that is killed.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;
use logic_api::types::{ContainerState, RuntimeContainer, RuntimePod};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::testing::TestNode;

const LIVES: u32 = 24;
const UID: &str = "life";
/// The pod's own grace period.
const GRACE: Duration = Duration::from_secs(8);

const LIFE: &str = "
metadata: {name: life}
spec:
  terminationGracePeriodSeconds: 8
  initContainers:
  - {name: init, image: localhost/busybox, command: [sleep, '1']}
  - name: side
    image: localhost/busybox
    restartPolicy: Always
    command: [sh, -c, 'sleep 1; touch /up; sleep infinity']
    startupProbe: {exec: {command: [test, -f, /up]}, periodSeconds: 1, failureThreshold: 60}
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    lifecycle: {preStop: {sleep: {seconds: 1}}}
  - {name: deaf, image: localhost/busybox, command: [sh, -c, \"trap '' TERM; sleep infinity\"]}
  - {name: short, image: localhost/busybox, command: [sleep, '20']}
";

/// Something that happens.
#[derive(Debug, Clone)]
enum Event {
    Passes(u16),
    /// The nth running container is killed within the container.
    Killed(usize),
    SandboxStopped,
    /// The next calls of one name have this fault.
    Fault(&'static str, &'static str),
    WorkerPanics,
    AgentKilled,
}

fn event() -> impl Strategy<Value = Event> {
    let calls = prop::sample::select(vec![
        "RunPodSandbox",
        "CreateContainer",
        "StartContainer",
        "StopContainer",
        "ContainerStatus",
        "ListContainers",
        "RemoveContainer",
        "ExecSync",
    ]);
    let faults = prop::sample::select(vec![
        r#""code": "Internal", "message": "no""#,
        r#""code": "Unavailable", "message": "lost", "after_effect": true"#,
        r#""delay": "3s""#,
    ]);
    prop_oneof![
        6 => (1_u16..15_000).prop_map(Event::Passes),
        3 => (0_usize..5).prop_map(Event::Killed),
        1 => Just(Event::SandboxStopped),
        3 => (calls, faults).prop_map(|(call, fault)| Event::Fault(call, fault)),
        1 => Just(Event::WorkerPanics),
        1 => Just(Event::AgentKilled),
    ]
}

/// The invariants.
fn check(now: &RuntimePod) {
    for name in ["init", "side", "app", "deaf", "short"] {
        let alive = now
            .instances(name)
            .filter(|c| c.state == ContainerState::Running)
            .count();
        assert!(alive <= 1, "{alive} live instances of {name}");
    }
    // Within one sandbox, apps begin after the init container has ended well.
    for app in now
        .containers
        .iter()
        .filter(|c| ["app", "deaf", "short"].contains(&&*c.name))
    {
        let init = now
            .instances("init")
            .filter(|init| init.sandbox == app.sandbox);
        let mut ended: Vec<&RuntimeContainer> = init.filter(|init| init.succeeded()).collect();
        ended.sort_by_key(|init| init.finished_at);
        if let (Some(init), Some(begun)) = (ended.first(), app.started_at) {
            assert!(
                init.finished_at.is_some_and(|end| end <= begun),
                "{} before init",
                app.name
            );
        }
    }
}

async fn happen(node: TestNode, life: &std::sync::Arc<Pod>, event: &Event) -> TestNode {
    match event {
        Event::Passes(milliseconds) => pass(Duration::from_millis((*milliseconds).into())).await,
        Event::Killed(nth) => {
            let now = node.runtime.pod(&UID.into()).await;
            let running = now.iter().flat_map(|pod| &pod.containers);
            let mut running = running.filter(|c| c.state == ContainerState::Running);
            if let Some(container) = running.nth(*nth) {
                let kill = ["kill", "-9", "1"].map(str::to_owned);
                let within = Duration::from_secs(1);
                // It may have ended, or the call may fail.
                drop(node.runtime.exec_sync(&container.id, &kill, within).await);
            }
        }
        Event::SandboxStopped => {
            let now = node.runtime.pod(&UID.into()).await;
            if let Some(sandbox) = now.ok().and_then(|pod| pod.newest_sandbox().cloned()) {
                drop(node.runtime.stop_sandbox(&sandbox.id).await);
            }
        }
        Event::Fault(call, fault) => {
            let script = format!(r#"{{"faults": [{{"call": "{call}", "times": 1, {fault}}}]}}"#);
            node.script(&script);
        }
        Event::WorkerPanics => {
            // Before the first relist there is no worker.
            drop(
                node.node
                    .root
                    .inject("oxlet/pods/workers/life", kernel::InjectedFault::Panic),
            );
        }
        Event::AgentKilled => {
            let node = node.restart().await;
            node.desire(std::slice::from_ref(life));
            return node;
        }
    }
    node
}

fn deleted(pod: &Pod) -> std::sync::Arc<Pod> {
    let mut pod = pod.clone();
    pod.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    pod.metadata.deletion_grace_period_seconds = Some(8);
    pod.into()
}

/// Runs a random life, deletes the pod, and lets more happen while it ends.
async fn live(before: Vec<Event>, after: Vec<Event>) {
    let mut node = TestNode::start().await;
    let life = pod(LIFE);
    node.desire(std::slice::from_ref(&life));
    for event in &before {
        node = happen(node, &life, event).await;
        if let Ok(now) = node.runtime.pod(&UID.into()).await {
            check(&now);
        }
    }
    node.script("{}");
    let deleted = deleted(&life);
    node.desire(std::slice::from_ref(&deleted));
    // Running calls end; from then on none begins.
    pass(Duration::from_secs(5)).await;
    let last = instances(&node).await;
    for event in &after {
        node = happen(node, &deleted, event).await;
    }
    node.script("{}");
    node.desire(std::slice::from_ref(&deleted));
    let begun = kernel::now();
    while node.exists(&UID.into()).await {
        let now = instances(&node).await;
        assert!(
            now.iter().all(|id| last.contains(id)),
            "something began after the deletion"
        );
        let took = kernel::now() - begun;
        assert!(took < GRACE * 10, "it does not end");
        pass(Duration::from_millis(500)).await;
    }
}

async fn instances(node: &TestNode) -> Vec<logic_api::types::ContainerId> {
    let now = node.runtime.pod(&UID.into()).await.unwrap();
    now.containers
        .into_iter()
        .map(|container| container.id)
        .collect()
}

#[test]
fn whatever_happens_a_worker_keeps_the_laws_and_comes_to_an_end() {
    let lives = (
        prop::collection::vec(event(), 0..14),
        prop::collection::vec(event(), 0..4),
    );
    let config = Config {
        cases: LIVES,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    runner
        .run(&lives, |(before, after)| {
            run_paused(|| live(before, after));
            Ok(())
        })
        .unwrap();
}
