//! The plugins of a real node are confined, by what the kernel says of their processes, and `oxctl plugins` shows it.

use std::fs;

use integration::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::node_rig::{CONVERGENCE_TIMEOUT, NodeRig, TestRuntime};

/// What `oxctl plugins` says of a plugin once it is ready: an agent is healthy before all of its plugins are.
async fn shown(node_rig: &NodeRig, name: &str) -> Value {
    let mut shown = Value::Null;
    wait_until(CONVERGENCE_TIMEOUT, "the plugin is ready", async || {
        let plugins = node_rig.node.oxctl(&["plugins", "-o", "json"]).await;
        let plugins: Vec<Value> = serde_json::from_str(&plugins.unwrap()).unwrap();
        let found = plugins.into_iter().find(|plugin| plugin["name"] == name);
        shown = found.unwrap();
        shown["state"] == "ready"
    })
    .await
    .unwrap();
    shown
}

/// A field of `/proc/PID/status`.
fn status(plugin: &Value, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", plugin["pid"])).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

fn names(plugin: &Value) -> Vec<&str> {
    let names = plugin["confined"]["capabilities"].as_array().unwrap();
    names.iter().map(|name| name.as_str().unwrap()).collect()
}

#[tokio::test]
async fn plugins_of_a_node_have_what_their_kind_needs_and_oxctl_shows_it() {
    let node_rig = TestRuntime::Fake.start().await.unwrap();
    let mut groups = Vec::new();
    for (name, memory, pids) in [
        ("runtime", 256 << 20, 128),
        ("storage-local", 1 << 30, 1024),
        ("storage-csi", 1 << 30, 1024),
    ] {
        let plugin = shown(&node_rig, name).await;
        let confined = &plugin["confined"];
        assert_eq!(confined["not_enforced"], json!([]), "{name}");
        assert_eq!(
            (status(&plugin, "NoNewPrivs"), status(&plugin, "Seccomp")),
            ("1".into(), "2".into())
        );
        assert_eq!(
            (&confined["no_new_privileges"], &confined["seccomp"]),
            (&json!(true), &json!(true))
        );
        assert_eq!(
            (&confined["memory_limit"], &confined["pids_limit"]),
            (&json!(memory), &json!(pids))
        );
        assert!(
            confined["usage"]["memory"].as_u64().unwrap() > 0,
            "{confined}"
        );
        assert!(
            confined["usage"]["pids"].as_u64().unwrap() > 0,
            "{confined}"
        );
        let mask = u64::from_str_radix(&status(&plugin, "CapEff"), 16).unwrap();
        let count = usize::try_from(mask.count_ones()).unwrap();
        assert_eq!(names(&plugin).len(), count, "{name}");
        groups.push(confined["groups"].clone());
    }
    assert_eq!(names(&shown(&node_rig, "runtime").await), [""; 0]);
    assert!(names(&shown(&node_rig, "storage-local").await).contains(&"SYS_ADMIN"));
    assert!(groups[0] != groups[1] && groups[1] != groups[2]);
    let table = node_rig.node.oxctl(&["plugins"]).await.unwrap();
    let head = table
        .lines()
        .find(|line| line.contains("NEW PRIVILEGES"))
        .unwrap();
    assert!(
        head.contains("CAPABILITIES") && head.contains("NOT ENFORCED"),
        "{table}"
    );
}

#[tokio::test]
async fn plugin_that_fails_is_an_event_of_the_node_with_its_reason() {
    let node_rig = TestRuntime::Fake.start().await.unwrap();
    let plugin = shown(&node_rig, "storage-csi").await;
    let pid = i32::try_from(plugin["pid"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let words = ["plugin storage-csi ended: signal: 9 (SIGKILL)"];
    node_rig.until_event("PluginFailed", &words).await;
}
