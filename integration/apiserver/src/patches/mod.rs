//! The three ways to patch, and apply, which is treated as a strategic merge.

mod json;
mod order;
mod strategic;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::answer::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Strategic,
    Merge,
    Json,
    /// Server-side apply.
    Apply,
}

impl Kind {
    pub(crate) fn parse(content_type: &str) -> Result<Kind, Failure> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/strategic-merge-patch+json" => Ok(Kind::Strategic),
            "application/merge-patch+json" => Ok(Kind::Merge),
            "application/json-patch+json" => Ok(Kind::Json),
            "application/apply-patch+yaml" => Ok(Kind::Apply),
            other => Err(Failure::unsupported_media(format!(
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json, application/apply-patch+yaml; not {other}"
            ))),
        }
    }
}

/// Returns the object with the patch of a body applied.
pub(crate) fn apply(kind: Kind, object: &Value, body: &[u8]) -> Result<Value, Failure> {
    let patch: Value = serde_json::from_slice(body)
        .map_err(|why| Failure::bad_request(format!("error decoding patch: {why}")))?;
    let mut object = object.clone();
    match kind {
        Kind::Strategic | Kind::Apply => strategic::apply(&mut object, &patch)?,
        Kind::Merge => json_patch::merge(&mut object, &patch),
        Kind::Json => json::apply(&mut object, &patch)?,
    }
    if object.is_object() {
        Ok(object)
    } else {
        Err(Failure::bad_request("the patch leaves no object"))
    }
}
