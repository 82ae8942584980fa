//! The agent as a service of the machine: what its service manager is told, its lock file, its open files, its log.

use std::fs::{self, File};
use std::time::Duration;

use integration::agent::Node;
use integration::wait_until;
use serde_json::{Value, json};
use tokio::net::UnixDatagram;
use tokio::process::Command;
use tokio::time::timeout;

use super::log_lines::{LogRecord, MessageForm, json_record, read_text};

/// A debug build on a busy machine.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);

async fn heard(manager: &UnixDatagram) -> String {
    let mut text = [0; 1024];
    let received = timeout(CONVERGENCE_TIMEOUT, manager.recv(&mut text)).await;
    let length = received.expect("the service manager is told").unwrap();
    String::from_utf8_lossy(&text[..length]).into_owned()
}

#[tokio::test]
async fn the_service_manager_is_told_of_the_start_of_life_and_of_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let node = Node::builder()
        .environment("NOTIFY_SOCKET", socket.to_str().unwrap())
        .environment("WATCHDOG_USEC", "2000000");
    let mut node = node.start().await.unwrap();
    let started = "READY=1\nWATCHDOG=1\nSTATUS=every manager works";
    assert_eq!(heard(&manager).await, started);
    assert_eq!(heard(&manager).await, "WATCHDOG=1");
    assert!(node.terminate().await.unwrap().success());
    let mut told = heard(&manager).await;
    while told == "WATCHDOG=1" {
        told = heard(&manager).await;
    }
    assert_eq!(told, "STOPPING=1\nSTATUS=ending; pods live on");
}

#[tokio::test]
async fn a_second_agent_on_a_root_directory_is_refused_and_the_first_goes_on() {
    let node = Node::builder().start().await.unwrap();
    let (program, arguments) = node.command().split_first().unwrap();
    let second = Command::new(program)
        .args(arguments)
        .kill_on_drop(true)
        .output();
    let second = timeout(CONVERGENCE_TIMEOUT, second).await;
    let second = second.expect("the second one ends").unwrap();
    let log = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{log}");
    assert!(log.contains("another agent works in "), "{log}");
    assert!(node.is_healthy().await);
}

#[tokio::test]
async fn an_agent_waits_for_the_lock_and_ends_when_another_wants_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let other = File::create(&path).unwrap();
    other.lock().unwrap();
    let mut node = Node::builder()
        .config(&json!({ "maxOpenFiles": 5000 }))
        .flag(format!("--lock-file={}", path.display()))
        .flag("--exit-on-lock-contention")
        .prepare()
        .unwrap();
    let log = node.dir().join("oxlet.log");
    let log = || fs::read_to_string(&log).unwrap_or_default();
    let letting_go = async {
        wait_until(CONVERGENCE_TIMEOUT, "the agent waits", async || {
            log().contains("acquiring file lock")
        })
        .await
        .unwrap();
        drop(other);
    };
    let (began, ()) = tokio::join!(node.begin(), letting_go);
    began.unwrap();
    let limits = format!("/proc/{}/limits", node.pid().unwrap());
    let limits = fs::read_to_string(limits).unwrap();
    let open = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let numbers: Vec<&str> = open.unwrap().split_whitespace().skip(3).collect();
    assert_eq!(numbers, ["5000", "5000", "files"]);
    drop(File::open(&path).unwrap());
    wait_until(CONVERGENCE_TIMEOUT, "the agent ends", async || {
        !node.is_healthy().await
    })
    .await
    .unwrap();
    wait_until(CONVERGENCE_TIMEOUT, "its last word is said", async || {
        log().contains("ending; pods live on")
    })
    .await
    .unwrap();
    assert!(log().contains("another process wants the lock file"));
}

#[tokio::test]
async fn every_line_of_the_log_is_one_that_readers_of_the_kubelets_log_know() {
    let text = Node::builder().config(&json!({ "logging": { "verbosity": 5 } }));
    let mut node = text.start().await.unwrap();
    assert!(node.terminate().await.unwrap().success());
    let log = node.log();
    let records = read_text(&log).unwrap_or_else(|rest| panic!("no record: {rest}"));
    let plain = |record: &&LogRecord| record.form == MessageForm::Plain;
    assert_eq!(records.iter().find(plain), None);
    assert!(log.contains("] \"ending; pods live on\"\n"), "{log}");

    let lines = json!({ "logging": { "format": "json", "verbosity": 5 } });
    let mut node = Node::builder().config(&lines).start().await.unwrap();
    assert!(node.terminate().await.unwrap().success());
    let log = node.log();
    for line in log.lines() {
        assert!(json_record(line).is_some(), "{line}");
        let record: Value = serde_json::from_str(line).unwrap();
        // Errors have none.
        assert!(
            record["v"].as_u64().is_none_or(|v| [0, 4, 5].contains(&v)),
            "{line}"
        );
    }
    assert!(
        log.contains("\"msg\":\"ending; pods live on\",\"v\":0}"),
        "{log}"
    );
}
