//! The variables that containers see, and the arguments that are made of them.

use std::path::Path;

use serde_json::json;

use super::*;

on_each_runtime! {
    variables_come_in_order_from_every_source_there_is,
    a_static_pod_may_not_ask_the_api_for_its_variables,
    config_maps_and_secrets_come_from_the_folder_of_objects,
}

/// A folder of objects: what pods refer to.
fn objects(folder: &Path) -> String {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "data-base", "namespace": "default" },
        "spec": { "clusterIP": "192.0.2.10", "ports": [{ "name": "sql", "port": 5432, "protocol": "TCP" }] },
    });
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings", "namespace": "default" },
        "data": { "color": "blue", "shape": "round" },
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "hidden", "namespace": "default" },
        "stringData": { "word": "sesame" },
    });
    fs::write(folder.join("hidden.json"), secret.to_string()).unwrap();
    fs::write(folder.join("service.json"), service.to_string()).unwrap();
    fs::write(folder.join("settings.json"), settings.to_string()).unwrap();
    format!("--object-manifests={}", folder.display())
}

fn field(name: &str, path: &str) -> Value {
    json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } })
}

fn amount(name: &str, resource: &str, divisor: &str) -> Value {
    let of = json!({ "resource": resource, "divisor": divisor });
    json!({ "name": name, "valueFrom": { "resourceFieldRef": of } })
}

/// By name, what it is to be.
const EXPECTED: [(&str, &str); 16] = [
    ("PLAIN", "plain"),
    ("EARLIER", "plain-and-more"),
    ("LATER", "$(LAST)"),
    ("ESCAPED", "$(PLAIN)"),
    ("LAST", "last"),
    ("NAME", "vars-node"),
    ("NAMESPACE", "default"),
    ("NODE", "node"),
    ("LABEL", "front"),
    ("NOTE", "hello"),
    ("CPU", "500"),
    ("MEMORY", "64"),
    ("REQUEST", "1"),
    ("DATA_BASE_SERVICE_HOST", "192.0.2.10"),
    ("DATA_BASE_SERVICE_PORT_SQL", "5432"),
    ("DATA_BASE_PORT_5432_TCP", "tcp://192.0.2.10:5432"),
];

async fn variables_come_in_order_from_every_source_there_is(on: TestRuntime) {
    let folder = tempfile::tempdir().unwrap();
    let flag = objects(folder.path());
    let Some(node_rig) = on.start_with(|builder| builder.flag(flag)).await else {
        return;
    };
    let lines: Vec<String> = EXPECTED
        .iter()
        .map(|(name, _)| format!("echo {name}=${name}"))
        .collect();
    let more = "echo UID=$UID_; echo IP=$IP; echo HOST=$HOST; echo IPS=$IPS $HOSTS; echo ACCOUNT=$ACCOUNT; echo 'argument=$(PLAIN) $$(PLAIN)'";
    let script = format!("{}; {more}; echo done; {SERVE_ON}", lines.join("; "));
    let environment = json!([
        { "name": "PLAIN", "value": "plain" },
        { "name": "EARLIER", "value": "$(PLAIN)-and-more" },
        { "name": "LATER", "value": "$(LAST)" },
        { "name": "ESCAPED", "value": "$$(PLAIN)" },
        { "name": "LAST", "value": "last" },
        field("NAME", "metadata.name"), field("NAMESPACE", "metadata.namespace"),
        field("NODE", "spec.nodeName"), field("LABEL", "metadata.labels['tier']"),
        field("NOTE", "metadata.annotations['example.org/note']"),
        field("UID_", "metadata.uid"), field("IP", "status.podIP"), field("HOST", "status.hostIP"),
        field("IPS", "status.podIPs"), field("HOSTS", "status.hostIPs"), field("ACCOUNT", "spec.serviceAccountName"),
        amount("CPU", "limits.cpu", "1m"), amount("MEMORY", "limits.memory", "1Mi"),
        amount("REQUEST", "requests.cpu", "1"),
    ]);
    let resources =
        json!({ "limits": { "cpu": "500m", "memory": "64Mi" }, "requests": { "cpu": "100m" } });
    let app = with(
        container_of("app", &script),
        json!({ "env": environment, "resources": resources }),
    );
    let mut vars = pod("vars", json!({ "containers": [app] }));
    vars["metadata"]["labels"] = json!({ "tier": "front" });
    vars["metadata"]["annotations"] = json!({ "example.org/note": "hello" });
    node_rig.drop_pod(&vars);
    let pod = node_rig.until_running("vars").await;
    let said = node_rig.until_done(&pod, "app").await;
    let expected = EXPECTED
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let status = pod.status.as_ref().unwrap();
    let rest = [
        format!("UID={}", uid(&pod)),
        format!("IP={}", status.pod_ip.as_ref().unwrap()),
        format!("HOST={}", status.host_ip.as_ref().unwrap()),
        format!(
            "IPS={} {}",
            status.pod_ip.as_ref().unwrap(),
            status.host_ip.as_ref().unwrap()
        ),
        "ACCOUNT=".to_owned(),
        "argument=plain $(PLAIN)".to_owned(),
    ];
    assert_eq!(said, expected.chain(rest).collect::<Vec<_>>());
}

