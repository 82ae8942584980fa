//! The objects that the pods of a node refer to.

use serde_json::Value;

use crate::kinds::core;
use crate::store::VersionedStore;

/// Whether a pod of the node refers to an object.
pub(super) fn found(
    store: &VersionedStore,
    node: &str,
    plural: &str,
    namespace: &str,
    name: &str,
) -> bool {
    // A persistent volume has no namespace, so pods of all namespaces are searched for a claim to it.
    let pods = store.list(
        core("pods"),
        if plural == "persistentvolumes" {
            ""
        } else {
            namespace
        },
    );
    let mut of_node = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node);
    match plural {
        "secrets" => of_node.any(|pod| names(pod, SECRETS).any(|one| one == name)),
        "configmaps" => {
            name == "kube-root-ca.crt"
                || of_node.any(|pod| names(pod, CONFIG_MAPS).any(|one| one == name))
        }
        "persistentvolumeclaims" => of_node.any(|pod| claims(pod).any(|one| one == name)),
        "persistentvolumes" => of_node.any(|pod| {
            let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
            let mut found = claims(pod)
                .filter_map(|claim| store.get(core("persistentvolumeclaims"), namespace, &claim));
            found.any(|claim| claim["spec"]["volumeName"] == name)
        }),
        "serviceaccounts" => of_node.any(|pod| pod["spec"]["serviceAccountName"] == name),
        "resourceclaims" => of_node.any(|pod| pod["spec"]["resourceClaims"].is_array()),
        _ => false,
    }
}

/// Where a reference stands: its parent's field, and the field that holds the name.
type Places = &'static [(&'static str, &'static str)];

const SECRETS: Places = &[
    ("secret", "secretName"),
    ("secret", "name"),
    ("secretRef", "name"),
    ("secretKeyRef", "name"),
    ("imagePullSecrets", "name"),
    ("nodePublishSecretRef", "name"),
    ("cephfs", "secretRef"),
    ("azureFile", "secretName"),
];
const CONFIG_MAPS: Places = &[
    ("configMap", "name"),
    ("configMapRef", "name"),
    ("configMapKeyRef", "name"),
];

/// Returns all names that stand at these places, however deep.
fn names(pod: &Value, places: Places) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    collect(&pod["spec"], "", places, &mut found);
    found.into_iter()
}

fn collect(value: &Value, parent: &str, places: Places, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                if let Some(name) = value.as_str()
                    && places.contains(&(parent, field.as_str()))
                {
                    found.push(name.to_string());
                }
                collect(value, field, places, found);
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect(item, parent, places, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn claims(pod: &Value) -> impl Iterator<Item = String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(move |volume| {
        let claim = volume["persistentVolumeClaim"]["claimName"]
            .as_str()
            .map(str::to_string);
        let made = volume["ephemeral"]
            .is_object()
            .then(|| format!("{name}-{}", volume["name"].as_str().unwrap_or_default()));
        claim.or(made)
    })
}
