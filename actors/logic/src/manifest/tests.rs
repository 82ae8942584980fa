//! Laws of static manifests, upstream's cases by upstream's names, and the UIDs that a Go program with upstream's types gives.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const LEAST: &str = include_str!("testdata/least.yaml");
const CONTROL_PLANE: &str = include_str!("testdata/control-plane.yaml");
const RICH: &str = include_str!("testdata/rich.yaml");
const POD_LEVEL: &str = include_str!("testdata/pod-level.json");

fn parsed(text: &str) -> Parsed {
    parse(text.as_bytes(), UnknownFields::Refuse).unwrap()
}

fn only(text: &str) -> Result<Pod, ManifestError> {
    let mut parsed = parse(text.as_bytes(), UnknownFields::Refuse)?;
    assert_eq!(parsed.pods.len(), 1);
    parsed.pods.remove(0).map(|parsed| parsed.pod)
}

fn file(name: &str) -> Source {
    Source::File(format!("/etc/kubernetes/manifests/{name}.yaml"))
}

fn url() -> Source {
    Source::Url("http://127.0.0.1:8080/m".to_owned())
}

fn run(pod: Pod) -> Result<Pod, ManifestError> {
    static_pod(pod, &file("m"), "node-1", Timestamp::UNIX_EPOCH)
}

fn base() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "localhost/i:1"}]},
    })
}

/// The base pod with one more fact at a JSON pointer whose parent is there.
fn with(pointer: &str, value: Value) -> Value {
    let mut pod = base();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match pod.pointer_mut(parent).unwrap() {
        Value::Object(fields) => drop(fields.insert(key.to_owned(), value)),
        Value::Array(items) => items.push(value),
        _ => panic!("{pointer} has no parent"),
    }
    pod
}

fn problem(pod: &Value) -> String {
    match only(&pod.to_string()).and_then(run) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

// ---- identity

#[test]
fn uid_is_the_one_that_upstreams_types_and_dump_give() {
    let rows = [
        (
            LEAST,
            "least",
            "2ca1e2a9129a958887625a78bc3f0f5d",
            "f9a27eec1dbd514598dcae6be174f4f9",
        ),
        (
            CONTROL_PLANE,
            "control-plane",
            "5af2d547237c4e8a7b6c58d6b9fb849f",
            "caa1de5920c1ec6d3cd7a63d13795c78",
        ),
        (
            RICH,
            "rich",
            "cbd36a0be82cb60761c7ca88fbbaaeb4",
            "d55f489ad277dc4579ccab22d148de4b",
        ),
        (
            POD_LEVEL,
            "pod-level",
            "9b0b3a1c9c99822fa4804799fdfe1031",
            "d06434adf717374b0ae15af6dc0efd04",
        ),
    ];
    for (text, name, of_file, of_url) in rows {
        for (source, uid) in [(file(name), of_file), (url(), of_url)] {
            let pod = static_pod(
                only(text).unwrap(),
                &source,
                "node-1",
                Timestamp::UNIX_EPOCH,
            )
            .unwrap();
            assert_eq!(pod.metadata.uid.as_deref(), Some(uid), "{name} {source:?}");
            assert_eq!(
                pod.metadata.annotations.unwrap()["kubernetes.io/config.hash"],
                uid
            );
        }
    }
}

#[test]
fn uid_depends_on_node_path_and_content_and_on_nothing_else() {
    let uid = |pod: &Value, source: &Source, node: &str, seen| {
        let pod = only(&pod.to_string()).unwrap();
        static_pod(pod, source, node, seen)
            .unwrap()
            .metadata
            .uid
            .unwrap()
    };
    let now = Timestamp::UNIX_EPOCH;
    let first = uid(&base(), &file("a"), "n", now);
    assert_eq!(first, uid(&base(), &file("a"), "n", Timestamp::MAX));
    assert_ne!(first, uid(&base(), &file("b"), "n", now));
    assert_ne!(first, uid(&base(), &file("a"), "m", now));
    assert_ne!(first, uid(&base(), &url(), "n", now));
    assert_eq!(
        uid(&base(), &url(), "n", now),
        uid(&base(), &url(), "m", now)
    );
    assert_ne!(
        first,
        uid(&with("/spec/hostname", json!("h")), &file("a"), "n", now)
    );
    assert_eq!(
        uid(&with("/metadata/uid", json!("12345")), &file("a"), "n", now),
        "12345"
    );
}

#[test]
fn static_pod_is_named_placed_and_marked_as_upstream_does() {
    let pod = run(only(LEAST).unwrap()).unwrap();
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(pod.metadata.name.as_deref(), Some("least-node-1"));
    assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(
        annotations["kubernetes.io/config.seen"],
        "1970-01-01T00:00:00Z"
    );
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Pending"));
    let spec = pod.spec.unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("node-1"));
    let tolerations = serde_json::to_value(spec.tolerations).unwrap();
    assert_eq!(
        tolerations,
        json!([{"operator": "Exists", "effect": "NoExecute"}])
    );

    let pod = static_pod(
        only(LEAST).unwrap(),
        &url(),
        "node-1",
        Timestamp::UNIX_EPOCH,
    )
    .unwrap();
    assert_eq!(
        pod.metadata.annotations.unwrap()["kubernetes.io/config.source"],
        "http"
    );
    assert_eq!(pod.spec.unwrap().tolerations, None);
}

