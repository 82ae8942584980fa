//! Tokens of service accounts, and the reviews that ask about tokens and rights.

pub(crate) mod issued;
mod request;
mod signature;

use serde_json::{Value, json};

use crate::auth::attributes::words;
use crate::auth::rights;
use crate::clock;
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::{RequestInfo, UserInfo};
use crate::server::state::State;

/// The issuer of the tokens, and their audience where a request names none.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The user of a token, and the audiences for which it is valid.
pub(crate) struct TokenOwner {
    pub(crate) user: UserInfo,
    extra: Value,
    audiences: Vec<String>,
}

/// Returns the user of a token that is valid now, for one of these audiences; no audience means the server itself.
pub(crate) fn owner(state: &State, token: &str, wanted: &[String]) -> Option<TokenOwner> {
    let wanted = if wanted.is_empty() {
        vec![ISSUER.to_string()]
    } else {
        wanted.to_vec()
    };
    let known = state.auth.settings().tokens.get(token).cloned();
    if let Some(user) = known {
        // A token of no audience is good for the server's own.
        let audiences: Vec<String> = wanted.into_iter().filter(|one| one == ISSUER).collect();
        return (!audiences.is_empty()).then_some(TokenOwner {
            user,
            extra: Value::Null,
            audiences,
        });
    }
    let issue = state.auth.issued.find(token)?;
    let there = issue
        .bound
        .as_ref()
        .is_none_or(|bound| bound.is_there(&state.store()));
    let audiences: Vec<String> = wanted
        .into_iter()
        .filter(|one| issue.audiences.contains(one))
        .collect();
    let good = clock::now() < issue.end && there && !audiences.is_empty();
    good.then_some(TokenOwner {
        user: issue.user,
        extra: issue.extra,
        audiences,
    })
}

/// Answers what is posted to serviceaccounts/token, tokenreviews and subjectaccessreviews.
pub(crate) fn answer(
    state: &State,
    call: &RequestInfo,
    mut body: Value,
) -> Result<Value, StatusError> {
    let resource = call.resource;
    body["kind"] = json!(resource.kind);
    body["apiVersion"] = json!(resource.api_version());
    match resource.plural {
        "serviceaccounts" => return request::answer(state, call, body),
        "tokenreviews" => body["status"] = review(state, &body["spec"]),
        "selfsubjectaccessreviews" => {
            let mut spec = body["spec"].clone();
            spec["user"] = json!(call.user.name);
            spec["groups"] = json!(call.user.groups);
            body["status"] = rights::review(state, &spec, state.auth.is_open());
        }
        _ => body["status"] = rights::review(state, &body["spec"], false),
    }
    if !body["metadata"].is_object() {
        body["metadata"] = json!({});
    }
    Ok(body)
}

fn review(state: &State, spec: &Value) -> Value {
    let token = spec["token"].as_str().unwrap_or_default();
    let wanted = words(&spec["audiences"]);
    let refused = |user: &UserInfo| state.auth.settings().refused.contains(&user.name);
    let Some(owner) = owner(state, token, &wanted).filter(|owner| !refused(&owner.user)) else {
        return json!({"user": {}, "error": "[invalid bearer token, token lookup failed]"});
    };
    let mut groups = owner.user.groups.clone();
    groups.push("system:authenticated".to_string());
    let mut user = json!({"username": owner.user.name, "groups": groups});
    if !owner.user.uid.is_empty() {
        user["uid"] = json!(owner.user.uid);
    }
    if owner.extra.is_object() {
        user["extra"] = owner.extra;
    }
    json!({"authenticated": true, "user": user, "audiences": owner.audiences})
}

#[cfg(test)]
mod tests;
