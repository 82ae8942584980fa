//! CNI plugins that fail, hang and talk nonsense; disks that are full and records that are broken.

use std::fs;
use std::process::Command;
use std::time::Duration;

use proto::network::StatusRequest;
use tonic::Code;

use super::rig::{Node, names, until, until_status};

#[tokio::test]
async fn what_an_add_made_before_it_failed_is_taken_away() {
    let node = Node::new();
    node.conflist("10-net.conflist", "net", "1.0.0", &["first", "second"]);
    node.tell(
        "fail.ADD.second",
        r#"{"code": 11, "msg": "not now", "details": "the pool is locked"}"#,
    );
    let (_plugin, mut client) = node.plugin().await;
    let sandbox = node.sandbox("a");
    let refusal = client.add(sandbox.add()).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Aborted);
    assert_eq!(
        refusal.message(),
        "network \"net\": plugin \"second\" failed at ADD: not now: the pool is locked"
    );
    let said = refusal.metadata().get_bin("oxlet-cni-error-bin").unwrap();
    let said: serde_json::Value = serde_json::from_slice(&said.to_bytes().unwrap()).unwrap();
    assert_eq!(
        (said["code"].as_u64(), said["msg"].as_str()),
        (Some(11), Some("not now"))
    );
    // Nobody called Delete.
    until("nothing is left", || node.made().is_empty()).await;
    until("no record is left", || {
        names(&node.path("unfinished")).is_empty()
    })
    .await;
    node.untell("fail.ADD.second");
    client.add(sandbox.add()).await.unwrap();
}

#[tokio::test]
async fn an_add_that_is_half_done_and_cannot_be_undone_is_taken_up_by_delete_and_by_add() {
    for repeat_adds in [false, true] {
        let node = Node::new();
        node.conflist("10-net.conflist", "net", "1.0.0", &["first", "second"]);
        node.tell("fail.ADD.second", "");
        node.tell("fail.DEL.first", "");
        let (_plugin, mut client) = node.plugin().await;
        let sandbox = node.sandbox("a");
        client.add(sandbox.add()).await.unwrap_err();
        let refusal = client.delete(sandbox.delete()).await.unwrap_err();
        assert!(
            refusal.message().contains("plugin \"first\" failed at DEL"),
            "{}",
            refusal.message()
        );
        assert_eq!(node.made().len(), 2, "{:?}", node.made());
        node.untell("fail.ADD.second");
        node.untell("fail.DEL.first");
        if repeat_adds {
            client.add(sandbox.add()).await.unwrap();
        }
        client.delete(sandbox.delete()).await.unwrap();
        assert!(node.made().is_empty(), "{:?}", node.made());
        assert!(names(&node.path("unfinished")).is_empty());
    }
}

#[tokio::test]
async fn an_attachment_whose_delete_is_half_done_is_none() {
    let node = Node::new();
    node.conflist("10-net.conflist", "net", "1.0.0", &["first", "second"]);
    node.tell("fail.DEL.first", "");
    let sandbox = node.sandbox("a");
    {
        let (process, mut client) = node.process(&["env"]).await;
        client.add(sandbox.add()).await.unwrap();
        client.delete(sandbox.delete()).await.unwrap_err();
        let refusal = client.check(sandbox.check()).await.unwrap_err();
        assert!(
            refusal.message().ends_with("is not there"),
            "{}",
            refusal.message()
        );
        // Nor is it told again as one.
        client.add(sandbox.add()).await.unwrap_err();
        assert!(names(&node.path("own/results")).is_empty());
        assert_eq!(names(&node.path("own/unfinished")).len(), 1);
        process.kill();
    }
    // So it is for a successor, which takes up the rest: the result is still handed to DEL.
    let (_process, mut client) = node.process(&["env"]).await;
    let refusal = client.check(sandbox.check()).await.unwrap_err();
    assert!(
        refusal.message().ends_with("is not there"),
        "{}",
        refusal.message()
    );
    node.untell("fail.DEL.first");
    client.delete(sandbox.delete()).await.unwrap();
    assert!(node.made().is_empty());
    assert!(node.stdin("DEL.first.a").get("prevResult").is_some());
}

