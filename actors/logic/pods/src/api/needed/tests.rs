//! What a pod needs once it is known what it refers to.

use logic_api::objects::parse;
use logic_volumes::resolve::attachment_name;
use serde_json::{Value, json};

use super::*;
use crate::api::references::references;

const NODE: &str = "worker-1";

fn objects(all: &[Value]) -> StaticObjects {
    let text: Vec<String> = all.iter().map(Value::to_string).collect();
    let parsed = parse(text.join("\n---\n").as_bytes());
    assert_eq!(parsed.problems, []);
    parsed.objects
}

fn pod(volume: Value) -> Pod {
    let mut volume = volume;
    volume["name"] = json!("v");
    serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "apps", "uid": "a-uid"},
        "spec": {
            "serviceAccountName": "worker",
            "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [volume],
        },
    }))
    .unwrap()
}

fn wanted(pod: &Pod, all: &[Value]) -> BTreeSet<String> {
    let wanted = needed(pod, &references(pod), &objects(all), NODE);
    wanted.iter().map(ToString::to_string).collect()
}

fn texts(all: &[&str]) -> BTreeSet<String> {
    // Every pod is told of services.
    let services = ["Service default/kubernetes", "Services of apps"];
    let all = all.iter().chain(&services);
    all.map(|text| (*text).to_owned()).collect()
}

fn claiming() -> Pod {
    pod(json!({"persistentVolumeClaim": {"claimName": "data"}}))
}

fn claim(volume: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "apps"},
           "spec": {"volumeName": volume}})
}

fn volume(mode: &str) -> Value {
    let secret = |name: &str| json!({"name": name, "namespace": "storage"});
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
           "spec": {"volumeMode": mode, "csi": {"driver": "csi.example.com", "volumeHandle": "h",
                    "nodeStageSecretRef": secret("stage"), "nodePublishSecretRef": secret("publish")}}})
}

fn driver(attach: bool) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example.com"},
           "spec": {"attachRequired": attach, "tokenRequests": [{"audience": "vault"}]}})
}

const CLAIM: &str = "PersistentVolumeClaim apps/data";

#[test]
fn a_claim_leads_to_its_volume_and_that_to_what_its_driver_needs() {
    let attachment = format!(
        "VolumeAttachment {}",
        attachment_name("h", "csi.example.com", NODE)
    );
    let token = "TokenRequest apps/worker for pod a";
    let pv = "PersistentVolume pv";
    let secrets = ["Secret storage/stage", "Secret storage/publish"];
    let whole = [CLAIM, pv, "CSIDrivers", secrets[0], secrets[1]];
    let steps: [(&[Value], Vec<&str>); 6] = [
        (&[], vec![CLAIM]),
        (&[claim("")], vec![CLAIM]),
        (&[claim("pv")], vec![CLAIM, pv]),
        (
            &[claim("pv"), volume("Filesystem")],
            [&whole[..], &[&attachment]].concat(),
        ),
        (
            &[claim("pv"), volume("Filesystem"), driver(false)],
            [&whole[..], &[token]].concat(),
        ),
        (
            &[claim("pv"), volume("Block"), driver(true)],
            [&whole[..], &[&attachment]].concat(),
        ),
    ];
    for (there, expected) in steps {
        assert_eq!(wanted(&claiming(), there), texts(&expected), "{there:?}");
    }
}

#[test]
fn a_volume_of_no_driver_needs_nothing_more() {
    let local = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
                       "spec": {"local": {"path": "/disk"}}});
    let expected = texts(&[CLAIM, "PersistentVolume pv"]);
    assert_eq!(wanted(&claiming(), &[claim("pv"), local]), expected);
}

#[test]
fn an_inline_volume_needs_its_driver_and_that_tokens() {
    let pod = pod(json!({"csi": {"driver": "csi.example.com"}}));
    assert_eq!(wanted(&pod, &[]), texts(&["CSIDrivers"]));
    let expected = texts(&["CSIDrivers", "TokenRequest apps/worker for pod a"]);
    assert_eq!(wanted(&pod, &[driver(true)]), expected);
}

#[test]
fn an_old_disk_of_a_cloud_waits_for_its_attachment() {
    let pod = pod(json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}));
    let attachment = attachment_name("vol-1", "ebs.csi.aws.com", NODE);
    let expected = texts(&["CSIDrivers", &format!("VolumeAttachment {attachment}")]);
    assert_eq!(wanted(&pod, &[]), expected);
}

#[test]
fn a_pod_that_has_ended_needs_nothing() {
    let mut pod = pod(json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}));
    pod.status.get_or_insert_default().phase = Some("Succeeded".into());
    assert_eq!(wanted(&pod, &[]), BTreeSet::new());
}
