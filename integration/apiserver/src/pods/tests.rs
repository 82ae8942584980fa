//! Defaults and admission of pods.

use serde_json::{Value, json};

use super::defaults::fill;
use super::transitions::check;
use crate::{Server, ServerOptions};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn filled(spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "a"}, "spec": spec});
    fill(&mut pod);
    pod
}

/// Upstream's SetDefaults_PodSpec, SetDefaults_Container, SetDefaults_Probe and SetDefaults_Volume.
#[test]
fn open_fields_get_upstreams_defaults_and_filling_twice_changes_nothing() {
    let mut pod = filled(json!({
        "volumes": [{"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "c", "hostPath": {"path": "/"}}],
        "containers": [{"name": "c", "image": "x/y", "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": 80}},
            "resources": {"limits": {"cpu": "1"}}, "env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}],
    }));
    let spec = &pod["spec"];
    let wanted = [
        ("/restartPolicy", json!("Always")),
        ("/dnsPolicy", json!("ClusterFirst")),
        ("/terminationGracePeriodSeconds", json!(30)),
        ("/enableServiceLinks", json!(true)),
        ("/volumes/0/emptyDir", json!({})),
        ("/volumes/1/secret/defaultMode", json!(420)),
        ("/volumes/2/hostPath/type", json!("")),
        ("/containers/0/imagePullPolicy", json!("Always")),
        (
            "/containers/0/terminationMessagePath",
            json!("/dev/termination-log"),
        ),
        ("/containers/0/ports/0/protocol", json!("TCP")),
        ("/containers/0/resources/requests/cpu", json!("1")),
        (
            "/containers/0/livenessProbe",
            json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}),
        ),
        (
            "/containers/0/env/0/valueFrom/fieldRef/apiVersion",
            json!("v1"),
        ),
    ];
    for (pointer, value) in wanted {
        assert_eq!(spec.pointer(pointer), Some(&value), "{pointer}");
    }
    assert_eq!(
        spec["volumes"][1],
        json!({"name": "b", "secret": {"secretName": "s", "defaultMode": 420}})
    );
    let once = pod.clone();
    fill(&mut pod);
    assert_eq!(pod, once);
}

#[test]
fn the_tag_decides_how_an_image_is_pulled() {
    for (image, policy) in [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("h:5000/a", "Always"),
        ("h:5000/a:1", "IfNotPresent"),
        ("a@sha256:0", "IfNotPresent"),
    ] {
        let pod = filled(json!({"containers": [{"name": "c", "image": image}]}));
        assert_eq!(
            pod["spec"]["containers"][0]["imagePullPolicy"], policy,
            "{image}"
        );
    }
}

/// Upstream's TestGetPodQOS.
#[test]
fn requests_and_limits_earn_a_class() {
    let all = json!({"cpu": "1", "memory": "1Gi"});
    let table = [
        (json!([{}]), "BestEffort"),
        (json!([{"limits": all}]), "Guaranteed"),
        (
            json!([{"limits": all, "requests": {"cpu": "500m"}}]),
            "Burstable",
        ),
        (json!([{"limits": all}, {}]), "Burstable"),
        (json!([{"requests": {"memory": "1Gi"}}]), "Burstable"),
        (json!([{"requests": {"memory": "0"}}]), "BestEffort"),
    ];
    for (resources, class) in table {
        let containers: Vec<Value> = resources
            .as_array()
            .unwrap()
            .iter()
            .map(|one| json!({"name": "c", "image": "a", "resources": one}))
            .collect();
        assert_eq!(
            filled(json!({"containers": containers}))["status"]["qosClass"],
            class,
            "{resources}"
        );
    }
}

#[test]
fn a_pod_gets_its_account_with_a_token_and_a_mirror_pod_does_not() {
    let server = Server::start_now(ServerOptions::default()).unwrap();
    let pod = server.post(PODS, &json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "a"}]}})).unwrap();
    let volume = &pod["spec"]["volumes"][0];
    assert_eq!(pod["spec"]["serviceAccountName"], "default");
    assert!(
        volume["name"]
            .as_str()
            .unwrap()
            .starts_with("kube-api-access-")
    );
    assert_eq!(
        volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"],
        3607
    );
    assert_eq!(
        pod["spec"]["containers"][0]["volumeMounts"][0]["name"],
        volume["name"]
    );
    assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&pod["spec"]["priority"], &pod["status"]["phase"]),
        (&json!(0), &json!("Pending"))
    );
    let mirror = json!({"metadata": {"name": "b", "annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "a"}]}});
    let mirror = server.post(PODS, &mirror).unwrap();
    assert!(mirror["spec"].get("volumes").is_none());
    assert!(mirror["spec"].get("serviceAccountName").is_none());
    let unknown = json!({"metadata": {"name": "c"}, "spec": {"serviceAccountName": "none", "containers": [{"name": "c", "image": "a"}]}});
    assert_eq!(server.post(PODS, &unknown).unwrap_err().code, 403);
}

#[tokio::test]
async fn the_scheduler_binds_what_waits_to_the_node_that_is_ready() {
    let server = Server::start(ServerOptions {
        scheduler: true,
        ..ServerOptions::default()
    })
    .await
    .unwrap();
    server.post(PODS, &json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "a"}]}})).unwrap();
    server.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})).unwrap();
    let bound = server
        .wait(
            &format!("{PODS}/a"),
            std::time::Duration::from_secs(10),
            |pod| pod.is_some_and(|pod| pod["spec"]["nodeName"] == "n"),
        )
        .await;
    assert!(bound.is_some());
}

/// Upstream's TestValidateContainerStateTransition, in short.
#[test]
fn only_a_container_that_its_policy_starts_again_leaves_its_end() {
    let ended =
        |exit_code: i64| json!([{"name": "c", "state": {"terminated": {"exitCode": exit_code}}}]);
    let begun = json!([{"name": "c", "state": {"waiting": {}}}]);
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}]);
    let cases = [
        (json!({}), "Always", 0, true),
        (json!({}), "OnFailure", 0, false),
        (json!({}), "OnFailure", 1, true),
        (json!({}), "Never", 1, false),
        (json!({"restartPolicy": "Always"}), "Never", 0, true),
        (
            json!({"restartPolicy": "Never", "restartPolicyRules": rules}),
            "Always",
            3,
            true,
        ),
        (
            json!({"restartPolicy": "Never", "restartPolicyRules": rules}),
            "Always",
            4,
            false,
        ),
    ];
    for (mut container, policy, exit_code, allowed) in cases {
        container["name"] = json!("c");
        let spec = json!({"restartPolicy": policy, "containers": [container], "ephemeralContainers": [container]});
        let pod = |list: &str, statuses: &Value| json!({"spec": spec, "status": {list: statuses}});
        let moves = |list: &str| check(&pod(list, &ended(exit_code)), &pod(list, &begun));
        assert_eq!(moves("containerStatuses").is_ok(), allowed, "{spec}");
        assert!(moves("ephemeralContainerStatuses").is_err(), "{spec}");
        let stays = pod("containerStatuses", &ended(exit_code));
        assert!(check(&stays, &stays).is_ok());
    }
}