#[tokio::test]
async fn output_that_is_no_result_is_an_error_and_undone() {
    let endless = "x".repeat(3 << 20);
    for (said, words) in [
        ("hello", "its output is not a result"),
        ("", "its output is not a result"),
        (
            "{\"cniVersion\": \"7.0.0\"}",
            "its output is cniVersion \"7.0.0\"",
        ),
        (
            endless.as_str(),
            "it was killed, as its output is larger than 1048576 bytes",
        ),
    ] {
        let node = Node::with_network("1.0.0");
        node.tell("say.ADD", said);
        let (_plugin, mut client) = node.plugin().await;
        let sandbox = node.sandbox("a");
        let refusal = client.add(sandbox.add()).await.unwrap_err();
        assert!(refusal.message().contains(words), "{}", refusal.message());
        assert!(refusal.message().contains("plugin \"first\" failed at ADD"));
        until("nothing is left", || node.made().is_empty()).await;
    }
}

#[tokio::test]
async fn a_plugin_that_hangs_is_ended_at_the_deadline_and_undone() {
    let node = Node::with_network("1.0.0");
    node.tell("hang.ADD", "");
    let (_plugin, mut client) = node.plugin().await;
    let sandbox = node.sandbox("a");
    let mut request = sandbox.add();
    request.within_ms = 1500;
    let refusal = client.add(request).await.unwrap_err();
    assert_eq!(refusal.code(), Code::DeadlineExceeded);
    assert_eq!(
        refusal.message(),
        "network \"net\": plugin \"first\" failed at ADD: it was killed, as it did not end in time"
    );
    until("nothing is left", || node.made().is_empty()).await;
    assert_eq!(node.log(), ["ADD first a", "DEL first a"]);
}

#[tokio::test]
async fn one_sandbox_that_hangs_holds_no_other_up() {
    let node = Node::with_network("1.0.0");
    node.tell("hang.ADD.first.a", "");
    let (_plugin, client) = node.plugin().await;
    let (hung, free) = (node.sandbox("a"), node.sandbox("b"));
    let hanging = tokio::spawn({
        let (mut client, mut request) = (client.clone(), hung.add());
        request.within_ms = 600_000;
        async move { client.add(request).await }
    });
    until("it hangs", || node.made().contains("made.first.a.eth0")).await;
    let mut other = client.clone();
    other.add(free.add()).await.unwrap();
    other.delete(free.delete()).await.unwrap();
    // For the sandbox itself one follows the other.
    let mut request = hung.delete();
    request.within_ms = 300;
    let refusal = other.delete(request).await.unwrap_err();
    assert_eq!(refusal.code(), Code::DeadlineExceeded);
    assert!(
        !node.log().contains(&"DEL first a".to_owned()),
        "{:?}",
        node.log()
    );
    hanging.abort();
}

#[tokio::test]
async fn a_call_goes_on_when_its_caller_goes_away() {
    let node = Node::with_network("1.0.0");
    node.tell("hang.ADD.first.a", "");
    let (_plugin, mut client) = node.plugin().await;
    let sandbox = node.sandbox("a");
    let mut request = sandbox.add();
    request.within_ms = 2000;
    let gone = tokio::time::timeout(Duration::from_millis(300), client.add(request)).await;
    assert!(gone.is_err());
    until("it is undone at its deadline", || {
        node.log().contains(&"DEL first a".to_owned())
    })
    .await;
    until("nothing is left", || node.made().is_empty()).await;
}

/// A small file system of its own, which can be full.
struct Disk(std::path::PathBuf);

impl Disk {
    fn new(path: std::path::PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
            .arg(&path);
        assert!(mount.status().unwrap().success());
        Self(path)
    }

    fn fill(&self) {
        fs::write(self.0.join("filler"), vec![0; 1 << 20]).unwrap_err();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status()
            .map(drop)
            .unwrap_or_default();
    }
}

#[tokio::test]
async fn a_full_disk_hinders_add_which_makes_nothing_and_never_delete() {
    let mut node = Node::with_network("1.0.0");
    let disk = Disk::new(node.path("cache"));
    node.cache = Some(disk.0.clone());
    let (_plugin, mut client) = node.plugin().await;
    let (there, late) = (node.sandbox("a"), node.sandbox("b"));
    client.add(there.add()).await.unwrap();
    disk.fill();
    let refusal = client.add(late.add()).await.unwrap_err();
    assert!(
        refusal.message().contains("cache/unfinished/net-b-eth0"),
        "{}",
        refusal.message()
    );
    assert!(!node.log().contains(&"ADD first b".to_owned()));
    client.delete(there.delete()).await.unwrap();
    client.delete(late.delete()).await.unwrap();
    assert!(node.made().is_empty(), "{:?}", node.made());
}

