//! Init containers, sidecars and app containers: their order, their restarts, their end.

use k8s_openapi::api::core::v1::ContainerStatus;
use serde_json::json;
use tokio::time::{Duration, Instant};

use super::*;

on_each_runtime! {
    a_sidecar_starts_before_the_app_comes_back_alone_and_ends_after_it,
    a_rule_restarts_by_exit_code_what_the_policy_would_not,
    a_failing_liveness_probe_restarts_within_the_probes_own_grace,
}

fn sidecar() -> Value {
    let script =
        "sleep 1; touch /tmp/up; trap 'sleep 2; exit 0' TERM; while true; do sleep 0.2; done";
    let probe = json!({
        "exec": { "command": ["test", "-f", "/tmp/up"] },
        "periodSeconds": 1, "failureThreshold": 30,
    });
    with(
        container_of("side", script),
        json!({ "restartPolicy": "Always", "startupProbe": probe }),
    )
}

/// When its present or only instance began and ended.
fn times(status: &ContainerStatus) -> (jiff::Timestamp, Option<jiff::Timestamp>) {
    let state = status.state.clone().unwrap();
    match (state.running, state.terminated) {
        (Some(running), _) => (running.started_at.unwrap().0, None),
        (_, Some(ended)) => (
            ended.started_at.unwrap().0,
            ended.finished_at.map(|at| at.0),
        ),
        (None, None) => panic!("{status:?} has not begun"),
    }
}

async fn a_sidecar_starts_before_the_app_comes_back_alone_and_ends_after_it(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    node_rig.drop_pod(&pod(
        "web",
        json!({
            "terminationGracePeriodSeconds": 30,
            "initContainers": [container_of("first", "echo first"), sidecar(), container_of("second", "echo second")],
            "containers": [container_of("app", "trap 'sleep 2; exit 0' TERM; while true; do sleep 0.2; done")],
        }),
    ));
    let before = node_rig.until_running("web").await;
    let of = |name: &str| times(container(&before, name).unwrap());
    assert!(of("first").1.unwrap() <= of("side").0);
    let until_up = of("second").0.duration_since(of("side").0);
    assert!(
        until_up >= jiff::SignedDuration::from_millis(900),
        "{until_up}"
    );
    assert!(of("second").1.unwrap() <= of("app").0);
    assert!(container(&before, "side").unwrap().started == Some(true));

    let side = id_of(container(&before, "side").unwrap());
    node_rig.kill_container(&side).await;
    let after = node_rig
        .until("web", "has its sidecar again", |pod| {
            is_ready(pod) && restarts(pod, "side") == 1
        })
        .await;
    assert_eq!(ended_before(&after, "side").unwrap().exit_code, 137);
    let app = |pod| container(pod, "app").unwrap().container_id.clone();
    assert_eq!(app(&after), app(&before), "the app runs on");
    for other in ["first", "second", "app"] {
        assert_eq!(restarts(&after, other), 0, "{other}");
    }

    // Each takes two seconds to end: the sidecar begins when the app is through.
    let began = Instant::now();
    node_rig.remove_pod("web");
    node_rig
        .until("web", "has its sidecar without its app", |pod| {
            let side = container(pod, "side").unwrap();
            let app = ended(pod, "app");
            assert!(app.is_some() || is_running(side), "the sidecar ends first");
            app.is_some_and(|app| app.exit_code == 0) && is_running(side)
        })
        .await;
    node_rig.until_gone("web").await;
    let took = began.elapsed();
    assert!(
        took >= Duration::from_secs(4) && took < Duration::from_secs(20),
        "{took:?}"
    );
}

async fn a_rule_restarts_by_exit_code_what_the_policy_would_not(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let rules = json!({
        "restartPolicy": "Never",
        "restartPolicyRules": [{ "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } }],
    });
    let again = with(container_of("again", "exit 42"), rules.clone());
    let once = with(container_of("once", "exit 3"), rules);
    node_rig.drop_pod(&pod(
        "ruled",
        json!({ "restartPolicy": "Never", "containers": [again, once, container_of("app", SERVE_ON)] }),
    ));
    let pod = node_rig
        .until("ruled", "restarts one of two", |pod| {
            restarts(pod, "again") >= 1 && ended(pod, "once").is_some()
        })
        .await;
    assert_eq!(restarts(&pod, "once"), 0);
    assert_eq!(ended(&pod, "once").unwrap().exit_code, 3);
    assert!(is_running(container(&pod, "app").unwrap()));
    assert_eq!(phase(&pod), "Running");
}

async fn a_failing_liveness_probe_restarts_within_the_probes_own_grace(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let probe = json!({
        "exec": { "command": ["test", "-f", "/tmp/well"] },
        "initialDelaySeconds": 1, "periodSeconds": 1, "failureThreshold": 1,
        "terminationGracePeriodSeconds": 1,
    });
    let script = "touch /tmp/well; trap '' TERM; while true; do sleep 0.2; done";
    node_rig.drop_pod(&pod(
        "sick",
        json!({
            "terminationGracePeriodSeconds": 600,
            "containers": [with(container_of("app", script), json!({ "livenessProbe": probe }))],
        }),
    ));
    let pod = node_rig.until_running("sick").await;
    let began = Instant::now();
    node_rig.exec(&pod, "app", &["rm", "/tmp/well"]).await;
    let pod = node_rig
        .until("sick", "runs again", |pod| {
            is_ready(pod) && restarts(pod, "app") == 1
        })
        .await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(ended_before(&pod, "app").unwrap().exit_code, 137);
    node_rig
        .until_event("Unhealthy", &["Liveness probe failed"])
        .await;
    node_rig
        .until_event(
            "Killing",
            &["app", "failed liveness probe, will be restarted"],
        )
        .await;
}
