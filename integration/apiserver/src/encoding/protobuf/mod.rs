//! Bodies in protobuf: kubectl from 1.32 on writes its typed requests so. Only the kinds that it writes by type are
//! known; answers are always JSON, which every client takes.

mod messages;
mod wire;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use messages::{FieldType, MessageField};
use serde_json::{Map, Value, json};
use wire::{WireValue, items};

use crate::clock;
use crate::endpoints::answer::StatusError;

const MAGIC: &[u8] = b"k8s\0";

/// Returns the object of a body in protobuf; none if it is not in protobuf.
pub(crate) fn object(body: &[u8]) -> Option<Result<Value, StatusError>> {
    let envelope = body.strip_prefix(MAGIC)?;
    Some(unpacked(envelope).ok_or_else(|| StatusError::bad_request("the object provided is unrecognized: its protobuf is broken or of a kind that is not known")))
}

fn unpacked(envelope: &[u8]) -> Option<Value> {
    let unknown = message(messages::UNKNOWN, envelope)?;
    let kind = unknown["typeMeta"]["kind"].as_str()?;
    let raw = BASE64.decode(unknown["raw"].as_str().unwrap_or_default());
    let mut object = message(messages::of(kind)?, &raw.ok()?)?;
    object["kind"] = json!(kind);
    object["apiVersion"] = unknown["typeMeta"]["apiVersion"].clone();
    Some(object)
}

fn message(fields: &[MessageField], bytes: &[u8]) -> Option<Value> {
    let mut object = Map::new();
    for item in items(bytes) {
        let (number, item) = item?;
        let Some(field) = fields.iter().find(|field| field.number == number) else {
            continue;
        };
        if let (FieldType::Texts | FieldType::Blobs, WireValue::Bytes(entry)) = (&field.form, &item)
        {
            let (key, value) = entry_of(&field.form, entry)?;
            object.entry(field.name).or_insert_with(|| json!({}))[key] = value;
            continue;
        }
        let value = value_of(&field.form, &item)?;
        if field.repeated {
            if let Some(list) = object
                .entry(field.name)
                .or_insert_with(|| json!([]))
                .as_array_mut()
            {
                list.push(value);
            }
        } else if !value.is_null() && value != "" {
            object.insert(field.name.to_string(), value);
        }
    }
    Some(Value::Object(object))
}

fn value_of(form: &FieldType, item: &WireValue<'_>) -> Option<Value> {
    Some(match (form, item) {
        (FieldType::Text, WireValue::Bytes(bytes)) => json!(std::str::from_utf8(bytes).ok()?),
        (FieldType::Blob, WireValue::Bytes(bytes)) => json!(BASE64.encode(bytes)),
        (FieldType::Truth, WireValue::Number(number)) => json!(*number != 0),
        (FieldType::Number, WireValue::Number(number)) => json!(number.cast_signed()),
        (FieldType::Message(fields), WireValue::Bytes(bytes)) => message(fields, bytes)?,
        (FieldType::Time, WireValue::Bytes(bytes)) => time(bytes)?,
        _ => return None,
    })
}

/// Returns a time as text; the time of nothing is no time.
fn time(bytes: &[u8]) -> Option<Value> {
    let seconds = items(bytes).find_map(|item| match item {
        Some((1, WireValue::Number(seconds))) => Some(seconds.cast_signed()),
        _ => None,
    });
    let time = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    Some(time.map_or(Value::Null, |time| json!(clock::text(time))))
}

fn entry_of(form: &FieldType, entry: &[u8]) -> Option<(String, Value)> {
    let (mut key, mut value) = (String::new(), json!(""));
    for item in items(entry) {
        match item? {
            (1, WireValue::Bytes(bytes)) => key = std::str::from_utf8(bytes).ok()?.to_string(),
            (2, WireValue::Bytes(bytes)) if matches!(form, FieldType::Blobs) => {
                value = json!(BASE64.encode(bytes))
            }
            (2, WireValue::Bytes(bytes)) => value = json!(std::str::from_utf8(bytes).ok()?),
            _ => return None,
        }
    }
    Some((key, value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::object;

    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        let mut all = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        all.extend(content);
        all
    }

    fn body(kind: &[u8], raw: &[u8]) -> Vec<u8> {
        let kind = [bytes(1, b"v1"), bytes(2, kind)].concat();
        [b"k8s\0".to_vec(), bytes(1, &kind), bytes(2, raw)].concat()
    }

    #[test]
    fn a_config_map_is_read_with_its_metadata_and_data() {
        let metadata = [
            bytes(1, b"settings"),
            bytes(2, b""),
            bytes(8, b""),
            vec![0x38, 0],
        ]
        .concat();
        let entry = [bytes(1, b"a"), bytes(2, b"b")].concat();
        let blob = [bytes(1, b"c"), bytes(2, b"\xff")].concat();
        let raw = [
            bytes(1, &metadata),
            bytes(2, &entry),
            bytes(3, &blob),
            vec![0x20, 1],
        ]
        .concat();
        let wanted = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "settings", "generation": 0}, "data": {"a": "b"},
            "binaryData": {"c": "/w=="}, "immutable": true});
        assert_eq!(object(&body(b"ConfigMap", &raw)).unwrap().unwrap(), wanted);
    }

    #[test]
    fn what_is_broken_or_unknown_is_refused_and_json_is_not_for_here() {
        assert!(object(b"{}").is_none());
        for body in [
            body(b"Teapot", b""),
            body(b"ConfigMap", b"\x0a\x7f"),
            b"k8s\0\xff".to_vec(),
        ] {
            assert_eq!(object(&body).unwrap().unwrap_err().code, 400);
        }
    }
}
