//! The life of pods, from their first container to their last.

use std::fs;

use integration::wait_until;
use tokio::time::Instant;

use crate::suite::node_rig::*;

on_each_runtime! {
    init_containers_run_in_order_before_the_app_containers,
    logs_are_where_upstream_writes_them,
    labels_and_annotations_are_upstreams,
    a_killed_container_comes_back_with_its_restart_count,
    a_removed_manifest_ends_its_pod_within_its_grace,
    restart_policies_decide_what_becomes_of_a_container_that_ends,
    a_crash_loop_waits_with_reason_and_message,
    a_pod_in_the_hosts_network_has_the_hosts_address,
}

const TWO_AND_TWO: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {tier: front}
  annotations: {example.org/note: hello}
spec:
  terminationGracePeriodSeconds: 3
  initContainers:
  - {name: first, image: 'localhost/oxlet/busybox:1', command: [sh, -c, 'echo first; sleep 1']}
  - {name: second, image: 'localhost/oxlet/busybox:1', command: [sh, -c, 'echo second']}
  containers:
  - name: app
    image: localhost/oxlet/busybox:1
    command: [sh, -c, \"echo hello; echo trouble >&2; trap 'exit 0' TERM; while true; do sleep 1; done\"]
    ports: [{containerPort: 8080}]
  - {name: side, image: 'localhost/oxlet/busybox:1', command: [sh, -c, \"trap 'exit 0' TERM; while true; do sleep 1; done\"]}
";

async fn init_containers_run_in_order_before_the_app_containers(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    node_rig
        .node
        .drop_manifest("web.yaml", TWO_AND_TWO)
        .unwrap();
    let pod = node_rig.until_running("web").await;
    let times: Vec<_> = containers(&pod)
        .into_iter()
        .map(|container| {
            let state = container.state.clone().unwrap();
            let ended = state
                .terminated
                .map(|ended| (ended.started_at, ended.finished_at));
            let running = state.running.map(|running| (running.started_at, None));
            let (started, finished) = ended.or(running).unwrap();
            (
                container.name.clone(),
                started.unwrap().0,
                finished.map(|at| at.0),
            )
        })
        .collect();
    let names: Vec<&str> = times.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["first", "second", "app", "side"]);
    assert!(times[0].2.unwrap() <= times[1].1, "{times:?}");
    assert!(times[1].2.unwrap() <= times[2].1, "{times:?}");
    assert!(times[1].2.unwrap() <= times[3].1, "{times:?}");
    let status = pod.status.as_ref().unwrap();
    let conditions = status.conditions.as_ref().unwrap();
    for wanted in [
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
        "PodReadyToStartContainers",
    ] {
        let condition = conditions
            .iter()
            .find(|condition| condition.type_ == wanted);
        assert_eq!(
            condition.map(|condition| condition.status.as_str()),
            Some("True"),
            "{wanted}"
        );
    }
    assert!(
        status
            .pod_ip
            .as_deref()
            .is_some_and(|ip| ip.starts_with("10.")),
        "{status:?}"
    );
    let made = node_rig.cri().await.containers_of("web").await.unwrap();
    assert_eq!(made.len(), 4, "nothing is made twice: {made:#?}");

    let shown = node_rig.node.oxctl(&["pods"]).await.unwrap();
    let row = shown
        .lines()
        .find(|line| line.contains("web-node"))
        .unwrap();
    assert!(row.contains("2/2") && row.contains("Running"), "{shown}");
    let why = node_rig
        .node
        .oxctl(&["why", "default/web-node"])
        .await
        .unwrap();
    assert!(why.contains("web-node"), "{why}");
}

async fn logs_are_where_upstream_writes_them(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    node_rig
        .node
        .drop_manifest("web.yaml", TWO_AND_TWO)
        .unwrap();
    let pod = node_rig.until_running("web").await;
    let folder = node_rig.logs_of(&pod);
    let app = folder.join("app/0.log");
    wait_until(CONVERGENCE_TIMEOUT, "both lines are logged", async || {
        fs::read_to_string(&app).is_ok_and(|text| text.lines().count() == 2)
    })
    .await
    .unwrap();
    let mut lines: Vec<(String, String)> = Vec::new();
    for line in fs::read_to_string(&app).unwrap().lines() {
        // As CRI has it: time, stream, whole or partial, text.
        let parts: Vec<&str> = line.splitn(4, ' ').collect();
        assert!(parts[0].parse::<jiff::Timestamp>().is_ok(), "{line}");
        assert_eq!(parts[2], "F", "{line}");
        lines.push((parts[1].to_owned(), parts[3].to_owned()));
    }
    lines.sort();
    let expected = [("stderr", "trouble"), ("stdout", "hello")];
    assert_eq!(
        lines,
        expected.map(|(stream, text)| (stream.to_owned(), text.to_owned()))
    );
    let first = fs::read_to_string(folder.join("first/0.log")).unwrap();
    assert!(first.ends_with("stdout F first\n"), "{first}");

    for (name, id) in ["app", "first"].map(|name| (name, id_of(container(&pod, name).unwrap()))) {
        let link = format!("/var/log/containers/web-node_default_{name}-{id}.log");
        // Made once the container runs, as upstream does: its status may be there first.
        let log = folder.join(name).join("0.log");
        wait_until(CONVERGENCE_TIMEOUT, "the log is linked", async || {
            fs::read_link(&link).is_ok_and(|target| target == log)
        })
        .await
        .unwrap();
    }
    node_rig.node.remove_manifest("web.yaml").unwrap();
    node_rig.until_gone("web").await;
    assert!(!folder.exists());
    for entry in fs::read_dir("/var/log/containers").unwrap() {
        let target = fs::read_link(entry.unwrap().path()).unwrap_or_default();
        assert!(
            !target.starts_with(&folder),
            "{} is still linked to",
            target.display()
        );
    }
}

async fn labels_and_annotations_are_upstreams(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    node_rig
        .node
        .drop_manifest("web.yaml", TWO_AND_TWO)
        .unwrap();
    let pod = node_rig.until_running("web").await;
    let uid = uid(&pod);
    let cri = node_rig.cri().await;
    let sandbox = cri.sandboxes().await.unwrap().pop().unwrap();
    let map = |pairs: &[(&str, &str)]| -> std::collections::HashMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    let identity = [
        ("io.kubernetes.pod.name", "web-node"),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", uid.as_str()),
    ];
    let mut expected = map(&identity);
    expected.insert("tier".to_owned(), "front".to_owned());
    assert_eq!(sandbox.labels, expected);
    let seen = sandbox.annotations["kubernetes.io/config.seen"].clone();
    assert_eq!(
        sandbox.annotations,
        map(&[
            ("example.org/note", "hello"),
            ("kubernetes.io/config.hash", uid.as_str()),
            ("kubernetes.io/config.seen", seen.as_str()),
            ("kubernetes.io/config.source", "file"),
        ])
    );
    let metadata = sandbox.metadata.unwrap();
    assert_eq!((metadata.name.as_str(), metadata.attempt), ("web-node", 0));

    // Golden: upstream's algorithm over these names and this image, by another program.
    let hashes = [
        ("app", "2b9c6c01"),
        ("side", "6c8c365"),
        ("first", "19595405"),
        ("second", "45ce6728"),
    ];
    let containers = cri.containers_of("web").await.unwrap();
    for (name, hash) in hashes {
        let container = containers.iter().find(|container| {
            container
                .metadata
                .as_ref()
                .is_some_and(|metadata| metadata.name == name)
        });
        let container = container.unwrap();
        let mut labels = map(&identity);
        labels.insert("io.kubernetes.container.name".to_owned(), name.to_owned());
        assert_eq!(container.labels, labels);
        let mut annotations = map(&[
            ("io.kubernetes.container.hash", hash),
            ("io.kubernetes.container.restartCount", "0"),
            (
                "io.kubernetes.container.terminationMessagePath",
                "/dev/termination-log",
            ),
            ("io.kubernetes.container.terminationMessagePolicy", "File"),
            ("io.kubernetes.pod.terminationGracePeriod", "3"),
        ]);
        if name == "app" {
            let ports = r#"[{"containerPort":8080,"protocol":"TCP"}]"#;
            annotations.insert("io.kubernetes.container.ports".to_owned(), ports.to_owned());
        }
        assert_eq!(container.annotations, annotations, "{name}");
        assert_eq!(container.metadata.as_ref().unwrap().attempt, 0);
    }
}

async fn a_killed_container_comes_back_with_its_restart_count(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    node_rig
        .node
        .drop_manifest("web.yaml", TWO_AND_TWO)
        .unwrap();
    let before = node_rig.until_running("web").await;
    let app = id_of(container(&before, "app").unwrap());
    let side = id_of(container(&before, "side").unwrap());
    node_rig.kill_container(&app).await;
    let after = node_rig
        .until("web", "runs its container again", |pod| {
            let app = container(pod, "app");
            is_ready(pod) && app.is_some_and(|app| app.restart_count == 1 && is_running(app))
        })
        .await;
    let status = container(&after, "app").unwrap();
    let last = status
        .last_state
        .as_ref()
        .unwrap()
        .terminated
        .as_ref()
        .unwrap();
    assert_eq!(last.exit_code, 137);
    assert_eq!(
        last.container_id,
        container(&before, "app").unwrap().container_id
    );
    assert_ne!(id_of(status), app);
    assert_eq!(
        id_of(container(&after, "side").unwrap()),
        side,
        "its neighbour runs on"
    );
    assert_eq!(container(&after, "side").unwrap().restart_count, 0);
    assert_eq!(uid(&after), uid(&before));

    let made = node_rig.cri().await.containers_of("web").await.unwrap();
    let second = made
        .iter()
        .find(|container| container.id == id_of(status))
        .unwrap();
    assert_eq!(
        second.annotations["io.kubernetes.container.restartCount"],
        "1"
    );
    assert_eq!(second.metadata.as_ref().unwrap().attempt, 1);
    assert!(node_rig.logs_of(&after).join("app/1.log").exists());
}

async fn a_removed_manifest_ends_its_pod_within_its_grace(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let stubborn = one(
        "stubborn",
        "Always",
        "trap '' TERM; while true; do sleep 1; done",
    );
    let stubborn = stubborn.replace("PeriodSeconds: 1", "PeriodSeconds: 3");
    let polite = one("polite", "Always", SERVE).replace("PeriodSeconds: 1", "PeriodSeconds: 50");
    node_rig
        .node
        .drop_manifest("stubborn.yaml", &stubborn)
        .unwrap();
    node_rig.node.drop_manifest("polite.yaml", &polite).unwrap();
    let pod = node_rig.until_running("stubborn").await;
    node_rig.until_running("polite").await;

    let removed = Instant::now();
    node_rig.node.remove_manifest("stubborn.yaml").unwrap();
    node_rig.node.remove_manifest("polite.yaml").unwrap();
    node_rig.until_gone("polite").await;
    let polite = removed.elapsed();
    node_rig.until_gone("stubborn").await;
    let stubborn = removed.elapsed();
    println!("{on:?}: gone after {polite:?} (obeys), {stubborn:?} (killed after 3 s)");
    assert!(polite.as_secs() < 30, "{polite:?}");
    assert!((3..30).contains(&stubborn.as_secs()), "{stubborn:?}");
    let cri = node_rig.cri().await;
    assert!(cri.containers().await.unwrap().is_empty());
    assert!(cri.sandboxes().await.unwrap().is_empty());
    assert!(!node_rig.logs_of(&pod).exists());
    assert!(!node_rig.node.root().join("pods").join(uid(&pod)).exists());
}

async fn restart_policies_decide_what_becomes_of_a_container_that_ends(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let rows = [
        ("never-good", "Never", "exit 0", "Succeeded", 0),
        ("never-bad", "Never", "exit 3", "Failed", 0),
        ("on-failure-good", "OnFailure", "exit 0", "Succeeded", 0),
        ("on-failure-bad", "OnFailure", "exit 3", "Running", 1),
        ("always-good", "Always", "exit 0", "Running", 1),
    ];
    for (name, policy, script, ..) in rows {
        let file = format!("{name}.yaml");
        node_rig
            .node
            .drop_manifest(&file, &one(name, policy, script))
            .unwrap();
    }
    for (name, _, script, wanted, restarts) in rows {
        let what = format!("is {wanted} after {restarts} restarts");
        let pod = node_rig
            .until(name, &what, |pod| {
                let app = container(pod, "app");
                phase(pod) == wanted && app.is_some_and(|app| app.restart_count == restarts)
            })
            .await;
        if restarts == 0 {
            let state = container(&pod, "app").unwrap().state.clone().unwrap();
            let ended = state.terminated.unwrap();
            let good = script == "exit 0";
            assert_eq!(ended.exit_code, if good { 0 } else { 3 });
            assert_eq!(
                ended.reason.as_deref(),
                Some(if good { "Completed" } else { "Error" })
            );
        }
    }
    // What has ended stays ended: its sandbox stops, its container is not made again.
    let made = node_rig
        .cri()
        .await
        .containers_of("never-bad")
        .await
        .unwrap();
    assert_eq!(made.len(), 1);
}

async fn a_crash_loop_waits_with_reason_and_message(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    node_rig
        .node
        .drop_manifest("crash.yaml", &one("crash", "Always", "exit 3"))
        .unwrap();
    let pod = node_rig
        .until("crash", "backs off", |pod| {
            waiting(pod, "app").0 == "CrashLoopBackOff"
        })
        .await;
    let expected = format!(
        "back-off 10s restarting failed container=app pod=crash-node_default({})",
        uid(&pod)
    );
    assert_eq!(waiting(&pod, "app").1, expected);
    assert_eq!(container(&pod, "app").unwrap().restart_count, 1);
    assert_eq!(phase(&pod), "Running");
    let pod = node_rig
        .until("crash", "backs off for longer", |pod| {
            waiting(pod, "app").1.starts_with("back-off 20s")
        })
        .await;
    assert_eq!(container(&pod, "app").unwrap().restart_count, 2);
    let shown = node_rig.node.oxctl(&["pods"]).await.unwrap();
    assert!(shown.contains("CrashLoopBackOff"), "{shown}");
}

async fn a_pod_in_the_hosts_network_has_the_hosts_address(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let manifest = server("near").replace("spec:\n", "spec:\n  hostNetwork: true\n");
    node_rig.node.drop_manifest("near.yaml", &manifest).unwrap();
    let pod = node_rig.until_running("near").await;
    let status = pod.status.unwrap();
    assert!(status.host_ip.is_some());
    assert_eq!(status.pod_ip, status.host_ip);
}
