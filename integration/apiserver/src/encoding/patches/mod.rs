//! The three ways to patch, and apply, which is treated as a strategic merge.

mod json;
mod order;
mod strategic;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::endpoints::answer::StatusError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Strategic,
    Merge,
    Json,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    pub(crate) fn parse(content_type: &str) -> Result<PatchType, StatusError> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/strategic-merge-patch+json" => Ok(PatchType::Strategic),
            "application/merge-patch+json" => Ok(PatchType::Merge),
            "application/json-patch+json" => Ok(PatchType::Json),
            "application/apply-patch+yaml" => Ok(PatchType::Apply),
            other => Err(StatusError::unsupported_media(format!(
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json, application/apply-patch+yaml; not {other}"
            ))),
        }
    }
}

/// Returns the object with the patch of a body applied.
pub(crate) fn apply(kind: PatchType, object: &Value, body: &[u8]) -> Result<Value, StatusError> {
    let patch: Value = serde_json::from_slice(body)
        .map_err(|why| StatusError::bad_request(format!("error decoding patch: {why}")))?;
    let mut object = object.clone();
    match kind {
        PatchType::Strategic | PatchType::Apply => strategic::apply(&mut object, &patch)?,
        PatchType::Merge => json_patch::merge(&mut object, &patch),
        PatchType::Json => json::apply(&mut object, &patch)?,
    }
    if object.is_object() {
        Ok(object)
    } else {
        Err(StatusError::bad_request("the patch leaves no object"))
    }
}
