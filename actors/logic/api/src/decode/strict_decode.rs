//! Decodes a JSON value into a type of the API, with the paths of values that do not fit and of unknown fields.
//!
//! Everything of the API is read this way, whether it came from a manifest, the API server or a checkpoint: each
//! further way would be another copy of the code that reads every type, half a megabyte for pods alone.

use std::cell::RefCell;
use std::fmt::{Display, Write as _};

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value, map};

/// A decoded value, and the fields that its type does not have.
#[derive(Debug, Clone, PartialEq)]
pub struct StrictlyDecoded<T> {
    pub value: T,
    /// The paths of the fields that the type does not have, such as `spec.containers[0].imagee`.
    pub unknown: Vec<String>,
}

/// Why a JSON value does not fit its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", lead(.path))]
pub struct DecodeError {
    /// Such as `spec.containers[0].name`; empty where the whole is meant.
    pub path: String,
    /// In the words of Go's decoder.
    pub problem: String,
}

fn lead(path: &str) -> String {
    match path {
        "" => String::new(),
        path => format!("{path}: "),
    }
}

impl DecodeError {
    /// Never: the same value fails again.
    pub fn transient(&self) -> bool {
        false
    }
}

impl de::Error for DecodeError {
    fn custom<T: Display>(problem: T) -> DecodeError {
        DecodeError {
            path: String::new(),
            problem: problem.to_string(),
        }
    }
}

/// Reads a value as a type of the API.
pub fn decode<T: DeserializeOwned>(value: &Value) -> Result<StrictlyDecoded<T>, DecodeError> {
    let track = PathTracker::default();
    let node = ValueDeserializer {
        value,
        track: &track,
    };
    match T::deserialize(node) {
        Ok(value) => Ok(StrictlyDecoded {
            value,
            unknown: track.unknown.into_inner(),
        }),
        Err(misfit) => Err(DecodeError {
            path: track.path(),
            ..misfit
        }),
    }
}

/// Where the reader is, and what it passed over.
#[derive(Default)]
struct PathTracker<'v> {
    steps: RefCell<Vec<PathSegment<'v>>>,
    unknown: RefCell<Vec<String>>,
}

#[derive(Clone, Copy)]
enum PathSegment<'v> {
    Field(&'v str),
    Item(usize),
}

impl<'v> PathTracker<'v> {
    /// Steps to a child of the value at this depth. On failure the path stays, for the error.
    fn step(&self, depth: usize, step: PathSegment<'v>) {
        let mut steps = self.steps.borrow_mut();
        steps.truncate(depth);
        steps.push(step);
    }

    fn back(&self, depth: usize) {
        self.steps.borrow_mut().truncate(depth);
    }

    fn depth(&self) -> usize {
        self.steps.borrow().len()
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for step in self.steps.borrow().iter() {
            let written = match step {
                PathSegment::Field(name) if path.is_empty() => path.write_str(name),
                PathSegment::Field(name) => write!(path, ".{name}"),
                PathSegment::Item(index) => write!(path, "[{index}]"),
            };
            written.expect("a text takes every text");
        }
        path
    }
}

#[derive(Clone, Copy)]
struct ValueDeserializer<'v, 't> {
    value: &'v Value,
    track: &'t PathTracker<'v>,
}

impl<'de> Deserializer<'de> for ValueDeserializer<'de, '_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (_, _, Some(number)) => visitor.visit_f64(number),
                (None, None, None) => Err(de::Error::custom("found a number beyond all bounds")),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visitor.visit_seq(SequenceAccess {
                items: items.iter().enumerate(),
                depth: self.track.depth(),
                track: self.track,
            }),
            Value::Object(fields) => visitor.visit_map(ObjectAccess::of(fields, self.track)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::Null => visitor.visit_none(),
            Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    /// Only names of variants: the API has no others.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self.value.as_str() {
            Some(name) => visitor.visit_enum(StrDeserializer::new(name)),
            None => Err(de::Error::custom("expected the name of a variant")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let path = self.track.path();
        self.track.unknown.borrow_mut().push(path);
        visitor.visit_unit()
    }

    /// A list is no object, whatever it holds.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::Array(_) => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier
    }
}

