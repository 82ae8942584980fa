//! JSON patch, RFC 6902, with the refusals of the library that the API server takes it from.

use json_patch::{PatchErrorKind, PatchOperation};
use serde::Deserialize as _;
use serde_json::Value;

use crate::endpoints::answer::StatusError;

/// Leaves the object half patched where it refuses: the caller patches a copy.
pub(super) fn apply(object: &mut Value, patch: &Value) -> Result<(), StatusError> {
    let operations = Vec::<PatchOperation>::deserialize(patch)
        .map_err(|why| StatusError::bad_request(format!("error decoding patch: {why}")))?;
    for operation in &operations {
        if is_null_at_a_missing_path(object, operation) {
            continue;
        }
        json_patch::patch_unsafe(object, std::slice::from_ref(operation))
            .map_err(|error| refused(operation, &error.kind))?;
    }
    Ok(())
}

/// Upstream's library takes a missing path for null in a test, against the RFC.
fn is_null_at_a_missing_path(object: &Value, operation: &PatchOperation) -> bool {
    match operation {
        PatchOperation::Test(test) => {
            test.value.is_null() && object.pointer(test.path.as_str()).is_none()
        }
        PatchOperation::Add(_)
        | PatchOperation::Remove(_)
        | PatchOperation::Replace(_)
        | PatchOperation::Move(_)
        | PatchOperation::Copy(_) => false,
    }
}

fn refused(operation: &PatchOperation, kind: &PatchErrorKind) -> StatusError {
    let path = operation.path();
    let name = match operation {
        PatchOperation::Test(_) => {
            return invalid(&format!("testing value {path} failed: test failed"));
        }
        PatchOperation::Add(_) => "add",
        PatchOperation::Remove(_) => "remove",
        PatchOperation::Replace(_) => "replace",
        PatchOperation::Move(_) => "move",
        PatchOperation::Copy(_) => "copy",
    };
    invalid(&format!(
        "{name} operation does not apply: doc is missing path: {path}: {kind}"
    ))
}

fn invalid(message: &str) -> StatusError {
    StatusError::new(
        422,
        "Invalid",
        format!("the server rejected our request due to an error in our request: {message}"),
    )
}