#[test]
fn a_toleration_for_some_time_becomes_one_for_ever() {
    let held = json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]);
    let pod = run(only(&with("/spec/tolerations", held).to_string()).unwrap()).unwrap();
    let tolerations = serde_json::to_value(pod.spec.unwrap().tolerations).unwrap();
    assert_eq!(
        tolerations,
        json!([{"operator": "Exists", "effect": "NoExecute"}])
    );
}

#[test]
fn static_pod_name_generate() {
    // TestStaticPodNameGenerate; a node's own name in capitals is refused as upstream refuses it.
    let named = |node: &str| {
        static_pod(
            only(LEAST).unwrap(),
            &file("m"),
            node,
            Timestamp::UNIX_EPOCH,
        )
    };
    assert_eq!(
        named("node1").unwrap().metadata.name.as_deref(),
        Some("least-node1")
    );
    let error = named("NODE1").unwrap_err().to_string();
    assert!(
        error
            .starts_with("spec.nodeName: Invalid value: \"NODE1\": a lowercase RFC 1123 subdomain"),
        "{error}"
    );
}

#[test]
fn decode_single_pod_termination_grace_period_seconds() {
    let pod =
        run(only(&with("/spec/terminationGracePeriodSeconds", json!(-1)).to_string()).unwrap())
            .unwrap();
    assert_eq!(pod.spec.unwrap().termination_grace_period_seconds, Some(1));
}

// ---- reading

#[test]
fn decode_single_pod_reads_yaml_and_json_alike() {
    let yaml = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: c, image: 'localhost/i:1'}\n";
    assert_eq!(only(yaml).unwrap(), only(&base().to_string()).unwrap());
    let flow = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: 'localhost/i:1'}]}}";
    assert_eq!(only(flow).unwrap(), only(&base().to_string()).unwrap());
    assert_eq!(
        only(&format!("\u{feff}{yaml}")).unwrap(),
        only(yaml).unwrap()
    );
}

#[test]
fn scalars_are_read_as_their_fields_want_them() {
    let spec = only(RICH).unwrap().spec.unwrap();
    let facts = spec
        .volumes
        .as_ref()
        .unwrap()
        .iter()
        .find_map(|volume| volume.downward_api.as_ref())
        .unwrap();
    assert_eq!(facts.default_mode, Some(0o400));
    assert_eq!(spec.enable_service_links, Some(false));
    assert_eq!(
        spec.containers[0].env.as_ref().unwrap()[0].value.as_deref(),
        Some("0123")
    );
    assert_eq!(spec.overhead.unwrap()["cpu"].0, "0.1");
}

