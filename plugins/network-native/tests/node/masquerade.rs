//! The rules of each pod are found by their handles, whatever others do to the table.

use serde_json::json;

use super::rig::{Doer, Node, programs};
use super::view;

/// Whose addresses are masqueraded, a line a rule.
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
async fn a_table_that_others_empty_or_make_anew_costs_no_pod_the_rules_that_it_has() {
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

    // The handles of a new table begin with one again.
    node.output(&["nft", "delete table inet cni_plugins_masquerade"]);
    for sandbox in [third, fourth] {
        client.add(sandbox.add()).await.unwrap();
    }
    client.delete(first.delete()).await.unwrap();
    assert_eq!(masqueraded(&node), ["third", "third", "fourth", "fourth"]);

    // Known to be there, and not.
    client.add(second.add()).await.unwrap();
    node.output(&["nft", "flush chain inet cni_plugins_masquerade masq_checks"]);
    for sandbox in [second, third, fourth] {
        client.delete(sandbox.delete()).await.unwrap();
    }
    node.assert_nothing_left();
}
