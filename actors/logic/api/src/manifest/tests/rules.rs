//! Defaults and refusals.

use super::*;

#[test]
fn defaults_are_the_apis() {
    let spec = run(only(LEAST).unwrap()).unwrap().spec.unwrap();
    let expected = json!({
        "containers": [{
            "name": "c",
            "image": "localhost/pause",
            "imagePullPolicy": "Always",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": true,
        "nodeName": "node-1",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{"effect": "NoExecute", "operator": "Exists"}],
    });
    assert_eq!(serde_json::to_value(spec).unwrap(), expected);
}

#[test]
fn each_default_stands_where_the_api_puts_it() {
    let probe = json!({"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3});
    let mut http = probe.clone();
    http["httpGet"] = json!({"path": "/", "port": 80, "scheme": "HTTP"});
    let mut grpc = probe;
    grpc["grpc"] = json!({"port": 1, "service": ""});
    let rows = [
        (
            "/spec/containers/0/ports",
            json!([{"containerPort": 1}]),
            json!([{"containerPort": 1, "protocol": "TCP"}]),
        ),
        (
            "/spec/containers/0/livenessProbe",
            json!({"httpGet": {"port": 80}}),
            http,
        ),
        (
            "/spec/containers/0/readinessProbe",
            json!({"grpc": {"port": 1}}),
            grpc,
        ),
        (
            "/spec/containers/0/lifecycle",
            json!({"preStop": {"httpGet": {"port": "p"}}}),
            json!({"preStop": {"httpGet": {"path": "/", "port": "p", "scheme": "HTTP"}}}),
        ),
        (
            "/spec/containers/0/resources",
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}),
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}),
        ),
        (
            "/spec/containers/0/env",
            json!([{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
            json!([{"name": "a", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}]),
        ),
        (
            "/spec/volumes",
            json!([{"name": "v"}]),
            json!([{"name": "v", "emptyDir": {}}]),
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "hostPath": {"path": "/x"}}]),
            json!([{"name": "v", "hostPath": {"path": "/x", "type": ""}}]),
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "image": {"reference": "localhost/i"}}]),
            json!([{"name": "v", "image": {"reference": "localhost/i", "pullPolicy": "Always"}}]),
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "projected": {"sources": []}}]),
            json!([{"name": "v", "projected": {"sources": [], "defaultMode": 420}}]),
        ),
        (
            "/spec/resources",
            json!({"limits": {"cpu": "2", "memory": "1Gi"}}),
            json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}}),
        ),
    ];
    for (pointer, given, expected) in rows {
        let pod = run(only(&with(pointer, given).to_string()).unwrap()).unwrap();
        let pod = serde_json::to_value(pod).unwrap();
        assert_eq!(pod.pointer(pointer), Some(&expected), "{pointer}");
    }
}

#[test]
fn host_network_opens_the_containers_ports_on_the_host() {
    let mut pod = with("/spec/hostNetwork", json!(true));
    pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}]);
    let spec = run(only(&pod.to_string()).unwrap()).unwrap().spec.unwrap();
    assert_eq!(
        spec.containers[0].ports.as_ref().unwrap()[0].host_port,
        Some(80)
    );
}

#[test]
fn a_pods_requests_are_its_containers_at_their_peak() {
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let mut pod = with("/spec/resources", json!({"limits": {"cpu": "4"}}));
    pod["spec"]["containers"][0]["resources"] = requests("500m");
    pod["spec"]["initContainers"] = json!([
        {"name": "s", "image": "i", "restartPolicy": "Always", "resources": requests("250m")},
        {"name": "i", "image": "i", "resources": requests("1")},
    ]);
    let spec = run(only(&pod.to_string()).unwrap()).unwrap().spec.unwrap();
    assert_eq!(spec.resources.unwrap().requests.unwrap()["cpu"].0, "1250m");
}

