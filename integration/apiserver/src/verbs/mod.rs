//! The verbs on objects: each with its rules, as upstream's registry has them.

mod create;
mod delete;
mod prepare;
mod read;
mod replace;
#[cfg(test)]
mod tests;
mod validate;
pub(crate) mod watch;

pub(crate) use create::{found, uid};
pub(crate) use delete::{
    DeleteOptions, DeletionStep, GracePeriod, delete_object, raise_generation,
};
pub(crate) use prepare::default;
use serde_json::{Value, json};

use crate::auth::tokens;
use crate::encoding::{events, protobuf};
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::{RequestInfo, RequestVerb};
use crate::kinds::Handling;
use crate::pods;
use crate::server::state::State;

/// Does what a call asks, and returns the status and the object to answer. Watches are not for here, nor what goes to a
/// kubelet.
pub(crate) fn carry_out(state: &State, call: &RequestInfo) -> Result<(u16, Value), StatusError> {
    let (code, object) = match (call.verb, call.subresource()) {
        (RequestVerb::Create, Some("token")) => (201, tokens::answer(state, call, body(call)?)?),
        (RequestVerb::Create, None) if call.resource.handling == Handling::Answered => {
            (201, tokens::answer(state, call, body(call)?)?)
        }
        (RequestVerb::Create, Some("binding")) => {
            (201, pods::subresources::bind(state, call, &body(call)?)?)
        }
        (RequestVerb::Create, Some("eviction")) => {
            (201, pods::subresources::evict(state, call, &body(call)?)?)
        }
        (RequestVerb::Create, None) => (201, create::create(state, call, body(call)?)?),
        (RequestVerb::Get, _) if call.name.is_some() => (200, read::get(state, call)?),
        (RequestVerb::List, None) => (200, read::list(state, call)?),
        (RequestVerb::Update, _) => replace::update(state, call, body(call)?)?,
        (RequestVerb::Patch, _) => replace::patch(state, call)?,
        (RequestVerb::Delete, None) => (200, delete::delete(state, call)?),
        (RequestVerb::DeleteCollection, None) => (200, delete::collection(state, call)?),
        _ => return Err(StatusError::not_allowed()),
    };
    Ok((code, shown(call, object)))
}

/// Returns the body as an object of the call's kind.
fn body(call: &RequestInfo) -> Result<Value, StatusError> {
    if call.content_type.contains("yaml") {
        return Err(StatusError::unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: application/json",
        ));
    }
    let object = parsed(&call.body)?;
    if !object.is_object() {
        return Err(StatusError::bad_request(
            "the object provided is unrecognized (must be of type object)",
        ));
    }
    Ok(object)
}

fn parsed(body: &[u8]) -> Result<Value, StatusError> {
    protobuf::object(body).unwrap_or_else(|| {
        serde_json::from_slice(body).map_err(|why| {
            StatusError::bad_request(format!("the object provided is unrecognized: {why}"))
        })
    })
}

/// Returns an object, or a list, as the version asked for shows it, with its kind.
pub(crate) fn shown(call: &RequestInfo, mut object: Value) -> Value {
    let resource = call.resource;
    if object["kind"] == json!(resource.list_kind()) {
        if let Some(items) = object["items"].as_array_mut() {
            items
                .iter_mut()
                .for_each(|item| events::outward(resource, item));
        }
        return object;
    }
    events::outward(resource, &mut object);
    object
}
