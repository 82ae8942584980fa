//! The agent as a service of the machine: what its service manager is told, its lock file, its open files, its log.

use std::fs::{self, File};
use std::time::Duration;

use integration::agent::Node;
use integration::wait_until;
use serde_json::{Value, json};
use tokio::net::UnixDatagram;
use tokio::time::timeout;

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

/// `I1126 22:25:35.012345    4711 pleg.rs:120] "message"`, or what follows of a value with several lines.
fn is_klog(line: &str) -> bool {
    if line.starts_with('\t') || line.starts_with(" >") {
        return true;
    }
    let shape = "L#### ##:##:##.###### ";
    let fits = |(c, shape): (char, char)| match shape {
        'L' => "IWE".contains(c),
        '#' => c.is_ascii_digit(),
        other => c == other,
    };
    let Some((header, message)) = line.split_once("] ") else {
        return false;
    };
    let Some((stamp, rest)) = header.split_at_checked(shape.len()) else {
        return false;
    };
    let is_stamped = stamp.chars().zip(shape.chars()).all(fits);
    let mut words = rest.split_whitespace();
    let pid = words.next().and_then(|pid| pid.parse::<u32>().ok());
    let line = words.next().and_then(|caller| caller.rsplit_once(':'));
    let has_line = line.is_some_and(|(file, line)| !file.is_empty() && line.parse::<u32>().is_ok());
    is_stamped && pid.is_some() && has_line && message.starts_with('"')
}

#[test]
fn lines_of_a_kubelet_are_known_as_such() {
    let lines = [
        r#"I0122 10:30:02.123456    1234 server.go:415] "Kubelet version" kubeletVersion="v1.36.2""#,
        r#"E0122 10:30:02.123456 1234567 pod_workers.go:1301] "Error syncing pod, skipping" err="x" pod="a/b""#,
    ];
    assert!(lines.iter().all(|line| is_klog(line)));
    let others = [
        "",
        "panicked at x",
        r#"I0122 10:30:02.123    1234 server.go:415] "x""#,
        r#"D0122 10:30:02.123456    1234 server.go:415] "x""#,
        r#"I0122 10:30:02.123456    1234 server.go] "x""#,
        "I0122 10:30:02.123456    1234 server.go:415] x",
    ];
    assert!(!others.iter().any(|line| is_klog(line)));
}

#[tokio::test]
async fn every_line_of_the_log_is_one_that_readers_of_the_kubelets_log_know() {
    let text = Node::builder().config(&json!({ "logging": { "verbosity": 5 } }));
    let mut node = text.start().await.unwrap();
    assert!(node.terminate().await.unwrap().success());
    let log = node.log();
    let strange: Vec<&str> = log.lines().filter(|line| !is_klog(line)).collect();
    assert_eq!(strange, [""; 0]);
    assert!(log.contains("] \"ending; pods live on\"\n"), "{log}");

    let lines = json!({ "logging": { "format": "json", "verbosity": 5 } });
    let mut node = Node::builder().config(&lines).start().await.unwrap();
    assert!(node.terminate().await.unwrap().success());
    let log = node.log();
    for line in log.lines() {
        let record: Value = serde_json::from_str(line).expect(line);
        assert!(record["ts"].as_f64().is_some_and(|ts| ts > 1e12), "{line}");
        let caller = record["caller"].as_str().expect(line);
        assert_eq!(caller.matches('/').count(), 1, "{line}");
        assert!(record["msg"].is_string(), "{line}");
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
