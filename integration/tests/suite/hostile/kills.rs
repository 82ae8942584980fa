//! Pods that are started while the plugins and the agent are killed all the time: each runs, made once.

use std::time::Duration;

use integration::chaos::Chaos;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use tokio::time::Instant;

use crate::suite::node_rig::*;

const PODS: usize = 12;
/// So many pods come at once: their calls are in flight together when one is hit.
const GROUP: usize = 3;
/// The adapter twice: creating calls go through it.
const VICTIMS: [&str; 4] = ["runtime", "runtime", "storage-local", "storage-csi"];
/// From kill to kill.
const PERIOD: Duration = Duration::from_secs(1);
/// A group of pods is begun within this time; the kill comes at some moment of it.
const START: Duration = Duration::from_millis(600);
/// Each so many seconds the agent is killed as well.
const AGENT_TURN: usize = 4;
/// From the first pod's manifest to the last pod's readiness. Without kills it is some 5 s: the groups come one a second.
const WITHIN: Duration = Duration::from_secs(60);

/// What was killed, and how often.
#[derive(Debug, Default)]
struct Kills {
    plugins: usize,
    agents: usize,
}

/// Starts the pods, group by group, and kills a plugin a second until all are ready; returns how long that took.
async fn attack(rig: &mut NodeRig, seed: u64) -> (Kills, Duration) {
    let (mut chaos, mut kills) = (Chaos::new(seed), Kills::default());
    let began = Instant::now();
    for second in 0.. {
        let next = Instant::now() + PERIOD;
        for number in (0..PODS).skip(second * GROUP).take(GROUP) {
            let (file, name) = (format!("pod-{number:02}.yaml"), format!("pod-{number:02}"));
            rig.node.drop_manifest(&file, &server(&name)).unwrap();
        }
        chaos.moment(START).await;
        let victim = usize::try_from(chaos.below(4)).unwrap();
        kills.plugins += usize::from(rig.node.kill_plugin_named(VICTIMS[victim]));
        if second % AGENT_TURN == AGENT_TURN - 1 {
            rig.node.kill9().unwrap();
            rig.node.begin().await.unwrap();
            kills.agents += 1;
        }
        let pods = rig.node.pods().await.unwrap_or_default();
        if pods.len() == PODS && pods.iter().all(is_ready) || began.elapsed() > WITHIN {
            break;
        }
        tokio::time::sleep_until(next).await;
    }
    (kills, began.elapsed())
}

/// The containers that count restarts, each with what its status says.
fn restarted(pods: &[Pod]) -> Vec<&ContainerStatus> {
    let all = pods.iter().flat_map(containers);
    all.filter(|status| status.restart_count > 0).collect()
}

#[tokio::test]
async fn pods_started_under_a_kill_a_second_become_ready_each_container_made_once() {
    let patient = TestRuntime::Containerd.start_with(|builder| builder.with_patience());
    let Some(mut rig) = patient.await else {
        return;
    };
    let (kills, took) = attack(&mut rig, 4_242).await;
    println!("{PODS} pods after {took:?} and {kills:?}");
    let pods = until_all_ready(&rig.node, PODS, CONVERGENCE_TIMEOUT).await;
    assert!(took < WITHIN, "{took:?}");
    assert_eq!(restarted(&pods), [] as [&ContainerStatus; 0]);

    let cri = rig.cri().await;
    assert_nothing_twice(&cri).await;
    assert_eq!(cri.running().await.unwrap().len(), PODS);
    let made = cri.containers().await.unwrap();
    assert_eq!(made.len(), PODS, "each container is made once: {made:?}");
    let log = rig.node.log();
    for word in ["CrashLoopBackOff", "BackOff", "FailedCreatePodSandBox"] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(word)).collect();
        assert_eq!(lines, [""; 0], "an interruption is no failure of a pod");
    }
}
