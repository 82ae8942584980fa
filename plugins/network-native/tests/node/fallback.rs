//! What is not built in is its program's.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::rig::{Doer, Node};

/// Says what it was called for, and passes the result on.
const SCRIPT: &str = r#"#!/bin/sh
echo "$CNI_COMMAND" >> "$(dirname "$0")/log"
input=$(cat)
case "$CNI_COMMAND" in
ADD)
    case "$input" in
    *prevResult*) printf '%s' "$input" | sed 's/.*"prevResult":\({.*}\),"type".*/\1/' ;;
    *) printf '{"cniVersion":"1.0.0","ips":[{"address":"10.9.9.9/24"}]}' ;;
    esac ;;
esac
"#;

fn node_with_script(name: &str) -> Node {
    let mut node = Node::new();
    let folder = node.path("bin");
    fs::create_dir(&folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, SCRIPT).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    node.bin_dirs = vec![folder];
    node
}

fn log(node: &Node) -> String {
    fs::read_to_string(node.path("bin/log")).unwrap_or_default()
}

#[tokio::test]
async fn a_field_that_is_not_known_a_type_and_an_ipam_are_the_program_s() {
    for (name, more) in [
        ("bridge", json!({ "fieldOfTheFuture": 1 })),
        ("bridge", json!({ "ipam": { "type": "dhcp" } })),
        ("bridge", json!({ "vlan": 7 })),
        (
            "bridge",
            json!({ "ipMasq": true, "ipMasqBackend": "iptables" }),
        ),
        (
            "bridge",
            json!({ "ipam": { "type": "host-local", "subnet": "10.78.0.0/24", "future": true } }),
        ),
    ] {
        let node = node_with_script(name);
        node.network(json!([node.bridge(more.clone())]));
        let (_process, mut client) = node.start(Doer::BuiltIn).await;
        let sandbox = node.sandbox("a");
        client
            .add(sandbox.add())
            .await
            .unwrap_or_else(|error| panic!("{more}: {error}"));
        client.delete(sandbox.delete()).await.unwrap();
        assert_eq!(log(&node), "ADD\nDEL\n", "{more}");
        assert!(node.addresses().is_empty());
    }
}

#[tokio::test]
async fn one_step_of_a_chain_is_the_program_s_and_the_others_are_built_in() {
    let node = node_with_script("vendor");
    node.network(json!([node.bridge(json!({})), { "type": "vendor" }, { "type": "portmap" }]));
    let (_process, mut client) = node.start(Doer::BuiltIn).await;
    let sandbox = node.sandbox("a");
    let answer = client.add(sandbox.add()).await.unwrap().into_inner();
    assert_eq!(answer.result.unwrap().ips[0].address, "10.78.0.2/24");
    client.delete(sandbox.delete()).await.unwrap();
    assert_eq!(log(&node), "ADD\nDEL\n");
    node.assert_nothing_left();
}

#[tokio::test]
async fn a_program_that_is_missing_is_told_with_the_reason_why_it_is_needed() {
    let node = Node::with(json!([{ "type": "bridge", "fieldOfTheFuture": 1 }]));
    let (_process, mut client) = node.start(Doer::BuiltIn).await;
    let status = client
        .status(proto::network::StatusRequest::default())
        .await;
    let first = status.unwrap().into_inner().networks.remove(0);
    assert!(!first.ready);
    for words in [
        "failed to find plugin \"bridge\"",
        "not built in",
        "fieldOfTheFuture",
    ] {
        assert!(first.message.contains(words), "{}", first.message);
    }
    let refused = client.add(node.sandbox("a").add()).await.unwrap_err();
    assert!(refused.message().contains("fieldOfTheFuture"), "{refused}");
}
