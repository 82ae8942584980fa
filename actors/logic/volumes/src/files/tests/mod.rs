//! Upstream's tables of what ends up in which file, and what else people write.

mod certificates;
mod downward_api;
mod entries;
mod paths;
mod projected;
mod tokens;
mod trust;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::objects::{StaticObjects, parse};
use logic_api::testing::{at, pod, quantities};
use serde_json::{Value, json};

use super::*;

/// A pod, what is at hand for it, and when.
struct Rig {
    pod: Pod,
    objects: StaticObjects,
    node: NodePolicy,
    now: Timestamp,
}

/// A pod `p` of the account `foo`, with these objects.
fn rig(objects: &[Value]) -> Rig {
    let mut pod = pod("p");
    pod.spec.get_or_insert_default().service_account_name = Some("foo".to_owned());
    Rig {
        pod,
        objects: read(objects),
        node: NodePolicy {
            allocatable: quantities(&[("cpu", "12"), ("memory", "15Gi")]),
            ..NodePolicy::default()
        },
        now: at(0),
    }
}

fn read(objects: &[Value]) -> StaticObjects {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let parsed = parse(list.to_string().as_bytes());
    assert_eq!(parsed.problems, []);
    parsed.objects
}

impl Rig {
    fn make(&self, volume: Value) -> Result<VolumeFiles, FilesError> {
        let mut volume: core::Volume = serde_json::from_value(volume).unwrap();
        volume.name = "v".to_owned();
        let context = FilesContext {
            objects: &self.objects,
            node: &self.node,
            now: self.now,
        };
        files(&self.pod, &volume, &context)
    }

    /// Path, text and mode of each file.
    fn made(&self, volume: Value) -> Vec<(String, String, u32)> {
        shown(&self.make(volume).unwrap().set)
    }

    fn refused(&self, volume: Value) -> (String, RetryWhen) {
        let error = self.make(volume).unwrap_err();
        (error.message, error.until)
    }
}

fn shown(set: &FileSet) -> Vec<(String, String, u32)> {
    let file = |(path, file): (&String, &FileProjection)| {
        let text = String::from_utf8(file.data.clone()).unwrap();
        (path.clone(), text, file.mode)
    };
    set.files.iter().map(file).collect()
}

fn expected(files: &[(&str, &str, u32)]) -> Vec<(String, String, u32)> {
    let mut files: Vec<_> = files
        .iter()
        .map(|(path, text, mode)| ((*path).to_owned(), (*text).to_owned(), *mode))
        .collect();
    files.sort();
    files
}

fn config_map(name: &str, fields: Value) -> Value {
    object("v1", "ConfigMap", name, fields)
}

fn object(version: &str, kind: &str, name: &str, fields: Value) -> Value {
    let mut object = fields;
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    object["metadata"]["name"] = name.into();
    object
}

#[test]
fn a_volume_of_another_kind_has_no_files() {
    let refused = rig(&[]).refused(json!({"name": "v", "emptyDir": {}}));
    assert_eq!(
        refused,
        ("no volume plugin matched".to_owned(), RetryWhen::Never)
    );
}
