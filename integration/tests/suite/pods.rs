//! The life of pods on a real agent, each case on the fake runtime and on containerd.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use integration::doubles::registry::{ImageRegistry, RegistryFault};
use integration::wait_until;
use nix::sys::stat::Mode;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::node_rig::*;

/// Makes a test of every case for each runtime. `.ci/nextest.toml` knows them by these module names.
macro_rules! on_each_runtime {
    ($($case:ident,)*) => {
        mod fake {
            $(#[tokio::test] async fn $case() { super::$case(super::TestRuntime::Fake).await; })*
        }
        mod containerd {
            $(#[tokio::test] async fn $case() { super::$case(super::TestRuntime::Containerd).await; })*
        }
    };
}

on_each_runtime! {
    init_containers_run_in_order_before_the_app_containers,
    logs_are_where_upstream_writes_them,
    labels_and_annotations_are_upstreams,
    a_killed_container_comes_back_with_its_restart_count,
    a_removed_manifest_ends_its_pod_within_its_grace,
    restart_policies_decide_what_becomes_of_a_container_that_ends,
    a_crash_loop_waits_with_reason_and_message,
    an_image_that_may_not_be_pulled_is_named,
    an_image_that_cannot_be_pulled_backs_off_and_is_pulled_when_it_can,
    a_manifest_that_changes_replaces_its_pod,
    a_list_and_json_are_manifests_too,
    pods_come_from_an_http_url,
    a_pod_in_the_hosts_network_has_the_hosts_address,
    bad_manifests_are_named_and_hide_nothing,
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

async fn an_image_that_may_not_be_pulled_is_named(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let manifest = server("sparing")
        .replace("oxlet/busybox:1", "oxlet/elsewhere:1")
        .replace("    command", "    imagePullPolicy: Never\n    command");
    node_rig
        .node
        .drop_manifest("sparing.yaml", &manifest)
        .unwrap();
    let pod = node_rig
        .until("sparing", "says why", |pod| {
            waiting(pod, "app").0 == "ErrImageNeverPull"
        })
        .await;
    assert_eq!(
        waiting(&pod, "app").1,
        "Container image \"localhost/oxlet/elsewhere:1\" is not present with pull policy of Never"
    );
    assert_eq!(phase(&pod), "Pending");
}

async fn an_image_that_cannot_be_pulled_backs_off_and_is_pulled_when_it_can(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let registry = ImageRegistry::start().await.unwrap();
    let remote = on.remote_image(&registry);
    registry.set_fault(RegistryFault::Status(503));
    let absent = registry.name("team/absent", "1");
    let manifest =
        |name: &str, image: &str| server(name).replace("localhost/oxlet/busybox:1", image);
    node_rig
        .node
        .drop_manifest("absent.yaml", &manifest("absent", &absent))
        .unwrap();
    node_rig
        .until("absent", "says that the pull failed", |pod| {
            ["ErrImagePull", "RegistryUnavailable", "ImagePullBackOff"]
                .contains(&waiting(pod, "app").0)
        })
        .await;
    let pod = node_rig
        .until("absent", "backs off", |pod| {
            waiting(pod, "app").0 == "ImagePullBackOff"
        })
        .await;
    let message = waiting(&pod, "app").1;
    assert!(
        message.starts_with(&format!("Back-off pulling image \"{absent}\"")),
        "{message}"
    );
    node_rig
        .until_event("Failed", &["Failed to pull image", &absent])
        .await;

    registry.set_fault(RegistryFault::None);
    node_rig
        .node
        .drop_manifest("remote.yaml", &manifest("remote", &remote))
        .unwrap();
    node_rig.until_running("remote").await;
    node_rig
        .until_event("Pulled", &["Successfully pulled image", &remote])
        .await;
    if on == TestRuntime::Containerd {
        let blobs = registry
            .requests()
            .iter()
            .filter(|line| line.contains("/blobs/"))
            .count();
        assert_eq!(
            blobs,
            2,
            "config and layer, once: {:?}",
            registry.requests()
        );
    }
}

async fn a_manifest_that_changes_replaces_its_pod(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    node_rig
        .node
        .drop_manifest("web.yaml", &server("web"))
        .unwrap();
    let before = node_rig.until_running("web").await;
    let changed = server("web").replace("sleep 1;", "sleep 2;");
    node_rig.node.drop_manifest("web.yaml", &changed).unwrap();
    let old = uid(&before);
    let after = node_rig
        .until("web", "is another one", |pod| {
            uid(pod) != old && is_ready(pod)
        })
        .await;
    assert_eq!(container(&after, "app").unwrap().restart_count, 0);
    let cri = node_rig.cri().await;
    wait_until(
        CONVERGENCE_TIMEOUT,
        "nothing of the old pod is left",
        async || {
            let made = cri.containers_of("web").await.unwrap();
            made.len() == 1 && made[0].id == id_of(container(&after, "app").unwrap())
        },
    )
    .await
    .unwrap();
    assert_eq!(cri.sandboxes().await.unwrap().len(), 1);
}

async fn a_list_and_json_are_manifests_too(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let indented = |name: &str| server(name).replace('\n', "\n  ");
    let list = format!(
        "apiVersion: v1\nkind: PodList\nitems:\n- {}\n- {}\n",
        indented("one"),
        indented("two")
    );
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "three", "namespace": "other" },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "app", "image": "localhost/oxlet/busybox:1", "command": ["sleep", "1000"] }],
        },
    });
    node_rig.node.drop_manifest("list.yaml", &list).unwrap();
    node_rig
        .node
        .drop_manifest("three.json", &pod.to_string())
        .unwrap();
    for name in ["one", "two", "three"] {
        node_rig.until_running(name).await;
    }
    let three = node_rig.node.pod("three").await.unwrap().unwrap();
    assert_eq!(three.metadata.namespace.as_deref(), Some("other"));
    assert!(three.metadata.creation_timestamp.is_some() || three.status.is_some());

    node_rig
        .node
        .drop_manifest("list.yaml", &server("two"))
        .unwrap();
    node_rig.until_gone("one").await;
}

