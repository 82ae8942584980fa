//! Pods that are admitted, pods that are refused, and pods that stay although they would be refused now.

use serde_json::json;

use super::*;

on_each_runtime! {
    a_pod_that_does_not_fit_fails_and_says_why,
    what_runs_is_adopted_by_an_agent_that_would_refuse_it,
}

/// Enough that some are judged after those that are refused: the order is that of their UIDs.
const SMALL: [&str; 5] = ["here-1", "here-2", "here-3", "here-4", "here-5"];

async fn a_pod_that_does_not_fit_fails_and_says_why(on: TestRuntime) {
    let of = |name: &str, amount: &str| json!({ "resources": { "requests": { name: amount } } });
    let app = || container_of("app", SERVE_ON);
    let large =
        |resource: &str, amount: &str| json!({ "containers": [with(app(), of(resource, amount))] });
    let elsewhere = json!({ "nodeSelector": { "disk": "fast" }, "containers": [app()] });
    let here = json!({ "nodeSelector": { "kubernetes.io/os": "linux" }, "containers": [with(app(), of("cpu", "10m"))] });
    let mut pods = vec![
        ("elsewhere", elsewhere),
        ("fast", large("cpu", "10000")),
        ("wide", large("memory", "1000Ti")),
    ];
    pods.extend(SMALL.map(|name| (name, here.clone())));
    // All of them are there when the agent starts: a refused pod must not hinder another.
    let all = |mut builder: integration::agent::Builder| {
        for (name, spec) in pods {
            builder = builder.manifest(&format!("{name}.json"), &pod(name, spec).to_string());
        }
        builder
    };
    let Some(node_rig) = on.start_with(all).await else {
        return;
    };

    // Static pods are critical: the node tries to make room for them, and says so when it cannot.
    let no_room = "Pod was rejected: Unexpected error while attempting to recover from admission failure: \
        preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: ";
    let reasons = [
        (
            "fast",
            "UnexpectedAdmissionError",
            format!("{no_room}[(res: cpu, q: "),
        ),
        (
            "wide",
            "UnexpectedAdmissionError",
            format!("{no_room}[(res: memory, q: "),
        ),
        (
            "elsewhere",
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match".to_owned(),
        ),
    ];
    for (name, reason, message) in reasons {
        let pod = node_rig
            .until(name, "has failed", |pod| phase(pod) == "Failed")
            .await;
        let status = pod.status.as_ref().unwrap();
        assert_eq!(status.reason.as_deref(), Some(reason), "{name}");
        let told = status.message.clone().unwrap_or_default();
        assert!(told.starts_with(&message), "{name}: {told}");
    }
    for name in SMALL {
        node_rig.until_running(name).await;
    }
    node_rig
        .until_event("UnexpectedAdmissionError", &["(res: cpu"])
        .await;
    let sandboxes = node_rig.cri().await.sandboxes().await.unwrap();
    assert_eq!(
        sandboxes.len(),
        SMALL.len(),
        "nothing is made for who may not run"
    );
}

async fn what_runs_is_adopted_by_an_agent_that_would_refuse_it(on: TestRuntime) {
    let Some(mut node_rig) = on.start().await else {
        return;
    };
    for name in ["one", "two"] {
        node_rig.drop_pod(&pod(
            name,
            json!({ "containers": [container_of("app", SERVE_ON)] }),
        ));
    }
    let before = until_all_ready(&node_rig.node, 2, CONVERGENCE_TIMEOUT).await;
    node_rig.node.terminate().await.unwrap();
    let file = node_rig.node.dir().join("config.yaml");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["maxPods"] = json!(1);
    fs::write(&file, config.to_string()).unwrap();
    adopted(&mut node_rig.node, &before).await;
    node_rig.drop_pod(&pod(
        "three",
        json!({ "containers": [container_of("app", SERVE_ON)] }),
    ));
    let pod = node_rig
        .until("three", "is refused", |pod| phase(pod) == "Failed")
        .await;
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert!(
        status
            .message
            .unwrap_or_default()
            .contains("[(res: pods, q: ")
    );
    for name in ["one", "two"] {
        assert!(
            is_ready(&node_rig.node.pod(name).await.unwrap().unwrap()),
            "{name}"
        );
    }
}
