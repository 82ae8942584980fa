//! The rights of nodes: upstream's node authorizer, by the objects that a node's pods refer to, and the
//! NodeRestriction admission. Both with upstream's messages.

mod admission;
mod certificates;
mod references;

pub(crate) use admission::{admit, admit_end};

use crate::endpoints::request_info::{RequestInfo, RequestVerb};
use crate::kinds::core;
use crate::server::state::State;

const LEASES: &str = "kube-node-lease";

/// Says why a node may not make a call.
pub(super) fn check(state: &State, node: &str, call: &RequestInfo) -> Result<(), String> {
    let reads = matches!(
        call.verb,
        RequestVerb::Get | RequestVerb::List | RequestVerb::Watch
    );
    match (
        call.resource.group,
        call.resource.plural,
        call.subresource(),
    ) {
        ("", "secrets" | "configmaps", None) => referred(state, node, call),
        ("", "persistentvolumeclaims" | "persistentvolumes", None) => {
            referred_by_get(state, node, call)
        }
        ("", "persistentvolumeclaims", Some("status")) => right(matches!(
            call.verb,
            RequestVerb::Get | RequestVerb::Update | RequestVerb::Patch
        )),
        ("storage.k8s.io", "volumeattachments", None) if call.verb == RequestVerb::Get => {
            right(true)
        }
        ("resource.k8s.io", "resourceclaims", None) => referred_by_get(state, node, call),
        ("", "serviceaccounts", Some("token")) if call.verb == RequestVerb::Create => {
            referred(state, node, call)
        }
        ("", "serviceaccounts", None) if call.verb == RequestVerb::Get => right(true),
        ("", "nodes", None | Some("status")) => own_node(node, call),
        ("", "pods", subresource) => own_pods(node, call, subresource),
        ("coordination.k8s.io", "leases", None) => own_lease(node, call),
        ("storage.k8s.io", "csinodes", None) => own_name(node, call, "CSINode"),
        ("resource.k8s.io", "resourceslices", None) => right(true),
        ("", "services", None)
        | ("storage.k8s.io", "csidrivers", None)
        | ("node.k8s.io", "runtimeclasses", None) => right(reads),
        ("certificates.k8s.io", "clustertrustbundles", None) => right(reads),
        ("certificates.k8s.io", "certificatesigningrequests", None) => {
            right(reads || call.verb == RequestVerb::Create)
        }
        ("certificates.k8s.io", "podcertificaterequests", _) => {
            certificates::check(state, node, call)
        }
        ("" | "events.k8s.io", "events", None) => right(matches!(
            call.verb,
            RequestVerb::Create | RequestVerb::Update | RequestVerb::Patch
        )),
        ("authentication.k8s.io" | "authorization.k8s.io", _, None) => {
            right(call.verb == RequestVerb::Create)
        }
        _ => right(false),
    }
}

fn right(has: bool) -> Result<(), String> {
    if has { Ok(()) } else { Err(String::new()) }
}

/// Single objects that a pod of the node refers to may be read, and watched by their name.
fn referred(state: &State, node: &str, call: &RequestInfo) -> Result<(), String> {
    if !matches!(
        call.verb,
        RequestVerb::Get | RequestVerb::List | RequestVerb::Watch | RequestVerb::Create
    ) {
        return Err("can only read resources of this type".to_string());
    }
    let selected = call
        .query
        .get("fieldSelector")
        .and_then(|selector| selector.strip_prefix("metadata.name="));
    let name = if call.name().is_empty() {
        selected
            .filter(|name| !name.contains(','))
            .unwrap_or_default()
    } else {
        call.name()
    };
    if name.is_empty() || call.namespace().is_empty() {
        return Err(format!(
            "No Object name found (only individual {} can be read)",
            call.resource.plural
        ));
    }
    if references::found(
        &state.store(),
        node,
        call.resource.plural,
        call.namespace(),
        name,
    ) {
        return Ok(());
    }
    Err(format!(
        "no relationship found between node '{node}' and this object"
    ))
}

fn referred_by_get(state: &State, node: &str, call: &RequestInfo) -> Result<(), String> {
    if call.verb != RequestVerb::Get {
        return Err("can only get individual resources of this type".to_string());
    }
    if references::found(
        &state.store(),
        node,
        call.resource.plural,
        call.namespace(),
        call.name(),
    ) {
        return Ok(());
    }
    Err(format!(
        "no relationship found between node '{node}' and this object"
    ))
}

fn own_node(node: &str, call: &RequestInfo) -> Result<(), String> {
    let selected = call.query.get("fieldSelector") == Some(&format!("metadata.name={node}"));
    match call.verb {
        RequestVerb::Get if call.name() == node => Ok(()),
        RequestVerb::Get => Err(format!(
            "node '{node}' cannot read '{}', only its own Node object",
            call.name()
        )),
        RequestVerb::List | RequestVerb::Watch if selected || call.name() == node => Ok(()),
        RequestVerb::List | RequestVerb::Watch => Err(format!(
            "node '{node}' cannot read all nodes, only its own Node object"
        )),
        RequestVerb::Create | RequestVerb::Update | RequestVerb::Patch => Ok(()),
        RequestVerb::Delete | RequestVerb::DeleteCollection => Err(String::new()),
    }
}

fn own_pods(node: &str, call: &RequestInfo, subresource: Option<&str>) -> Result<(), String> {
    let selected = call.query.get("fieldSelector").is_some_and(|selector| {
        selector
            .split(',')
            .any(|part| part == format!("spec.nodeName={node}"))
    });
    match (call.verb, subresource) {
        (RequestVerb::Get, None) | (RequestVerb::Create | RequestVerb::Delete, None) => Ok(()),
        (RequestVerb::List | RequestVerb::Watch, None) if selected => Ok(()),
        (RequestVerb::List | RequestVerb::Watch, None) => {
            Err("can only list/watch pods with spec.nodeName field selector".to_string())
        }
        (RequestVerb::Update | RequestVerb::Patch | RequestVerb::Get, Some("status"))
        | (RequestVerb::Create, Some("eviction")) => Ok(()),
        _ => Err(String::new()),
    }
}

fn own_lease(node: &str, call: &RequestInfo) -> Result<(), String> {
    if call.namespace() != LEASES {
        return Err(format!(
            "can only access leases in the \"{LEASES}\" system namespace"
        ));
    }
    own_name(node, call, "lease")
}

fn own_name(node: &str, call: &RequestInfo, what: &str) -> Result<(), String> {
    match call.verb {
        RequestVerb::List | RequestVerb::Watch | RequestVerb::DeleteCollection => Err(format!(
            "can only get, create, update, patch, or delete a {what}"
        )),
        // The name stands in the body: admission looks at it.
        RequestVerb::Create => Ok(()),
        RequestVerb::Get | RequestVerb::Update | RequestVerb::Patch | RequestVerb::Delete
            if call.name() == node =>
        {
            Ok(())
        }
        RequestVerb::Get | RequestVerb::Update | RequestVerb::Patch | RequestVerb::Delete => Err(
            format!("can only access {what} with the same name as the requesting node"),
        ),
    }
}

/// Whether a pod of this name is of the node.
fn holds(store: &crate::store::VersionedStore, node: &str, namespace: &str, name: &str) -> bool {
    store
        .get(core("pods"), namespace, name)
        .is_some_and(|pod| pod["spec"]["nodeName"] == node)
}