async fn pods_come_from_an_http_url(on: TestRuntime) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/pods.yaml", listener.local_addr().unwrap());
    let body = std::sync::Arc::new(std::sync::Mutex::new(server("distant")));
    let served = body.clone();
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let body = served.lock().unwrap().clone();
            let mut asked = [0; 4096];
            drop(stream.read(&mut asked).await);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            drop(stream.write_all(format!("{head}{body}").as_bytes()).await);
        }
    });
    let fields = json!({ "staticPodURL": url.clone(), "httpCheckFrequency": "1s" });
    let Some(node_rig) = on.start_with(|builder| builder.config(&fields)).await else {
        return;
    };
    node_rig
        .node
        .drop_manifest("near.yaml", &server("near"))
        .unwrap();
    let pod = node_rig.until_running("distant").await;
    node_rig.until_running("near").await;
    assert_eq!(
        pod.metadata.annotations.as_ref().unwrap()["kubernetes.io/config.source"],
        "http"
    );
    *body.lock().unwrap() = server("other");
    node_rig.until_running("other").await;
    node_rig.until_gone("distant").await;
    // A source that talks nonsense, or not at all, ends nothing.
    *body.lock().unwrap() = "kind: [Pod".to_owned();
    node_rig.until_event("InvalidManifest", &[&url]).await;
    serving.abort();
    wait_until(CONVERGENCE_TIMEOUT, "its silence is noticed", async || {
        node_rig
            .node
            .log()
            .contains(&format!("{url}: cannot connect"))
    })
    .await
    .unwrap();
    assert!(is_ready(
        &node_rig.node.pod("other").await.unwrap().unwrap()
    ));
    assert!(is_ready(&node_rig.node.pod("near").await.unwrap().unwrap()));
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

/// What is wrong, in which file, and the words that its event must hold.
fn bad_manifests(folder: &Path) -> Vec<(&'static str, Vec<&'static str>)> {
    fs::write(folder.join("malformed.yaml"), "apiVersion: v1\nkind: [Pod").unwrap();
    fs::write(folder.join("name.yaml"), server("Not_A_Name")).unwrap();
    fs::write(
        folder.join("policy.yaml"),
        one("policy", "Sometimes", "true"),
    )
    .unwrap();
    fs::write(folder.join("twin-1.yaml"), server("twin")).unwrap();
    fs::write(folder.join("twin-2.yaml"), server("twin")).unwrap();
    let huge = fs::File::create(folder.join("huge.yaml")).unwrap();
    huge.set_len(100 << 20).unwrap();
    fs::create_dir(folder.join("folder.yaml")).unwrap();
    nix::unistd::mkfifo(&folder.join("pipe.yaml"), Mode::S_IRWXU).unwrap();
    symlink("/nowhere/at/all", folder.join("dangling.yaml")).unwrap();
    vec![
        ("malformed.yaml", vec![]),
        ("name.yaml", vec!["metadata.name", "Not_A_Name"]),
        ("policy.yaml", vec!["spec.restartPolicy", "Sometimes"]),
        (
            "twin-2.yaml",
            vec!["metadata.name", "twin-node", "twin-1.yaml"],
        ),
        ("huge.yaml", vec!["bytes"]),
        ("folder.yaml", vec!["a folder", "expected a regular file"]),
        ("pipe.yaml", vec!["expected a regular file"]),
        ("dangling.yaml", vec!["link", "expected"]),
    ]
}

async fn bad_manifests_are_named_and_hide_nothing(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    node_rig
        .node
        .drop_manifest("a-good.yaml", &server("good"))
        .unwrap();
    let good = node_rig.until_running("good").await;
    let bad = bad_manifests(&node_rig.node.manifests());
    let misspelt = server("late").replace("restartPolicy", "restartPolitics");
    node_rig
        .node
        .drop_manifest("z-late.yaml", &misspelt)
        .unwrap();
    node_rig.until_running("late").await;
    node_rig.until_running("twin").await;
    node_rig
        .until_event("UnknownFields", &["spec.restartPolitics"])
        .await;
    for (file, mut words) in bad {
        let path = node_rig.node.manifests().join(file).display().to_string();
        words.push(&path);
        let message = node_rig.until_event("InvalidManifest", &words).await;
        println!("{message}");
    }
    let mut names: Vec<String> = Vec::new();
    for pod in node_rig.node.pods().await.unwrap() {
        names.push(pod.metadata.name.unwrap());
    }
    assert_eq!(names, ["good-node", "late-node", "twin-node"]);
    let after = node_rig.node.pod("good").await.unwrap().unwrap();
    assert_eq!(id_of(containers(&after)[0]), id_of(containers(&good)[0]));
    assert!(!node_rig.node.log().contains("panicked"));
}
