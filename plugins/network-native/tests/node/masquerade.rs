//! Masquerading rules are found by cached handles, also after other programs have changed the table.

use serde_json::json;

use super::rig::{Doer, Node, programs};
use super::view;

/// Container ids in the comments of the masquerading rules, one per rule.
fn masqueraded(node: &Node) -> Vec<String> {
    let rules = view::nft(&node.name);
    let names = rules
        .lines()
        .filter(|line| line.contains(" masquerade comment "))
        .filter_map(|line| line.split(" id: ").nth(1));
    names
        .map(|name| name.trim_end_matches('"').to_owned())
        .collect()
}

#[tokio::test]
async fn a_recreated_or_flushed_table_never_loses_another_pods_rules() {
    if !programs(&[]) {
        return;
    }
    let node = Node::new();
    node.network(json!([node.bridge(json!({ "ipMasq": true }))]));
    let (_process, mut client) = node.start(Doer::BuiltIn).await;
    let pods = ["first", "second", "third", "fourth"].map(|name| node.sandbox(name));
    let [first, second, third, fourth] = &pods;
    for sandbox in [first, second] {
        client.add(sandbox.add()).await.unwrap();
    }
    assert_eq!(
        masqueraded(&node),
        ["first", "first", "second", "second"],
        "one for each version"
    );

    // A new table numbers its rules from 1 again: the first pod's handles are the third's now.
    node.output(&["nft", "delete table inet cni_plugins_masquerade"]);
    for sandbox in [third, fourth] {
        client.add(sandbox.add()).await.unwrap();
    }
    client.delete(first.delete()).await.unwrap();
    assert_eq!(masqueraded(&node), ["third", "third", "fourth", "fourth"]);

    // All cached handles are stale.
    client.add(second.add()).await.unwrap();
    node.output(&["nft", "flush chain inet cni_plugins_masquerade masq_checks"]);
    for sandbox in [second, third, fourth] {
        client.delete(sandbox.delete()).await.unwrap();
    }
    node.assert_nothing_left();
}
