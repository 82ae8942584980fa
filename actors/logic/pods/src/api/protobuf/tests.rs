//! The bytes of upstream's own encoder, and the table against itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use logic_api::testing::yaml;
use serde_json::{Value, json};

use super::schema::{FieldShape, FieldType, fields, messages};
use super::{EncodeError, pod};

/// A pod in which every field of every message is set.
const EVERY_FIELD: &str = include_str!("testdata/every_field.yaml");
/// The same pod, written by `Pod.Marshal` of Kubernetes 1.36.
const BYTES: &[u8] = include_bytes!("testdata/every_field.pb");

fn every_field() -> Pod {
    let mut pod = Arc::unwrap_or_clone(yaml::pod(EVERY_FIELD));
    pod.metadata.uid = Some("UID 5".to_owned());
    pod
}

/// Upstream's TestSerialize, for every field there is.
#[test]
fn a_pod_is_written_as_upstream_writes_it() {
    let bytes = pod(&every_field(), None).unwrap();
    assert_eq!(bytes.len(), BYTES.len());
    assert!(bytes == BYTES);
}

/// So the bytes above prove something of each field.
#[test]
fn the_example_sets_every_field_of_every_message() {
    let mut unset = BTreeSet::new();
    for (message, fields) in messages() {
        let own = fields.iter().filter(|field| !is_embedded(field.shape));
        unset.extend(own.map(|field| (*message, field.name)));
    }
    strike(
        &serde_json::to_value(every_field()).unwrap(),
        "Pod",
        &mut unset,
    );
    assert_eq!(unset, BTreeSet::new());
}

/// Takes the fields that this object has out of those that no object has; one that is in no message is an error.
fn strike(
    value: &Value,
    message: &'static str,
    unset: &mut BTreeSet<(&'static str, &'static str)>,
) {
    let mut names: BTreeSet<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    strike_own(value, message, unset, &mut names);
    if message == "Pod" {
        names.retain(|name| !["apiVersion", "kind"].contains(name));
    }
    assert_eq!(names, BTreeSet::new(), "of {message}");
}

fn strike_own<'a>(
    value: &'a Value,
    message: &'static str,
    unset: &mut BTreeSet<(&'static str, &'static str)>,
    names: &mut BTreeSet<&'a str>,
) {
    for field in fields(message) {
        if let (FieldShape::Embedded, FieldType::Message(inner)) = (field.shape, field.kind) {
            strike_own(value, inner, unset, names);
            continue;
        }
        let Some(inner) = value.get(field.name) else {
            continue;
        };
        names.remove(field.name);
        unset.remove(&(message, field.name));
        let FieldType::Message(name) = field.kind else {
            continue;
        };
        match (field.shape, inner) {
            (FieldShape::List, Value::Array(items)) => {
                items.iter().for_each(|item| strike(item, name, unset));
            }
            (_, inner) => strike(inner, name, unset),
        }
    }
}

fn is_embedded(shape: FieldShape) -> bool {
    matches!(shape, FieldShape::Embedded)
}

#[test]
fn every_message_that_a_field_names_is_in_the_table() {
    for (message, fields) in messages() {
        let mut numbers: Vec<u64> = fields.iter().map(|field| field.number).collect();
        assert!(!numbers.is_empty(), "{message}");
        numbers.dedup();
        assert!(
            numbers.is_sorted() && numbers.len() == fields.len(),
            "{message}"
        );
        for field in fields {
            if let FieldType::Message(name) = field.kind {
                assert!(messages().contains_key(name), "{message}.{}", field.name);
            }
        }
    }
}

#[test]
fn what_is_not_set_is_not_written_and_what_is_set_to_nothing_is() {
    let mut bare = Pod::default();
    bare.metadata.name = Some("a".to_owned());
    bare.metadata.generation = Some(0);
    assert_eq!(pod(&bare, None).unwrap(), b"\x0a\x05\x0a\x01a\x38\x00");
}

#[test]
fn another_status_stands_in_the_place_of_the_pods_own() {
    let mut own = Pod {
        status: Some(PodStatus {
            phase: Some("Pending".to_owned()),
            reason: Some("Old".to_owned()),
            ..PodStatus::default()
        }),
        ..Pod::default()
    };
    let newer = PodStatus {
        phase: Some("Running".to_owned()),
        ..PodStatus::default()
    };
    let overlaid = pod(&own, Some(&newer)).unwrap();
    own.status = Some(newer);
    assert_eq!(overlaid, pod(&own, None).unwrap());
}

#[test]
fn a_value_that_is_not_of_its_type_is_named() {
    let object = json!({"metadata": {"generation": "one"}});
    let written = super::message(object.as_object().unwrap(), "Pod", &mut Vec::new());
    let error = written.unwrap_err();
    assert!(matches!(error, EncodeError::Value { .. }));
    let expected = "the value of ObjectMeta.generation is not of its type";
    assert_eq!(error.to_string(), expected);
}
