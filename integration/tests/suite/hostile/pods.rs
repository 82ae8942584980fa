//! Pods that attack their node, all at once: each costs itself, and a healthy pod beside them is probed in time.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration::images::{BUSYBOX_IMAGE, Image};
use integration::patient;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::all_at_once::{answer, longest_gap};
use super::host::HostState;
use crate::suite::node_rig::*;

on_real_runtimes! {
    pods_that_attack_the_node_cost_only_themselves,
}

const PROBE_PERIOD: Duration = Duration::from_secs(1);
/// How late a probe of the healthy pod may be: a debug build shares two cores with the attackers.
const LATE: Duration = Duration::from_secs(1);
/// The most memory of the agent's own, in MiB.
const MEMORY_MIB: u64 = 64;
const GIB: u64 = 1 << 30;
/// What a link of a pod leads to.
const SECRET: &str = "secret-of-the-node";

/// A pod of one container, `app`.
fn pod(name: &str, container: Value, spec: Value) -> Value {
    let mut app = json!({ "name": "app", "image": BUSYBOX_IMAGE });
    let mut whole = json!({ "restartPolicy": "Never", "terminationGracePeriodSeconds": 1 });
    for (to, from) in [(&mut app, container), (&mut whole, spec)] {
        let (Some(to), Value::Object(from)) = (to.as_object_mut(), from) else {
            panic!("{name}: not objects");
        };
        to.extend(from);
    }
    whole["containers"] = json!([app]);
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": whole })
}

fn script(text: &str) -> Value {
    json!({ "command": ["sh", "-c", text] })
}

/// How the pod is when its attack is over.
type Outcome = fn(&Pod) -> bool;

fn has_succeeded(pod: &Pod) -> bool {
    phase(pod) == "Succeeded"
}

fn is_refused_for_its_variables(pod: &Pod) -> bool {
    let (reason, message) = waiting(pod, "app");
    reason == "CreateContainerConfigError" && message.contains("can be passed to a program")
}

fn hides_the_secret(pod: &Pod) -> bool {
    let state = container(pod, "app").and_then(|app| app.state.as_ref());
    let Some(ended) = state.and_then(|state| state.terminated.as_ref()) else {
        return false;
    };
    let message = ended.message.as_deref().unwrap_or_default();
    assert!(!message.contains(SECRET), "{message}");
    true
}

/// Ten times as long with each variable: `V8` is a gigabyte.
fn expanding() -> Value {
    let chain = (1..=8).map(|number| {
        let before = format!("$(V{})", number - 1);
        json!({ "name": format!("V{number}"), "value": before.repeat(10) })
    });
    let first = json!({ "name": "V0", "value": "aaaaaaaaaa" });
    let env: Vec<Value> = [first].into_iter().chain(chain).collect();
    json!({ "env": env })
}

/// Five gigabytes of arguments.
fn long_arguments() -> Value {
    let args = vec!["$(B)".repeat(1_000); 50];
    json!({ "env": [{ "name": "B", "value": "b".repeat(100 << 10) }], "args": args })
}

/// 4,000 folders in one another, on the writable layer and in a volume.
const DEEP: &str = "P=$(printf 'd/%.0s' $(seq 100)); n=0; for top in / /work; do cd $top; \
    for i in $(seq 40); do mkdir -p $P && cd -P $P 2> /dev/null && n=$((n+1)); done; done; test $n = 80";
/// Forty cgroups in one another, in each hierarchy. On version 2 a privileged container has the node's hierarchy: there they
/// are in its own group.
const CGROUPS: &str = "own=$(sed -n s/^0:://p /proc/self/cgroup); [ -e /sys/fs/cgroup/cgroup.controllers ] || own=; \
    for h in /sys/fs/cgroup /sys/fs/cgroup/*; do cd $h$own 2> /dev/null || continue; \
    for i in $(seq 40); do mkdir n 2> /dev/null && cd n || break; done; done";

