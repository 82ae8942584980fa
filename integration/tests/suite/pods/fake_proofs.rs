//! A node survives: plugins killed a thousand times, every manager broken, a thousand pods.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use integration::chaos::Chaos;
use integration::wait_until;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::suite::node_rig::*;

/// A debug build, on a machine that does other things as well.
const LONG: Duration = Duration::from_secs(180);

async fn drop_pods(node_rig: &NodeRig, count: usize) {
    for number in 0..count {
        let name = format!("pod-{number:04}");
        node_rig
            .node
            .drop_manifest(&format!("{name}.yaml"), &server(&name))
            .unwrap();
    }
}

#[tokio::test]
async fn a_thousand_plugin_kills_under_load_lose_and_double_nothing() {
    const KILLS: usize = 1_000;
    const NAMES: u64 = 30;
    let Some(node_rig) = TestRuntime::Fake
        .start_with(|builder| builder.with_patience())
        .await
    else {
        return;
    };
    let node = &node_rig.node;
    let mut chaos = Chaos::new(1_000);
    let (mut desired, mut kills, mut changes) = (BTreeSet::new(), 0, 0);
    let began = Instant::now();
    while kills < KILLS {
        if chaos.below(2) == 0 {
            let name = format!("pod-{:02}", chaos.below(NAMES));
            let file = format!("{name}.yaml");
            match desired.remove(&name) {
                true => node.remove_manifest(&file).unwrap(),
                false => {
                    node.drop_manifest(&file, &server(&name)).unwrap();
                    desired.insert(name);
                }
            }
            changes += 1;
        }
        // One that dies before it is ready is restarted after a pause: most are killed at their work.
        if chaos.below(10) != 0 {
            node.until_plugin_ready(CONVERGENCE_TIMEOUT).await.unwrap();
        }
        chaos.moment(Duration::from_millis(40)).await;
        kills += usize::from(node.kill_plugin());
    }
    let under_fire = began.elapsed();
    let settling = Instant::now();
    let pods = until_all_ready(node, desired.len(), LONG).await;
    println!(
        "{kills} kills and {changes} changes in {under_fire:?}, {} pods ready {:?} later",
        pods.len(),
        settling.elapsed()
    );
    let names: BTreeSet<String> = pods
        .iter()
        .filter_map(|pod| pod.metadata.name.clone())
        .collect();
    let wanted: BTreeSet<String> = desired.iter().map(|name| format!("{name}-node")).collect();
    assert_eq!(names, wanted);
    for pod in &pods {
        let app = container(pod, "app").unwrap();
        assert_eq!(app.restart_count, 0, "its container never ended: {app:?}");
    }
    let cri = node_rig.cri().await;
    assert_nothing_twice(&cri).await;
    let running = cri.running().await.unwrap();
    assert_eq!(running.len(), desired.len());
    wait_until(
        CONVERGENCE_TIMEOUT,
        "nothing is left of the pods that were removed",
        async || {
            cri.sandboxes().await.unwrap().len() == desired.len()
                && cri.containers().await.unwrap().len() == desired.len()
        },
    )
    .await
    .unwrap();
    assert!(node.is_healthy().await);
    assert_no_panic(&node_rig);
}

#[tokio::test]
async fn every_manager_may_panic_and_hang_while_pods_go_on() {
    const PODS: usize = 10;
    let Some(node_rig) = TestRuntime::Fake
        .start_with(|builder| builder.with_faults())
        .await
    else {
        return;
    };
    let node = &node_rig.node;
    drop_pods(&node_rig, PODS).await;
    let before = identities(&until_all_ready(node, PODS, CONVERGENCE_TIMEOUT).await);
    let managers = managers(&node.admin("/tree").await.unwrap());
    println!("{managers:?}");
    assert!(managers.len() >= 10, "{managers:?}");

    for (turn, path) in managers.iter().enumerate() {
        let restarts = restarts(&node_rig, path).await;
        break_actor(&node_rig, path, "panic").await;
        until_restarted(&node_rig, path, restarts).await;
        goes_on(&node_rig, &before, &format!("panic-{turn}")).await;
    }
    println!("each has panicked");

    // A hang is found after half a minute. So the next one hangs while the one before is still stuck.
    let mut counted = Vec::new();
    for path in &managers {
        counted.push((path, restarts(&node_rig, path).await));
    }
    let hung = Instant::now();
    for path in &managers {
        break_actor(&node_rig, path, "hang").await;
    }
    let cri_before: BTreeSet<String> = before.values().map(|(id, _)| id.clone()).collect();
    let socket = node.root().join("oxlet/plugins/runtime.sock");
    let cri = integration::agent::Cri::connect(&socket);
    let running = cri.running().await.unwrap();
    let running: BTreeSet<String> = running.into_values().collect();
    assert_eq!(
        running, cri_before,
        "containers run on under managers that hang"
    );
    for (path, restarts) in counted {
        until_restarted(&node_rig, path, restarts).await;
    }
    println!(
        "each has hung, and all were back after {:?}",
        hung.elapsed()
    );
    goes_on(&node_rig, &before, "after-hangs").await;
    let log = node.log();
    for path in &managers {
        assert!(
            log.contains(&format!(
                "\"actor hangs and is restarted\" actor=\"{path}\""
            )),
            "{path}"
        );
    }
}

