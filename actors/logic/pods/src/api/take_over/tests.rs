//! Files that kubelets of 1.34 to 1.36 left, and malformed files.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodStatus, ResourceRequirements};
use logic_api::testing::{PodBuilder, at};
use logic_api::types::{
    ContainerHealth, ContainerState, ProbeResult, RuntimeContainer, RuntimePod,
};
use serde_json::{Value, json};

use super::*;
use crate::resize::AllocatedResources;

const V1_34: &[u8] = include_bytes!("testdata/allocated-1.34.json");
const V1_35: &[u8] = include_bytes!("testdata/allocated-1.35.json");
const V1_36: &[u8] = include_bytes!("testdata/allocated-1.36.json");
const WEB: &str = "6f1c1e58-0f6e-4c0b-9f0e-3a1f3c1f9a01";
const PLAIN: &str = "0c9a2f3e-7d1b-4a53-8a57-0d7b5d6f1e22";

fn resources(value: Value) -> ResourceRequirements {
    serde_json::from_value(value).unwrap()
}

fn sized(cpu: &str, memory: &str) -> ResourceRequirements {
    resources(json!({
        "limits": {"cpu": cpu, "memory": memory},
        "requests": {"cpu": cpu, "memory": memory},
    }))
}

fn web() -> AllocatedResources {
    let containers = [
        ("app", sized("500m", "128Mi")),
        ("side", sized("100m", "64Mi")),
    ];
    AllocatedResources {
        pod: None,
        containers: containers.map(|(name, own)| (name.to_owned(), own)).into(),
    }
}

fn plain() -> AllocatedResources {
    AllocatedResources {
        pod: None,
        containers: [("app".to_owned(), ResourceRequirements::default())].into(),
    }
}

#[test]
fn every_kubelets_file_is_read() {
    let pods = BTreeMap::from([(WEB.into(), web()), (PLAIN.into(), plain())]);
    assert_eq!(decode_resources(V1_34).unwrap(), pods);
    assert_eq!(decode_resources(V1_35).unwrap(), pods);
    let with_own = AllocatedResources {
        pod: Some(sized("1", "256Mi")),
        ..web()
    };
    let pods = BTreeMap::from([(WEB.into(), with_own), (PLAIN.into(), plain())]);
    assert_eq!(decode_resources(V1_36).unwrap(), pods);
}

/// Upstream's Test_stateCheckpoint_formatUpgraded: its recorded file, checksum included.
#[test]
fn upstreams_own_example_is_read() {
    let file = br#"{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}"#;
    let pods = decode_resources(file).unwrap();
    let own = resources(json!({"requests": {"cpu": "1Ki", "memory": "1Ki"}}));
    assert_eq!(pods[&"pod1".into()].containers["container1"], own);
}

/// Upstream's Test_stateCheckpoint_storeState, and TestCheckpointV2_RollForwardAfterRollback.
#[test]
fn what_is_written_is_read_again() {
    let with_own = AllocatedResources {
        pod: Some(sized("1", "256Mi")),
        ..web()
    };
    let pods = BTreeMap::from([(WEB.into(), with_own), (PLAIN.into(), plain())]);
    assert_eq!(
        decode_resources(&encode_resources(pods.clone())).unwrap(),
        pods
    );
    let none = ResourcesByPod::new();
    let file = encode_resources(none.clone());
    assert_eq!(decode_resources(&file).unwrap(), none);
    // As upstream has it where nothing is known.
    let envelope: Value = serde_json::from_slice(&file).unwrap();
    assert_eq!(envelope["data"], "{}");
}

#[test]
fn what_is_written_is_what_the_oldest_kubelet_wrote() {
    let pods = decode_resources(V1_34).unwrap();
    let ours: Value = serde_json::from_slice(&encode_resources(pods)).unwrap();
    let theirs: Value = serde_json::from_slice(V1_34).unwrap();
    let data =
        |file: &Value| -> Value { serde_json::from_str(file["data"].as_str().unwrap()).unwrap() };
    assert_eq!(data(&ours), data(&theirs));
    let keys =
        |file: &Value| -> Vec<String> { file.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&ours), keys(&theirs));
}