#[test]
fn validation_refuses_what_upstream_refuses_in_its_words() {
    let rows = include_str!("../testdata/refusals.tsv").lines();
    let mut wrong = Vec::new();
    for row in rows.filter(|row| !row.starts_with('#')) {
        let mut columns = row.split('\t');
        let mut next = || columns.next().unwrap();
        let (pointer, value, expected) = (next(), serde_json::from_str(next()).unwrap(), next());
        // Without a place the row has the whole pod.
        let pod = if pointer.is_empty() {
            value
        } else {
            with(pointer, value)
        };
        let error = problem(&pod);
        if !error.contains(expected) {
            wrong.push(format!("{row}\n  {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_too_long_is_refused() {
    let error = problem(&with("/metadata/name", json!("x".repeat(250))));
    assert!(error.contains("must be no more than 253 bytes"), "{error}");
    let annotations = json!({"a": "x".repeat(256 << 10)});
    let error = problem(&with("/metadata/annotations", annotations));
    let expected = "metadata.annotations: Too long: may not be more than 262144 bytes";
    assert_eq!(error, expected);
}

#[test]
fn host_ports_must_match_on_the_hosts_network() {
    let mut pod = with("/spec/hostNetwork", json!(true));
    pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 81}]);
    let expected = "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true";
    assert_eq!(problem(&pod), expected);
}

#[test]
fn decode_single_pod_rejects_references_to_the_api() {
    // TestDecodeSinglePodRejectsClusterTrustBundleVolumes, ...RejectsResourceClaims and their like.
    let env = |source: Value| json!([{"name": "a", "valueFrom": source}]);
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = json!("v");
        json!([volume])
    };
    let rows = [
        ("/spec/serviceAccountName", json!("x"), "serviceaccounts"),
        ("/spec/serviceAccount", json!("x"), "serviceaccounts"),
        ("/spec/imagePullSecrets", json!([{"name": "x"}]), "secrets"),
        (
            "/spec/containers/0/env",
            env(json!({"secretKeyRef": {"name": "x", "key": "k"}})),
            "secrets",
        ),
        (
            "/spec/containers/0/env",
            env(json!({"configMapKeyRef": {"name": "x", "key": "k"}})),
            "configmaps",
        ),
        (
            "/spec/containers/0/envFrom",
            json!([{"configMapRef": {"name": "x"}}]),
            "configmaps",
        ),
        (
            "/spec/resourceClaims",
            json!([{"name": "c", "resourceClaimName": "x"}]),
            "resourceclaims",
        ),
        (
            "/spec/volumes",
            volume(json!({"secret": {"secretName": "x"}})),
            "secrets",
        ),
        (
            "/spec/volumes",
            volume(json!({"configMap": {"name": "x"}})),
            "configmaps",
        ),
        (
            "/spec/volumes",
            volume(json!({"persistentVolumeClaim": {"claimName": "x"}})),
            "persistentvolumeclaims",
        ),
        (
            "/spec/volumes",
            volume(json!({"csi": {"driver": "x"}})),
            "csidrivers (via CSI volumes)",
        ),
        (
            "/spec/volumes",
            volume(
                json!({"projected": {"sources": [{"clusterTrustBundle": {"name": "x", "path": "p"}}]}}),
            ),
            "clustertrustbundles",
        ),
    ];
    for (pointer, value, resource) in rows {
        assert_eq!(
            problem(&with(pointer, value)),
            format!("static pods may not reference {resource}"),
            "{pointer}"
        );
    }
}

#[test]
fn what_upstream_takes_is_taken() {
    let container = |more: Value| {
        let mut container = json!({"name": "c", "image": "i"});
        for (key, value) in more.as_object().unwrap() {
            container[key] = value.clone();
        }
        json!({"containers": [container], "os": {"name": "linux"}})
    };
    let rows = [
        // Addresses keep their leading zeros.
        (
            "/spec/hostAliases",
            json!([{"ip": "010.001.0.09", "hostnames": ["a.b"]}]),
        ),
        ("/spec/dnsConfig", json!({"searches": [".", "_a.b."]})),
        (
            "/spec/tolerations",
            json!([{"key": "a", "operator": "Gt", "value": "-5"}]),
        ),
        (
            "/spec",
            container(json!({"lifecycle": {"stopSignal": "SIGRTMIN+15"}})),
        ),
        (
            "/spec",
            container(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 0}}}})),
        ),
        ("/spec", container(json!({"env": [{"name": "a.b c"}]}))),
        // Upstream's TestDecodeSinglePodWithOptions.
        ("/spec", container(json!({"restartPolicy": "Always"}))),
        (
            "/spec",
            container(json!({"restartPolicy": "Never", "restartPolicyRules": [
                {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}},
            ]})),
        ),
        (
            "/spec",
            container(
                json!({"securityContext": {"procMount": "Default", "capabilities": {"add": ["anything"]}}}),
            ),
        ),
        (
            "/spec/topologySpreadConstraints",
            json!([{
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2,
                "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["a"],
            }]),
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2015-02.example.com:test", "lun": 0}}]),
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "quobyte": {"registry": "a:1,[::1]:2", "volume": "v"}}]),
        ),
        (
            "/metadata/annotations",
            json!({
                "seccomp.security.alpha.kubernetes.io/pod": "localhost/a/b",
                "container.apparmor.security.beta.kubernetes.io/c": "localhost/x",
                "controller.kubernetes.io/pod-deletion-cost": "-5",
            }),
        ),
    ];
    for (pointer, value) in rows {
        assert_eq!(
            problem(&with(pointer, value.clone())),
            "accepted",
            "{pointer} {value}"
        );
    }
}
