//! A pod in protobuf, as API clients in Go write and read one (`Pod.Marshal`, `Pod.Unmarshal`).
//!
//! The messages are in [`core_messages.txt`](core_messages.txt); a walk over the pod's JSON writes them. What the JSON
//! leaves out is left out here too, which every client reads as the field's zero value; fields that the node does not
//! know of are in neither.
//!
//! Upstream: staging/src/k8s.io/api/core/v1/generated.proto, with the types in generated.proto of
//! apimachinery's meta/v1, api/resource and util/intstr (1.36).

mod schema;
#[cfg(test)]
mod tests;
mod wire;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Map, Value};

use self::schema::{FieldShape, FieldType, MessageField, fields};

const ROOT: &str = "Pod";

/// Why a pod cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("the pod is no JSON object")]
    Json(#[from] serde_json::Error),
    #[error("the value of {message}.{field} is not of its type")]
    Value {
        message: &'static str,
        field: &'static str,
    },
}

/// Returns the bytes of the message `k8s.io.api.core.v1.Pod`, without an envelope. `status` stands in the place of the
/// pod's own.
pub fn pod(pod: &Pod, status: Option<&PodStatus>) -> Result<Vec<u8>, EncodeError> {
    let mut value = serde_json::to_value(pod)?;
    if let (Some(status), Some(object)) = (status, value.as_object_mut()) {
        object.insert("status".to_owned(), serde_json::to_value(status)?);
    }
    let mut bytes = Vec::new();
    if let Some(object) = value.as_object() {
        message(object, ROOT, &mut bytes)?;
    }
    Ok(bytes)
}

fn message(
    object: &Map<String, Value>,
    name: &'static str,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    for field in fields(name) {
        let unfit = || EncodeError::Value {
            message: name,
            field: field.name,
        };
        if let (FieldShape::Embedded, FieldType::Message(inner)) = (field.shape, field.kind) {
            let mut bytes = Vec::new();
            message(object, inner, &mut bytes)?;
            wire::bytes(field.number, &bytes, out);
            continue;
        }
        let Some(value) = object.get(field.name).filter(|value| !value.is_null()) else {
            continue;
        };
        match field.shape {
            FieldShape::One | FieldShape::Embedded => single(value, field, unfit, out)?,
            FieldShape::List => {
                for item in value.as_array().ok_or_else(unfit)? {
                    single(item, field, unfit, out)?;
                }
            }
            FieldShape::Map => {
                for (key, item) in value.as_object().ok_or_else(unfit)? {
                    let mut entry = Vec::new();
                    wire::bytes(1, key.as_bytes(), &mut entry);
                    let of_entry = MessageField {
                        number: 2,
                        ..*field
                    };
                    single(item, &of_entry, unfit, &mut entry)?;
                    wire::bytes(field.number, &entry, out);
                }
            }
        }
    }
    Ok(())
}

fn single(
    value: &Value,
    field: &MessageField,
    unfit: impl Fn() -> EncodeError,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let text = || value.as_str().ok_or_else(&unfit);
    let inner = match field.kind {
        FieldType::Text => {
            wire::bytes(field.number, text()?.as_bytes(), out);
            return Ok(());
        }
        FieldType::Truth => {
            let truth = value.as_bool().ok_or_else(unfit)?;
            wire::number(field.number, i64::from(truth), out);
            return Ok(());
        }
        FieldType::Number => {
            wire::number(field.number, value.as_i64().ok_or_else(unfit)?, out);
            return Ok(());
        }
        FieldType::Message(name) => {
            let mut inner = Vec::new();
            message(value.as_object().ok_or_else(unfit)?, name, &mut inner)?;
            inner
        }
        FieldType::Time => time(text()?).ok_or_else(unfit)?,
        FieldType::Quantity => quantity(text()?),
        FieldType::IntOrString => int_or_string(value).ok_or_else(unfit)?,
        FieldType::FieldsV1 => fields_v1(value),
    };
    wire::bytes(field.number, &inner, out);
    Ok(())
}

/// Seconds and no fraction, as upstream.
fn time(text: &str) -> Option<Vec<u8>> {
    let time: jiff::Timestamp = text.parse().ok()?;
    let mut out = Vec::new();
    wire::number(1, time.as_second(), &mut out);
    wire::number(2, 0, &mut out);
    Some(out)
}

fn quantity(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    wire::bytes(1, text.as_bytes(), &mut out);
    out
}

fn int_or_string(value: &Value) -> Option<Vec<u8>> {
    let (kind, number, text) = match value.as_str() {
        Some(text) => (1, 0, text),
        None => (0, value.as_i64()?, ""),
    };
    let mut out = Vec::new();
    wire::number(1, kind, &mut out);
    wire::number(2, number, &mut out);
    wire::bytes(3, text.as_bytes(), &mut out);
    Some(out)
}

/// Who owns which fields: JSON on the wire too.
fn fields_v1(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    wire::bytes(1, value.to_string().as_bytes(), &mut out);
    out
}
