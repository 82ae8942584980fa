//! The contract that every network plugin keeps, with the standard plugins built in and no program on the machine.

use std::fs;
use std::sync::Arc;

use conformance::network::{Sandbox, Target, run};
use serde_json::json;

use super::rig::{Doer, Node};

#[tokio::test]
async fn it_keeps_the_contract_of_network_plugins_without_a_program() {
    let node = Node::new();
    let bridge = node.bridge(json!({ "ipMasq": true }));
    node.network(json!([bridge, { "type": "portmap", "capabilities": { "portMappings": true } }]));
    let (_process, _) = node.start(Doer::BuiltIn).await;
    let folder = node.path("addresses/net");
    let attached = move |sandbox: &Sandbox, interface: &str| {
        let files = fs::read_dir(&folder).into_iter().flatten().flatten();
        let texts = files.map(|file| fs::read_to_string(file.path()).unwrap_or_default());
        let key = format!("{}\r\n{interface}", sandbox.id);
        texts.into_iter().any(|text| text == key)
    };
    run(Target {
        channel: sdk::testing::connect(&node.path("plugin.sock")),
        network: "net".to_owned(),
        attached: Arc::new(attached),
    })
    .await
    .assert_kept();
    node.assert_nothing_left();
}