#[test]
fn decode_pod_list_and_list_hold_several_pods() {
    for kind in ["PodList", "List"] {
        let list = json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": [base(), base()]});
        assert_eq!(parsed(&list.to_string()).pods.len(), 2, "{kind}");
    }
    assert!(parsed("apiVersion: v1\nkind: PodList").pods.is_empty());
    assert!(
        parsed("apiVersion: v1\nkind: PodList\nitems: []")
            .pods
            .is_empty()
    );
}

#[test]
fn one_bad_pod_of_a_list_does_not_hide_the_others() {
    let bad = [
        (
            with("/spec/hostNetwork", json!("maybe")),
            "items[1].spec.hostNetwork: ",
        ),
        (
            with("/spec/containerz", json!([])),
            "items[1].spec.containerz: unknown field, expected a field of v1 PodSpec",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Service"}),
            "items[1]: invalid value: string \"Service\", expected Pod",
        ),
        (json!(7), "items[1]: "),
    ];
    for (item, start) in bad {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [base(), item, base()]});
        for text in [list.to_string(), format!("# yaml\n{list}")] {
            let pods = parsed(&text).pods;
            assert_eq!(
                pods.iter().map(Result::is_ok).collect::<Vec<_>>(),
                [true, false, true],
                "{text}"
            );
            let error = pods[1].as_ref().unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
    }
}

#[test]
fn unknown_fields_are_refused_by_path_and_type() {
    let mut pod = base();
    pod["spec"]["containers"][0]["imagee"] = json!("x");
    pod["spec"]["volumes"] = json!([{"name": "v", "hostPath": {"path": "/x", "typ": 1}}]);
    pod["metadata"]["lables"] = json!({});
    pod["sepc"] = json!(null);
    let error = parse(pod.to_string().as_bytes(), UnknownFields::Refuse)
        .unwrap()
        .pods
        .remove(0)
        .unwrap_err();
    let ManifestError::UnknownFields { mut fields } = error else {
        panic!("{error}");
    };
    fields.sort_by(|left, right| left.path.cmp(&right.path));
    let sentences: Vec<String> = fields.iter().map(ToString::to_string).collect();
    let expected = [
        "metadata.lables: unknown field, expected a field of v1 ObjectMeta",
        "sepc: unknown field, expected a field of v1 Pod",
        "spec.containers[0].imagee: unknown field, expected a field of v1 Container",
        "spec.volumes[0].hostPath.typ: unknown field, expected a field of v1 HostPathVolumeSource",
    ];
    assert_eq!(sentences, expected);
}

#[test]
fn unknown_fields_are_warnings_where_upstreams_leniency_is_asked_for() {
    let text = with("/spec/fromTheFuture", json!({"a": [1]})).to_string();
    let pod = parse(text.as_bytes(), UnknownFields::Warn)
        .unwrap()
        .pods
        .remove(0)
        .unwrap();
    assert_eq!(
        pod.warnings,
        ["spec.fromTheFuture: unknown field, expected a field of v1 PodSpec"]
    );
    assert_eq!(pod.pod, only(&base().to_string()).unwrap());
}

#[test]
fn only_the_first_document_counts_and_the_rest_is_named() {
    let parsed = parsed(&format!("---\n{LEAST}---\nkind: Secret\n"));
    assert_eq!(parsed.pods[0].as_ref().unwrap().pod, only(LEAST).unwrap());
    assert_eq!(parsed.warnings.len(), 1);
    assert!(self::parsed(LEAST).warnings.is_empty());
}

