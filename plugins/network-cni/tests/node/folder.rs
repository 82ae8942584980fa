//! The folder of networks: its order, its changes, its mistakes.

use std::fs;

use serde_json::json;

use super::rig::{Node, status, until_status};

#[tokio::test]
async fn a_node_without_a_network_says_so_in_the_words_that_operators_know() {
    let node = Node::new();
    let (_plugin, mut client) = node.plugin().await;
    let first = status(&mut client, "").await.remove(0);
    assert_eq!(
        (first.ready, first.reason.as_str()),
        (false, "NetworkPluginNotReady")
    );
    let words = format!(
        "Network plugin returns error: cni plugin not initialized: cni config load failed: no network config found in {}",
        node.path("conf").display()
    );
    assert_eq!(first.message, words);
    let sandbox = node.sandbox("a");
    let refusal = client.add(sandbox.add()).await.unwrap_err();
    assert_eq!(refusal.code(), tonic::Code::Unavailable);
    // A pod that never had a network ends all the same.
    client.delete(sandbox.delete()).await.unwrap();
}

#[tokio::test]
async fn the_first_file_is_the_default_network_and_others_are_had_by_name() {
    let node = Node::new();
    node.conflist("20-b.conflist", "b", "1.0.0", &["second"]);
    node.conf(
        "10-a.conf",
        &json!({ "cniVersion": "1.0.0", "name": "a", "type": "first" }),
    );
    node.conf(
        "30-c.json",
        &json!({ "cniVersion": "1.0.0", "name": "c", "type": "first" }),
    );
    fs::write(node.path("conf/00-readme.txt"), "not a network").unwrap();
    let (_plugin, mut client) = node.plugin().await;
    let names: Vec<_> = status(&mut client, "")
        .await
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    let sandbox = node.sandbox("s");
    let answer = client.add(sandbox.add()).await.unwrap().into_inner();
    assert_eq!(answer.network, "a");
    let mut request = sandbox.add();
    request.attachment.as_mut().unwrap().network = "b".to_owned();
    request.attachment.as_mut().unwrap().interface_name = "net1".to_owned();
    client.add(request).await.unwrap();
    assert_eq!(node.log(), ["ADD first s", "ADD second s"]);
}

#[tokio::test]
async fn a_change_is_taken_up_and_a_mistake_leaves_the_network_as_it_was() {
    let node = Node::with_network("1.0.0");
    let (_plugin, mut client) = node.plugin().await;
    until_status(&mut client, true, "").await;
    fs::write(node.path("conf/10-net.conflist"), "{ half").unwrap();
    until_status(&mut client, false, "10-net.conflist: not a JSON object").await;
    let sandbox = node.sandbox("a");
    client.add(sandbox.add()).await.unwrap();
    assert_eq!(node.log(), ["ADD first a"]);
    node.conflist("10-net.conflist", "net", "1.0.0", &["second"]);
    until_status(&mut client, true, "").await;
    let other = node.sandbox("b");
    client.add(other.add()).await.unwrap();
    assert_eq!(node.log(), ["ADD first a", "ADD second b"]);
}

#[tokio::test]
async fn a_first_file_that_was_never_good_moves_no_pod_to_the_next_network() {
    let node = Node::with_network("1.0.0");
    fs::write(node.path("conf/00-bad.conflist"), "{").unwrap();
    let (_plugin, mut client) = node.plugin().await;
    let first = status(&mut client, "").await.remove(0);
    assert!(
        first.message.contains("00-bad.conflist"),
        "{}",
        first.message
    );
    let sandbox = node.sandbox("a");
    let refusal = client.add(sandbox.add()).await.unwrap_err();
    assert!(
        refusal.message().contains("00-bad.conflist"),
        "{}",
        refusal.message()
    );
    fs::remove_file(node.path("conf/00-bad.conflist")).unwrap();
    until_status(&mut client, true, "").await;
    client.add(sandbox.add()).await.unwrap();
}

#[tokio::test]
async fn a_chain_that_would_call_this_plugin_again_is_refused_by_name() {
    let node = Node::new();
    node.conflist("10-net.conflist", "net", "1.0.0", &["first", "oxlet-cni"]);
    let (_plugin, mut client) = node.plugin().await;
    let first = status(&mut client, "").await.remove(0);
    let words = "10-net.conflist: field plugins[1].type: oxlet-cni calls a network plugin";
    assert!(first.message.contains(words), "{}", first.message);
}

#[tokio::test]
async fn plugins_in_the_networks_own_folder_follow_those_of_the_list() {
    let node = Node::new();
    let list = |only: bool| json!({ "cniVersion": "1.1.0", "name": "net", "loadOnlyInlinedPlugins": only, "plugins": [{ "type": "first" }] });
    node.conf("10-net.conflist", &list(false));
    fs::create_dir(node.path("conf/net")).unwrap();
    fs::write(node.path("conf/net/10.conf"), r#"{"type": "second"}"#).unwrap();
    let (_plugin, mut client) = node.plugin().await;
    let adds = || -> Vec<_> {
        let log = node.log().into_iter();
        log.filter(|call| call.starts_with("ADD")).collect()
    };
    let a = node.sandbox("a");
    client.add(a.add()).await.unwrap();
    assert_eq!(adds(), ["ADD first a", "ADD second a"]);
    // A change in it is seen.
    fs::write(node.path("conf/net/10.conf"), r#"{"typ": "second"}"#).unwrap();
    until_status(&mut client, false, "net/10.conf: field type: missing").await;
    node.conf("10-net.conflist", &list(true));
    until_status(&mut client, true, "").await;
    let b = node.sandbox("b");
    client.add(b.add()).await.unwrap();
    assert_eq!(adds()[2..], ["ADD first b"]);
}

#[tokio::test]
async fn a_network_whose_program_is_missing_is_not_ready() {
    let node = Node::new();
    node.conflist("10-net.conflist", "net", "1.0.0", &["first", "third"]);
    let (_plugin, mut client) = node.plugin().await;
    let words = format!(
        "failed to find plugin \"third\" in path [{}]",
        node.path("bin").display()
    );
    until_status(&mut client, false, &words).await;
    node.script("third");
    until_status(&mut client, true, "").await;
}

#[tokio::test]
async fn a_folder_that_appears_later_is_found() {
    let node = Node::with_network("1.0.0");
    fs::rename(node.path("conf"), node.path("later")).unwrap();
    let (_plugin, mut client) = node.plugin().await;
    until_status(&mut client, false, "no network config found").await;
    fs::rename(node.path("later"), node.path("conf")).unwrap();
    until_status(&mut client, true, "").await;
}

#[tokio::test]
async fn what_is_no_file_blocks_nobody() {
    let node = Node::with_network("1.0.0");
    let pipe = node.path("conf/20-pipe.conf");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let (_plugin, mut client) = node.plugin().await;
    let networks = status(&mut client, "").await;
    assert!(networks[0].ready);
    assert!(
        networks[1]
            .message
            .contains("20-pipe.conf: cannot be read: not a file"),
        "{}",
        networks[1].message
    );
}