/// Upstream's TestCheckpointV2_LegacyEntries: a newer kubelet writes for the older ones as well.
#[test]
fn a_newer_kubelets_file_is_read_by_what_it_says_to_older_ones() {
    let old: Value = serde_json::from_slice(V1_36).unwrap();
    let mut data: Value = serde_json::from_str(old["data"].as_str().unwrap()).unwrap();
    data["podList"] = json!("CgA=");
    let sum = |data: &str| {
        let text = format!("(string){data}");
        text.bytes().fold(0x811c_9dc5_u32, |sum, byte| {
            (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    };
    let file = |version: &str| {
        let text = data.to_string();
        json!({"version": version, "data": text, "checksum": sum(&text)}).to_string()
    };
    let read = decode_resources(file("v2").as_bytes()).unwrap();
    assert_eq!(read, decode_resources(V1_36).unwrap());
    let refused = decode_resources(file("v3").as_bytes()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "it is of version \"v3\", expected one of [\"\", \"v2\"]"
    );
}

#[test]
fn a_file_that_nobody_wrote_is_refused_with_what_is_wrong() {
    let text = String::from_utf8(V1_34.to_vec()).unwrap();
    let changed = text.replace("500m", "900m");
    let rows: [(&str, &str); 7] = [
        ("", "it does not read as a checkpoint"),
        ("\u{0}\u{1}garbage", "it does not read as a checkpoint"),
        (&text[..text.len() / 2], "it does not read as a checkpoint"),
        (
            r#"{"data":{},"checksum":1}"#,
            "it does not read as a checkpoint",
        ),
        (
            r#"{"data":"{}","checksum":-1}"#,
            "it does not read as a checkpoint",
        ),
        (r#"{"data":"{}","checksum":1}"#, "its checksum is 1,"),
        (&changed, "its checksum is "),
    ];
    for (file, said) in rows {
        let flaw = decode_resources(file.as_bytes()).unwrap_err();
        assert!(flaw.to_string().starts_with(said), "{file}: {flaw}");
        assert!(!flaw.transient());
    }
    let file =
        checkpoint::encode_checkpoint(r#"{"entries":{"a":{"ContainerResources":7}}}"#.to_owned());
    let flaw = decode_resources(&file).unwrap_err();
    assert_eq!(
        flaw.to_string(),
        "its data does not read as resources of pods"
    );
    let file = checkpoint::encode_checkpoint(r#"{"entries":null}"#.to_owned());
    assert!(decode_resources(&file).unwrap().is_empty());
}

#[test]
fn only_a_name_that_a_kubelet_makes_up_is_a_static_pods() {
    let hash = "d41d8cd98f00b204e9800998ecf8427e";
    assert_eq!(resident(hash), Some(hash.into()));
    for other in [WEB, "", "x", &hash.to_uppercase(), &hash[1..], "wrapped"] {
        assert_eq!(resident(other), None, "{other}");
    }
}

fn shown(status: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "uid": WEB},
        "spec": {"containers": [{
            "name": "app",
            "startupProbe": {"exec": {"command": ["a"]}},
            "readinessProbe": {"exec": {"command": ["a"]}},
            "livenessProbe": {"exec": {"command": ["a"]}},
        }]},
        "status": status,
    }))
    .unwrap()
}

fn status_of(id: &str, ready: bool, started: bool, state: Value) -> Value {
    json!({"startTime": "2026-01-02T03:04:05Z", "containerStatuses": [{
        "name": "app", "image": "i", "imageID": "i", "restartCount": 1, "containerID": id,
        "ready": ready, "started": started, "state": state,
    }]})
}

fn instance(state: ContainerState) -> RuntimeContainer {
    RuntimeContainer {
        id: "abc".into(),
        ..logic_api::testing::instance(&logic_api::testing::pod("web"), "app", state)
    }
}

#[test]
fn a_running_container_is_as_ready_as_the_api_shows_it() {
    let running = || json!({"running": {"startedAt": "2026-01-02T03:04:06Z"}});
    let health = |startup, readiness| ContainerHealth {
        startup,
        liveness: ProbeResult::Success,
        readiness,
    };
    let (yes, no, unknown) = (
        ProbeResult::Success,
        ProbeResult::Failure,
        ProbeResult::Unknown,
    );
    let rows = [
        ("containerd://abc", true, true, Some(health(yes, yes))),
        ("cri-o://abc", false, true, Some(health(yes, no))),
        ("containerd://abc", false, false, Some(health(unknown, no))),
        ("containerd://abcd", true, true, None),
        ("", true, true, None),
    ];
    let here = instance(ContainerState::Running);
    for (id, ready, started, wanted) in rows {
        let pod = shown(status_of(id, ready, started, running()));
        assert_eq!(super::health(&pod, &here), wanted, "{id}");
        let since = ran_since(&pod, &here);
        assert_eq!(since.is_some(), wanted.is_some(), "{id}");
    }
    let pod = shown(status_of("containerd://abc", true, true, running()));
    assert_eq!(super::health(&pod, &instance(ContainerState::Exited)), None);
    let ended = shown(status_of("containerd://abc", true, true, json!({})));
    assert_eq!(super::health(&ended, &here), None);
    assert_eq!(super::health(&shown(json!({})), &here), None);
}

#[test]
fn a_pod_of_which_the_api_is_not_asked_has_been_so_since_it_began() {
    let pod = logic_api::testing::pod("web").app("app");
    let runtime = |state| RuntimePod {
        containers: vec![logic_api::testing::instance(&pod, "app", state)],
        ..logic_api::testing::runtime(&pod)
    };
    let since = |status: &PodStatus| -> Vec<_> {
        let list = status.conditions.iter().flatten();
        list.map(|one| {
            (
                one.status.clone(),
                one.last_transition_time.clone().unwrap().0,
            )
        })
        .collect()
    };
    let running = runtime(ContainerState::Running);
    let status = earlier(&pod, Some(&running), at(5));
    assert_eq!(status.start_time.as_ref().map(|time| time.0), Some(at(5)));
    assert_eq!(since(&status), vec![("True".to_owned(), at(5)); 5]);
    let ended = runtime(ContainerState::Exited);
    assert!(since(&earlier(&pod, Some(&ended), at(5))).is_empty());
    assert!(since(&earlier(&pod, None, at(5))).is_empty());
    // What the API says stands.
    let told = shown(json!({"conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}));
    let status = earlier(&told, Some(&running), at(5));
    assert_eq!(status.conditions, told.status.unwrap().conditions);
}

#[test]
fn a_pod_began_when_the_api_says_so() {
    let pod = shown(status_of("", false, false, json!({})));
    let began = start_time(&pod).map(|at| at.to_string());
    assert_eq!(began.as_deref(), Some("2026-01-02T03:04:05Z"));
    assert_eq!(start_time(&shown(json!({}))), None);
}