#[tokio::test]
async fn a_result_that_cannot_be_written_down_is_undone() {
    let node = Node::with_network("1.0.0");
    let (_plugin, mut client) = node.plugin().await;
    // In the place of the folder.
    fs::write(node.path("results"), "").unwrap();
    let sandbox = node.sandbox("a");
    let refusal = client.add(sandbox.add()).await.unwrap_err();
    assert!(
        refusal.message().contains("cannot write"),
        "{}",
        refusal.message()
    );
    until("nothing is left", || node.made().is_empty()).await;
    client.delete(sandbox.delete()).await.unwrap();
}

#[tokio::test]
async fn a_record_that_is_broken_never_hinders_delete() {
    for text in ["", "{", "{\"kind\": \"cniCacheV1\"}", "\u{0}\u{0}\u{0}"] {
        let node = Node::with_network("1.0.0");
        let sandbox = node.sandbox("a");
        {
            let (process, mut client) = node.process(&["env"]).await;
            client.add(sandbox.add()).await.unwrap();
            process.kill();
        }
        fs::write(node.path("own/results/net-a-eth0"), text).unwrap();
        let (_process, mut client) = node.process(&["env"]).await;
        // There may be something: a failure counts.
        node.tell("fail.DEL", "");
        client.delete(sandbox.delete()).await.unwrap_err();
        node.untell("fail.DEL");
        client.delete(sandbox.delete()).await.unwrap();
        assert!(node.made().is_empty(), "{text:?}");
        assert!(names(&node.path("own/results")).is_empty());
        assert!(names(&node.path("own/unfinished")).is_empty());
    }
}

#[tokio::test]
async fn a_delete_of_what_was_never_there_succeeds_although_the_chain_fails() {
    let node = Node::with_network("1.0.0");
    node.tell("fail.DEL", "");
    let (_plugin, mut client) = node.plugin().await;
    let sandbox = node.sandbox("a");
    client.delete(sandbox.delete()).await.unwrap();
    assert_eq!(node.log(), ["DEL first a"]);
}

#[tokio::test]
async fn an_attachment_is_taken_away_as_it_was_made_whatever_the_network_is_today() {
    let node = Node::with_network("1.0.0");
    let (_plugin, mut client) = node.plugin().await;
    let (a, b) = (node.sandbox("a"), node.sandbox("b"));
    client.add(a.add()).await.unwrap();
    client.add(b.add()).await.unwrap();
    node.conflist("10-net.conflist", "net", "1.0.0", &["second"]);
    until_status(&mut client, true, "").await;
    client.delete(a.delete()).await.unwrap();
    fs::remove_file(node.path("conf/10-net.conflist")).unwrap();
    until_status(&mut client, false, "no network config found").await;
    client.delete(b.delete()).await.unwrap();
    assert!(node.made().is_empty());
}

#[tokio::test]
async fn a_network_that_stops_being_ready_says_so_after_it_was_ready() {
    let node = Node::with_network("1.1.0");
    let (plugin, mut client) = node.plugin().await;
    until_status(&mut client, true, "").await;
    node.tell(
        "fail.STATUS",
        r#"{"code": 50, "msg": "the agent of the network is down"}"#,
    );
    let words = "Network plugin returns error: network \"net\": plugin \"first\" failed at STATUS: the agent of the network is down";
    until_status(&mut client, false, words).await;
    let first = super::rig::status(&mut client, "net").await.remove(0);
    assert_eq!(first.reason, "NetworkPluginNotReady");
    // The health is looked at again at every change of the folder, and every few seconds.
    node.conf("20-other.conflist", &serde_json::json!({}));
    let mut reports = plugin
        .base()
        .health(proto::plugin::HealthRequest { interval_ms: 1000 })
        .await
        .unwrap()
        .into_inner();
    let degraded = async {
        loop {
            let report = reports.message().await.unwrap().unwrap();
            if report.reason.contains(words) {
                return report;
            }
        }
    };
    let report = tokio::time::timeout(Duration::from_secs(60), degraded)
        .await
        .unwrap();
    assert_eq!(
        report.status(),
        proto::plugin::health_report::Status::Degraded
    );
    assert!(report.reason.starts_with("NetworkPluginNotReady: "));
}

#[tokio::test]
async fn a_status_that_hangs_is_a_network_that_is_not_ready() {
    let node = Node::with_network("1.1.0");
    node.tell("hang.STATUS", "");
    let (_plugin, mut client) = node.plugin().await;
    let request = StatusRequest {
        within_ms: 500,
        ..StatusRequest::default()
    };
    let networks = client.status(request).await.unwrap().into_inner().networks;
    assert!(!networks[0].ready);
    assert!(
        networks[0].message.contains("did not end in time"),
        "{}",
        networks[0].message
    );
}
