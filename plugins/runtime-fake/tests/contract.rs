//! The contract that every runtime keeps.

use conformance::runtime::{Events, Network, Target, run};
use serde_json::Value;

#[tokio::test]
async fn it_keeps_the_contract_of_runtimes() {
    let home = tempfile::tempdir().unwrap();
    let plugin = sdk::testing::start(
        home.path(),
        runtime_fake::info(),
        Value::Null,
        runtime_fake::build,
    )
    .await
    .unwrap();
    let (image, logs) = (
        "localhost/busybox:latest".to_owned(),
        home.path().join("logs"),
    );
    let channel = plugin.channel.clone();
    run(Target {
        channel,
        image,
        logs,
        network: Network::Pod,
        events: Events::Reported,
        cgroup_parent: String::new(),
    })
    .await
    .assert_kept();
}
