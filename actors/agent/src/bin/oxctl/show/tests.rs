//! The tables that oxctl prints.

use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

#[test]
fn ages_are_as_long_as_they_must_be() {
    let cases = [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (3_600, "60m"),
        (10_800, "3h"),
        (12_060, "3h21m"),
        (90_000, "25h"),
        (180_000, "2d2h"),
        (8_640_000, "100d"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(age(at(1_000), at(1_000 + seconds)), expected, "{seconds}");
    }
    assert_eq!(age(at(10), at(0)), "0s", "a clock that stepped back");
}

#[test]
fn pods_are_a_table() {
    let pod = json!({
        "namespace": "default", "name": "web-node", "uid": "u", "phase": "Running", "status": "CrashLoopBackOff",
        "ready": 1, "containers": 2, "restarts": 7, "started": at(0), "ip": "10.0.0.1", "stage": "Syncing",
    });
    let text = pods(&bytes(&json!([pod])), at(125)).unwrap();
    assert_eq!(
        text,
        "NAMESPACE   NAME       READY   STATUS             RESTARTS   AGE    IP         STAGE\n\
         default     web-node   1/2     CrashLoopBackOff   7          2m5s   10.0.0.1   Syncing\n"
    );
}

fn node(id: &str, path: &str, children: &[Value]) -> Value {
    json!({
        "id": id, "path": path, "kind": if children.is_empty() { "Actor" } else { "Supervisor" }, "state": "Running",
        "restarts": 0, "mailbox": { "len": 0, "capacity": if children.is_empty() { 8 } else { 0 }, "overloaded": 0 },
        "handled": 3, "busy_with": null, "last_exit": null, "snapshot": null, "children": children,
    })
}

#[test]
fn tree_is_drawn_as_a_tree() {
    let leaf = node("file", "oxlet/sources/file", &[]);
    let root = node(
        "oxlet",
        "oxlet",
        &[
            node("sources", "oxlet/sources", &[leaf]),
            node("events", "oxlet/events", &[]),
        ],
    );
    let text = tree(&bytes(&root)).unwrap();
    let names: Vec<&str> = text
        .lines()
        .skip(1)
        .map(|line| line.split("   r").next().unwrap_or_default().trim_end())
        .collect();
    assert_eq!(names, ["oxlet", "├─ sources", "│  └─ file", "└─ events"]);
    assert!(text.lines().nth(3).unwrap().contains("0/8"));
}

#[test]
fn plugin_whose_host_is_silent_is_still_listed() {
    let silent =
        json!({ "name": "runtime", "state": "BackingOff", "reason": "its host does not answer" });
    let text = plugins(&bytes(&json!([silent])), at(0)).unwrap();
    assert!(text.lines().nth(1).unwrap().starts_with("runtime   -"));
    assert!(text.contains("backingoff") && text.contains("its host does not answer"));
}

#[test]
fn plugin_is_shown_with_what_it_is_confined_to_and_what_is_not_enforced() {
    let confined = json!({
        "capabilities": ["CHOWN", "SYS_ADMIN"], "no_new_privileges": true, "seccomp": true, "tmp": "/p/a.tmp",
        "groups": ["/g"], "memory_limit": 67_108_864, "pids_limit": null, "not_enforced": ["pids limit: no"],
        "usage": { "memory": 1, "pids": 3, "oom_kills": 0, "refused_forks": 0 },
    });
    let plugin = json!({
        "name": "a", "kind": "storage", "socket": "/a", "state": "ready", "reason": "", "generation": 2, "pid": 7,
        "since": { "secs_since_epoch": 0, "nanos_since_epoch": 0 }, "program": "p 1", "restarts": 1,
        "last_exit": "out of memory, limit 64 MiB (signal: 9 (SIGKILL))", "attributes": {}, "confined": confined,
    });
    let text = plugins(&bytes(&json!([plugin])), at(0)).unwrap();
    let row = text.lines().last().unwrap();
    let cells: Vec<&str> = row
        .split("   ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect();
    assert_eq!(
        cells,
        [
            "a",
            "1Mi of 64Mi",
            "3 no limit",
            "refused",
            "filtered",
            "/p/a.tmp",
            "chown sys_admin",
            "out of memory, limit 64 MiB (signal: 9 (SIGKILL))",
            "pids limit: no",
        ]
    );
}

#[test]
fn event_names_its_object_and_container() {
    let event = json!({
        "firstSeen": at(0), "lastSeen": at(60), "count": 2, "type": "Warning", "reason": "BackOff", "message": "restarting",
        "object": { "kind": "Pod", "namespace": "default", "name": "web", "fieldPath": "spec.containers{c}" },
    });
    let text = events(&bytes(&json!([event])), at(100)).unwrap();
    assert_eq!(
        text.lines().nth(1),
        Some("40s         2       Warning   BackOff   pod/default/web c   restarting")
    );
}

#[test]
fn why_shows_the_containers_and_the_causal_line() {
    let line = json!({
        "first": at(0), "last": at(60), "count": 3,
        "why": { "object": "c", "weight": "Warning", "reason": "BackOff", "message": "restarting failed container" },
    });
    let why = json!({
        "pod": "default/web", "stage": "Syncing", "phase": "Running", "containers": [["c", "waiting: CrashLoopBackOff"]],
        "lines": [line],
    });
    let text = super::why(&bytes(&why), at(100)).unwrap();
    for expected in [
        "default/web",
        "CrashLoopBackOff",
        "restarting failed container",
        "100s",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

#[test]
fn answer_of_another_version_is_a_sentence() {
    let trouble = pods(b"{\"not\": \"pods\"}", at(0)).unwrap_err();
    assert!(trouble.to_string().contains("of one version"), "{trouble}");
}
