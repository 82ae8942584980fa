//! Tables: what `kubectl get` prints, and the short form of objects that knows only metadata.

mod age;
mod events;
mod nodes;
mod others;
mod pods;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::clock;
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::{RequestInfo, RequestVerb};
use crate::kinds::Resource;

const META: &str = "meta.k8s.io/v1";

/// The shape that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Representation {
    Objects,
    Metadata,
    Table(Include),
}

/// What the rows of a table carry beside their cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Representation {
    /// Returns the first shape of the header Accept that the double can make.
    pub(crate) fn of(call: &RequestInfo) -> Result<Representation, StatusError> {
        let include = match call.query.get("includeObject") {
            Some("None") => Include::Nothing,
            None | Some("Metadata") => Include::Metadata,
            Some("Object") => Include::Object,
            Some(other) => {
                return Err(StatusError::bad_request(format!(
                    "unrecognized includeObject value: {other:?}"
                )));
            }
        };
        let shape = |media: &str| {
            let (kind, parameters) = media.split_once(';').unwrap_or((media, ""));
            let word = parameters
                .split(';')
                .find_map(|parameter| parameter.trim().strip_prefix("as="));
            match (kind.trim(), word) {
                ("application/json" | "*/*" | "application/*", None) => {
                    Some(Representation::Objects)
                }
                ("application/json", Some("Table")) => Some(Representation::Table(include)),
                (
                    "application/json",
                    Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                ) => Some(Representation::Metadata),
                _ => None,
            }
        };
        Ok(call
            .accept
            .split(',')
            .find_map(shape)
            .unwrap_or(Representation::Objects))
    }
}

/// Returns an answer in the shape that the client accepts.
pub(crate) fn shaped(call: &RequestInfo, value: Value) -> Result<Value, StatusError> {
    let reads =
        matches!(call.verb, RequestVerb::Get | RequestVerb::List) && call.subresource().is_none();
    let wanted = Representation::of(call)?;
    if wanted == Representation::Objects
        || !reads && wanted != Representation::Metadata
        || value["kind"] == "Status"
    {
        return Ok(value);
    }
    let list = value["kind"] == json!(call.resource.list_kind()) && value["items"].is_array();
    Ok(match (wanted, list) {
        (Representation::Objects, _) => value,
        (Representation::Metadata, true) => {
            let items: Vec<Value> = value["items"]
                .as_array()
                .into_iter()
                .flatten()
                .map(metadata_of)
                .collect();
            json!({"kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": value["metadata"], "items": items})
        }
        (Representation::Metadata, false) => metadata_of(&value),
        (Representation::Table(include), true) => {
            let rows = value["items"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            table(call.resource, rows, include, value["metadata"].clone())
        }
        (Representation::Table(include), false) => one_row(call.resource, &value, include),
    })
}

/// Returns one object of a watch in its shape.
pub(crate) fn one(resource: &Resource, wanted: Representation, object: Value) -> Value {
    match wanted {
        Representation::Objects => object,
        Representation::Metadata => metadata_of(&object),
        Representation::Table(include) => one_row(resource, &object, include),
    }
}

fn one_row(resource: &Resource, object: &Value, include: Include) -> Value {
    let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
    table(resource, std::slice::from_ref(object), include, metadata)
}

fn metadata_of(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": object["metadata"]})
}

fn table(resource: &Resource, objects: &[Value], include: Include, metadata: Value) -> Value {
    let layout = layout_of(resource);
    let definitions: Vec<Value> = layout.columns.iter().map(TableColumn::definition).collect();
    let now = clock::now();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let carried = match include {
                Include::Nothing => Value::Null,
                Include::Metadata => metadata_of(object),
                Include::Object => object.clone(),
            };
            json!({"cells": (layout.cells)(object, now), "object": carried})
        })
        .collect();
    json!({"kind": "Table", "apiVersion": META, "metadata": metadata, "columnDefinitions": definitions, "rows": rows})
}

/// What an object's cells say at a time.
type Cells = fn(&Value, jiff::Timestamp) -> Vec<Value>;

/// How a kind is printed.
struct TableLayout {
    columns: &'static [TableColumn],
    cells: Cells,
}

/// A column; with `-o wide` those of priority 1 are shown too.
struct TableColumn(&'static str, &'static str, u8);

impl TableColumn {
    fn definition(&self) -> Value {
        let format = if self.0 == "Name" { "name" } else { "" };
        json!({"name": self.0, "type": self.1, "format": format, "description": self.0, "priority": self.2})
    }
}

fn layout_of(resource: &Resource) -> TableLayout {
    match resource.storage_key {
        "pods" => TableLayout {
            columns: pods::COLUMNS,
            cells: pods::cells,
        },
        "nodes" => TableLayout {
            columns: nodes::COLUMNS,
            cells: nodes::cells,
        },
        "events" => TableLayout {
            columns: events::COLUMNS,
            cells: events::cells,
        },
        storage_key => others::layout(storage_key),
    }
}

/// Returns the text of a field, or what is printed for nothing.
fn text_or(object: &Value, pointer: &str, nothing: &str) -> String {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
        .unwrap_or(nothing)
        .to_string()
}

fn age_of(object: &Value, now: jiff::Timestamp) -> Value {
    json!(age::since(&object["metadata"]["creationTimestamp"], now))
}
