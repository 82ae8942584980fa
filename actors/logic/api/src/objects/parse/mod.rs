//! Manifests of objects: YAML or JSON, several documents a file, each one of the kinds that pods refer to.
//!
//! One bad document does not hide the others. What the API server would refuse is refused here as well, as far
//! as pods could tell: unknown fields, keys that are no keys, names that are paths, too much data.

mod kinds;
#[cfg(test)]
mod tests;

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::static_objects::{ObjectKey, StaticObjects, key};
use crate::decode::yaml_numbers;

/// The greatest file: as much as a pod's manifest may be.
pub const MAX_FILE_BYTES: usize = 10 << 20;
/// The most data of one ConfigMap or Secret: upstream's `MaxSecretSize`.
pub const MAX_OBJECT_BYTES: usize = 1 << 20;

/// The objects of a file, and the problems of its other documents.
#[derive(Debug, Default)]
pub struct ParsedObjects {
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
    #[error("document {document}: found {found}, expected {}", kinds::EXPECTED)]
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
pub fn parse(data: &[u8]) -> ParsedObjects {
    let mut parsed = ParsedObjects::default();
    match documents(data) {
        Err(error) => parsed.problems.push(error),
        Ok(documents) => {
            for (index, document) in documents.into_iter().enumerate() {
                parsed.take(DocumentNumber(index + 1), document);
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
    let mut documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| ObjectError::Syntax(error.to_string()))?;
    documents.iter_mut().for_each(yaml_numbers::normalize);
    Ok(documents)
}

/// A document's number within its file, for errors.
#[derive(Clone, Copy)]
struct DocumentNumber(usize);

impl DocumentNumber {
    fn field(self, field: &str, problem: impl Into<String>) -> ObjectError {
        ObjectError::Field {
            document: self.0,
            field: field.to_owned(),
            problem: problem.into(),
        }
    }

    fn kind(self, found: String) -> ObjectError {
        ObjectError::Kind {
            document: self.0,
            found,
        }
    }
}

impl ParsedObjects {
    fn take(&mut self, at: DocumentNumber, document: Value) {
        // Between two separators there may be nothing.
        if document.is_null() {
            return;
        }
        let of = |place: &str| document.pointer(place).and_then(Value::as_str);
        let version = of("/apiVersion").unwrap_or("nothing").to_owned();
        let kind = of("/kind").unwrap_or("nothing").to_owned();
        if version == "v1" && kind.ends_with("List") {
            return self.take_items(at, document);
        }
        let namespace = of("/metadata/namespace").unwrap_or("default");
        let object = of("/metadata/name").map(|name| key(namespace, name));
        match kinds::read(at, &version, &kind, &document) {
            Ok(objects) => {
                let twice = self.objects.merge(objects).into_iter();
                self.problems.extend(twice.map(|object| ObjectError::Twice {
                    document: at.0,
                    object,
                }));
            }
            Err(error) => self.refuse(kind, object, error),
        }
    }

    /// A pod that waits for the object gets this error.
    fn refuse(&mut self, kind: String, object: Option<ObjectKey>, error: ObjectError) {
        if let Some((namespace, name)) = object.filter(|_| kinds::is_known(&kind)) {
            let namespace = if kinds::is_namespaced(&kind) {
                namespace
            } else {
                String::new()
            };
            let why = error.to_string();
            self.objects.refused.insert((kind, namespace, name), why);
        }
        self.problems.push(error);
    }

    /// A list of lists is refused, so that nesting is bounded.
    fn take_items(&mut self, at: DocumentNumber, mut document: Value) {
        let items = document.get_mut("items").map(Value::take);
        let Some(Value::Array(items)) = items else {
            let refused = at.field("items", "expected a list");
            return self.problems.push(refused);
        };
        for item in items {
            match item.get("kind").and_then(Value::as_str) {
                Some(kind) if kind.ends_with("List") => {
                    self.problems.push(at.kind(format!("{kind} within a list")));
                }
                _ => self.take(at, item),
            }
        }
    }
}

/// The problem of a field that a type does not have.
const UNKNOWN: &str = "unknown field";

/// Into the type; a field that the type does not have is refused.
fn typed<T: DeserializeOwned>(at: DocumentNumber, document: &Value) -> Result<T, ObjectError> {
    let read = crate::decode::strict_decode::decode(document);
    let read = read.map_err(|misfit| at.field(&misfit.path, misfit.problem))?;
    match read.unknown.first() {
        None => Ok(read.value),
        Some(field) => Err(at.field(field, UNKNOWN)),
    }
}

/// As [`typed`], for confidential content: the error does not show the value.
fn secretly<T: DeserializeOwned>(at: DocumentNumber, document: &Value) -> Result<T, ObjectError> {
    typed(at, document).map_err(|error| {
        if let ObjectError::Field { field, problem, .. } = &error
            && problem != UNKNOWN
        {
            return at.field(field, "found something of another type or encoding");
        }
        error
    })
}

/// The name that an object must have; the namespace is `default` where it has none.
fn name<T: Metadata<Ty = ObjectMeta>>(
    at: DocumentNumber,
    object: &mut T,
) -> Result<ObjectKey, ObjectError> {
    let name = own_name(at, object)?;
    let namespace = object.metadata_mut().namespace.get_or_insert_default();
    if namespace.is_empty() {
        "default".clone_into(namespace);
    }
    check_segment(at, "metadata.namespace", namespace)?;
    Ok(key(namespace, &name))
}

/// The same for what belongs to no namespace.
fn own_name<T: Metadata<Ty = ObjectMeta>>(
    at: DocumentNumber,
    object: &T,
) -> Result<String, ObjectError> {
    let name = object.metadata().name.as_deref().unwrap_or_default();
    if name.is_empty() {
        return Err(at.field("metadata.name", "expected a name"));
    }
    check_segment(at, "metadata.name", name)?;
    Ok(name.to_owned())
}

/// Upstream's `IsValidPathSegmentName`: directories are named after objects.
fn check_segment(at: DocumentNumber, field: &str, name: &str) -> Result<(), ObjectError> {
    /// Characters of an object's name: the API's bound, that of a DNS subdomain.
    const LONGEST: usize = 253;
    if name == "." || name == ".." {
        return Err(at.field(field, format!("may not be '{name}'")));
    }
    for banned in ['/', '%', '\0'] {
        if name.contains(banned) {
            let banned = banned.escape_default();
            return Err(at.field(field, format!("may not contain '{banned}'")));
        }
    }
    match name.len() > LONGEST {
        true => Err(at.field(field, format!("must be no more than {LONGEST} bytes"))),
        false => Ok(()),
    }
}
