//! Admission: the service account and its token, tolerations, priority, the runtime class's overhead.

use serde_json::{Value, json};

use super::MIRROR;
use crate::endpoints::answer::StatusError;
use crate::kinds::{self, core};
use crate::server::state::State;
use crate::store::VersionedStore;
use crate::verbs::default;

const TOKEN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

pub(crate) fn admit(
    state: &State,
    store: &mut VersionedStore,
    pod: &mut Value,
) -> Result<(), StatusError> {
    if !pod["spec"].is_object() {
        pod["spec"] = json!({});
    }
    let mirror = pod["metadata"]["annotations"].get(MIRROR).is_some();
    if state.options.service_accounts && !mirror {
        service_account(store, pod)?;
    }
    tolerations(pod);
    priority(store, pod)?;
    overhead(store, pod)
}

fn service_account(store: &mut VersionedStore, pod: &mut Value) -> Result<(), StatusError> {
    let old = pod["spec"]["serviceAccount"].clone();
    default(
        &mut pod["spec"],
        "serviceAccountName",
        if old.is_string() {
            old
        } else {
            json!("default")
        },
    );
    let name = pod["spec"]["serviceAccountName"]
        .as_str()
        .unwrap_or("default")
        .to_string();
    pod["spec"]["serviceAccount"] = json!(name);
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let Some(account) = store.get(core("serviceaccounts"), namespace, &name) else {
        let why = format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        );
        return Err(StatusError::forbidden(
            core("pods"),
            pod["metadata"]["name"].as_str().unwrap_or_default(),
            &why,
        ));
    };
    if pod["spec"].get("imagePullSecrets").is_none() && account["imagePullSecrets"].is_array() {
        pod["spec"]["imagePullSecrets"] = account["imagePullSecrets"].clone();
    }
    let wants = [
        &pod["spec"]["automountServiceAccountToken"],
        &account["automountServiceAccountToken"],
    ]
    .into_iter()
    .find_map(Value::as_bool)
    .unwrap_or(true);
    if wants {
        token(store, pod);
    }
    Ok(())
}

/// Mounts the token's volume into every container that has nothing at its place.
fn token(store: &mut VersionedStore, pod: &mut Value) {
    let existing = pod["spec"]["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|volume| volume["name"].as_str())
        .find(|name| name.starts_with("kube-api-access-"));
    let name = existing.map_or_else(
        || format!("kube-api-access-{}", store.suffix()),
        str::to_string,
    );
    let mut used = existing.is_some();
    let fresh = !used;
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array().into_iter().flatten();
            if mounts
                .clone()
                .any(|mount| mount["mountPath"] == TOKEN_FOLDER)
            {
                continue;
            }
            used = true;
            push(
                &mut container["volumeMounts"],
                json!({"name": name, "readOnly": true, "mountPath": TOKEN_FOLDER}),
            );
        }
    }
    if !(used && fresh) {
        return;
    }
    let volume = json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}});
    push(&mut pod["spec"]["volumes"], volume);
}

fn push(list: &mut Value, item: Value) {
    if let Some(items) = list.as_array_mut() {
        items.push(item);
    } else {
        *list = json!([item]);
    }
}

fn tolerations(pod: &mut Value) {
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerates = |toleration: &Value| {
            (toleration["key"] == key || toleration.get("key").is_none_or(|key| key == ""))
                && (toleration
                    .get("effect")
                    .is_none_or(|effect| effect == "" || effect == "NoExecute"))
        };
        let known = pod["spec"]["tolerations"]
            .as_array()
            .into_iter()
            .flatten()
            .any(tolerates);
        if !known {
            push(
                &mut pod["spec"]["tolerations"],
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}

fn priority(store: &VersionedStore, pod: &mut Value) -> Result<(), StatusError> {
    let class = pod["spec"]["priorityClassName"]
        .as_str()
        .unwrap_or_default()
        .to_string();
    let classes = kinds::find("scheduling.k8s.io", "v1", "priorityclasses")
        .expect("priority classes stand in the table");
    let found = store.get(classes, "", &class);
    let value = match (class.as_str(), &found) {
        ("", _) => pod["spec"].get("priority").cloned().unwrap_or(json!(0)),
        ("system-node-critical", _) => json!(2_000_001_000),
        ("system-cluster-critical", _) => json!(2_000_000_000),
        (_, Some(object)) => object["value"].clone(),
        (_, None) => {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            return Err(StatusError::forbidden(
                core("pods"),
                name,
                &format!("no PriorityClass with name {class} was found"),
            ));
        }
    };
    pod["spec"]["priority"] = value;
    let policy = found.and_then(|object| object["preemptionPolicy"].as_str().map(str::to_string));
    default(
        &mut pod["spec"],
        "preemptionPolicy",
        json!(policy.as_deref().unwrap_or("PreemptLowerPriority")),
    );
    Ok(())
}

fn overhead(store: &VersionedStore, pod: &mut Value) -> Result<(), StatusError> {
    let Some(class) = pod["spec"]["runtimeClassName"]
        .as_str()
        .filter(|class| !class.is_empty())
    else {
        return Ok(());
    };
    let classes = kinds::find("node.k8s.io", "v1", "runtimeclasses")
        .expect("runtime classes stand in the table");
    let Some(object) = store.get(classes, "", class) else {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        return Err(StatusError::forbidden(
            core("pods"),
            name,
            &format!("pod rejected: RuntimeClass \"{class}\" not found"),
        ));
    };
    if let Some(fixed) = object["overhead"].get("podFixed") {
        pod["spec"]["overhead"] = fixed.clone();
    }
    Ok(())
}
