//! Whole pods, as upstream's sources tell them.

use super::*;

const NODE: &str = "different-value";

fn told(text: &str, source: &ManifestSource) -> Vec<Value> {
    let made = |pod: Result<ParsedPod, ManifestError>| {
        let pod = pod.unwrap().pod;
        let pod = static_pod(pod, source, &NODE.into(), Timestamp::UNIX_EPOCH).unwrap();
        serde_json::to_value(pod).unwrap()
    };
    parsed(text).pods.into_iter().map(made).collect()
}

/// A pod of one container after its source has told it.
fn expected(name: &str, namespace: &str, uid: &str, source: &str, container: &Value) -> Value {
    let mut container = container.clone();
    container["terminationMessagePath"] = json!("/dev/termination-log");
    container["terminationMessagePolicy"] = json!("File");
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{name}-{NODE}"),
            "namespace": namespace,
            "uid": uid,
            "annotations": {
                "kubernetes.io/config.hash": uid,
                "kubernetes.io/config.seen": "1970-01-01T00:00:00Z",
                "kubernetes.io/config.source": source,
            },
        },
        "spec": {
            "containers": [container],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": true,
            "nodeName": NODE,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        },
        "status": {"phase": "Pending"},
    });
    if source == "file" {
        pod["spec"]["tolerations"] = json!([{"effect": "NoExecute", "operator": "Exists"}]);
    }
    pod
}

/// Upstream's TestReadPodsFromFileExistAlready and TestDecodeSinglePod.
#[test]
fn a_pod_of_a_file_is_told_with_its_defaults_and_the_files_toleration() {
    let context = json!({"capabilities": {}, "privileged": false});
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "test", "namespace": "mynamespace", "uid": "12345", "creationTimestamp": null},
        "spec": {
            "containers": [{"name": "image", "image": "test/image", "resources": {}, "securityContext": context}],
            "securityContext": {},
            "schedulerName": "default-scheduler",
        },
        "status": {"phase": "Pending"},
    });
    let container = json!({
        "name": "image", "image": "test/image", "imagePullPolicy": "Always", "resources": {}, "securityContext": context,
    });
    let expected = expected("test", "mynamespace", "12345", "file", &container);
    for text in [pod.to_string(), format!("# as YAML\n{pod}")] {
        assert_eq!(told(&text, &file("m")), std::slice::from_ref(&expected));
    }
}

/// Upstream's TestExtractPodsFromHTTP and TestDecodePodList.
#[test]
fn a_pod_or_a_list_of_a_url_is_told_with_its_defaults() {
    let pod = |name: &str, uid: &str, container: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "uid": uid},
            "spec": {"nodeName": NODE, "containers": [container], "securityContext": {}},
            "status": {"phase": "Pending"},
        })
    };
    let foo = json!({"name": "1", "image": "foo", "imagePullPolicy": "Always"});
    let bar = json!({"name": "2", "image": "bar:bartag"});
    let mut single = pod("foo", "111", foo.clone());
    single["metadata"]["namespace"] = json!("mynamespace");
    assert_eq!(
        told(&single.to_string(), &url()),
        [expected("foo", "mynamespace", "111", "http", &foo)]
    );
    let pods = [pod("foo", "111", foo.clone()), pod("bar", "222", bar)];
    let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods});
    let bar = json!({"name": "2", "image": "bar:bartag", "imagePullPolicy": "IfNotPresent"});
    assert_eq!(
        told(&list.to_string(), &url()),
        [
            expected("foo", "default", "111", "http", &foo),
            expected("bar", "default", "222", "http", &bar),
        ]
    );
}
