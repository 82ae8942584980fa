//! Tables: what `kubectl get` prints, and the short form of objects that knows only metadata.

mod age;
mod events;
mod nodes;
mod others;
mod pods;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::{
    answer::Failure,
    call::{Call, Verb},
    clock,
    kinds::Resource,
};

const META: &str = "meta.k8s.io/v1";

/// The shape that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
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

impl Wanted {
    /// Returns the first shape of the header Accept that the double can make.
    pub(crate) fn of(call: &Call) -> Result<Wanted, Failure> {
        let include = match call.query.get("includeObject") {
            Some("None") => Include::Nothing,
            None | Some("Metadata") => Include::Metadata,
            Some("Object") => Include::Object,
            Some(other) => {
                return Err(Failure::bad_request(format!(
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
                ("application/json" | "*/*" | "application/*", None) => Some(Wanted::Objects),
                ("application/json", Some("Table")) => Some(Wanted::Table(include)),
                (
                    "application/json",
                    Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                ) => Some(Wanted::Metadata),
                _ => None,
            }
        };
        Ok(call
            .accept
            .split(',')
            .find_map(shape)
            .unwrap_or(Wanted::Objects))
    }
}

/// Returns an answer in the shape that the client accepts.
pub(crate) fn shaped(call: &Call, value: Value) -> Result<Value, Failure> {
    let reads = matches!(call.verb, Verb::Get | Verb::List) && call.subresource().is_none();
    let wanted = Wanted::of(call)?;
    if wanted == Wanted::Objects
        || !reads && wanted != Wanted::Metadata
        || value["kind"] == "Status"
    {
        return Ok(value);
    }
    let list = value["kind"] == json!(call.resource.list_kind()) && value["items"].is_array();
    Ok(match (wanted, list) {
        (Wanted::Objects, _) => value,
        (Wanted::Metadata, true) => {
            let items: Vec<Value> = value["items"]
                .as_array()
                .into_iter()
                .flatten()
                .map(metadata_of)
                .collect();
            json!({"kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": value["metadata"], "items": items})
        }
        (Wanted::Metadata, false) => metadata_of(&value),
        (Wanted::Table(include), true) => {
            let rows = value["items"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            table(call.resource, rows, include, value["metadata"].clone())
        }
        (Wanted::Table(include), false) => one_row(call.resource, &value, include),
    })
}

/// Returns one object of a watch in its shape.
pub(crate) fn one(resource: &Resource, wanted: Wanted, object: Value) -> Value {
    match wanted {
        Wanted::Objects => object,
        Wanted::Metadata => metadata_of(&object),
        Wanted::Table(include) => one_row(resource, &object, include),
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
    let definitions: Vec<Value> = layout.columns.iter().map(Column::definition).collect();
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
struct Layout {
    columns: &'static [Column],
    cells: Cells,
}

/// A column; with `-o wide` those of priority 1 are shown too.
struct Column(&'static str, &'static str, u8);

impl Column {
    fn definition(&self) -> Value {
        let format = if self.0 == "Name" { "name" } else { "" };
        json!({"name": self.0, "type": self.1, "format": format, "description": self.0, "priority": self.2})
    }
}

fn layout_of(resource: &Resource) -> Layout {
    match resource.shelf {
        "pods" => Layout {
            columns: pods::COLUMNS,
            cells: pods::cells,
        },
        "nodes" => Layout {
            columns: nodes::COLUMNS,
            cells: nodes::cells,
        },
        "events" => Layout {
            columns: events::COLUMNS,
            cells: events::cells,
        },
        shelf => others::layout(shelf),
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
