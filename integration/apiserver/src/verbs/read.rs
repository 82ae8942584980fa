//! get and list.

use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use serde_json::{Value, json};

use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::RequestInfo;
use crate::endpoints::selectors::ListSelector;
use crate::server::state::State;

pub(super) fn get(state: &State, call: &RequestInfo) -> Result<Value, StatusError> {
    let found = state
        .store()
        .get(call.resource, call.namespace(), call.name());
    found
        .map(|object| Value::clone(&object))
        .ok_or_else(|| StatusError::not_found(call.resource, call.name()))
}

pub(super) fn list(state: &State, call: &RequestInfo) -> Result<Value, StatusError> {
    let selection = ListSelector::parse(&call.query)?;
    let store = state.store();
    check_version(call, store.version())?;
    let start = call
        .query
        .get("continue")
        .map(|token| ContinueToken::parse(token, store.history().since()))
        .transpose()?;
    let version = start.as_ref().map_or(store.version(), |page| page.version);
    let objects = store.list(call.resource, call.namespace());
    let after = |object: &Arc<Value>| start.as_ref().is_none_or(|page| key(object) > page.last);
    let mut left: Vec<Arc<Value>> = objects
        .into_iter()
        .filter(|object| selection.takes(object) && after(object))
        .collect();
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if let Some(limit) = call
        .query
        .number("limit")
        .and_then(|limit| usize::try_from(limit).ok())
        .filter(|limit| *limit > 0)
        && left.len() > limit
    {
        metadata["remainingItemCount"] = json!(left.len() - limit);
        left.truncate(limit);
        let last = left.last().map(key).unwrap_or_default();
        metadata["continue"] = json!(ContinueToken { version, last }.text());
    }
    let items: Vec<Value> = left.iter().map(|object| Value::clone(object)).collect();
    Ok(
        json!({"kind": call.resource.list_kind(), "apiVersion": call.resource.api_version(), "metadata": metadata, "items": items}),
    )
}

/// Refuses a list that must be newer than anything there is, as after an etcd restored from a backup.
fn check_version(call: &RequestInfo, newest: u64) -> Result<(), StatusError> {
    let wanted = call
        .query
        .number("resourceVersion")
        .and_then(|version| u64::try_from(version).ok())
        .unwrap_or_default();
    if wanted <= newest {
        return Ok(());
    }
    let mut failure = StatusError::new(
        504,
        "Timeout",
        format!("Too large resource version: {wanted}, current: {newest}"),
    );
    failure.details = Some(
        json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1}),
    );
    Err(failure)
}

/// Where the next page begins.
struct ContinueToken {
    version: u64,
    last: (String, String),
}

impl ContinueToken {
    fn text(&self) -> String {
        BASE64.encode(
            json!([self.version, self.last.0, self.last.1])
                .to_string()
                .as_bytes(),
        )
    }

    fn parse(token: &str, since: u64) -> Result<ContinueToken, StatusError> {
        let known = BASE64
            .decode(token)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<(u64, String, String)>(&bytes).ok());
        let Some((version, namespace, name)) = known else {
            return Err(StatusError::bad_request(
                "continue key is not valid: the token is not one of this server",
            ));
        };
        if version < since {
            return Err(StatusError::expired(
                "The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.",
            ));
        }
        Ok(ContinueToken {
            version,
            last: (namespace, name),
        })
    }
}

fn key(object: &Arc<Value>) -> (String, String) {
    let field = |name: &str| {
        object["metadata"][name]
            .as_str()
            .unwrap_or_default()
            .to_string()
    };
    (field("namespace"), field("name"))
}
