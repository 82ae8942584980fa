//! Manifests of objects: YAML or JSON, several documents a file, each one of the kinds that pods refer to.
//!
//! One bad document does not hide the others. What the API server would refuse is refused here as well, as far
//! as pods could tell: unknown fields, keys that are no keys, too much data.

use std::sync::Arc;

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::{StaticObjects, key};

/// The greatest file: as much as a pod's manifest may be.
pub const MAX_FILE_BYTES: usize = 10 << 20;
/// The most data of one ConfigMap or Secret: upstream's `MaxSecretSize`.
pub const MAX_OBJECT_BYTES: usize = 1 << 20;

/// What a file holds.
#[derive(Debug, Default)]
pub struct Parsed {
    pub objects: StaticObjects,
    pub problems: Vec<ObjectError>,
}

/// Why a file, or a document of it, is not taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ObjectError {
    #[error("the file has more than {MAX_FILE_BYTES} bytes")]
    TooLong,
    #[error("the file is not text: byte {offset} is not utf-8")]
    NotText { offset: usize },
    #[error("the file is not YAML or JSON: {0}")]
    Syntax(String),
    #[error(
        "document {document}: found {found}, expected v1 ConfigMap, v1 Secret, v1 Service, node.k8s.io/v1 RuntimeClass or v1 List"
    )]
    Kind { document: usize, found: String },
    #[error("document {document}: {field}: {problem}")]
    Field {
        document: usize,
        field: String,
        problem: String,
    },
    #[error("document {document}: {object} stands in this file already")]
    Twice { document: usize, object: String },
}

/// Reads all documents of a file; the documents are counted from one.
pub fn parse(data: &[u8]) -> Parsed {
    let mut parsed = Parsed::default();
    match documents(data) {
        Err(error) => parsed.problems.push(error),
        Ok(documents) => {
            for (index, document) in documents.into_iter().enumerate() {
                parsed.take(index + 1, document);
            }
        }
    }
    parsed
}

fn documents(data: &[u8]) -> Result<Vec<Value>, ObjectError> {
    if data.len() > MAX_FILE_BYTES {
        return Err(ObjectError::TooLong);
    }
    let text = std::str::from_utf8(data).map_err(|error| ObjectError::NotText {
        offset: error.valid_up_to(),
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| ObjectError::Syntax(error.to_string()))
}

/// A document's number, for what is said of it.
#[derive(Clone, Copy)]
struct At(usize);

impl At {
    fn field(self, field: &str, problem: impl Into<String>) -> ObjectError {
        ObjectError::Field {
            document: self.0,
            field: field.to_owned(),
            problem: problem.into(),
        }
    }
}

impl Parsed {
    fn take(&mut self, number: usize, document: Value) {
        let of = |field: &str| {
            document
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or("nothing")
        };
        let read = match (of("apiVersion"), of("kind")) {
            // Between two separators there may be nothing.
            _ if document.is_null() => return,
            ("v1", "List" | "ConfigMapList" | "SecretList" | "ServiceList") => {
                return self.take_items(number, document);
            }
            ("v1", "ConfigMap") => config_map(At(number), document),
            ("v1", "Secret") => secret(At(number), document),
            ("v1", "Service") => service(At(number), document),
            ("node.k8s.io/v1", "RuntimeClass") => runtime_class(At(number), document),
            (version, kind) => Err(ObjectError::Kind {
                document: number,
                found: format!("{version} {kind}"),
            }),
        };
        match read {
            Ok(objects) => {
                let twice = self.objects.merge(objects).into_iter();
                self.problems.extend(twice.map(|object| ObjectError::Twice {
                    document: number,
                    object,
                }));
            }
            Err(error) => self.problems.push(error),
        }
    }

    /// A list of lists is refused, so that nobody nests them without end.
    fn take_items(&mut self, number: usize, mut document: Value) {
        let items = document.get_mut("items").map(Value::take);
        let Some(Value::Array(items)) = items else {
            let refused = At(number).field("items", "expected a list");
            return self.problems.push(refused);
        };
        for item in items {
            match item.get("kind").and_then(Value::as_str) {
                Some(kind) if kind.ends_with("List") => self.problems.push(ObjectError::Kind {
                    document: number,
                    found: format!("{kind} within a list"),
                }),
                _ => self.take(number, item),
            }
        }
    }
}

/// Into the type; a field that the type does not have is refused.
fn typed<T: DeserializeOwned>(at: At, document: Value) -> Result<T, ObjectError> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(document, &mut track);
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(path.to_string());
    let read = T::deserialize(serde_ignored::Deserializer::new(tracked, &mut note));
    let object = read.map_err(|error| at.field(&track.path().to_string(), error.to_string()))?;
    match unknown.first() {
        None => Ok(object),
        Some(field) => Err(at.field(field.trim_start_matches("?."), "unknown field")),
    }
}

