//! Anything at the runtime's socket path: one sentence in the health report, and no wait for ever.

use std::path::Path;
use std::time::Duration;

use proto::cri;
use proto::plugin::health_report::Status as Health;
use proto::plugin::{HealthReport, HealthRequest};
use runtime_adapter::Flavour;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use tonic::{Code, Streaming};

use crate::double::{AdapterRig, RuntimeDouble, ScriptedAnswer, message};

/// Longer than every deadline together.
const TIMEOUT: Duration = Duration::from_secs(20);

async fn health(bench: &AdapterRig) -> Streaming<HealthReport> {
    let question = HealthRequest {
        interval_ms: 60_000,
    };
    bench
        .plugin
        .base()
        .health(question)
        .await
        .unwrap()
        .into_inner()
}

/// The first reason that is more than "connecting"; calls are refused with the same words.
async fn reason(bench: &AdapterRig) -> String {
    let mut health = health(bench).await;
    let found = async {
        loop {
            let report = health.message().await.unwrap().unwrap();
            assert_eq!(report.status(), Health::Degraded, "{report:?}");
            if !report.reason.starts_with("connecting to") {
                return report.reason;
            }
        }
    };
    let reason = tokio::time::timeout(TIMEOUT, found)
        .await
        .expect("a report in time");
    let call = bench.client().status(cri::StatusRequest::default()).await;
    let status = call.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), reason);
    reason
}

/// Serves every connection with the same bytes, and keeps it open or not.
fn speak(
    socket: &Path,
    bytes: &'static [u8],
    then: fn(UnixStream) -> Option<UnixStream>,
) -> JoinHandle<()> {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            connections.spawn(async move {
                // The peer may be gone already.
                drop(stream.write_all(bytes).await);
                if let Some(open) = then(stream) {
                    std::future::pending::<()>().await;
                    drop(open);
                }
            });
        }
    })
}

async fn around(make: impl FnOnce(&Path)) -> (AdapterRig, String) {
    let dir = tempfile::tempdir().unwrap();
    make(&dir.path().join("runtime.sock"));
    let bench = AdapterRig::around(Flavour::Containerd, dir).await;
    let place = format!("no containerd at unix://{}: ", bench.socket.display());
    (bench, place)
}

#[tokio::test]
async fn what_is_no_socket_is_named() {
    for (make, expected) in [
        (
            (|path| std::fs::write(path, "not a socket").unwrap()) as fn(&Path),
            "it is a regular file, expected a socket",
        ),
        (
            |path| std::fs::create_dir(path).unwrap(),
            "it is a folder, expected a socket",
        ),
        (
            |path| std::os::unix::fs::symlink("/dev/null", path).unwrap(),
            "it is a device, expected a socket",
        ),
        (
            |path| std::os::unix::fs::symlink("nowhere", path).unwrap(),
            "cannot connect: No such file or directory (os error 2)",
        ),
        (
            |path| std::os::unix::fs::symlink("runtime.sock", path).unwrap(),
            "cannot connect: Too many levels of symbolic links (os error 40)",
        ),
        // Bound, and its server gone.
        (
            |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap()),
            "cannot connect: Connection refused (os error 111)",
        ),
        (
            |_| {},
            "cannot connect: No such file or directory (os error 2)",
        ),
    ] {
        let (bench, place) = around(make).await;
        assert_eq!(reason(&bench).await, format!("{place}{expected}"));
    }
}

/// The clock is paused while a task runs: seconds of silence pass at once.
#[tokio::test(start_paused = true)]
async fn a_socket_that_accepts_and_never_answers_is_given_up() {
    let (bench, place) = around(|path| {
        speak(path, b"", Some);
    })
    .await;
    assert_eq!(
        reason(&bench).await,
        format!("{place}it accepts connections but has not said its version within 5s")
    );
}

/// As of a stopped process: the kernel accepts, the process does not read.
#[tokio::test(start_paused = true)]
async fn a_socket_that_nobody_reads_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let _listener =
        std::os::unix::net::UnixListener::bind(dir.path().join("runtime.sock")).unwrap();
    let bench = AdapterRig::around(Flavour::Containerd, dir).await;
    let reason = reason(&bench).await;
    assert!(
        reason.ends_with("it accepts connections but has not said its version within 5s"),
        "{reason}"
    );
}

#[tokio::test]
async fn garbage_instead_of_http_is_named() {
    for (bytes, then) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..],
            Some as fn(_) -> _,
        ),
        (
            &b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"[..],
            Some,
        ),
        (&[0xff; 4096][..], |_| None),
        (&b""[..], |_| None),
    ] {
        let (bench, place) = around(|path| {
            speak(path, bytes, then);
        })
        .await;
        let reason = reason(&bench).await;
        let expected = format!("{place}it does not say its version: ");
        assert!(reason.starts_with(&expected), "{bytes:?}: {reason}");
        assert!(reason.len() < 400, "{reason}");
    }
}

#[tokio::test]
async fn a_version_that_cannot_be_read_is_named_and_a_long_one_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("runtime.sock");
    let runtime = RuntimeDouble::scripted(&socket, |_| {
        ScriptedAnswer::Message(
            b"\x12\xff\xff not a version".to_vec(),
            http::HeaderMap::new(),
        )
    });
    let bench = AdapterRig::around(Flavour::Containerd, dir).await;
    let reason = reason(&bench).await;
    assert!(reason.contains("it does not say its version: "), "{reason}");
    drop(runtime);

    let _runtime = RuntimeDouble::scripted(&socket, |_| {
        message(&cri::VersionResponse {
            runtime_name: "\u{e9}".repeat(1 << 20),
            ..Default::default()
        })
    });
    let mut health = health(&bench).await;
    loop {
        let report = health.message().await.unwrap().unwrap();
        if report.status() == Health::Healthy {
            assert_eq!(report.attributes["backend"], "\u{e9}".repeat(64));
            return;
        }
    }
}

#[tokio::test]
async fn whatever_stood_there_the_runtime_is_found_when_it_comes() {
    let (bench, _) = around(|path| std::fs::write(path, "not a socket").unwrap()).await;
    reason(&bench).await;
    let _runtime = RuntimeDouble::start(&bench.socket, ("containerd", "2.1.0"), |_| {
        ScriptedAnswer::Never
    });
    let mut health = health(&bench).await;
    let found =
        async { while health.message().await.unwrap().unwrap().status() != Health::Healthy {} };
    tokio::time::timeout(TIMEOUT, found)
        .await
        .expect("found in time");
}