/// Healthy, every container as it was, and a new pod can begin and end.
async fn goes_on(
    node_rig: &NodeRig,
    before: &std::collections::BTreeMap<(String, String), (String, i32)>,
    newcomer: &str,
) {
    let file = format!("{newcomer}.yaml");
    node_rig
        .node
        .drop_manifest(&file, &server(newcomer))
        .unwrap();
    node_rig.until_running(newcomer).await;
    node_rig.node.remove_manifest(&file).unwrap();
    node_rig.until_gone(newcomer).await;
    let pods = until_all_ready(&node_rig.node, before.len(), CONVERGENCE_TIMEOUT).await;
    assert_eq!(&identities(&pods), before, "{newcomer}");
    wait_until(CONVERGENCE_TIMEOUT, "the agent is healthy", async || {
        node_rig.node.is_healthy().await
    })
    .await
    .unwrap();
}

/// The admin server's own fault may end the connection before the answer.
async fn break_actor(node_rig: &NodeRig, path: &str, fault: &str) {
    let order = format!("/faults?path={path}&fault={fault}");
    let answer = node_rig.node.order(&order).await;
    assert!(
        answer.is_ok() || path.ends_with("/admin"),
        "{path}: {answer:?}"
    );
}

async fn restarts(node_rig: &NodeRig, path: &str) -> u64 {
    let mut restarts = None;
    wait_until(
        CONVERGENCE_TIMEOUT,
        &format!("{path} is shown"),
        async || {
            if let Ok(tree) = node_rig.node.admin("/tree").await {
                restarts = actor(&tree, path).and_then(|actor| actor["restarts"].as_u64());
            }
            restarts.is_some()
        },
    )
    .await
    .unwrap();
    restarts.unwrap_or_default()
}

