//! The tables of kinds with few columns.

use serde_json::{Value, json};

use super::{Column, Layout, age_of, text_or};

const NAME: Column = Column("Name", "string", 0);
const AGE: Column = Column("Age", "string", 0);

pub(super) fn layout(shelf: &str) -> Layout {
    match shelf {
        "namespaces" => Layout {
            columns: const { &[NAME, Column("Status", "string", 0), AGE] },
            cells: |object, now| vec![name(object), json!(text_or(object, "/status/phase", "")), age_of(object, now)],
        },
        "configmaps" => Layout {
            columns: const { &[NAME, Column("Data", "string", 0), AGE] },
            cells: |object, now| vec![name(object), json!(count(&object["data"]) + count(&object["binaryData"])), age_of(object, now)],
        },
        "secrets" => Layout {
            columns: const { &[NAME, Column("Type", "string", 0), Column("Data", "string", 0), AGE] },
            cells: |object, now| vec![name(object), json!(text_or(object, "/type", "")), json!(count(&object["data"])), age_of(object, now)],
        },
        "leases" => Layout {
            columns: const { &[NAME, Column("Holder", "string", 0), AGE] },
            cells: |object, now| vec![name(object), json!(text_or(object, "/spec/holderIdentity", "")), age_of(object, now)],
        },
        "csinodes" => Layout {
            columns: const { &[NAME, Column("Drivers", "integer", 0), AGE] },
            cells: |object, now| vec![name(object), json!(object["spec"]["drivers"].as_array().map_or(0, Vec::len)), age_of(object, now)],
        },
        "persistentvolumeclaims" => Layout {
            columns: const { &[NAME, Column("Status", "string", 0), Column("Volume", "string", 0), AGE] },
            cells: |object, now| vec![name(object), json!(text_or(object, "/status/phase", "")), json!(text_or(object, "/spec/volumeName", "")), age_of(object, now)],
        },
        "certificatesigningrequests" => Layout {
            columns: const { &[NAME, AGE, Column("SignerName", "string", 0), Column("Requestor", "string", 0), Column("Condition", "string", 0)] },
            cells: |object, now| {
                let (signer, requestor) = (text_or(object, "/spec/signerName", "<none>"), text_or(object, "/spec/username", ""));
                vec![name(object), age_of(object, now), json!(signer), json!(requestor), json!(certificate(object))]
            },
        },
        _ => Layout { columns: const { &[NAME, Column("Created At", "string", 0)] }, cells: |object, _| vec![name(object), object["metadata"]["creationTimestamp"].clone()] },
    }
}

fn name(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

fn count(data: &Value) -> usize {
    data.as_object().map_or(0, serde_json::Map::len)
}

fn certificate(request: &Value) -> String {
    let conditions = request["status"]["conditions"].as_array().into_iter().flatten();
    let mut words: Vec<&str> = conditions.filter_map(|condition| condition["type"].as_str()).collect();
    if words.is_empty() {
        words.push("Pending");
    }
    if request["status"].get("certificate").is_some() {
        words.push("Issued");
    }
    words.join(",")
}
