//! The contract that every runtime keeps, with real containers.

use conformance::runtime::{Events, Network, Target, run};

use crate::rig::{IMAGE, Rig};

#[tokio::test]
async fn it_keeps_the_contract_of_runtimes() {
    keeps_the_contract(Rig::start().await).await;
}

#[tokio::test]
async fn it_keeps_the_contract_with_its_own_oci_runtime() {
    keeps_the_contract(Rig::start_own(serde_json::json!({})).await).await;
}

async fn keeps_the_contract(rig: Rig) {
    let report = run(Target {
        channel: rig.channel(),
        image: IMAGE.to_owned(),
        logs: rig.logs(),
        network: Network::Node,
        events: Events::Reported,
        cgroup_parent: rig.cgroup.clone(),
    })
    .await;
    let log = std::fs::read_to_string(rig.home.path().join("log")).unwrap();
    let broken: Vec<_> = report
        .broken()
        .map(|law| (law.words, format!("{:?}", law.outcome)))
        .collect();
    // No pod network is configured: the one law that cannot be kept without it.
    let allowed = "Status reports a ready runtime and a ready network";
    assert!(
        broken
            .iter()
            .all(|(words, why)| *words == allowed && why.contains("NetworkPluginNotReady")),
        "{report}\n{log}"
    );
    rig.assert_nothing_left().await;
}