async fn until_restarted(node_rig: &NodeRig, path: &str, before: u64) {
    wait_until(
        CONVERGENCE_TIMEOUT,
        &format!("{path} is restarted"),
        async || {
            let Ok(tree) = node_rig.node.admin("/tree").await else {
                return false;
            };
            actor(&tree, path).is_some_and(|actor| {
                actor["state"] == "Running" && actor["restarts"].as_u64() > Some(before)
            })
        },
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn a_thousand_pods_at_once_all_run() {
    const PODS: usize = 1_000;
    let fields = json!({ "maxPods": 2_000 });
    let Some(node_rig) = TestRuntime::Fake
        .start_with(|builder| builder.config(&fields))
        .await
    else {
        return;
    };
    let began = Instant::now();
    drop_pods(&node_rig, PODS).await;
    let dropped = began.elapsed();
    let before = until_all_ready(&node_rig.node, PODS, LONG).await;
    println!(
        "{PODS} manifests dropped in {dropped:?}, all pods ready after {:?}",
        began.elapsed()
    );
    let tree = node_rig.node.admin("/tree").await.unwrap();
    println!(
        "messages handed back for want of room: {}",
        overloads(&tree)
    );
    let cri = node_rig.cri().await;
    assert_nothing_twice(&cri).await;
    assert_eq!(cri.running().await.unwrap().len(), PODS);
    assert!(
        identities(&before)
            .values()
            .all(|(_, restarts)| *restarts == 0)
    );

    let removing = Instant::now();
    for number in 0..PODS {
        node_rig
            .node
            .remove_manifest(&format!("pod-{number:04}.yaml"))
            .unwrap();
    }
    until_all_ready(&node_rig.node, 0, LONG).await;
    println!("all of them gone after {:?}", removing.elapsed());
    assert!(cri.containers().await.unwrap().is_empty());
    assert_no_panic(&node_rig);
}

/// The messages that were handed back to their senders, in the whole tree.
fn overloads(tree: &Value) -> u64 {
    let own = tree["mailbox"]["overloaded"].as_u64().unwrap_or_default();
    let children = tree["children"].as_array().into_iter().flatten();
    own + children.map(overloads).sum::<u64>()
}

#[tokio::test]
async fn an_agent_killed_with_110_pods_adopts_them_all() {
    const PODS: usize = 110;
    let Some(mut node_rig) = TestRuntime::Fake.start().await else {
        return;
    };
    drop_pods(&node_rig, PODS).await;
    let before = until_all_ready(&node_rig.node, PODS, CONVERGENCE_TIMEOUT).await;
    node_rig.node.kill9().unwrap();
    let (healthy, took) = adopted(&mut node_rig.node, &before).await;
    println!(
        "agent killed with {PODS} pods on fake: healthy after {healthy:?}, all adopted after {took:?}"
    );
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_nothing_twice(&node_rig.cri().await).await;
    assert_no_panic(&node_rig);
}

#[tokio::test]
async fn a_plugin_is_restarted_and_swapped_while_pods_run() {
    let Some(node_rig) = TestRuntime::Fake.start().await else {
        return;
    };
    let node = &node_rig.node;
    drop_pods(&node_rig, 10).await;
    let before = identities(&until_all_ready(node, 10, CONVERGENCE_TIMEOUT).await);
    let orders: [&[&str]; 4] = [
        &["plugin", "restart", "runtime"],
        &["plugin", "swap", "runtime", "other"],
        &["plugin", "swap", "runtime", "fake"],
        &["plugin", "restart", "runtime"],
    ];
    for (turn, order) in orders.iter().enumerate() {
        let old = node.plugin().await.unwrap();
        // Pods start and end meanwhile.
        let name = format!("meanwhile-{turn}");
        node.drop_manifest(&format!("{name}.yaml"), &server(&name))
            .unwrap();
        let said = node.oxctl(order).await.unwrap();
        let new = node.plugin().await.unwrap();
        assert_ne!(old["pid"], new["pid"], "{said}");
        assert!(
            new["generation"].as_u64() > old["generation"].as_u64(),
            "{said}"
        );
        assert_eq!(new["state"], "ready", "{said}");
        node_rig.until_running(&name).await;
        node.remove_manifest(&format!("{name}.yaml")).unwrap();
        node_rig.until_gone(&name).await;
        let after = until_all_ready(node, 10, CONVERGENCE_TIMEOUT).await;
        assert_eq!(identities(&after), before, "{order:?}");
    }
    let refused = node
        .oxctl(&["plugin", "swap", "runtime", "nobody"])
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("there is no plugin nobody"),
        "{refused}"
    );
    let shown = node.oxctl(&["plugins"]).await.unwrap();
    assert!(
        shown.contains("runtime") && shown.to_lowercase().contains("ready"),
        "{shown}"
    );
    assert_nothing_twice(&node_rig.cri().await).await;
}

#[tokio::test]
async fn a_killed_agents_crash_loops_are_remembered() {
    let Some(mut node_rig) = TestRuntime::Fake.start().await else {
        return;
    };
    node_rig
        .node
        .drop_manifest("crash.yaml", &one("crash", "Always", "exit 3"))
        .unwrap();
    let long =
        |pod: &k8s_openapi::api::core::v1::Pod| waiting(pod, "app").1.starts_with("back-off 20s");
    let before = node_rig.until("crash", "backs off for 20 s", long).await;
    // A later pod's record on disk shows that everything before it is there, too.
    node_rig
        .node
        .drop_manifest("later.yaml", &server("later"))
        .unwrap();
    let later = uid(&node_rig.until_running("later").await);
    let file = node_rig.node.root().join("oxlet/pods.checkpoint");
    wait_until(CONVERGENCE_TIMEOUT, "the records are on disk", async || {
        let bytes = fs::read(&file).unwrap_or_default();
        bytes
            .windows(later.len())
            .any(|window| window == later.as_bytes())
    })
    .await
    .unwrap();
    node_rig.node.kill9().unwrap();
    node_rig.node.begin().await.unwrap();
    let after = node_rig
        .until("crash", "is taken up", |pod| {
            waiting(pod, "app").0 == "CrashLoopBackOff"
        })
        .await;
    assert!(long(&after), "{:?}", waiting(&after, "app"));
    let count = |pod| container(pod, "app").unwrap().restart_count;
    assert_eq!(count(&after), count(&before));
    assert_eq!(
        after.status.unwrap().start_time,
        before.status.unwrap().start_time
    );
}

fn assert_no_panic(node_rig: &NodeRig) {
    let log = node_rig.node.log();
    let panics: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("panicked"))
        .collect();
    assert!(panics.is_empty(), "{panics:?}");
}