/// As upstream since 1.34: it would wait for ever on a node without an API server.
async fn a_static_pod_may_not_ask_the_api_for_its_variables(on: TestRuntime) {
    let folder = tempfile::tempdir().unwrap();
    let flag = objects(folder.path());
    let Some(node_rig) = on.start_with(|builder| builder.flag(flag)).await else {
        return;
    };
    let environment = json!([{ "configMapRef": { "name": "settings" } }]);
    let app = with(
        container_of("app", SERVE_ON),
        json!({ "envFrom": environment }),
    );
    node_rig.drop_pod(&pod("asks", json!({ "containers": [app] })));
    node_rig
        .until_event("InvalidManifest", &["asks.json", "configmaps"])
        .await;
}

async fn config_maps_and_secrets_come_from_the_folder_of_objects(on: TestRuntime) {
    let folder = tempfile::tempdir().unwrap();
    let flag = objects(folder.path());
    let gates = json!({ "featureGates": { "PreventStaticPodAPIReferences": false } });
    let node_rig = on.start_with(|builder| builder.flag(flag).config(&gates));
    let Some(node_rig) = node_rig.await else {
        return;
    };
    let key = |kind: &str, name: &str, key: &str| json!({ "name": "KEY", "valueFrom": { kind: { "name": name, "key": key } } });
    let tell = |words: &str| format!("echo {words}; echo done; {SERVE_ON}");
    let all = json!({
        "envFrom": [{ "prefix": "MY_", "configMapRef": { "name": "settings" } }, { "secretRef": { "name": "hidden" } }],
        "env": [key("configMapKeyRef", "settings", "color"), { "name": "MY_shape", "value": "square" }],
    });
    let lost = json!({ "env": [key("secretKeyRef", "hidden", "nowhere")] });
    node_rig.drop_pod(&pod(
        "given",
        json!({ "containers": [
            with(container_of("app", &tell("$MY_color $MY_shape $word $KEY")), all),
            with(container_of("lost", SERVE_ON), lost),
        ] }),
    ));
    let pod = node_rig
        .until("given", "runs what it can", |pod| {
            let app = container(pod, "app").is_some_and(is_running);
            app && waiting(pod, "lost").0 == "CreateContainerConfigError"
        })
        .await;
    assert_eq!(
        node_rig.until_done(&pod, "app").await,
        ["blue square sesame blue"]
    );
    let (_, message) = waiting(&pod, "lost");
    assert_eq!(
        message,
        "couldn't find key nowhere in Secret default/hidden"
    );
}
