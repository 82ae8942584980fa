//! TokenRequest: a token of a service account, bound to a pod.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::issued::{BoundObject, IssuedToken};
use super::{ISSUER, signature};
use crate::auth::attributes::words;
use crate::auth::rights::node_of;
use crate::clock;
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::{RequestInfo, UserInfo};
use crate::kinds::core;
use crate::server::state::State;
use crate::store::VersionedStore;

const SHORTEST: i64 = 600;
const USUAL: i64 = 3600;

pub(super) fn answer(
    state: &State,
    call: &RequestInfo,
    mut body: Value,
) -> Result<Value, StatusError> {
    let accounts = core("serviceaccounts");
    let asked = body["spec"]["expirationSeconds"].as_i64().unwrap_or(USUAL);
    if asked < SHORTEST {
        let why =
            format!("Invalid value: {asked}: may not specify a duration less than 10 minutes");
        return Err(StatusError::invalid(
            accounts,
            call.name(),
            "spec.expirationSeconds",
            &why,
        ));
    }
    let audiences = match words(&body["spec"]["audiences"]) {
        audiences if audiences.is_empty() => vec![ISSUER.to_string()],
        audiences => audiences,
    };
    let now = clock::now();
    let end = clock::later(now, asked.min(state.auth.settings().seconds));
    let token = issue(state, call, &body["spec"], (&audiences, now, end))?;
    body["metadata"] = json!({"name": call.name(), "namespace": call.namespace(), "creationTimestamp": clock::now_text()});
    body["kind"] = json!("TokenRequest");
    body["apiVersion"] = json!("authentication.k8s.io/v1");
    body["spec"]["audiences"] = json!(audiences);
    body["spec"]["expirationSeconds"] = json!(asked);
    body["status"] = json!({"token": token, "expirationTimestamp": clock::text(end)});
    Ok(body)
}

/// Signs a token for these audiences from now to the end, and remembers it.
fn issue(
    state: &State,
    call: &RequestInfo,
    spec: &Value,
    (audiences, now, end): (&[String], Timestamp, Timestamp),
) -> Result<String, StatusError> {
    let accounts = core("serviceaccounts");
    let (account, bound, claims) = {
        let store = state.store();
        let account = store
            .get(accounts, call.namespace(), call.name())
            .ok_or_else(|| StatusError::not_found(accounts, call.name()))?;
        let pod = bound_pod(&store, call, &spec["boundObjectRef"])?;
        admit(state, call, pod.as_deref())?;
        let bound = pod.as_ref().map(|pod| bound_to(pod));
        let claims = private_claims(&store, call, &account, pod.as_deref());
        (account, bound, claims)
    };
    let name = format!("system:serviceaccount:{}:{}", call.namespace(), call.name());
    let payload = json!({
        "aud": audiences, "exp": end.as_second(), "iat": now.as_second(), "iss": ISSUER, "jti": crate::verbs::uid(),
        "kubernetes.io": claims, "nbf": now.as_second(), "sub": name,
    });
    let token = signature::token(&state.auth.authority, &payload)
        .map_err(|why| StatusError::new(500, "InternalError", format!("{why:#}")))?;
    let user = UserInfo {
        name,
        uid: account["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_string(),
        groups: vec![
            "system:serviceaccounts".to_string(),
            format!("system:serviceaccounts:{}", call.namespace()),
        ],
    };
    let issue = IssuedToken {
        user,
        extra: extra(&claims),
        audiences: audiences.to_vec(),
        end,
        bound,
    };
    state.auth.issued.keep(token.clone(), issue);
    Ok(token)
}

/// Returns the pod that a token shall be bound to.
fn bound_pod(
    store: &VersionedStore,
    call: &RequestInfo,
    reference: &Value,
) -> Result<Option<std::sync::Arc<Value>>, StatusError> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    if !reference.is_object() {
        return Ok(None);
    }
    if text("kind") != "Pod" || text("apiVersion") != "v1" {
        let kind = text("kind");
        return Err(StatusError::bad_request(format!(
            "cannot bind token to object of type {}, Kind={kind}",
            text("apiVersion")
        )));
    }
    let pods = core("pods");
    let name = text("name");
    let pod = store
        .get(pods, call.namespace(), name)
        .ok_or_else(|| StatusError::not_found(pods, name))?;
    if pod["spec"]["serviceAccountName"] != call.name() {
        let has = pod["spec"]["serviceAccountName"]
            .as_str()
            .unwrap_or_default();
        let why = format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name {has:?}.",
            call.name()
        );
        return Err(StatusError::bad_request(why));
    }
    let (said, has) = (
        text("uid"),
        pod["metadata"]["uid"].as_str().unwrap_or_default(),
    );
    if !said.is_empty() && said != has {
        let why = format!(
            "the UID in the bound object reference ({said}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(StatusError::conflict(pods, name, &why));
    }
    Ok(Some(pod))
}

/// A node asks only for tokens of the pods on it.
fn admit(state: &State, call: &RequestInfo, pod: Option<&Value>) -> Result<(), StatusError> {
    let Some(node) = node_of(&call.user).filter(|_| state.auth.guards_nodes()) else {
        return Ok(());
    };
    let why = match pod {
        None => "node requested token not bound to a pod",
        Some(pod) if pod["spec"]["nodeName"] != node => {
            "node requested token bound to a pod scheduled on a different node"
        }
        Some(_) => return Ok(()),
    };
    Err(StatusError::forbidden(call.resource, call.name(), why))
}

fn bound_to(pod: &Value) -> BoundObject {
    let text = |field: &str| {
        pod["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_string()
    };
    BoundObject {
        plural: "pods",
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
    }
}

fn private_claims(
    store: &VersionedStore,
    call: &RequestInfo,
    account: &Value,
    pod: Option<&Value>,
) -> Value {
    let of = |object: &Value| json!({"name": object["metadata"]["name"], "uid": object["metadata"]["uid"]});
    let mut claims = json!({"namespace": call.namespace(), "serviceaccount": of(account)});
    if let Some(pod) = pod {
        claims["pod"] = of(pod);
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            claims["node"] = store
                .get(core("nodes"), "", node)
                .map_or_else(|| json!({"name": node}), |node| of(&node));
        }
    }
    claims
}

fn extra(claims: &Value) -> Value {
    let mut extra = json!({});
    for (kind, part) in [
        ("pod", "name"),
        ("pod", "uid"),
        ("node", "name"),
        ("node", "uid"),
    ] {
        if let Some(value) = claims[kind][part].as_str() {
            extra[format!("authentication.kubernetes.io/{kind}-{part}")] = json!([value]);
        }
    }
    extra
}