#[test]
fn malformed_input_is_an_error_that_names_field_and_expectation() {
    let deep = format!(
        "apiVersion: v1\nkind: Pod\nspec: {}{}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let deep_json = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"x\":{}{}}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let laughs = "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
                  d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n\
                  g: [*f,*f,*f,*f,*f,*f,*f,*f]\napiVersion: v1\nkind: Pod\n";
    let rows = [
        (
            "",
            "the manifest is empty, expected a v1 Pod, PodList or List",
        ),
        ("# nothing\n", "the manifest is empty"),
        ("~", "the manifest is empty"),
        ("just words", "manifest: "),
        ("- a\n- b\n", "manifest: "),
        ("kind: Pod\n", "apiVersion: is missing, expected v1"),
        (
            "apiVersion: v1\n",
            "kind: is missing, expected a v1 Pod, PodList or List",
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\n",
            "apiVersion: found \"apps/v1\", expected v1",
        ),
        (
            "apiVersion: v1\nkind: Service\n",
            "kind: found \"Service\", expected a v1 Pod, PodList or List",
        ),
        ("apiVersion: v1\nkind: [Pod]\n", "kind: "),
        ("apiVersion: v1\nkind: Pod\nspec: 7\n", "spec: "),
        (
            "apiVersion: v1\nkind: Pod\nspec:\n  containers: {}\n",
            "spec.containers: ",
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: [a]\n",
            "spec.containers[0].name: ",
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec: {containers: [{ports: [{containerPort: x}]}]}",
            "spec.containers[0].ports[0].containerPort: ",
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec: {priority: 99999999999}",
            "spec.priority: ",
        ),
        ("apiVersion: v1\nkind: Pod\nkind: Pod\n", "manifest: "),
        ("apiVersion: v1\nkind: PodList\nitems: 7\n", "items: "),
        ("apiVersion: v1\n\tkind: Pod\n", "manifest: "),
        (
            "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"spec\": {\"containers\": [{\"name\": 5}]}}",
            "spec.containers[0].name: ",
        ),
        ("{\"apiVersion\": \"v1\", \"kind\": ", "manifest: "),
        (&deep, ""),
        (&deep_json, ""),
        (laughs, ""),
    ];
    for (text, start) in rows {
        let error = only(text).unwrap_err();
        assert!(
            error.to_string().starts_with(start),
            "{error} for {:.80}",
            text
        );
        assert!(!error.to_string().contains('\n'), "{error}");
        assert!(!error.transient());
    }
}

#[test]
fn what_is_no_text_or_too_long_is_refused_before_it_is_read() {
    let error = parse(b"apiVersion: v1\xff", UnknownFields::Refuse).unwrap_err();
    assert_eq!(error, ManifestError::NotText { offset: 14 });
    let error = parse(&vec![b' '; MAX_MANIFEST_BYTES + 1], UnknownFields::Refuse).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the manifest has 10485761 bytes, expected at most 10485760"
    );
    assert!(parse(&[0, 1, 2, 3, 0x7f], UnknownFields::Refuse).is_err());
}

// ---- defaults

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

// ---- refusals