/// The name that an object must have; the namespace is `default` where it has none.
fn name<T: Metadata<Ty = ObjectMeta>>(
    at: At,
    object: &mut T,
) -> Result<(String, String), ObjectError> {
    let meta = object.metadata_mut();
    let name = meta.name.clone().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| at.field("metadata.name", "expected a name"))?;
    let namespace = meta.namespace.get_or_insert_with(|| "default".to_owned());
    Ok(key(namespace, &name))
}

fn config_map(at: At, document: Value) -> Result<StaticObjects, ObjectError> {
    let mut map: ConfigMap = typed(at, document)?;
    let text = map
        .data
        .iter()
        .flatten()
        .map(|(key, value)| (key, value.len()));
    let binary = map
        .binary_data
        .iter()
        .flatten()
        .map(|(key, value)| (key, value.0.len()));
    check_data(at, text.chain(binary))?;
    let key = name(at, &mut map)?;
    Ok(StaticObjects {
        config_maps: [(key, Arc::new(map))].into(),
        ..StaticObjects::default()
    })
}

/// What is written as text goes over what is written as base64, as the API server has it.
fn secret(at: At, document: Value) -> Result<StaticObjects, ObjectError> {
    let mut secret: Secret = typed(at, document)?;
    let text = secret.string_data.take().unwrap_or_default();
    let data = secret.data.get_or_insert_default();
    data.extend(text.into_iter().map(|(key, value)| {
        let bytes = k8s_openapi::ByteString(value.into_bytes());
        (key, bytes)
    }));
    check_data(at, data.iter().map(|(key, value)| (key, value.0.len())))?;
    let key = name(at, &mut secret)?;
    Ok(StaticObjects {
        secrets: [(key, Arc::new(secret))].into(),
        ..StaticObjects::default()
    })
}

fn service(at: At, document: Value) -> Result<StaticObjects, ObjectError> {
    let mut service: Service = typed(at, document)?;
    let key = name(at, &mut service)?;
    Ok(StaticObjects {
        services: [(key, Arc::new(service))].into(),
        ..StaticObjects::default()
    })
}

fn runtime_class(at: At, document: Value) -> Result<StaticObjects, ObjectError> {
    let class: RuntimeClass = typed(at, document)?;
    let name = class.metadata.name.clone().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| at.field("metadata.name", "expected a name"))?;
    if class.handler.is_empty() {
        return Err(at.field("handler", "expected a handler"));
    }
    Ok(StaticObjects {
        runtime_classes: [(name, Arc::new(class))].into(),
        ..StaticObjects::default()
    })
}

fn check_data<'a>(
    at: At,
    data: impl Iterator<Item = (&'a String, usize)>,
) -> Result<(), ObjectError> {
    let mut total = 0_usize;
    for (key, bytes) in data {
        if !is_key(key) {
            let problem = "expected letters, digits, '-', '_' and '.', at most 253";
            return Err(at.field(&format!("data[{key}]"), problem));
        }
        total = total.saturating_add(bytes);
    }
    match total > MAX_OBJECT_BYTES {
        true => Err(at.field(
            "data",
            format!("found {total} bytes, expected at most {MAX_OBJECT_BYTES}"),
        )),
        false => Ok(()),
    }
}

