//! Answers on the wire: objects, and `Status` for refusals.

use http::{Response as HttpResponse, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::kinds::Resource;

pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;
pub(crate) type Response = HttpResponse<Body>;

/// Why a call is refused; becomes a `Status`.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusError {
    /// The HTTP status code; also `Status.code`.
    pub code: u16,
    /// `Status.reason`, as `NotFound`.
    pub reason: String,
    /// `Status.message`, a sentence.
    pub message: String,
    pub(crate) details: Option<Value>,
}

impl std::fmt::Display for StatusError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for StatusError {}

impl StatusError {
    pub(crate) fn new(code: u16, reason: &str, message: impl Into<String>) -> StatusError {
        StatusError {
            code,
            reason: reason.to_string(),
            message: message.into(),
            details: None,
        }
    }

    fn about(
        code: u16,
        reason: &str,
        resource: &Resource,
        name: &str,
        message: String,
    ) -> StatusError {
        let details = json!({"name": name, "group": resource.group, "kind": resource.plural});
        StatusError {
            details: Some(details),
            ..StatusError::new(code, reason, message)
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> StatusError {
        StatusError::new(400, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> StatusError {
        StatusError::new(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> StatusError {
        let message = format!(
            "{}{} is forbidden: {why}",
            resource.qualified(),
            quoted(name)
        );
        StatusError::about(403, "Forbidden", resource, name, message)
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> StatusError {
        StatusError::about(
            404,
            "NotFound",
            resource,
            name,
            format!("{} \"{name}\" not found", resource.qualified()),
        )
    }

    pub(crate) fn no_such_path() -> StatusError {
        StatusError::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    pub(crate) fn not_allowed() -> StatusError {
        StatusError::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> StatusError {
        StatusError::about(
            409,
            "AlreadyExists",
            resource,
            name,
            format!("{} \"{name}\" already exists", resource.qualified()),
        )
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> StatusError {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            resource.qualified()
        );
        StatusError::about(409, "Conflict", resource, name, message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> StatusError {
        StatusError::new(410, "Expired", message)
    }

    pub(crate) fn unsupported_media(message: impl Into<String>) -> StatusError {
        StatusError::new(415, "UnsupportedMediaType", message)
    }

    /// Returns the refusal of an object: `field` is the path of what is wrong with it.
    pub(crate) fn invalid(resource: &Resource, name: &str, field: &str, why: &str) -> StatusError {
        let message = format!(
            "{} \"{name}\" is invalid: {field}: {why}",
            kind_and_group(resource)
        );
        let details = json!({"name": name, "group": resource.group, "kind": resource.kind,
            "causes": [{"reason": "FieldValueInvalid", "message": why, "field": field}]});
        StatusError {
            details: Some(details),
            ..StatusError::new(422, "Invalid", message)
        }
    }

    /// Returns it as the object on the wire.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code});
        if let Some(details) = &self.details {
            let mut details = details.clone();
            if let Some(fields) = details.as_object_mut() {
                fields.retain(|_, value| value != "");
            }
            status["details"] = details;
        }
        status
    }

    pub(crate) fn response(&self) -> Response {
        json_response(self.code, &self.status())
    }
}

fn kind_and_group(resource: &Resource) -> String {
    if resource.group.is_empty() {
        resource.kind.to_string()
    } else {
        format!("{}.{}", resource.kind, resource.group)
    }
}

fn quoted(name: &str) -> String {
    if name.is_empty() {
        String::new()
    } else {
        format!(" \"{name}\"")
    }
}

/// Returns the success of a deletion of what leaves nothing to show.
pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": name, "group": resource.group, "kind": resource.plural, "uid": uid}})
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub(crate) fn json_response(code: u16, value: &Value) -> Response {
    let bytes = serde_json::to_vec(value).expect("a JSON value can be written");
    typed(code, "application/json", bytes)
}

pub(crate) fn text_response(code: u16, text: &str) -> Response {
    typed(code, "text/plain; charset=utf-8", text.as_bytes().to_vec())
}

pub(crate) fn typed(code: u16, content_type: &'static str, bytes: Vec<u8>) -> Response {
    let mut response = HttpResponse::new(full(bytes));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(content_type),
    );
    response
}
