//! Laws of static manifests, upstream's cases by upstream's names, and the UIDs that a Go program with upstream's
//! types gives.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;

mod any_input;
mod identity;
mod reading;
mod rules;
mod whole;

const LEAST: &str = include_str!("../testdata/least.yaml");
const CONTROL_PLANE: &str = include_str!("../testdata/control-plane.yaml");
const RICH: &str = include_str!("../testdata/rich.yaml");
const POD_LEVEL: &str = include_str!("../testdata/pod-level.json");

fn parsed(text: &str) -> ParsedManifest {
    parse(text.as_bytes(), UnknownFields::Refuse).unwrap()
}

fn only(text: &str) -> Result<Pod, ManifestError> {
    let mut parsed = parse(text.as_bytes(), UnknownFields::Refuse)?;
    assert_eq!(parsed.pods.len(), 1);
    parsed.pods.remove(0).map(|parsed| parsed.pod)
}

fn file(name: &str) -> ManifestSource {
    ManifestSource::File(format!("/etc/kubernetes/manifests/{name}.yaml"))
}

fn url() -> ManifestSource {
    ManifestSource::Url("http://127.0.0.1:8080/m".to_owned())
}

fn run(pod: Pod) -> Result<Pod, ManifestError> {
    static_pod(pod, &file("m"), &"node-1".into(), Timestamp::UNIX_EPOCH)
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
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            panic!("{pointer} has no parent")
        }
    }
    pod
}

fn problem(pod: &Value) -> String {
    match only(&pod.to_string()).and_then(run) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}
