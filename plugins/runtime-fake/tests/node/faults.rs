//! Scripted faults, as a caller meets them.

use std::time::Duration;

use proto::cri::*;
use runtime_fake::{FaultScript, Rpc};
use tonic::Code;

use crate::rig::{configured, rig, run, sandbox_config};

fn script(json: &str) -> FaultScript {
    serde_json::from_str(json).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_fault_after_the_effect_leaves_the_effect() {
    let mut rig = rig().await;
    rig.fake.follow(script(
        r#"{"faults": [{"call": "RunPodSandbox", "nth": 1, "code": "Unavailable", "message": "no"},
                       {"call": "RunPodSandbox", "nth": 2, "code": "Unknown", "after_effect": true}]}"#,
    ));
    let before = run(&mut rig.runtime, sandbox_config("a"))
        .await
        .unwrap_err();
    assert_eq!((before.code(), before.message()), (Code::Unavailable, "no"));
    let after = run(&mut rig.runtime, sandbox_config("a"))
        .await
        .unwrap_err();
    assert_eq!(
        (after.code(), after.message()),
        (Code::Unknown, "a scripted fault")
    );
    let made = run(&mut rig.runtime, sandbox_config("a"))
        .await
        .unwrap_err();
    assert_eq!(made.code(), Code::AlreadyExists);
    assert_eq!(rig.fake.calls(Rpc::RunPodSandbox), 3);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_call_is_never_answered_and_blocks_no_other() {
    let mut rig = rig().await;
    rig.fake.follow(script(
        r#"{"faults": [{"call": "RunPodSandbox", "subject": "default/stuck", "hang": true}]}"#,
    ));
    let mut runtime = rig.runtime.clone();
    let stuck = run(&mut runtime, sandbox_config("stuck"));
    assert!(
        tokio::time::timeout(Duration::from_secs(3600), stuck)
            .await
            .is_err()
    );
    rig.sandbox("other").await;
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_as_long_as_it_says() {
    let mut rig = configured(r#"{"delays": {"Version": "50ms"}}"#).await;
    let before = tokio::time::Instant::now();
    rig.runtime
        .version(VersionRequest::default())
        .await
        .unwrap();
    assert_eq!(before.elapsed().as_millis(), 50);
    rig.runtime
        .runtime_config(RuntimeConfigRequest {})
        .await
        .unwrap();
    assert_eq!(before.elapsed().as_millis(), 50);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_during_a_delay_makes_nothing() {
    let mut rig = configured(r#"{"delays": {"RunPodSandbox": "10s"}}"#).await;
    let mut runtime = rig.runtime.clone();
    let call = run(&mut runtime, sandbox_config("a"));
    assert!(
        tokio::time::timeout(Duration::from_secs(1), call)
            .await
            .is_err()
    );
    crate::rig::pass(60).await;
    let list = rig
        .runtime
        .list_pod_sandbox(ListPodSandboxRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert!(list.items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_file_of_faults_rules_the_node_and_a_bad_one_is_reported() {
    let mut rig = rig().await;
    let file = rig.folder.join("faults.json");
    std::fs::write(&file, r#"{"network_ready": false, "unpullable": ["x"]}"#).unwrap();
    let status = |verbose| StatusRequest { verbose };
    let answer = rig
        .runtime
        .status(status(false))
        .await
        .unwrap()
        .into_inner();
    let conditions = answer.status.unwrap().conditions;
    assert_eq!(
        conditions
            .iter()
            .map(|condition| condition.status)
            .collect::<Vec<_>>(),
        [true, false]
    );
    assert!(answer.features.unwrap().supplemental_groups_policy);
    std::fs::write(&file, r#"{"network": 1}"#).unwrap();
    let answer = rig.runtime.status(status(true)).await.unwrap().into_inner();
    assert!(
        answer.info["info"].contains("unknown field `network`"),
        "{:?}",
        answer.info
    );
    assert!(!answer.status.unwrap().conditions[1].status);
}
