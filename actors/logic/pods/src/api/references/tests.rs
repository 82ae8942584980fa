//! What a pod refers to.

use serde_json::{Value, json};

use super::*;

fn pod(spec: Value) -> Pod {
    let metadata = json!({"name": "a", "namespace": "apps", "uid": "a-uid"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn environment(kind: &str, name: &str) -> Value {
    let from = json!([{format!("{kind}Ref"): {"name": format!("{name}-from")}}]);
    let env = json!([
        {"name": "A", "value": "b"},
        {"name": "B", "valueFrom": {format!("{kind}KeyRef"): {"name": format!("{name}-key"), "key": "k"}}},
    ]);
    json!({"name": name, "envFrom": from, "env": env})
}

fn environments(kind: &str) -> Value {
    json!({
        "containers": [environment(kind, "app")],
        "initContainers": [environment(kind, "init")],
        "ephemeralContainers": [environment(kind, "debug")],
    })
}

const IN_ENVIRONMENTS: [&str; 6] = [
    "app-from",
    "app-key",
    "init-from",
    "init-key",
    "debug-from",
    "debug-key",
];

/// Upstream's TestPodSecrets.
#[test]
fn every_secret_that_a_pod_names_is_found() {
    let mut spec = environments("secret");
    spec["imagePullSecrets"] = json!([{"name": "pull"}, {"name": ""}]);
    let volumes = [
        json!({"azureFile": {"shareName": "s", "secretName": "azure"}}),
        json!({"cephfs": {"monitors": [], "secretRef": {"name": "cephfs"}}}),
        json!({"cinder": {"volumeID": "i", "secretRef": {"name": "cinder"}}}),
        json!({"flexVolume": {"driver": "d", "secretRef": {"name": "flex"}}}),
        json!({"projected": {"sources": [{"secret": {"name": "projected"}}]}}),
        json!({"rbd": {"monitors": [], "image": "i", "secretRef": {"name": "rbd"}}}),
        json!({"secret": {"secretName": "secret"}}),
        json!({"secret": {"secretName": "secret"}}),
        json!({"scaleIO": {"gateway": "g", "system": "s", "secretRef": {"name": "scaleio"}}}),
        json!({"iscsi": {"targetPortal": "p", "iqn": "i", "lun": 0, "secretRef": {"name": "iscsi"}}}),
        json!({"storageos": {"secretRef": {"name": "storageos"}}}),
        json!({"csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi"}}}),
        json!({"emptyDir": {}}),
    ];
    let named = volumes.into_iter().enumerate().map(|(index, mut volume)| {
        volume["name"] = json!(format!("v{index}"));
        volume
    });
    spec["volumes"] = named.collect();
    let found = references(&pod(spec));
    let mut expected = set(&IN_ENVIRONMENTS);
    expected.extend(set(&[
        "pull",
        "azure",
        "cephfs",
        "cinder",
        "flex",
        "projected",
        "rbd",
        "secret",
        "scaleio",
        "iscsi",
        "storageos",
        "csi",
    ]));
    assert_eq!(found.secrets, expected);
    assert_eq!(found.config_maps, set(&[]));
}

/// Upstream's TestPodConfigmaps.
#[test]
fn every_config_map_that_a_pod_names_is_found() {
    let mut spec = environments("configMap");
    spec["volumes"] = json!([
        {"name": "a", "configMap": {"name": "volume"}},
        {"name": "b", "projected": {"sources": [{"configMap": {"name": "projected"}}, {"downwardAPI": {}}]}},
        {"name": "c", "configMap": {"name": ""}},
    ]);
    let found = references(&pod(spec));
    let mut expected = set(&IN_ENVIRONMENTS);
    expected.extend(set(&["volume", "projected"]));
    assert_eq!(found.config_maps, expected);
    assert_eq!(found.secrets, set(&[]));
}

fn using(volumes: Value, mounts: &[&str]) -> Value {
    let mounts = mounts.iter();
    let mounts: Value = mounts
        .map(|name| json!({"name": name, "mountPath": "/x"}))
        .collect();
    json!({
        "serviceAccountName": "worker",
        "containers": [{"name": "c", "volumeMounts": mounts}],
        "volumes": volumes,
    })
}

#[test]
fn claims_drivers_and_tokens_are_those_of_volumes_in_use() {
    let volumes = json!([
        {"name": "used", "persistentVolumeClaim": {"claimName": "used"}},
        {"name": "idle", "persistentVolumeClaim": {"claimName": "idle"}},
        {"name": "own", "ephemeral": {}},
        {"name": "inline", "csi": {"driver": "csi.example.com"}},
        {"name": "other", "csi": {"driver": "other.example.com"}},
        {"name": "token", "projected": {"sources": [
            {"serviceAccountToken": {"path": "t", "audience": "vault", "expirationSeconds": 60}},
            {"clusterTrustBundle": {"path": "b", "name": "roots"}},
            {"podCertificate": {"signerName": "a.io/b", "keyType": "ED25519", "maxExpirationSeconds": 7200,
                                "userAnnotations": {"a.io/c": "d"}}},
        ]}},
        {"name": "unused", "projected": {"sources": [
            {"serviceAccountToken": {"path": "t"}},
            {"podCertificate": {"signerName": "a.io/b", "keyType": "ED25519"}},
        ]}},
    ]);
    let found = references(&pod(using(volumes, &["used", "own", "inline", "token"])));
    assert_eq!(found.claims, set(&["used", "a-own"]));
    assert_eq!(found.drivers, set(&["csi.example.com"]));
    assert_eq!(found.trust_bundles, TrustBundleUse::Any);
    let token = TokenSpec {
        namespace: "apps".into(),
        service_account: "worker".into(),
        audiences: vec!["vault".into()],
        // The least that the API gives.
        expiration_seconds: 600,
        pod_name: "a".into(),
        pod_uid: "a-uid".into(),
    };
    assert_eq!(found.tokens, [token].into());
    let certificate = PodCertificateSpec {
        namespace: "apps".into(),
        pod_name: "a".into(),
        pod_uid: "a-uid".into(),
        service_account: "worker".into(),
        signer_name: "a.io/b".into(),
        key_type: "ED25519".into(),
        max_expiration_seconds: Some(7200),
        user_annotations: vec![("a.io/c".into(), "d".into())],
        volume: "token".into(),
        source: 2,
    };
    assert_eq!(found.certificates, [certificate].into());
}

#[test]
fn a_volume_of_an_ephemeral_container_is_in_use() {
    let mut spec = using(
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": "debugged"}}]),
        &[],
    );
    assert_eq!(references(&pod(spec.clone())).claims, set(&[]));
    spec["ephemeralContainers"] =
        json!([{"name": "debug", "volumeMounts": [{"name": "v", "mountPath": "/x"}]}]);
    assert_eq!(references(&pod(spec)).claims, set(&["debugged"]));
}

#[test]
fn service_links_say_which_services_a_pod_is_told_of() {
    let linked = |links: Value| {
        let spec = json!({"containers": [], "enableServiceLinks": links});
        references(&pod(spec)).services
    };
    assert_eq!(linked(json!(null)), ServiceLinks::Namespace);
    assert_eq!(linked(json!(true)), ServiceLinks::Namespace);
    assert_eq!(linked(json!(false)), ServiceLinks::Master);
}

fn all(change: impl FnOnce(&mut Pod)) -> PodReferences {
    let mut spec = using(
        json!([{"name": "v", "secret": {"secretName": "s"}}]),
        &["v"],
    );
    spec["runtimeClassName"] = json!("sandboxed");
    let mut pod = pod(spec);
    change(&mut pod);
    references(&pod)
}

#[test]
fn a_pod_that_has_ended_needs_nothing() {
    for phase in ["Pending", "Running", "Unknown"] {
        let found = all(|pod| pod.status.get_or_insert_default().phase = Some(phase.into()));
        assert_eq!(found.runtime_class.as_deref(), Some("sandboxed"), "{phase}");
    }
    for phase in ["Succeeded", "Failed"] {
        let found = all(|pod| pod.status.get_or_insert_default().phase = Some(phase.into()));
        let nothing = PodReferences {
            namespace: "apps".into(),
            ..PodReferences::default()
        };
        assert_eq!(found, nothing, "{phase}");
    }
}

#[test]
fn a_mirror_of_a_static_pod_needs_services_alone() {
    let found = all(|pod| {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_MIRROR.into(), "hash".into());
    });
    assert_eq!(found.services, ServiceLinks::Namespace);
    assert!(found.secrets.is_empty() && found.runtime_class.is_none());
}
