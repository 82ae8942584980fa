//! The effects of verbs on objects, without HTTP.

use serde_json::{Value, json};

use crate::{Server, ServerOptions};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn server() -> Server {
    Server::start_now(ServerOptions::default()).unwrap()
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "localhost/x:1"}]}})
}

fn bound(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = json!("n");
    pod
}

#[test]
fn what_only_the_server_says_is_said_at_creation() {
    let server = server();
    let mut wish = pod("a");
    wish["metadata"]["uid"] = json!("mine");
    let created = server.post(PODS, &wish).unwrap();
    assert_ne!(created["metadata"]["uid"], "mine");
    assert_eq!(created["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert_eq!(created["metadata"]["generation"], 1);
    assert!(
        created["metadata"]["creationTimestamp"]
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    assert_eq!(
        server.post(PODS, &pod("a")).unwrap_err().reason,
        "AlreadyExists"
    );
    assert_eq!(
        server
            .post("/api/v1/namespaces/none/pods", &pod("a"))
            .unwrap_err()
            .message,
        "namespaces \"none\" not found"
    );
}

#[test]
fn names_are_generated_and_differ() {
    let server = server();
    let mut wish = pod("");
    wish["metadata"] = json!({"generateName": "web-"});
    let names: Vec<Value> = (0..2)
        .map(|_| server.post(PODS, &wish).unwrap()["metadata"]["name"].clone())
        .collect();
    assert_ne!(names[0], names[1]);
    assert!(names[0].as_str().unwrap().starts_with("web-"));
    assert_eq!(
        server.post(PODS, &json!({"spec": {}})).unwrap_err().code,
        422
    );
}

#[test]
fn a_stale_version_is_a_conflict_and_no_change_is_no_write() {
    let server = server();
    let old = server.post(PODS, &pod("a")).unwrap();
    let path = format!("{PODS}/a");
    let same = server.put(&path, &old).unwrap();
    assert_eq!(
        same["metadata"]["resourceVersion"],
        old["metadata"]["resourceVersion"]
    );
    let new = server
        .patch(&path, &json!({"metadata": {"labels": {"a": "b"}}}))
        .unwrap();
    assert_ne!(
        new["metadata"]["resourceVersion"],
        old["metadata"]["resourceVersion"]
    );
    assert_eq!(server.put(&path, &old).unwrap_err().reason, "Conflict");
    let stale = json!({"metadata": {"resourceVersion": old["metadata"]["resourceVersion"], "labels": {"a": "c"}}});
    assert_eq!(server.patch(&path, &stale).unwrap_err().reason, "Conflict");
}

#[test]
fn a_patch_of_another_pod_is_invalid_and_an_update_of_another_a_conflict() {
    let server = server();
    let mut other = server.post(PODS, &pod("a")).unwrap();
    let path = format!("{PODS}/a");
    assert_eq!(
        server
            .patch(
                &format!("{path}/status"),
                &json!({"metadata": {"uid": "other"}})
            )
            .unwrap_err()
            .code,
        422
    );
    other["metadata"]["uid"] = json!("other");
    assert_eq!(server.put(&path, &other).unwrap_err().code, 409);
}

#[test]
fn status_and_the_rest_leave_each_other_alone() {
    let server = server();
    server.post(PODS, &bound("a")).unwrap();
    let path = format!("{PODS}/a");
    let after = server
        .patch(
            &format!("{path}/status"),
            &json!({"status": {"phase": "Running"}, "spec": {"nodeName": "other"}}),
        )
        .unwrap();
    assert_eq!(
        (&after["status"]["phase"], &after["spec"]["nodeName"]),
        (&json!("Running"), &json!("n"))
    );
    let after = server
        .patch(
            &path,
            &json!({"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}}),
        )
        .unwrap();
    assert_eq!(
        (&after["status"]["phase"], &after["metadata"]["labels"]["a"]),
        (&json!("Running"), &json!("b"))
    );
    assert_eq!(after["metadata"]["generation"], 1);
    let after = server
        .patch(&path, &json!({"spec": {"activeDeadlineSeconds": 5}}))
        .unwrap();
    assert_eq!(after["metadata"]["generation"], 2);
    assert_eq!(
        server
            .patch(&path, &json!({"spec": {"hostname": "x"}}))
            .unwrap_err()
            .code,
        422
    );
}

#[test]
fn a_node_comes_with_its_status() {
    let server = server();
    let node = server
        .post(
            "/api/v1/nodes",
            &json!({"metadata": {"name": "n"}, "status": {"nodeInfo": {"osImage": "x"}}}),
        )
        .unwrap();
    assert_eq!(node["status"]["nodeInfo"]["osImage"], "x");
}

/// Upstream's TestBeforeDelete and the pods' TestCheckGracefulDelete.
#[test]
fn a_pod_is_deleted_with_its_grace() {
    let table = [
        ("not bound", pod("a"), "", None),
        ("bound", bound("a"), "", Some(30)),
        (
            "asked for less",
            bound("a"),
            "?gracePeriodSeconds=5",
            Some(5),
        ),
        (
            "negative is the shortest",
            bound("a"),
            "?gracePeriodSeconds=-7",
            Some(1),
        ),
        ("none", bound("a"), "?gracePeriodSeconds=0", None),
    ];
    for (law, wish, query, grace) in table {
        let server = server();
        server.post(PODS, &wish).unwrap();
        let answer = server.delete(&format!("{PODS}/a{query}")).unwrap();
        let left = server.get(&format!("{PODS}/a")).ok();
        assert_eq!(answer["kind"], "Pod", "{law}");
        assert_eq!(
            left.as_ref()
                .map(|pod| pod["metadata"]["deletionGracePeriodSeconds"]
                    .as_i64()
                    .unwrap()),
            grace,
            "{law}"
        );
        if let Some(left) = left {
            assert_eq!(left["metadata"]["generation"], 2, "{law}");
            assert!(left["metadata"]["deletionTimestamp"].is_string(), "{law}");
        }
    }
}

#[test]
fn a_pod_that_has_ended_is_deleted_at_once() {
    let server = server();
    server.post(PODS, &bound("a")).unwrap();
    server
        .patch(
            &format!("{PODS}/a/status"),
            &json!({"status": {"phase": "Succeeded"}}),
        )
        .unwrap();
    server.delete(&format!("{PODS}/a")).unwrap();
    assert_eq!(server.get(&format!("{PODS}/a")).unwrap_err().code, 404);
}

#[test]
fn a_second_deletion_can_only_shorten_the_grace() {
    let server = server();
    server.post(PODS, &bound("a")).unwrap();
    let path = format!("{PODS}/a");
    let first = server
        .delete(&format!("{path}?gracePeriodSeconds=10"))
        .unwrap();
    let same = server
        .delete(&format!("{path}?gracePeriodSeconds=20"))
        .unwrap();
    assert_eq!(
        same["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    assert_eq!(
        server.delete(&path).unwrap()["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let sooner = server
        .delete(&format!("{path}?gracePeriodSeconds=3"))
        .unwrap();
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 3);
    assert!(
        sooner["metadata"]["deletionTimestamp"].as_str()
            < first["metadata"]["deletionTimestamp"].as_str()
    );
    server
        .delete(&format!("{path}?gracePeriodSeconds=0"))
        .unwrap();
    assert_eq!(server.get(&path).unwrap_err().code, 404);
}

#[test]
fn finalizers_hold_an_object_until_the_last_is_gone() {
    let server = server();
    let maps = "/api/v1/namespaces/default/configmaps";
    server
        .post(
            maps,
            &json!({"metadata": {"name": "a", "finalizers": ["x/y"]}}),
        )
        .unwrap();
    let path = format!("{maps}/a");
    server.delete(&path).unwrap();
    assert!(server.get(&path).unwrap()["metadata"]["deletionTimestamp"].is_string());
    server
        .patch(&path, &json!({"metadata": {"finalizers": null}}))
        .unwrap();
    assert_eq!(server.get(&path).unwrap_err().code, 404);
    server.post(PODS, &bound("b")).unwrap();
    server
        .patch(
            &format!("{PODS}/b"),
            &json!({"metadata": {"finalizers": ["x/y"]}}),
        )
        .unwrap();
    server
        .delete(&format!("{PODS}/b?gracePeriodSeconds=0"))
        .unwrap();
    assert_eq!(
        server.get(&format!("{PODS}/b")).unwrap()["metadata"]["deletionGracePeriodSeconds"],
        0
    );
    server
        .patch(
            &format!("{PODS}/b"),
            &json!({"metadata": {"finalizers": null}}),
        )
        .unwrap();
    assert_eq!(server.get(&format!("{PODS}/b")).unwrap_err().code, 404);
}

#[test]
fn leases_are_made_by_their_update_and_need_their_version() {
    let server = server();
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";
    let lease = server
        .put(
            path,
            &json!({"metadata": {"name": "n"}, "spec": {"holderIdentity": "n"}}),
        )
        .unwrap();
    assert!(lease["metadata"].get("generation").is_none());
    assert_eq!(
        server
            .put(path, &json!({"metadata": {"name": "n"}, "spec": {}}))
            .unwrap_err()
            .code,
        422
    );
    server.put(path, &lease).unwrap();
}

#[test]
fn events_are_seen_in_both_groups() {
    let server = server();
    let core = "/api/v1/namespaces/default/events";
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    server.post(core, &json!({"metadata": {"name": "a"}, "involvedObject": {"name": "p", "kind": "Pod"}, "message": "m", "count": 2})).unwrap();
    let seen = server.get(&format!("{new}/a")).unwrap();
    assert_eq!(
        (
            &seen["note"],
            &seen["regarding"]["name"],
            &seen["deprecatedCount"]
        ),
        (&json!("m"), &json!("p"), &json!(2))
    );
    server.post(new, &json!({"metadata": {"name": "b"}, "regarding": {"name": "q", "kind": "Pod"}, "note": "n"})).unwrap();
    let found = server
        .list(&format!("{core}?fieldSelector=involvedObject.name%3Dq"))
        .unwrap();
    assert_eq!(
        (found.len(), &found[0]["message"], &found[0]["apiVersion"]),
        (1, &json!("n"), &json!("v1"))
    );
}

#[test]
fn a_namespace_has_its_account_and_goes_with_what_it_holds() {
    let server = server();
    server
        .post("/api/v1/namespaces", &json!({"metadata": {"name": "x"}}))
        .unwrap();
    server
        .get("/api/v1/namespaces/x/serviceaccounts/default")
        .unwrap();
    server
        .get("/api/v1/namespaces/x/configmaps/kube-root-ca.crt")
        .unwrap();
    server
        .post("/api/v1/namespaces/x/pods", &bound("a"))
        .unwrap();
    server.delete("/api/v1/namespaces/x").unwrap();
    assert_eq!(
        server.get("/api/v1/namespaces/x").unwrap()["status"]["phase"],
        "Terminating"
    );
    assert_eq!(
        server
            .post("/api/v1/namespaces/x/pods", &bound("b"))
            .unwrap_err()
            .code,
        403
    );
    server
        .delete("/api/v1/namespaces/x/pods/a?gracePeriodSeconds=0")
        .unwrap();
    assert_eq!(server.get("/api/v1/namespaces/x").unwrap_err().code, 404);
}

#[test]
fn pages_of_a_list_make_the_whole_and_expire() {
    let server = server();
    for name in ["a", "b", "c", "d", "e"] {
        server
            .post(
                "/api/v1/namespaces/default/secrets",
                &json!({"metadata": {"name": name}, "stringData": {"k": "v"}}),
            )
            .unwrap();
    }
    let path = "/api/v1/namespaces/default/secrets?limit=2";
    let (mut seen, mut next) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("{path}&continue={next}")).unwrap();
        seen.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["metadata"]["name"].as_str().unwrap().to_string()),
        );
        match page["metadata"]["continue"].as_str() {
            Some(token) => next = token.replace('=', "%3D").replace('+', "%2B"),
            None => break,
        }
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e"]);
    server.expire_history();
    assert_eq!(
        server
            .get(&format!("{path}&continue={next}"))
            .unwrap_err()
            .code,
        410
    );
}

#[test]
fn an_evicted_pod_says_why_and_a_bound_one_where() {
    let server = server();
    server.post(PODS, &pod("a")).unwrap();
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}});
    server.post(&format!("{PODS}/a/binding"), &binding).unwrap();
    assert_eq!(
        server
            .post(&format!("{PODS}/a/binding"), &binding)
            .unwrap_err()
            .code,
        409
    );
    assert_eq!(
        server.get(&format!("{PODS}/a")).unwrap()["spec"]["nodeName"],
        "n"
    );
    server
        .patch(
            &format!("{PODS}/a/status"),
            &json!({"status": {"phase": "Running"}}),
        )
        .unwrap();
    server
        .post(
            &format!("{PODS}/a/eviction"),
            &json!({"deleteOptions": {"gracePeriodSeconds": 4}}),
        )
        .unwrap();
    let evicted = server.get(&format!("{PODS}/a")).unwrap();
    assert_eq!(evicted["metadata"]["deletionGracePeriodSeconds"], 4);
    assert!(
        evicted["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|condition| condition["type"] == "DisruptionTarget")
    );
}

#[test]
fn what_a_status_says_by_nothing_is_not_kept() {
    let server = server();
    let node = json!({"metadata": {"name": "n"}});
    server.post("/api/v1/nodes", &node).unwrap();
    let status = json!({
        "images": [{"names": [], "sizeBytes": 1}],
        "volumesInUse": [],
        "allocatable": {},
        "conditions": [{"type": "Ready", "status": "True", "message": ""}],
    });
    let patch = json!({"status": status});
    let kept = server.patch("/api/v1/nodes/n/status", &patch).unwrap();
    let expected = json!({
        "images": [{"sizeBytes": 1}],
        "conditions": [{"type": "Ready", "status": "True"}],
    });
    assert_eq!(kept["status"], expected);
    server.post(PODS, &bound("a")).unwrap();
    let states = json!([{"name": "c", "state": {"running": {}}, "lastState": {}}]);
    let patch = json!({"status": {"containerStatuses": states}});
    let kept = server.patch(&format!("{PODS}/a/status"), &patch).unwrap();
    let expected = json!([{"name": "c", "state": {"running": {}}}]);
    assert_eq!(kept["status"]["containerStatuses"], expected);
}