struct SequenceAccess<'v, 't> {
    items: std::iter::Enumerate<std::slice::Iter<'v, Value>>,
    depth: usize,
    track: &'t PathTracker<'v>,
}

impl<'v> SeqAccess<'v> for SequenceAccess<'v, '_> {
    type Error = DecodeError;

    fn next_element_seed<S: DeserializeSeed<'v>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DecodeError> {
        let Some((index, value)) = self.items.next() else {
            return Ok(None);
        };
        self.track.step(self.depth, PathSegment::Item(index));
        let read = seed.deserialize(ValueDeserializer {
            value,
            track: self.track,
        })?;
        self.track.back(self.depth);
        Ok(Some(read))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct ObjectAccess<'v, 't> {
    fields: map::Iter<'v>,
    value: Option<&'v Value>,
    depth: usize,
    track: &'t PathTracker<'v>,
}

impl<'v, 't> ObjectAccess<'v, 't> {
    fn of(fields: &'v Map<String, Value>, track: &'t PathTracker<'v>) -> Self {
        ObjectAccess {
            fields: fields.iter(),
            value: None,
            depth: track.depth(),
            track,
        }
    }
}

impl<'v> MapAccess<'v> for ObjectAccess<'v, '_> {
    type Error = DecodeError;

    fn next_key_seed<S: DeserializeSeed<'v>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DecodeError> {
        let Some((name, value)) = self.fields.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        self.track.step(self.depth, PathSegment::Field(name));
        seed.deserialize(KeyDeserializer(name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'v>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, DecodeError> {
        let value = self.value.take().unwrap_or(&Value::Null);
        let read = seed.deserialize(ValueDeserializer {
            value,
            track: self.track,
        })?;
        self.track.back(self.depth);
        Ok(read)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}

/// A field's name.
struct KeyDeserializer<'v>(&'v str);

impl<'de> Deserializer<'de> for KeyDeserializer<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_its_path() {
        let rows = [
            (
                json!({"spec": {"containers": [{"name": "a"}, {"name": 5}]}}),
                "spec.containers[1].name: invalid type: integer `5`, expected a string",
            ),
            (
                json!({"spec": {"priority": 99_999_999_999_u64}}),
                "spec.priority: invalid value: integer `99999999999`, expected i32",
            ),
            (
                json!({"metadata": {"labels": {"a": "b", "c": true}}}),
                "metadata.labels.c: invalid type: boolean `true`, expected a string",
            ),
            (json!([]), "invalid type: sequence, expected Pod"),
            (
                json!({"kind": "Service"}),
                "invalid value: string \"Service\", expected Pod",
            ),
        ];
        for (value, expected) in rows {
            let misfit = decode::<Pod>(&value).unwrap_err();
            assert_eq!(misfit.to_string(), expected);
        }
        let whole = decode::<Pod>(&json!(7)).unwrap_err();
        assert_eq!(whole.path, "");
    }

    #[test]
    fn what_nobody_asked_for_is_named_and_passed_over() {
        let value = json!({"metadata": {"name": "a", "lables": {"x": [1, {}]}}, "data": {"k": "v"}, "more": null});
        let read = decode::<ConfigMap>(&value).unwrap();
        assert_eq!(read.unknown, ["metadata.lables", "more"]);
        assert_eq!(read.value.data.unwrap()["k"], "v");
    }

    #[test]
    fn what_is_read_is_what_serde_json_reads() {
        let value = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "creationTimestamp": "2026-01-02T03:04:05Z", "annotations": null},
            "spec": {
                "containers": [{
                    "name": "c", "image": "i", "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": 1, "memory": "1Gi", "example.com/half": 0.5}},
                    "livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 3},
                    "readinessProbe": {"tcpSocket": {"port": 80}},
                    "env": [{"name": "n", "value": "v"}],
                }],
                "hostNetwork": true, "terminationGracePeriodSeconds": -1,
            },
            "status": {"phase": "Running", "startTime": null, "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 2,
                "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
            }]},
        });
        let expected: Pod = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(decode::<Pod>(&value).unwrap().value, expected);
    }
}
