//! The double's own paths: `/_faults`, and `/_requests` for the journal.

use std::sync::Arc;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::endpoints::answer::{Response, StatusError, json_response};
use crate::server::faults::ApiFault;
use crate::server::state::State;

/// A request to the double itself.
#[derive(Debug)]
pub(super) enum ControlRequest {
    ShowFaults,
    AddFault,
    ClearFaults,
    ShowRequests,
    ForgetRequests,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ControlCommand {
    #[serde(rename_all = "camelCase")]
    Close {
        close_watches: bool,
    },
    #[serde(rename_all = "camelCase")]
    Mute {
        mute_watches: bool,
    },
    #[serde(rename_all = "camelCase")]
    Expire {
        expire_history: bool,
    },
    ApiFault(ApiFault),
}

impl ControlRequest {
    pub(super) fn parse(request: &Request<Incoming>) -> Option<ControlRequest> {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/_faults") => Some(ControlRequest::ShowFaults),
            (&Method::POST, "/_faults") => Some(ControlRequest::AddFault),
            (&Method::DELETE, "/_faults") => Some(ControlRequest::ClearFaults),
            (&Method::GET, "/_requests") => Some(ControlRequest::ShowRequests),
            (&Method::DELETE, "/_requests") => Some(ControlRequest::ForgetRequests),
            _ => None,
        }
    }
}

pub(super) async fn answer(
    state: &Arc<State>,
    order: ControlRequest,
    request: Request<Incoming>,
) -> Response {
    match order {
        ControlRequest::ShowFaults => json_response(200, &json!(state.faults().waiting())),
        ControlRequest::ShowRequests => json_response(200, &json!(state.request_log().all())),
        ControlRequest::ClearFaults => {
            state.faults().clear();
            json_response(200, &Value::Null)
        }
        ControlRequest::ForgetRequests => {
            state.request_log().clear();
            json_response(200, &Value::Null)
        }
        ControlRequest::AddFault => match command(request).await {
            Ok(command) => {
                execute(state, command);
                json_response(201, &Value::Null)
            }
            Err(failure) => failure.response(),
        },
    }
}

async fn command(request: Request<Incoming>) -> Result<ControlCommand, StatusError> {
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(|why| StatusError::bad_request(why.to_string()))?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|why| StatusError::bad_request(format!("not a fault: {why}")))
}

fn execute(state: &State, command: ControlCommand) {
    match command {
        ControlCommand::Close {
            close_watches: true,
        } => state.faults().close_watches(),
        ControlCommand::Expire {
            expire_history: true,
        } => state.store().expire_history(),
        ControlCommand::Close {
            close_watches: false,
        }
        | ControlCommand::Expire {
            expire_history: false,
        } => {}
        ControlCommand::Mute { mute_watches } => state.faults().mute_watches(mute_watches),
        ControlCommand::ApiFault(fault) => state.faults().add(fault),
    }
}
