//! Garbage collection over the chain.

use serde_json::json;

use super::rig::{Node, collect, until};

#[tokio::test]
async fn one_delete_that_hangs_leaves_the_others_theirs() {
    let node = Node::with_network("1.0.0");
    let (_plugin, mut client) = node.plugin().await;
    let dead: Vec<_> = ["a", "b", "c"].map(|id| node.sandbox(id)).into();
    for sandbox in &dead {
        client.add(sandbox.add()).await.unwrap();
    }
    node.tell("hang.DEL.first.a", "");
    let answer = collect(&mut client, &[], 2000).await;
    let mut removed: Vec<_> = answer
        .removed
        .into_iter()
        .map(|one| one.sandbox_id)
        .collect();
    removed.sort();
    assert_eq!(removed, ["b", "c"]);
    let failed: Vec<_> = answer
        .failed
        .into_iter()
        .map(|one| one.attachment.unwrap().sandbox_id)
        .collect();
    assert_eq!(failed, ["a"]);
    // The next one tries it again.
    node.untell("hang.DEL.first.a");
    let answer = collect(&mut client, &[], 0).await;
    assert_eq!((answer.removed.len(), answer.failed.len()), (1, 0));
    assert!(node.made().is_empty(), "{:?}", node.made());
}

#[tokio::test]
async fn plugins_are_told_every_live_attachment_whoever_owns_it() {
    let node = Node::with_network("1.1.0");
    let (_plugin, mut client) = node.plugin().await;
    let (valid, stale, foreign) = (node.sandbox("a"), node.sandbox("b"), node.sandbox("c"));
    client.add(valid.add()).await.unwrap();
    client.add(stale.add()).await.unwrap();
    let mut request = foreign.add();
    request.owner = "another".to_owned();
    client.add(request).await.unwrap();
    // What no record tells of: the plugins' own GC takes it away.
    std::fs::create_dir(node.path("state/made.first.lost.eth0")).unwrap();
    let answer = collect(&mut client, &[&valid], 0).await;
    assert_eq!(answer.failed, []);
    let told = |id: &str| json!({ "containerID": id, "ifname": "eth0" });
    let conf = node.stdin("GC.first.");
    assert_eq!(
        conf["cni.dev/valid-attachments"],
        json!([told("a"), told("c")])
    );
    assert_eq!(
        conf["cni.dev/attachments"],
        conf["cni.dev/valid-attachments"]
    );
    let made = node
        .made()
        .into_iter()
        .filter(|name| name.starts_with("made."));
    assert_eq!(
        made.collect::<Vec<_>>(),
        ["made.first.a.eth0", "made.first.c.eth0"]
    );
}

#[tokio::test]
async fn an_add_under_way_is_told_and_one_that_comes_waits() {
    let node = Node::with_network("1.1.0");
    let (_plugin, client) = node.plugin().await;
    let (under_way, late) = (node.sandbox("a"), node.sandbox("b"));
    node.tell("hang.ADD.first.a", "");
    let mut request = under_way.add();
    request.within_ms = 60_000;
    let adding = tokio::spawn({
        let mut client = client.clone();
        async move { client.add(request).await }
    });
    until("it is under way", || {
        node.made().contains("made.first.a.eth0")
    })
    .await;
    node.tell("hang.GC", "");
    let collecting = tokio::spawn({
        let mut client = client.clone();
        async move { collect(&mut client, &[], 5000).await }
    });
    until("the plugins collect", || {
        node.log().contains(&"GC first ".to_owned())
    })
    .await;
    let mut other = client.clone();
    let mut hurried = late.add();
    hurried.within_ms = 300;
    let refusal = other.add(hurried).await.unwrap_err();
    assert_eq!(
        refusal.message(),
        "network \"net\": its GC did not end in time"
    );
    assert!(!node.log().contains(&"ADD first b".to_owned()));
    let failed = collecting.await.unwrap().failed;
    assert!(
        failed[0].message.contains("failed at GC: it was killed"),
        "{}",
        failed[0].message
    );
    other.add(late.add()).await.unwrap();
    // The one under way was among the valid ones.
    assert_eq!(
        node.stdin("GC.first.")["cni.dev/valid-attachments"][0]["containerID"],
        "a"
    );
    assert!(node.made().contains("made.first.a.eth0"));
    adding.abort();
}

#[tokio::test]
async fn a_network_that_disables_gc_has_its_plugins_left_alone() {
    let node = Node::new();
    node.conf(
        "10-net.conflist",
        &json!({ "cniVersion": "1.1.0", "name": "net", "disableGC": true, "plugins": [{ "type": "first" }] }),
    );
    let (_plugin, mut client) = node.plugin().await;
    let sandbox = node.sandbox("a");
    client.add(sandbox.add()).await.unwrap();
    collect(&mut client, &[&sandbox], 0).await;
    assert!(
        node.log().iter().all(|call| !call.starts_with("GC")),
        "{:?}",
        node.log()
    );
}
