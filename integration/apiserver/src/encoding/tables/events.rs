//! The table of events: upstream's `printEvent`. Both forms of events are understood.

use serde_json::{Value, json};

use super::{TableColumn, age, text_or};

pub(super) const COLUMNS: &[TableColumn] = &[
    TableColumn("Last Seen", "string", 0),
    TableColumn("Type", "string", 0),
    TableColumn("Reason", "string", 0),
    TableColumn("Object", "string", 0),
    TableColumn("Subobject", "string", 1),
    TableColumn("Source", "string", 1),
    TableColumn("Message", "string", 0),
    TableColumn("First Seen", "string", 1),
    TableColumn("Count", "string", 1),
    TableColumn("Name", "string", 1),
];

pub(super) fn cells(event: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let either = |core: &str, new: &str| text_or(event, core, &text_or(event, new, ""));
    let kind = either("/involvedObject/kind", "/regarding/kind").to_lowercase();
    let name = either("/involvedObject/name", "/regarding/name");
    let time = |pointers: &[&str]| {
        pointers
            .iter()
            .filter_map(|pointer| event.pointer(pointer))
            .find(|value| value.is_string())
            .cloned()
            .unwrap_or_default()
    };
    let (first, last) = (
        time(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]),
        time(&[
            "/series/lastObservedTime",
            "/lastTimestamp",
            "/deprecatedLastTimestamp",
            "/eventTime",
        ]),
    );
    let count = ["/series/count", "/count", "/deprecatedCount"]
        .iter()
        .find_map(|pointer| event.pointer(pointer).and_then(Value::as_i64))
        .unwrap_or(1);
    vec![
        json!(age::since(&last, now)),
        json!(text_or(event, "/type", "")),
        json!(text_or(event, "/reason", "")),
        json!(if name.is_empty() {
            kind.clone()
        } else {
            format!("{kind}/{name}")
        }),
        json!(either("/involvedObject/fieldPath", "/regarding/fieldPath")),
        json!(source(event)),
        json!(either("/message", "/note").trim()),
        json!(age::since(&first, now)),
        json!(count),
        event["metadata"]["name"].clone(),
    ]
}

fn source(event: &Value) -> String {
    let component = text_or(
        event,
        "/source/component",
        &text_or(
            event,
            "/reportingComponent",
            &text_or(event, "/reportingController", ""),
        ),
    );
    let host = text_or(
        event,
        "/source/host",
        &text_or(event, "/reportingInstance", ""),
    );
    if host.is_empty() {
        component
    } else {
        format!("{component}, {host}")
    }
}
