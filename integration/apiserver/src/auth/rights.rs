//! The authorizer: the rights that a cluster gives to its masters, its nodes and bootstrap users. A test may decide
//! first.

use serde_json::{Value, json};

use super::attributes::AccessAttributes;
use super::node;
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::{RequestInfo, UserInfo};
use crate::server::state::State;

pub(crate) const MASTERS: &str = "system:masters";
const NODES: &str = "system:nodes";
const BOOTSTRAPPERS: &str = "system:bootstrappers";
const NODE_PREFIX: &str = "system:node:";

/// Returns the name of the node that a user is.
pub(crate) fn node_of(user: &UserInfo) -> Option<&str> {
    let node = user
        .name
        .strip_prefix(NODE_PREFIX)
        .filter(|node| !node.is_empty())?;
    user.groups
        .iter()
        .any(|group| group == NODES)
        .then_some(node)
}

/// Authorizes a request of an authenticated user.
pub(super) fn check(state: &State, call: &RequestInfo) -> Result<(), StatusError> {
    let attributes = AccessAttributes::of_call(call);
    let why = match judge(state, &attributes) {
        Some(true) => return Ok(()),
        Some(false) => String::new(),
        None => match node_of(&call.user) {
            Some(node) => match node::check(state, node, call) {
                Ok(()) => return Ok(()),
                Err(why) => why,
            },
            None if usual(&attributes) => return Ok(()),
            None => String::new(),
        },
    };
    let why = if why.is_empty() {
        attributes.refusal()
    } else {
        format!("{}: {why}", attributes.refusal())
    };
    Err(StatusError::forbidden(call.resource, call.name(), &why))
}

fn judge(state: &State, attributes: &AccessAttributes) -> Option<bool> {
    let settings = state.auth.settings();
    let judged = settings.judge.as_ref().and_then(|judge| judge(attributes));
    judged.or_else(|| attributes.in_group(MASTERS).then_some(true))
}

/// The rights of other users: a bootstrap user may request a node's certificate.
fn usual(attributes: &AccessAttributes) -> bool {
    attributes.in_group(BOOTSTRAPPERS)
        && attributes.resource == "certificatesigningrequests"
        && ["create", "get", "list", "watch"].contains(&attributes.verb.as_str())
}

/// Answers an access review, and writes it down.
pub(crate) fn review(state: &State, spec: &Value, open: bool) -> Value {
    let attributes = AccessAttributes::of_review(spec);
    let judged = judge(state, &attributes);
    state.auth.settings().asked.push(attributes);
    match judged.unwrap_or(open) {
        true => json!({"allowed": true}),
        false => json!({"allowed": false}),
    }
}