/// Upstream's `IsConfigMapKey`: a key may become a file's name.
fn is_key(key: &str) -> bool {
    const LONGEST: usize = 253;
    let fits = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
    !key.is_empty()
        && key.len() <= LONGEST
        && key.chars().all(fits)
        && key != "."
        && !key.starts_with("..")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::objects::Objects;

    const FILE: &str = "
---
apiVersion: v1
kind: ConfigMap
metadata: {name: plain}
data:
  port: '80'
  text: |
    one
    two
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: other}
data: {a: YWJj, b: YWJj}
stringData: {b: plain}
---
---
{\"apiVersion\": \"v1\", \"kind\": \"Service\", \"metadata\": {\"name\": \"web\"}, \"spec\": {\"clusterIP\": \"1.2.3.4\"}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: small}
handler: runc
";

    #[test]
    fn every_kind_that_pods_refer_to_is_read() {
        let Parsed { objects, problems } = parse(FILE.as_bytes());
        assert_eq!(problems, []);
        let map = objects.config_map("default", "plain").unwrap();
        let data = map.data.as_ref().unwrap();
        assert_eq!(
            (data["port"].as_str(), data["text"].as_str()),
            ("80", "one\ntwo\n")
        );
        let secret = objects.secret("other", "key").unwrap();
        let data = secret.data.as_ref().unwrap();
        assert_eq!(
            (data["a"].0.as_slice(), data["b"].0.as_slice()),
            (&b"abc"[..], &b"plain"[..])
        );
        assert_eq!(secret.string_data, None);
        assert_eq!(
            objects.services()[0].metadata.namespace.as_deref(),
            Some("default")
        );
        assert_eq!(objects.runtime_class("small").unwrap().handler, "runc");
        assert!(objects.config_map("other", "plain").is_none());
    }

    #[test]
    fn items_of_a_list_are_objects_as_well() {
        let text = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}, {apiVersion: v1, kind: List, items: []}]}";
        let Parsed { objects, problems } = parse(text.as_bytes());
        assert!(objects.config_map("default", "a").is_some());
        assert_eq!(problems.len(), 1);
        assert!(problems[0].to_string().contains("List within a list"));
    }

    #[test]
    fn a_bad_document_is_named_and_hides_no_other() {
        let long = "x".repeat(MAX_OBJECT_BYTES + 1);
        let big = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, data: {{k: {long}}}}}"
        );
        let cases = [
            (
                "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
                "found v1 Pod, expected",
            ),
            ("{kind: ConfigMap}", "found nothing ConfigMap, expected"),
            ("[1]", "found nothing nothing, expected"),
            (
                "{apiVersion: v1, kind: ConfigMap, metadata: {}}",
                "metadata.name: expected a name",
            ),
            (
                "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: 80}}",
                "data.k: invalid type: integer `80`, expected a string",
            ),
            (
                "{apiVersion: v1, kind: Secret, metadata: {name: a}, stringdata: {k: v}}",
                "stringdata: unknown field",
            ),
            (
                "{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {a/b: v}}",
                "data[a/b]: expected letters",
            ),
            (
                "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {k: '%'}}",
                "data.k: ",
            ),
            (
                "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: a}, handler: ''}",
                "handler: expected a handler",
            ),
            ("{apiVersion: v1, kind: List}", "items: expected a list"),
            (
                big.as_str(),
                "data: found 1048577 bytes, expected at most 1048576",
            ),
            (
                "{apiVersion: v1, kind: ConfigMap, metadata: {name: good}}",
                "ConfigMap default/good stands in this file already",
            ),
        ];
        let good = "{apiVersion: v1, kind: ConfigMap, metadata: {name: good}}";
        for (text, expected) in cases {
            let Parsed { objects, problems } = parse(format!("{good}\n---\n{text}\n").as_bytes());
            assert!(objects.config_map("default", "good").is_some(), "{text}");
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
            let said = problems[0].to_string();
            assert!(
                said.starts_with("document 2: ") && said.contains(expected),
                "{said}"
            );
        }
    }

    #[test]
    fn a_file_that_is_no_text_is_refused_as_one() {
        let refused = |data: &[u8]| parse(data).problems.remove(0);
        assert_eq!(refused(b"ab\xff"), ObjectError::NotText { offset: 2 });
        assert_eq!(
            refused(&vec![b' '; MAX_FILE_BYTES + 1]),
            ObjectError::TooLong
        );
        assert!(matches!(refused(b"{a: [}"), ObjectError::Syntax(_)));
        assert!(parse(b"").problems.is_empty());
    }

    #[test]
    fn what_is_known_stays_and_is_named() {
        let mut objects = parse(FILE.as_bytes()).objects;
        let again = parse(FILE.as_bytes()).objects;
        let known = objects.merge(again);
        let expected = [
            "ConfigMap default/plain",
            "Secret other/key",
            "Service default/web",
            "RuntimeClass small",
        ];
        assert_eq!(known, expected);
        assert!(StaticObjects::default().merge(objects).is_empty());
    }

    proptest! {
        #[test]
        fn no_file_breaks_the_reader(data in proptest::collection::vec(any::<u8>(), 0..80)) {
            drop(parse(&data));
        }
    }
}
