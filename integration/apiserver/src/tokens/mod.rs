//! Tokens of service accounts, and the reviews that ask about tokens and rights.

mod request;
mod signature;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    answer::StatusError,
    auth::rights,
    clock,
    request_info::{RequestInfo, UserInfo},
    state::State,
};

/// Whose tokens they are, and for whom where nobody says so.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const KEPT: usize = 100_000;

/// The tokens that were issued.
#[derive(Default)]
pub(crate) struct IssuedTokens(Mutex<BTreeMap<String, IssuedToken>>);

impl std::fmt::Debug for IssuedTokens {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Issued")
    }
}

#[derive(Clone)]
struct IssuedToken {
    user: UserInfo,
    extra: Value,
    audiences: Vec<String>,
    end: Timestamp,
    /// The kind, namespace, name and UID of what must still be there.
    bound: Option<request::BoundObject>,
}

/// Who has a token, and for which audiences it is good.
pub(crate) struct TokenOwner {
    pub(crate) user: UserInfo,
    extra: Value,
    audiences: Vec<String>,
}

impl IssuedTokens {
    fn keep(&self, token: String, issue: IssuedToken) {
        let mut issued = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        if issued.len() >= KEPT {
            issued.retain(|_, issue| issue.end > now);
        }
        issued.insert(token, issue);
    }

    fn find(&self, token: &str) -> Option<IssuedToken> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(token)
            .cloned()
    }

    pub(crate) fn revoke(&self, token: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(token);
    }
}

/// Says who has a token that is good now, for one of the audiences wanted; none wanted means the server itself.
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
        .is_none_or(|bound| bound.is_there(state));
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
    let wanted = rights::words(&spec["audiences"]);
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
