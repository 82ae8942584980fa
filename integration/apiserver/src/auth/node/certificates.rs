//! Certificates of a node's own pods: which requests it may make and read.

use serde_json::Value;

use crate::certificates::pods::resource;
use crate::endpoints::request_info::{RequestInfo, RequestVerb};
use crate::kinds::core;
use crate::server::state::State;
use crate::store::VersionedStore;

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Says why a node may not make a call about them.
pub(super) fn check(state: &State, node: &str, call: &RequestInfo) -> Result<(), String> {
    if call.subresource().is_some() {
        return Err(
            "nodes may not access the status subresource of PodCertificateRequests".to_string(),
        );
    }
    let selected = call.query.get("fieldSelector").is_some_and(|selector| {
        let own = format!("spec.nodeName={node}");
        selector.split(',').any(|part| part == own)
    });
    match call.verb {
        // What it says, admission looks at.
        RequestVerb::Create => Ok(()),
        RequestVerb::Get => {
            let store = state.store();
            let found = store.get(resource(), call.namespace(), call.name());
            match found.is_some_and(|request| request["spec"]["nodeName"] == node) {
                true => Ok(()),
                false => Err(format!(
                    "no relationship found between node '{node}' and this object"
                )),
            }
        }
        RequestVerb::List | RequestVerb::Watch if selected => Ok(()),
        RequestVerb::List | RequestVerb::Watch => Err(
            "can only list/watch podcertificaterequests with spec.nodeName field selector"
                .to_string(),
        ),
        RequestVerb::Update
        | RequestVerb::Patch
        | RequestVerb::Delete
        | RequestVerb::DeleteCollection => Err(String::new()),
    }
}

/// Looks at a request that a node is about to make: it is for a pod that runs there, as what it runs.
pub(super) fn admit(
    store: &VersionedStore,
    node: &str,
    call: &RequestInfo,
    request: &Value,
) -> Result<(), String> {
    if call.verb != RequestVerb::Create {
        return Err("unexpected operation".to_string());
    }
    let (namespace, spec) = (call.namespace(), &request["spec"]);
    admit_node(store, node, namespace, spec)?;
    let account = admit_pod(store, node, namespace, spec)?;
    admit_account(store, namespace, &account, spec)
}

fn text<'a>(spec: &'a Value, field: &str) -> &'a str {
    spec[field].as_str().unwrap_or_default()
}

fn uid(object: &Value) -> String {
    text(&object["metadata"], "uid").to_string()
}

/// The pod's name as a message has it.
fn place(namespace: &str, spec: &Value) -> String {
    format!("{namespace}/{}", text(spec, "podName"))
}

fn admit_node(
    store: &VersionedStore,
    node: &str,
    namespace: &str,
    spec: &Value,
) -> Result<(), String> {
    let (text, place) = (|field| text(spec, field), place(namespace, spec));
    if text("nodeName") != node {
        return Err(format!(
            "PodCertificateRequest.Spec.NodeName={:?}, which is not the requesting node {node:?}",
            text("nodeName")
        ));
    }
    let running = store.get(core("nodes"), "", node).ok_or_else(|| {
        format!("while retrieving node {node:?} named in the PodCertificateRequest: node {node:?} not found")
    })?;
    if uid(&running) != text("nodeUID") {
        return Err(format!(
            "PodCertificateRequest for pod {place:?} names node UID {:?}, inconsistent with the running node ({:?})",
            text("nodeUID"),
            uid(&running)
        ));
    }
    Ok(())
}

/// Returns the name of the pod's service account.
fn admit_pod(
    store: &VersionedStore,
    node: &str,
    namespace: &str,
    spec: &Value,
) -> Result<String, String> {
    let (text, place) = (|field| text(spec, field), place(namespace, spec));
    let pod = store.get(core("pods"), namespace, text("podName")).ok_or_else(|| {
        format!(
            "while retrieving pod {place:?} named in the PodCertificateRequest: pod {:?} not found",
            text("podName")
        )
    })?;
    if uid(&pod) != text("podUID") {
        return Err(format!(
            "PodCertificateRequest for pod {place:?} contains pod UID ({:?}) which differs from running pod {:?}",
            text("podUID"),
            uid(&pod)
        ));
    }
    if pod["spec"]["nodeName"] != node {
        return Err(format!(
            "pod {place:?} is not running on node {node:?} named in the PodCertificateRequest"
        ));
    }
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return Err(format!("pod {place:?} is a mirror pod"));
    }
    let account = pod["spec"]["serviceAccountName"]
        .as_str()
        .unwrap_or_default();
    if account != text("serviceAccountName") {
        return Err(format!(
            "PodCertificateRequest for pod {place:?} contains serviceAccountName ({:?}) that differs from running pod ({account:?})",
            text("serviceAccountName")
        ));
    }
    Ok(account.to_string())
}

fn admit_account(
    store: &VersionedStore,
    namespace: &str,
    account: &str,
    spec: &Value,
) -> Result<(), String> {
    let (text, place) = (|field| text(spec, field), place(namespace, spec));
    let found = store.get(core("serviceaccounts"), namespace, account).ok_or_else(|| {
        format!(
            "while retrieving service account \"{namespace}/{account}\" named in the PodCertificateRequest: serviceaccount {account:?} not found"
        )
    })?;
    if uid(&found) != text("serviceAccountUID") {
        return Err(format!(
            "PodCertificateRequest for pod {place:?} names service account UID {:?}, which differs from the running service account ({:?})",
            text("serviceAccountUID"),
            uid(&found)
        ));
    }
    Ok(())
}
