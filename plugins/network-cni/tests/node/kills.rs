//! The plugin's process killed in the middle of a call.

use std::fs;

use super::rig::{Node, collect, names, until};

/// Kills the plugin while an ADD hangs that has its address already.
async fn killed_in_add(node: &Node, sandbox: &conformance::network::node::TestSandbox) {
    node.tell("hang.ADD", "");
    let (process, mut client) = node.process(&["env"]).await;
    let mut request = sandbox.add();
    request.within_ms = 600_000;
    let call = tokio::spawn(async move { client.add(request).await });
    until("it hangs", || node.made().len() == 2).await;
    process.kill();
    assert!(call.await.unwrap().is_err());
    node.untell("hang.ADD");
}

/// Whether a process with exactly this command line exists.
fn is_running(words: &str) -> bool {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let words = words.replace(' ', "\0");
    lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .any(|line| line.trim_end_matches('\0') == words)
}

#[tokio::test]
async fn an_add_that_was_cut_off_is_undone_when_its_sandbox_is_gone() {
    let node = Node::with_network("1.0.0");
    let sandbox = node.sandbox("a");
    killed_in_add(&node, &sandbox).await;
    sandbox.end();
    let (_process, _client) = node.process(&["env"]).await;
    until("its address is free", || node.made().is_empty()).await;
    until("its record is gone", || {
        names(&node.path("own/unfinished")).is_empty()
    })
    .await;
}

#[tokio::test]
async fn an_add_that_was_cut_off_waits_for_its_runtime_while_its_sandbox_is_there() {
    let node = Node::with_network("1.0.0");
    let sandbox = node.sandbox("a");
    killed_in_add(&node, &sandbox).await;
    let (_process, mut client) = node.process(&["env"]).await;
    client.check(sandbox.check()).await.unwrap_err();
    // The runtime goes on with it: what is half made goes, and one is made.
    client.add(sandbox.add()).await.unwrap();
    assert_eq!(node.log(), ["ADD first a", "DEL first a", "ADD first a"]);
    assert_eq!(node.made().len(), 2);
}

#[tokio::test]
async fn an_add_that_was_cut_off_is_collected_when_it_is_not_valid() {
    let node = Node::with_network("1.0.0");
    let sandbox = node.sandbox("a");
    killed_in_add(&node, &sandbox).await;
    let (_process, mut client) = node.process(&["env"]).await;
    let answer = collect(&mut client, &[], 0).await;
    assert_eq!(answer.removed.len(), 1);
    assert!(node.made().is_empty());
}

#[tokio::test]
async fn no_cni_plugin_of_a_killed_process_runs_beside_its_successor() {
    let node = Node::with_network("1.0.0");
    let sandbox = node.sandbox("a");
    // It would go on and add an address when its successor has taken everything away.
    let words = format!("sleep 600.{}", std::process::id());
    let script = format!("#!/bin/sh\ncat >/dev/null\nexec {words}\n");
    fs::write(node.path("bin/first"), script).unwrap();
    let (process, mut client) = node.process(&["env"]).await;
    let call = tokio::spawn({
        let request = sandbox.add();
        async move { client.add(request).await }
    });
    until("it runs", || is_running(&words)).await;
    process.kill();
    assert!(call.await.unwrap().is_err());
    assert!(is_running(&words), "it outlives the process that ran it");
    let (_process, _client) = node.process(&["env"]).await;
    assert!(!is_running(&words));
}