fn attacks(on: TestRuntime, logs: &Path, secret: &Path) -> Vec<(Value, Outcome)> {
    let work = json!({ "volumes": [{ "name": "work", "emptyDir": {} }] });
    let mut deep = script(DEEP);
    deep["volumeMounts"] = json!([{ "name": "work", "mountPath": "/work" }]);
    let mut cgroups = script(CGROUPS);
    cgroups["securityContext"] = json!({ "privileged": true });
    let steal = format!(
        "for log in /logs/*_thief-*/app/0.log; do rm $log; ln -s {} $log; done; exit 1",
        secret.display()
    );
    let mut thief = script(&steal);
    thief["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    thief["volumeMounts"] = json!([{ "name": "logs", "mountPath": "/logs" }]);
    let logs = json!({ "volumes": [{ "name": "logs", "hostPath": { "path": logs } }] });
    let mut chatty = script("sleep 20");
    chatty["livenessProbe"] = json!({
        "exec": { "command": ["dd", "if=/dev/zero", "bs=1M", "count=16"] },
        "periodSeconds": 1,
        "timeoutSeconds": 10,
    });
    let sparse = json!({ "image": "localhost/odd/sparse:1", "command": ["sh", "-c", "stat -c %s /data/hole"] });
    let none = || json!({});
    let mut all: Vec<(Value, Outcome)> = vec![
        (pod("deep", deep, work), has_succeeded),
        (pod("cgroups", cgroups, none()), has_succeeded),
        (
            pod("expanding", expanding(), none()),
            is_refused_for_its_variables,
        ),
        (
            pod("arguments", long_arguments(), none()),
            is_refused_for_its_variables,
        ),
        (pod("thief", thief, logs), hides_the_secret),
        (pod("chatty", chatty, none()), has_succeeded),
    ];
    if on == TestRuntime::Native {
        // containerd fills the hole.
        all.push((pod("sparse", sparse, none()), has_succeeded));
    }
    all
}

/// MiB of the agent that are no file's.
fn anonymous_memory(rig: &NodeRig) -> u64 {
    let path = format!("/proc/{}/status", rig.node.pid().unwrap());
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse::<u64>().unwrap() / 1024
}

async fn pods_that_attack_the_node_cost_only_themselves(on: TestRuntime) {
    let Some(rig) = on.start().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, SECRET).unwrap();
    let sparse = Image {
        sparse: Some(("data/hole".to_owned(), 8 * GIB)),
        volumes: vec!["/data".to_owned()],
        ..Image::busybox("localhost/odd/sparse:1")
    };
    if on == TestRuntime::Native {
        rig.import(&sparse, folder.path()).await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let visits: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let answering = tokio::spawn(answer(listener, Arc::clone(&visits)));
    let mut healthy = script(SERVE);
    healthy["livenessProbe"] = json!({
        "httpGet": { "host": "127.0.0.1", "port": port },
        "periodSeconds": 1,
        "timeoutSeconds": 5,
    });
    let drop_pod = |pod: &Value| {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let text = pod.to_string();
        rig.node
            .drop_manifest(&format!("{name}.json"), &text)
            .unwrap();
    };
    drop_pod(&pod("healthy", healthy, json!({})));
    let before = identities(&[rig.until_running("healthy").await]);
    let node_before = HostState::read(&rig);
    visits.lock().unwrap().clear();

    let attacks = attacks(on, &rig.node.pod_logs(), &secret);
    for (pod, _) in &attacks {
        drop_pod(pod);
    }
    for (pod, outcome) in &attacks {
        let name = pod["metadata"]["name"].as_str().unwrap();
        // A pod over its limits is found by a measurement every ten seconds, and of files in the background.
        let ended = rig
            .node
            .until(
                name,
                CONVERGENCE_TIMEOUT * 2,
                "is as its attack ends",
                outcome,
            )
            .await;
        ended.unwrap_or_else(|error| panic!("{error:#}"));
    }
    for (pod, _) in &attacks {
        let name = pod["metadata"]["name"].as_str().unwrap();
        rig.node.remove_manifest(&format!("{name}.json")).unwrap();
    }
    for (pod, _) in &attacks {
        rig.until_gone(pod["metadata"]["name"].as_str().unwrap())
            .await;
    }
    answering.abort();

    let (memory, worst) = (anonymous_memory(&rig), longest_gap(&visits.lock().unwrap()));
    println!("the longest time between two probes {worst:?}; the agent has {memory} MiB");
    assert!(memory < MEMORY_MIB, "{memory} MiB");
    assert!(worst < patient(PROBE_PERIOD + LATE), "{worst:?}");
    let healthy = rig.node.pod("healthy").await.unwrap().unwrap();
    assert_eq!(identities(&[healthy]), before, "the healthy pod");
    assert_eq!(rig.node.plugin().await.unwrap()["restarts"], 0);
    node_before.until_restored(&rig).await;
}