#[test]
fn validation_refuses_what_upstream_refuses_in_its_words() {
    let container = "/spec/containers/0";
    let rows = [
        (
            "/metadata/name",
            json!("A"),
            "metadata.name: Invalid value: \"A-node-1\": a lowercase RFC 1123 subdomain",
        ),
        (
            "/metadata/name",
            json!("x".repeat(250)),
            "must be no more than 253 bytes",
        ),
        (
            "/metadata/name",
            json!(""),
            "metadata.name: Required value: name is needed for the pod",
        ),
        (
            "/metadata/namespace",
            json!("a.b"),
            "metadata.namespace: Invalid value: \"a.b\": a lowercase RFC 1123 label",
        ),
        (
            "/metadata/labels",
            json!({"-a": "b"}),
            "metadata.labels: Invalid value: \"-a\": name part must consist of",
        ),
        (
            "/metadata/labels",
            json!({"a": "b c"}),
            "metadata.labels: Invalid value: \"b c\": a valid label must be",
        ),
        (
            "/metadata/labels",
            json!({"/a": "b"}),
            "prefix part must be non-empty",
        ),
        (
            "/metadata/annotations",
            json!({"a/b/c": ""}),
            "metadata.annotations: Invalid value: \"a/b/c\": a qualified name",
        ),
        (
            "/metadata/annotations",
            json!({"a": "x".repeat(256 << 10)}),
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        (
            "/spec/containers",
            json!([]),
            "spec.containers: Required value",
        ),
        (
            "/spec/containers/0/name",
            json!(""),
            "spec.containers[0].name: Required value",
        ),
        (
            "/spec/containers/0/name",
            json!("A_b"),
            "spec.containers[0].name: Invalid value: \"A_b\": a lowercase RFC 1123 label",
        ),
        (
            "/spec/containers/0/image",
            json!(""),
            "spec.containers[0].image: Required value",
        ),
        (
            "/spec/containers/1",
            json!({"name": "c", "image": "i"}),
            "spec.containers[1].name: Duplicate value: \"c\"",
        ),
        (
            "/spec/initContainers",
            json!([{"name": "c", "image": "i"}]),
            "spec.initContainers[0].name: Duplicate value: \"c\"",
        ),
        (
            "/spec/initContainers",
            json!([{"name": "i", "image": "i", "livenessProbe": {"exec": {"command": ["a"]}}}]),
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ),
        (
            "/spec/restartPolicy",
            json!("Sometimes"),
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
        (
            "/spec/dnsPolicy",
            json!("x"),
            "spec.dnsPolicy: Unsupported value: \"x\"",
        ),
        (
            "/spec/dnsPolicy",
            json!("None"),
            "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
        ),
        (
            "/spec/dnsConfig",
            json!({"nameservers": ["x"]}),
            "spec.dnsConfig.nameservers[0]: Invalid value: \"x\": must be a valid IP address",
        ),
        (
            "/spec/activeDeadlineSeconds",
            json!(0),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
        (
            "/spec/activeDeadlineSeconds",
            json!(1_i64 << 31),
            "must be between 1 and 2147483647, inclusive",
        ),
        (
            "/spec/hostname",
            json!("a.b"),
            "spec.hostname: Invalid value",
        ),
        (
            "/spec/ephemeralContainers",
            json!([{"name": "e", "image": "i"}]),
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ),
        (
            "/spec/tolerations",
            json!([{"operator": "Equal"}]),
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty",
        ),
        (
            "/spec/volumes",
            json!([{"name": "A"}]),
            "spec.volumes[0].name: Invalid value: \"A\"",
        ),
        (
            "/spec/volumes",
            json!([{"name": "v"}, {"name": "v"}]),
            "spec.volumes[1].name: Duplicate value: \"v\"",
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "hostPath": {"path": "/a/../b"}}]),
            "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "hostPath": {"path": "/a", "type": "Folder"}}]),
            "spec.volumes[0].hostPath.type: Unsupported value: \"Folder\"",
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "emptyDir": {"sizeLimit": "-1"}}]),
            "spec.volumes[0].emptyDir.sizeLimit: Invalid value",
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "emptyDir": {"sizeLimit": "1 GB"}}]),
            "spec.volumes[0].emptyDir.sizeLimit: Invalid value: \"1 GB\": must be a quantity",
        ),
        (
            "/spec/securityContext",
            json!({"runAsUser": -1}),
            "spec.securityContext.runAsUser: Invalid value: -1",
        ),
        (
            "/spec/resources",
            json!({"limits": {"disk": "1"}}),
            "spec.resources.limits[disk]: Invalid value",
        ),
    ];
    for (pointer, value, expected) in rows {
        let error = problem(&with(pointer, value));
        assert!(error.contains(expected), "{pointer}: {error}");
    }
    let rows = [
        (
            "imagePullPolicy",
            json!("Often"),
            "imagePullPolicy: Unsupported value: \"Often\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (
            "terminationMessagePolicy",
            json!("x"),
            "terminationMessagePolicy: Unsupported value",
        ),
        (
            "restartPolicy",
            json!("x"),
            "restartPolicy: Unsupported value",
        ),
        (
            "ports",
            json!([{"containerPort": 0}]),
            "ports[0].containerPort: Required value",
        ),
        (
            "ports",
            json!([{"containerPort": 65536}]),
            "ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
        ),
        (
            "ports",
            json!([{"containerPort": 1, "hostPort": -1}]),
            "ports[0].hostPort: Invalid value: -1",
        ),
        (
            "ports",
            json!([{"containerPort": 1, "protocol": "tcp"}]),
            "ports[0].protocol: Unsupported value: \"tcp\"",
        ),
        (
            "ports",
            json!([{"containerPort": 1, "name": "Web"}]),
            "ports[0].name: Invalid value: \"Web\"",
        ),
        (
            "ports",
            json!([{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
            "ports[1].name: Duplicate value: \"a\"",
        ),
        (
            "ports",
            json!([{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]),
            "ports[1].hostPort: Duplicate value: \"TCP//9\"",
        ),
        ("env", json!([{"name": ""}]), "env[0].name: Required value"),
        (
            "env",
            json!([{"name": "a=b"}]),
            "env[0].name: Invalid value: \"a=b\"",
        ),
        (
            "env",
            json!([{"name": "a", "valueFrom": {}}]),
            "env[0].valueFrom: Invalid value: \"\": must specify one of",
        ),
        (
            "env",
            json!([{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]),
            "env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"spec.x\"",
        ),
        (
            "volumeMounts",
            json!([{"name": "v", "mountPath": "/v"}]),
            "volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            "volumeMounts",
            json!([{"name": "v", "mountPath": ""}]),
            "volumeMounts[0].mountPath: Required value",
        ),
        (
            "volumeMounts",
            json!([{"name": "v", "mountPath": "/v", "subPath": "../x"}]),
            "volumeMounts[0].subPath: Invalid value: \"../x\": must not contain '..'",
        ),
        (
            "resources",
            json!({"limits": {"cpu": "-1"}}),
            "resources.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            "resources",
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            "resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            "resources",
            json!({"requests": {"cpu": "lots"}}),
            "resources.requests[cpu]: Invalid value: \"lots\": must be a quantity",
        ),
        (
            "resources",
            json!({"requests": {"disk": "1"}}),
            "resources.requests[disk]: Invalid value: \"disk\": must be a standard resource for containers",
        ),
        (
            "resources",
            json!({"requests": {"example.org/gpu": "1"}}),
            "resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            "resources",
            json!({"limits": {"example.org/gpu": "1500m"}}),
            "resources.limits[example.org/gpu]: Invalid value: \"1500m\": must be an integer",
        ),
        (
            "resources",
            json!({"limits": {"hugepages-2Mi": "2Mi"}}),
            "resources: Forbidden: HugePages require cpu or memory",
        ),
        (
            "livenessProbe",
            json!({}),
            "livenessProbe: Required value: must specify a handler type",
        ),
        (
            "livenessProbe",
            json!({"exec": {"command": ["a"]}, "successThreshold": 2}),
            "livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            "readinessProbe",
            json!({"tcpSocket": {"port": 0}}),
            "readinessProbe.tcpSocket.port: Invalid value: 0",
        ),
        (
            "startupProbe",
            json!({"exec": {"command": ["a"]}, "periodSeconds": -1}),
            "startupProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "lifecycle",
            json!({"preStop": {"sleep": {"seconds": 31}}}),
            "lifecycle.preStop.sleep: Invalid value: 31",
        ),
        (
            "securityContext",
            json!({"privileged": true, "allowPrivilegeEscalation": false}),
            "securityContext: Invalid value",
        ),
    ];
    for (field, value, expected) in rows {
        let error = problem(&with(&format!("{container}/{field}"), value));
        assert!(
            error.contains(&format!("spec.containers[0].{expected}")),
            "{field}: {error}"
        );
    }
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
            volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}})),
            "serviceaccounts (via projected volumes)",
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

// ---- for any input

/// The manifests as values, to be broken at random.
fn samples() -> Vec<Value> {
    [LEAST, CONTROL_PLANE, RICH, POD_LEVEL]
        .into_iter()
        .map(|text| serde_json::to_value(only(text).unwrap()).unwrap())
        .collect()
}

/// Replaces or removes the value that the steps lead to.
fn damage(value: &mut Value, steps: &[usize], with: &Option<Value>) {
    let Some((step, rest)) = steps.split_first() else {
        return value.clone_from(with.as_ref().unwrap_or(&Value::Null));
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let key = fields.keys().nth(step % fields.len()).cloned().unwrap();
            if rest.is_empty() && with.is_none() {
                fields.remove(&key);
            } else {
                damage(&mut fields[&key], rest, with);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let index = step % items.len();
            damage(&mut items[index], rest, with);
        }
        _ => value.clone_from(with.as_ref().unwrap_or(&Value::Null)),
    }
}

fn junk() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        any::<i64>().prop_map(|number| Some(json!(number))),
        any::<bool>().prop_map(|truth| Some(json!(truth))),
        "\\PC{0,12}".prop_map(|text| Some(json!(text))),
        "[0-9]{0,30}([.][0-9]{0,30})?([eE]-?[0-9]{1,3}|[numkMGTPE]i?)?"
            .prop_map(|text| Some(json!(text))),
        Just(Some(json!([]))),
        Just(Some(json!({}))),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), text in "\\PC{0,200}") {
        for data in [bytes, text.into_bytes()] {
            drop(parse(&data, UnknownFields::Refuse));
        }
    }

    #[test]
    fn a_manifest_cut_and_spliced_anywhere_is_read_or_refused_without_panic(
        sample in 0_usize..4, at in 0_usize..4000, length in 0_usize..40, splice in "[-:{}\\[\\]&*!|>'\"#%@`,? \n\ta-z0-9]{0,8}",
    ) {
        let mut text = [LEAST, CONTROL_PLANE, RICH, POD_LEVEL][sample].as_bytes().to_vec();
        let start = at % text.len();
        let end = (start + length).min(text.len());
        text.splice(start..end, splice.into_bytes()).for_each(drop);
        for pod in parse(&text, UnknownFields::Warn).into_iter().flat_map(|parsed| parsed.pods).flatten() {
            drop(run(pod.pod));
        }
    }

    #[test]
    fn defaulting_twice_is_defaulting_once(sample in 0_usize..4, steps in proptest::collection::vec(0_usize..40, 1..8), with in junk()) {
        let mut value = samples().swap_remove(sample);
        damage(&mut value, &steps, &with);
        if let Ok(mut pod) = serde_json::from_value::<Pod>(value) {
            defaults::apply(&mut pod);
            let once = pod.clone();
            defaults::apply(&mut pod);
            prop_assert_eq!(&once, &pod);
            let start = "(*core.Pod){TypeMeta:(v1.TypeMeta){";
            prop_assert!(dump::pod(&pod).starts_with(start));
            drop(run(pod));
        }
    }

    #[test]
    fn an_accepted_pod_is_accepted_again_as_yaml_and_as_json(sample in 0_usize..4, steps in proptest::collection::vec(0_usize..40, 1..8), with in junk()) {
        let mut value = samples().swap_remove(sample);
        damage(&mut value, &steps, &with);
        let json = only(&value.to_string());
        let yaml = only(&format!("# yaml\n{value}"));
        if let Ok(json) = json {
            prop_assert_eq!(json, yaml.unwrap());
        }
    }
}
