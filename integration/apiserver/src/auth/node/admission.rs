//! The NodeRestriction admission: a node may write only its own Node and lease, the status of its pods, mirror pods,
//! and no label that decides where pods are scheduled.

use serde_json::Value;

use super::{LEASES, certificates, holds};
use crate::auth::rights::node_of;
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::{RequestInfo, RequestVerb};
use crate::kinds::core;
use crate::server::state::State;
use crate::store::VersionedStore;

const MIRROR: &str = "kubernetes.io/config.mirror";
/// Labels of Kubernetes' own domains that a node may give itself.
const LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Looks at an object that a node is about to write, beside the one that it replaces.
pub(crate) fn admit(
    state: &State,
    store: &VersionedStore,
    call: &RequestInfo,
    before: Option<&Value>,
    after: &Value,
) -> Result<(), StatusError> {
    let Some(node) = node_of(&call.user).filter(|_| state.auth.guards_nodes()) else {
        return Ok(());
    };
    let named = after["metadata"]["name"].as_str().unwrap_or_default();
    let done = match (call.resource.plural, call.subresource()) {
        ("pods", None) if call.verb == RequestVerb::Create => mirror_pod(store, node, after),
        ("pods", None) => Err(format!(
            "unexpected operation \"{}\", node {node:?} can only create and delete mirror pods",
            call.verb.word().to_uppercase()
        )),
        ("pods", Some("status")) => pod_status(node, before, after),
        ("nodes", _) => own_node(node, named, before, after),
        ("podcertificaterequests", _) => certificates::admit(store, node, call, after),
        ("leases", _) if call.namespace() != LEASES => Err(format!(
            "can only access leases in the \"{LEASES}\" system namespace"
        )),
        ("leases", _) if named != node => {
            Err("can only access node lease with the same name as the requesting node".to_string())
        }
        ("csinodes", _) if named != node => {
            Err("can only access CSINode with the same name as the requesting node".to_string())
        }
        _ => Ok(()),
    };
    done.map_err(|why| StatusError::forbidden(call.resource, named, &why))
}

/// Looks at what a node is about to delete or evict.
pub(crate) fn admit_end(state: &State, call: &RequestInfo) -> Result<(), StatusError> {
    let word = match (call.verb, call.subresource()) {
        (RequestVerb::Delete, None) => "delete",
        (RequestVerb::Create, Some("eviction")) => "evict",
        _ => return Ok(()),
    };
    let Some(node) = node_of(&call.user).filter(|_| call.resource.storage_key == "pods") else {
        return Ok(());
    };
    let store = state.store();
    if store
        .get(core("pods"), call.namespace(), call.name())
        .is_none()
        || holds(&store, node, call.namespace(), call.name())
    {
        return Ok(());
    }
    let why = format!("node {node:?} can only {word} pods with spec.nodeName set to itself");
    Err(StatusError::forbidden(call.resource, call.name(), &why))
}

