//! The double's own paths: faults by hand, and what was heard.

use std::sync::Arc;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    answer::{Failure, Response, json_response},
    faults::Fault,
    state::State,
};

/// A request to the double itself.
#[derive(Debug)]
pub(super) enum Order {
    ShowFaults,
    AddFault,
    ClearFaults,
    ShowRequests,
    ForgetRequests,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Wish {
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
    Fault(Fault),
}

impl Order {
    pub(super) fn parse(request: &Request<Incoming>) -> Option<Order> {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/_faults") => Some(Order::ShowFaults),
            (&Method::POST, "/_faults") => Some(Order::AddFault),
            (&Method::DELETE, "/_faults") => Some(Order::ClearFaults),
            (&Method::GET, "/_requests") => Some(Order::ShowRequests),
            (&Method::DELETE, "/_requests") => Some(Order::ForgetRequests),
            _ => None,
        }
    }
}

pub(super) async fn answer(
    state: &Arc<State>,
    order: Order,
    request: Request<Incoming>,
) -> Response {
    match order {
        Order::ShowFaults => json_response(200, &json!(state.faults().waiting())),
        Order::ShowRequests => json_response(200, &json!(state.journal().all())),
        Order::ClearFaults => {
            state.faults().clear();
            json_response(200, &Value::Null)
        }
        Order::ForgetRequests => {
            state.journal().clear();
            json_response(200, &Value::Null)
        }
        Order::AddFault => match wish(request).await {
            Ok(wish) => {
                grant(state, wish);
                json_response(201, &Value::Null)
            }
            Err(failure) => failure.response(),
        },
    }
}

async fn wish(request: Request<Incoming>) -> Result<Wish, Failure> {
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(|why| Failure::bad_request(why.to_string()))?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|why| Failure::bad_request(format!("not a fault: {why}")))
}

fn grant(state: &State, wish: Wish) {
    match wish {
        Wish::Close {
            close_watches: true,
        } => state.faults().close_watches(),
        Wish::Expire {
            expire_history: true,
        } => state.store().expire_history(),
        Wish::Close {
            close_watches: false,
        }
        | Wish::Expire {
            expire_history: false,
        } => {}
        Wish::Mute { mute_watches } => state.faults().mute_watches(mute_watches),
        Wish::Fault(fault) => state.faults().add(fault),
    }
}
