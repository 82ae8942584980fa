//! Logs of system services, queried through the API server.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// A double of journalctl: it knows one service, and prints its arguments otherwise.
const JOURNALCTL: &str = "#!/bin/sh\n[ \"$1\" = --field ] && echo web.service && exit\nfor word in \"$@\"; do echo \"[$word]\"; done\n";

#[tokio::test]
async fn logs_of_services_are_queried_through_the_nodes_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("journalctl");
    fs::write(&program, JOURNALCTL).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", folder.path().display());
    let node = Node::builder().environment("PATH", &path);
    // A real server's proxy refuses nodes on loopback.
    let cluster = start(node.config(&json!({ "enableSystemLogQuery": true }))).await;
    let raw = async |query: &str| {
        let path = format!("/api/v1/nodes/node/proxy/logs/?{query}");
        cluster.kubectl(&["get", "--raw", &path]).await.unwrap()
    };
    let said = raw("query=web&tailLines=5&pattern=a%20b").await;
    let told = "[--utc]\n[--no-pager]\n[--output=short-precise]\n[--pager-end]\n[--lines=5]\n[--unit=web]\n[--grep=a b]\n";
    assert!(said.ok && said.out == told, "{said:?}");
    let said = raw("query=nobody-at-all").await;
    let none = "\nlog not found for nobody-at-all\n";
    assert!(said.ok && said.out == none, "{said:?}");
    for query in ["query=", "query=a%3Btouch+x", "query=/../../etc/shadow"] {
        let said = raw(query).await;
        assert!(!said.ok && !said.out.contains("root:"), "{query}: {said:?}");
    }
}