fn mirror_pod(store: &VersionedStore, node: &str, pod: &Value) -> Result<(), String> {
    if pod["metadata"]["annotations"].get(MIRROR).is_none() {
        return Err(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if pod["spec"]["nodeName"] != node {
        return Err(format!(
            "node {node:?} can only create pods with spec.nodeName set to itself"
        ));
    }
    let owners = pod["metadata"]["ownerReferences"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let [owner] = owners.as_slice() else {
        return Err(format!(
            "node {node:?} can only create pods with a single owner reference set to itself"
        ));
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return Err(format!(
            "node {node:?} can only create pods with an owner reference set to itself"
        ));
    }
    if owner["controller"] != true {
        return Err(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner["blockOwnerDeletion"] == true {
        return Err(format!(
            "node {node:?} must not set blockOwnerDeletion on an owner reference"
        ));
    }
    let uid = store
        .get(core("nodes"), "", node)
        .map(|node| node["metadata"]["uid"].clone())
        .unwrap_or_default();
    if owner["uid"] != uid {
        return Err(format!(
            "node {node} UID mismatch: expected {} got {}",
            owner["uid"], uid
        ));
    }
    refers_to_nothing(node, pod)
}

fn refers_to_nothing(node: &str, pod: &Value) -> Result<(), String> {
    let volumes = || pod["spec"]["volumes"].as_array().into_iter().flatten();
    let account = pod["spec"]["serviceAccountName"]
        .as_str()
        .unwrap_or_default();
    let text = pod["spec"].to_string();
    let what = if !account.is_empty() {
        "service account"
    } else if text.contains("\"secretRef\"")
        || text.contains("\"secretKeyRef\"")
        || volumes().any(|volume| volume["secret"].is_object())
    {
        "secrets"
    } else if text.contains("\"configMapRef\"")
        || text.contains("\"configMapKeyRef\"")
        || volumes().any(|volume| volume["configMap"].is_object())
    {
        "configmaps"
    } else if volumes().any(|volume| volume["persistentVolumeClaim"].is_object()) {
        "persistentvolumeclaims"
    } else {
        return Ok(());
    };
    let what = if what == "service account" {
        "a service account".to_string()
    } else {
        what.to_string()
    };
    Err(format!(
        "node {node:?} can not create pods that reference {what}"
    ))
}

fn pod_status(node: &str, before: Option<&Value>, after: &Value) -> Result<(), String> {
    let before = before.unwrap_or(after);
    if before["spec"]["nodeName"] != node {
        return Err(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    if before["metadata"]["labels"] != after["metadata"]["labels"] {
        return Err(format!(
            "node {node:?} cannot update labels through pod status"
        ));
    }
    Ok(())
}

fn own_node(node: &str, named: &str, before: Option<&Value>, after: &Value) -> Result<(), String> {
    if named != node {
        return Err(format!(
            "node {node:?} is not allowed to modify node {named:?}"
        ));
    }
    if !after["spec"]["configSource"].is_null() {
        return Err(format!("node {node:?} is not allowed to set configSource"));
    }
    let changed = forbidden(before, after);
    let Some(before) = before else {
        if changed.is_empty() {
            return Ok(());
        }
        return Err(format!(
            "node {node:?} is not allowed to set the following labels: {}",
            changed.join(", ")
        ));
    };
    let list = |object: &Value, at: &str| {
        object
            .pointer(at)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    if list(before, "/spec/taints") != list(after, "/spec/taints") {
        return Err(format!("node {node:?} is not allowed to modify taints"));
    }
    if list(before, "/metadata/ownerReferences") != list(after, "/metadata/ownerReferences") {
        return Err(format!(
            "node {node:?} is not allowed to modify ownerReferences"
        ));
    }
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "node {node:?} is not allowed to modify labels: {}",
        changed.join(", ")
    ))
}

/// Returns the labels that differ and are not the node's to give.
fn forbidden(before: Option<&Value>, after: &Value) -> Vec<String> {
    let label = |object: Option<&Value>, name: &str| {
        object
            .and_then(|object| object["metadata"]["labels"].get(name))
            .cloned()
    };
    let objects = [before, Some(after)].into_iter().flatten();
    let names = objects
        .filter_map(|object| object["metadata"]["labels"].as_object())
        .flat_map(|labels| labels.keys());
    let mut names: Vec<&String> = names
        .filter(|name| label(before, name) != label(Some(after), name) && !own_label(name))
        .collect();
    names.sort();
    names.dedup();
    names.into_iter().cloned().collect()
}

fn own_label(name: &str) -> bool {
    let domain = name.split_once('/').map_or("", |(domain, _)| domain);
    let within = |of: &str| domain == of || domain.ends_with(&format!(".{of}"));
    if within("node-restriction.kubernetes.io") {
        return false;
    }
    let ours =
        within("kubelet.kubernetes.io") || within("node.kubernetes.io") || LABELS.contains(&name);
    ours || !(within("kubernetes.io") || within("k8s.io"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(labels: Value) -> Value {
        json!({"metadata": {"name": "a", "labels": labels}})
    }

    /// Upstream's Test_getModifiedLabels and Test_getForbiddenLabels.
    #[test]
    fn only_labels_that_place_a_node_are_not_its_own() {
        let cases = [
            (
                json!({}),
                json!({"kubernetes.io/hostname": "a", "mine": "x", "example.com/x": "y"}),
                vec![],
            ),
            (
                json!({}),
                json!({"kubelet.kubernetes.io/x": "1", "x.node.kubernetes.io/y": "1"}),
                vec![],
            ),
            (
                json!({}),
                json!({"kubernetes.io/x": "1"}),
                vec!["kubernetes.io/x"],
            ),
            (
                json!({}),
                json!({"x.k8s.io/y": "1", "a.kubernetes.io/z": ""}),
                vec!["a.kubernetes.io/z", "x.k8s.io/y"],
            ),
            (
                json!({"kubernetes.io/x": "1"}),
                json!({"kubernetes.io/x": "1"}),
                vec![],
            ),
            (
                json!({"kubernetes.io/x": "1"}),
                json!({"kubernetes.io/x": "2"}),
                vec!["kubernetes.io/x"],
            ),
            (
                json!({"node-restriction.kubernetes.io/x": "1"}),
                json!({}),
                vec!["node-restriction.kubernetes.io/x"],
            ),
            (
                json!({"foo.node-restriction.kubernetes.io/x": "1"}),
                json!({}),
                vec!["foo.node-restriction.kubernetes.io/x"],
            ),
        ];
        for (before, after, refused) in cases {
            assert_eq!(
                forbidden(Some(&node(before.clone())), &node(after.clone())),
                refused,
                "{before} {after}"
            );
        }
    }

    /// Upstream's Test_nodePlugin_Admit, its cases of nodes.
    #[test]
    fn a_node_changes_itself_and_neither_taints_nor_owners() {
        let plain = node(json!({}));
        let mut tainted = plain.clone();
        tainted["spec"]["taints"] = json!([{"key": "a", "effect": "NoSchedule"}]);
        let mut owned = plain.clone();
        owned["metadata"]["ownerReferences"] = json!([{"name": "x"}]);
        assert_eq!(own_node("a", "a", None, &tainted), Ok(()));
        assert_eq!(own_node("a", "a", Some(&plain), &plain), Ok(()));
        let why = |before: Option<&Value>, after: &Value, name: &str| {
            own_node("a", name, before, after).unwrap_err()
        };
        assert_eq!(
            why(Some(&plain), &tainted, "a"),
            "node \"a\" is not allowed to modify taints"
        );
        assert_eq!(
            why(Some(&plain), &owned, "a"),
            "node \"a\" is not allowed to modify ownerReferences"
        );
        assert_eq!(
            why(None, &plain, "b"),
            "node \"a\" is not allowed to modify node \"b\""
        );
        let labelled = node(json!({"kubernetes.io/x": "1"}));
        assert_eq!(
            why(None, &labelled, "a"),
            "node \"a\" is not allowed to set the following labels: kubernetes.io/x"
        );
    }
}
