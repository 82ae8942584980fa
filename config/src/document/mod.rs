//! From text to settings: YAML or JSON into a [`Value`], its kind checked, its unknown fields found,
//! and at last a typed structure whose errors name the field.

pub(crate) mod source;

use logic_api::decode::yaml_numbers;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Why a text is not the document that was expected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DocumentError {
    #[error("it is not YAML or JSON: {0}")]
    Syntax(String),
    #[error("it holds {0}; expected a mapping of fields")]
    NotAMapping(&'static str),
    #[error("field {field}: expected {expected:?}, found {found}")]
    WrongKind {
        field: &'static str,
        expected: &'static str,
        found: String,
    },
    #[error("field {path}: {why}")]
    Field { path: String, why: String },
    #[error("unknown fields {unknown}: expected fields of this kind only, spelt exactly so")]
    Unknown { unknown: String },
    #[error("a field stands twice: {0}")]
    Duplicate(String),
}

/// A mapping that was read, and the key that stands twice in it, if one does: its last value counts.
pub(crate) struct ParsedDocument {
    pub(crate) fields: Map<String, Value>,
    pub(crate) duplicate: Option<DocumentError>,
}

/// Reads one YAML or JSON mapping.
pub(crate) fn parse(text: &str) -> Result<ParsedDocument, DocumentError> {
    use serde_saphyr::DuplicateKeyPolicy::{Error, LastWins};
    let read = |duplicate_keys| {
        let options = serde_saphyr::options! {
            duplicate_keys: duplicate_keys,
            legacy_octal_numbers: true,
            with_snippet: false,
        };
        serde_saphyr::from_str_with_options::<Value>(text, options)
    };
    // Its advice is meant for programmers.
    let duplicate = |error: serde_saphyr::Error| {
        let text = error
            .to_string()
            .replace(", set DuplicateKeyPolicy in Options if acceptable", "");
        DocumentError::Duplicate(text)
    };
    let (mut value, duplicate) = match read(Error) {
        Ok(value) => (value, None),
        Err(error) => {
            let value = read(LastWins).map_err(|_| DocumentError::Syntax(error.to_string()))?;
            (value, Some(duplicate(error)))
        }
    };
    yaml_numbers::normalize(&mut value);
    let kind = name_of(&value);
    let Value::Object(fields) = value else {
        return Err(DocumentError::NotAMapping(kind));
    };
    Ok(ParsedDocument { fields, duplicate })
}

/// Reads one YAML or JSON mapping in which no key stands twice.
pub(crate) fn parse_strictly(text: &str) -> Result<Map<String, Value>, DocumentError> {
    let ParsedDocument { fields, duplicate } = parse(text)?;
    duplicate.map_or(Ok(fields), Err)
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// Takes `apiVersion` and `kind` out of a document and checks them.
pub(crate) fn take_kind(
    fields: &mut Map<String, Value>,
    api_version: &'static str,
    kind: &'static str,
) -> Result<(), DocumentError> {
    for (field, expected) in [("apiVersion", api_version), ("kind", kind)] {
        match fields.remove(field) {
            Some(Value::String(found)) if found == expected => {}
            Some(found) => {
                let found = found.to_string();
                return Err(DocumentError::WrongKind {
                    field,
                    expected,
                    found,
                });
            }
            None => {
                let found = "nothing".to_owned();
                return Err(DocumentError::WrongKind {
                    field,
                    expected,
                    found,
                });
            }
        }
    }
    Ok(())
}

/// Removes what is null: to a KubeletConfiguration that is the same as absent.
pub(crate) fn strip_nulls(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null());
    for value in fields.values_mut() {
        match value {
            Value::Object(inner) => strip_nulls(inner),
            Value::Array(items) => {
                items
                    .iter_mut()
                    .filter_map(Value::as_object_mut)
                    .for_each(strip_nulls);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Removes the fields that `specimen` does not have and returns their paths. An empty mapping or
/// list in the specimen stands for one with any content.
pub(crate) fn take_unknown(fields: &mut Map<String, Value>, specimen: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Value::Object(specimen) = specimen {
        prune(fields, specimen, "", &mut unknown);
    }
    unknown
}

fn prune(
    fields: &mut Map<String, Value>,
    specimen: &Map<String, Value>,
    prefix: &str,
    unknown: &mut Vec<String>,
) {
    if specimen.is_empty() {
        return;
    }
    fields.retain(|key, value| {
        let path = format!("{prefix}{key}");
        match specimen.get(key) {
            None => unknown.push(path),
            Some(specimen) => {
                prune_value(value, specimen, &path, unknown);
                return true;
            }
        }
        false
    });
}

fn prune_value(value: &mut Value, specimen: &Value, path: &str, unknown: &mut Vec<String>) {
    match (value, specimen) {
        (Value::Object(inner), Value::Object(specimen)) => {
            prune(inner, specimen, &format!("{path}."), unknown);
        }
        (Value::Array(items), Value::Array(specimen)) => {
            let Some(specimen) = specimen.first() else {
                return;
            };
            for (index, item) in items.iter_mut().enumerate() {
                prune_value(item, specimen, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

/// Turns fields into their structure; an error names the field that does not fit.
pub(crate) fn decode<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, DocumentError> {
    let value = Value::Object(fields);
    T::deserialize(&value).map_err(|error| {
        let (path, why) = blame::<T>(&value, "", &|value| value)
            .unwrap_or_else(|| ("(the whole)".to_owned(), error.to_string()));
        DocumentError::Field { path, why }
    })
}

/// Finds the deepest single value that alone makes decoding fail: each is tried by itself, in the
/// place where it was found. A container that fails when it is empty is itself the mistake.
fn blame<T: DeserializeOwned>(
    value: &Value,
    path: &str,
    wrap: &dyn Fn(Value) -> Value,
) -> Option<(String, String)> {
    let error = T::deserialize(wrap(value.clone())).err()?;
    let fits_empty = |empty| T::deserialize(wrap(empty)).is_ok();
    let deeper = if let Value::Object(fields) = value
        && fits_empty(Value::Object(Map::new()))
    {
        let dot = if path.is_empty() { "" } else { "." };
        fields.iter().find_map(|(key, inner)| {
            blame::<T>(inner, &format!("{path}{dot}{key}"), &|inner| {
                wrap(Value::Object(Map::from_iter([(key.clone(), inner)])))
            })
        })
    } else if let Value::Array(items) = value
        && fits_empty(Value::Array(Vec::new()))
    {
        items.iter().enumerate().find_map(|(index, inner)| {
            blame::<T>(inner, &format!("{path}[{index}]"), &|inner| {
                wrap(Value::Array(vec![inner]))
            })
        })
    } else {
        None
    };
    deeper.or_else(|| (!path.is_empty()).then(|| (path.to_owned(), error.to_string())))
}

/// Returns the value at a dotted path.
pub(crate) fn get<'a>(fields: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => fields.get(path),
        Some((first, rest)) => get(fields.get(first)?.as_object()?, rest),
    }
}

/// Puts a value at a dotted path, making the mappings on the way.
pub(crate) fn put(fields: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            fields.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = fields
                .entry(first)
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// A JSON merge patch (RFC 7386): mappings are merged, null removes, anything else replaces.
pub(crate) fn merge(base: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        match (base.get_mut(&key), value) {
            (_, Value::Null) => {
                base.remove(&key);
            }
            (Some(Value::Object(base)), Value::Object(patch)) => merge(base, patch),
            (_, Value::Object(patch)) => {
                let mut fresh = Map::new();
                merge(&mut fresh, patch);
                base.insert(key, Value::Object(fresh));
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn yaml_and_json_are_read_alike() {
        let yaml = parse_strictly("a: 1\nb: {c: [x, 0644]}\n").unwrap();
        let json = parse_strictly(r#"{"a": 1, "b": {"c": ["x", 420]}}"#).unwrap();
        assert_eq!(yaml, json);
    }

    /// The paths of all numbers.
    fn numbers(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Number(_) => found.push(path.to_owned()),
            Value::Array(items) => items.iter().for_each(|item| numbers(item, path, found)),
            Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                let dot = if path.is_empty() { "" } else { "." };
                numbers(value, &format!("{path}{dot}{key}"), found);
            }),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_integer_of_a_kubelet_configuration_is_read_however_yaml_writes_it() {
        use crate::kubelet_configuration::{KubeletConfiguration, specimen};

        let specimen = specimen();
        let mut paths = Vec::new();
        numbers(&specimen, "", &mut paths);
        assert!(paths.len() > 30, "{paths:?}");
        let read = |path: &str, number: &str| {
            let mut fields = specimen.as_object().unwrap().clone();
            let (list, field) = path.rsplit_once('.').unwrap_or(("", path));
            match (get(&fields, list), number) {
                (Some(Value::Array(items)), number) => {
                    let mut item = items[0].clone();
                    item[field] = json!(format!("<{number}>"));
                    put(&mut fields, list, json!([item]));
                }
                (_, number) => put(&mut fields, path, json!(format!("<{number}>"))),
            }
            let text = Value::Object(fields).to_string();
            let text = text.replace("\"<", "").replace(">\"", "");
            decode::<KubeletConfiguration>(parse_strictly(&text).unwrap())
        };
        for path in &paths {
            let expected = read(path, "11").unwrap();
            for number in ["1.1e+01", "11.0", "110e-1"] {
                assert_eq!(
                    read(path, number).as_ref(),
                    Ok(&expected),
                    "{path}: {number}"
                );
            }
            if path != "memoryThrottlingFactor" {
                let refused = read(path, "1.5").unwrap_err().to_string();
                let name = path.rsplit('.').next().unwrap_or_default();
                let names = refused
                    .split(':')
                    .next()
                    .is_some_and(|field| field.ends_with(name));
                assert!(names, "{path}: {refused}");
            }
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        let error = parse_strictly("{a: 1, a: 2}").unwrap_err();
        assert!(matches!(error, DocumentError::Duplicate(_)), "{error}");
    }

    #[test]
    fn what_is_no_mapping_is_refused() {
        for text in [
            "[]",
            "- a",
            "text",
            "3",
            "null",
            "",
            "\t",
            "a: [",
            "a: b: c",
            "{",
            "a: 1\n---\nb: 2\n",
        ] {
            assert!(parse_strictly(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn deep_nesting_is_refused_and_not_followed() {
        let text = format!("a: {}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(matches!(
            parse_strictly(&text),
            Err(DocumentError::Syntax(_))
        ));
    }

    #[test]
    fn a_merge_patch_is_rfc_7386() {
        for (base, patch, merged) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (
                json!({"a": ["b"]}),
                json!({"a": ["c", "d"]}),
                json!({"a": ["c", "d"]}),
            ),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": "b"}),
                json!({"a": {"b": 1, "c": null}}),
                json!({"a": {"b": 1}}),
            ),
            (json!({"a": {"b": 1}}), json!({"a": 2}), json!({"a": 2})),
            (
                json!({}),
                json!({"a": {"b": {"c": null}}}),
                json!({"a": {"b": {}}}),
            ),
        ] {
            let mut result = object(base);
            merge(&mut result, object(patch));
            assert_eq!(result, object(merged));
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-a{}\\[\\]:, \n\"'&*!|>#0-9.~?%@`]{0,60}") {
            if let Err(error) = parse_strictly(&text) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
