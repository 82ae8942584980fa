//! A node changes over while pods run: what one made the other one takes away, and knows.

use serde_json::json;

use super::rig::{Doer, Node, add_with, addresses, programs};

const NEEDED: [&str; 6] = [
    "bridge",
    "host-local",
    "portmap",
    "tuning",
    "bandwidth",
    "firewall",
];

async fn change_over(first: Doer, second: Doer) {
    if !programs(&NEEDED) {
        return;
    }
    let node = Node::new();
    let bridge = node.bridge(json!({ "ipMasq": true }));
    node.network(json!([
        bridge,
        { "type": "tuning", "dataDir": node.path("tuning"), "mtu": 1400 },
        { "type": "bandwidth", "egressRate": 8_000_000, "egressBurst": 800_000 },
        { "type": "firewall", "backend": "iptables" },
        { "type": "portmap", "capabilities": { "portMappings": true } },
    ]));
    let (process, mut client) = node.start(first).await;
    let ports = [(8078, 80, "TCP", ""), (8079, 81, "UDP", "")];
    let (stays, goes, homeless) = (
        node.sandbox("stays"),
        node.sandbox("goes"),
        node.sandbox("less"),
    );
    for sandbox in [&stays, &goes, &homeless] {
        client.add(add_with(sandbox, &ports)).await.unwrap();
    }
    process.kill();

    let (process, mut client) = node.start(second).await;
    // Known: told again and not made again.
    let again = client
        .add(add_with(&stays, &ports))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        addresses(&again.result.unwrap()),
        ["10.78.0.2", "fd00:78::2"]
    );
    client.delete(goes.delete()).await.unwrap();
    homeless.end();
    client.delete(homeless.delete()).await.unwrap();
    let held: Vec<_> = node.addresses().into_iter().collect();
    let held = held.iter().filter(|(name, _)| !name.starts_with("last_"));
    assert!(
        held.clone().all(|(_, text)| text == "stays\r\neth0"),
        "{held:?}"
    );
    assert_eq!(held.count(), 2);
    // A new one beside it, by the other's hands.
    let new = node.sandbox("new");
    let made = client
        .add(add_with(&new, &[(8080, 80, "TCP", "")]))
        .await
        .unwrap();
    let made = addresses(&made.into_inner().result.unwrap());
    assert_eq!(made, ["10.78.0.5", "fd00:78::5"]);
    process.kill();

    let (_process, mut client) = node.start(first).await;
    for sandbox in [&stays, &new] {
        client.delete(sandbox.delete()).await.unwrap();
        client.delete(sandbox.delete()).await.unwrap();
    }
    node.assert_nothing_left();
}

#[tokio::test]
async fn pods_of_programs_are_taken_over_and_those_made_since_are_given_back() {
    change_over(Doer::Programs, Doer::BuiltIn).await;
}

#[tokio::test]
async fn pods_of_built_in_steps_are_given_back_and_taken_over_again() {
    change_over(Doer::BuiltIn, Doer::Programs).await;
}
