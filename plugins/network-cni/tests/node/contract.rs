//! The contract that every network plugin keeps, with scripts and with the standard CNI plugins.

use std::sync::Arc;

use conformance::network::{Sandbox, Target, run};

use super::rig::Node;
use super::standard::Standard;

#[tokio::test]
async fn it_keeps_the_contract_of_network_plugins() {
    let node = Node::with_network("1.1.0");
    let (plugin, _) = node.plugin().await;
    let state = node.path("state");
    let attached = move |sandbox: &Sandbox, interface: &str| {
        state
            .join(format!("made.first.{}.{interface}", sandbox.id))
            .exists()
    };
    run(Target {
        channel: plugin.channel.clone(),
        network: "net".to_owned(),
        attached: Arc::new(attached),
    })
    .await
    .assert_kept();
    assert!(node.made().is_empty(), "{:?}", node.made());
}

#[tokio::test]
async fn it_keeps_the_contract_with_the_standard_cni_plugins() {
    // The bridge plugin cannot masquerade two interfaces of one sandbox: it has one chain for both.
    let Some(standard) = Standard::new(false) else {
        return;
    };
    let (_process, _) = standard.node.process(&standard.before()).await;
    let addresses = standard.addresses();
    let attached = move |sandbox: &Sandbox, interface: &str| {
        Standard::has_address(&addresses, &sandbox.id, interface)
    };
    run(Target {
        channel: sdk::testing::connect(&standard.node.path("plugin.sock")),
        network: "net".to_owned(),
        attached: Arc::new(attached),
    })
    .await
    .assert_kept();
    standard.assert_nothing_left();
}
