//! The defaults of a pod's fields that a node relies on.

use serde_json::{Value, json};

use super::qos;
use crate::encoding::empty_fields::drop_nulls;
use crate::verbs::default;

/// Fills in fields that a pod leaves out; the others stay. Idempotent.
pub(crate) fn fill(pod: &mut Value) {
    let spec = &mut pod["spec"];
    let fields = [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("schedulerName", json!("default-scheduler")),
        ("enableServiceLinks", json!(true)),
        ("securityContext", json!({})),
    ];
    for (field, value) in fields {
        default(spec, field, value);
    }
    let host_network = spec["hostNetwork"] == true;
    for volume in spec["volumes"].as_array_mut().into_iter().flatten() {
        fill_volume(volume);
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            fill_container(container, host_network);
        }
    }
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    default(&mut pod["status"], "phase", json!("Pending"));
    let class = qos::class(&pod["spec"]);
    default(&mut pod["status"], "qosClass", json!(class));
    // Looking at an absent field by index has made it null.
    drop_nulls(pod);
}

fn fill_volume(volume: &mut Value) {
    let sources = volume.as_object().map_or(0, |fields| {
        fields
            .iter()
            .filter(|(name, value)| *name != "name" && !value.is_null())
            .count()
    });
    if sources == 0 {
        volume["emptyDir"] = json!({});
    }
    for source in ["secret", "configMap", "projected", "downwardAPI"] {
        if let Some(source) = volume.get_mut(source) {
            default(source, "defaultMode", json!(420));
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        default(path, "type", json!(""));
    }
    if let Some(image) = volume.get_mut("image") {
        let reference = image["reference"].as_str().unwrap_or_default().to_string();
        default(image, "pullPolicy", json!(pull_policy(&reference)));
    }
    if let Some(spec) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        default(spec, "volumeMode", json!("Filesystem"));
    }
    fill_items(&mut volume["downwardAPI"]);
    for source in volume
        .pointer_mut("/projected/sources")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        fill_items(&mut source["downwardAPI"]);
        if let Some(token) = source.get_mut("serviceAccountToken") {
            default(token, "expirationSeconds", json!(3600));
        }
    }
}

fn fill_items(downward: &mut Value) {
    for item in downward
        .get_mut("items")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(field) = item.get_mut("fieldRef") {
            default(field, "apiVersion", json!("v1"));
        }
    }
}

fn fill_container(container: &mut Value, host_network: bool) {
    default(
        container,
        "terminationMessagePath",
        json!("/dev/termination-log"),
    );
    default(container, "terminationMessagePolicy", json!("File"));
    let image = container["image"].as_str().unwrap_or_default().to_string();
    default(container, "imagePullPolicy", json!(pull_policy(&image)));
    default(container, "resources", json!({}));
    if let Some(Value::Object(limits)) = container["resources"].get("limits").cloned() {
        for (name, limit) in limits {
            default(&mut container["resources"]["requests"], &name, limit);
        }
    }
    for port in container
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        default(port, "protocol", json!("TCP"));
        if host_network {
            let number = port["containerPort"].clone();
            default(port, "hostPort", number);
        }
    }
    for variable in container
        .get_mut("env")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            default(field, "apiVersion", json!("v1"));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).filter(|probe| probe.is_object()) {
            fill_probe(probe);
        }
    }
    for hook in ["/lifecycle/postStart/httpGet", "/lifecycle/preStop/httpGet"] {
        if let Some(get) = container.pointer_mut(hook) {
            fill_get(get);
        }
    }
}

fn fill_probe(probe: &mut Value) {
    for (field, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        if probe
            .get(field)
            .is_none_or(|said| said.is_null() || said == 0)
        {
            probe[field] = json!(value);
        }
    }
    if let Some(get) = probe.get_mut("httpGet") {
        fill_get(get);
    }
    if let Some(grpc) = probe.get_mut("grpc") {
        default(grpc, "service", json!(""));
    }
}

fn fill_get(get: &mut Value) {
    default(get, "path", json!("/"));
    default(get, "scheme", json!("HTTP"));
}

/// Images without a tag, or with the tag latest, are always pulled.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    let last = image.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}
