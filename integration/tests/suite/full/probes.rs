//! Readiness follows what is probed, whichever way it is asked; nothing that is probed can hold up the agent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;

on_each_runtime! {
    readiness_follows_a_server_both_ways_and_outlives_the_agent,
    a_probe_that_never_returns_ends_by_its_timeout,
    a_target_that_floods_is_cut_off,
}

mod inside {
    use super::{TestRuntime, probes_reach_servers_in_the_pod};

    on_real_runtimes! {
        probes_reach_servers_in_the_pod,
    }
}

const PERIOD: Duration = Duration::from_secs(1);
/// For the answer's way into the status, on a machine that does other things as well.
const SLACK: Duration = Duration::from_secs(2);

/// A probe each second whose first word counts.
fn each_second(probe: Value) -> Value {
    with(
        probe,
        json!({ "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 1 }),
    )
}

fn ready_by(name: &str, script: &str, probe: Value) -> Value {
    with(
        container_of(name, script),
        json!({ "readinessProbe": each_second(probe) }),
    )
}

impl NodeRig {
    /// Waits until a container is ready, or is not; in time after `began`.
    async fn until_ready_is(&self, pod: &str, name: &str, wanted: bool, began: Instant) {
        let what = format!("has {name} ready: {wanted}");
        self.until(pod, &what, |pod| container_is_ready(pod, name) == wanted)
            .await;
        let took = began.elapsed();
        println!("{name} ready: {wanted} after {took:?}");
        assert!(
            took < PERIOD + SLACK,
            "{name} ready: {wanted} after {took:?}"
        );
    }
}

async fn probes_reach_servers_in_the_pod(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let web = format!("mkdir /www; echo yes > /www/ready; httpd -p 8080 -h /www; {SERVE_ON}");
    let tcp = format!("mkdir /www; httpd -p 8081 -h /www; {SERVE_ON}");
    let file = format!("touch /tmp/ready; {SERVE_ON}");
    node_rig.drop_pod(&pod(
        "served",
        json!({ "containers": [
            ready_by("web", &web, json!({ "httpGet": { "path": "/ready", "port": 8080 } })),
            ready_by("tcp", &tcp, json!({ "tcpSocket": { "port": 8081 } })),
            ready_by("file", &file, exec(&["test", "-f", "/tmp/ready"])),
        ] }),
    ));
    let pod = node_rig.until_running("served").await;
    let changes: [(&str, &str, &str); 3] = [
        ("web", "mv /www/ready /www/away", "mv /www/away /www/ready"),
        ("tcp", "kill $(pidof httpd)", "httpd -p 8081 -h /www"),
        ("file", "rm /tmp/ready", "touch /tmp/ready"),
    ];
    for (name, down, up) in changes {
        for (script, wanted) in [(down, false), (up, true)] {
            node_rig
                .exec(
                    &pod,
                    name,
                    &[
                        "/bin/busybox",
                        "sh",
                        "-c",
                        &script.replace("pidof", "busybox pidof"),
                    ],
                )
                .await;
            node_rig
                .until_ready_is("served", name, wanted, Instant::now())
                .await;
        }
    }
    node_rig
        .until_event(
            "Unhealthy",
            &["Readiness probe failed: HTTP probe failed with statuscode: 404"],
        )
        .await;
    node_rig
        .until_event(
            "Unhealthy",
            &["Readiness probe failed: dial tcp", "connection refused"],
        )
        .await;
    let pod = node_rig.until_running("served").await;
    for name in ["web", "tcp", "file"] {
        assert_eq!(restarts(&pod, name), 0);
    }
}

/// A server of this process, which answers HTTP with a status and gRPC with a health.
struct ProbeServer {
    address: SocketAddr,
    answer: Arc<AtomicU16>,
    task: JoinHandle<()>,
}

impl Drop for ProbeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ProbeServer {
    /// On every address of this machine, as a pod in its network would serve.
    async fn start(answer: u16, kind: ProbeKind) -> ProbeServer {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(AtomicU16::new(answer));
        let held = answer.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let held = held.clone();
                tokio::spawn(async move {
                    let stream = TokioIo::new(stream);
                    let service = service_fn(move |request| {
                        respond(request, kind, held.load(Ordering::SeqCst))
                    });
                    match kind {
                        ProbeKind::Http => drop(
                            hyper::server::conn::http1::Builder::new()
                                .serve_connection(stream, service)
                                .await,
                        ),
                        ProbeKind::Grpc => drop(
                            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                                .serve_connection(stream, service)
                                .await,
                        ),
                    }
                });
            }
        });
        ProbeServer {
            address,
            answer,
            task,
        }
    }

    fn set(&self, answer: u16) {
        self.answer.store(answer, Ordering::SeqCst);
    }
}

#[derive(Clone, Copy)]
enum ProbeKind {
    Http,
    Grpc,
}

/// `grpc.health.v1`'s two words.
const SERVING: u16 = 1;
const NOT_SERVING: u16 = 2;

async fn respond(
    request: Request<Incoming>,
    kind: ProbeKind,
    answer: u16,
) -> Result<
    Response<http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>>,
    std::convert::Infallible,
> {
    use http_body_util::BodyExt;
    let response = Response::builder();
    Ok(match kind {
        ProbeKind::Http => response
            .status(answer)
            .body(Full::new(Bytes::from_static(b"said")).boxed()),
        ProbeKind::Grpc => {
            assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
            // A message of one field: not compressed, two bytes long, field 1, its value.
            let word = u8::try_from(answer).unwrap();
            let body = Full::new(Bytes::from(vec![0, 0, 0, 0, 2, 8, word]));
            let mut trailers = hyper::HeaderMap::new();
            trailers.insert("grpc-status", hyper::header::HeaderValue::from_static("0"));
            let body = body.with_trailers(async move { Some(Ok(trailers)) });
            response
                .header(CONTENT_TYPE, "application/grpc")
                .body(body.boxed())
        }
    }
    .unwrap())
}

async fn readiness_follows_a_server_both_ways_and_outlives_the_agent(on: TestRuntime) {
    let Some(mut node_rig) = on.start().await else {
        return;
    };
    let web = ProbeServer::start(200, ProbeKind::Http).await;
    let grpc = ProbeServer::start(SERVING, ProbeKind::Grpc).await;
    let port = |server: &ProbeServer| server.address.port();
    node_rig.drop_pod(&pod(
        "asked",
        json!({ "hostNetwork": true, "containers": [
            ready_by("web", SERVE_ON, json!({ "httpGet": { "path": "/", "port": port(&web), "host": "127.0.0.1" } })),
            ready_by("grpc", SERVE_ON, json!({ "grpc": { "port": port(&grpc) } })),
        ] }),
    ));
    node_rig.until_running("asked").await;
    web.set(503);
    node_rig
        .until_ready_is("asked", "web", false, Instant::now())
        .await;
    let pod = node_rig
        .until("asked", "is not ready", |pod| !is_ready(pod))
        .await;
    assert!(container_is_ready(&pod, "grpc"));
    web.set(200);
    node_rig
        .until_ready_is("asked", "web", true, Instant::now())
        .await;
    grpc.set(NOT_SERVING);
    node_rig
        .until_ready_is("asked", "grpc", false, Instant::now())
        .await;
    grpc.set(SERVING);
    node_rig
        .until_ready_is("asked", "grpc", true, Instant::now())
        .await;
    node_rig
        .until_event("Unhealthy", &["HTTP probe failed with statuscode: 503"])
        .await;
    node_rig
        .until_event(
            "Unhealthy",
            &["service unhealthy (responded with \"NOT_SERVING\")"],
        )
        .await;

    let before = vec![node_rig.until_running("asked").await];
    node_rig.until_stored().await;
    node_rig.node.kill9().unwrap();
    adopted(&mut node_rig.node, &before).await;
    // Its successor probes as well.
    web.set(503);
    node_rig
        .until_ready_is("asked", "web", false, Instant::now())
        .await;
    let pod = node_rig.node.pod("asked").await.unwrap().unwrap();
    assert_eq!((restarts(&pod, "web"), restarts(&pod, "grpc")), (0, 0));
}

async fn a_probe_that_never_returns_ends_by_its_timeout(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let hangs = ready_by("hangs", SERVE_ON, exec(&["sleep", "1000"]));
    let well = ready_by("well", SERVE_ON, exec(&["true"]));
    node_rig.drop_pod(&pod("stuck", json!({ "containers": [hangs, well] })));
    let words = ["Readiness probe failed: command timed out: \"sleep 1000\" timed out after 1s"];
    node_rig.until_event("Unhealthy", &words).await;
    let pod = node_rig
        .until("stuck", "has the other container ready", |pod| {
            container_is_ready(pod, "well")
        })
        .await;
    assert!(!container_is_ready(&pod, "hangs"));
    if on != TestRuntime::Fake {
        // Asked each second: what was begun is ended, not left behind.
        wait_until(
            CONVERGENCE_TIMEOUT,
            "it has failed a few times",
            async || {
                let events = node_rig
                    .node
                    .oxctl(&["events", "-o", "json"])
                    .await
                    .unwrap();
                let events: Value = serde_json::from_str(&events).unwrap();
                let count = |event: &Value| {
                    event["reason"] == "Unhealthy" && event["count"].as_u64() >= Some(4)
                };
                events.as_array().unwrap().iter().any(count)
            },
        )
        .await
        .unwrap();
        let processes = node_rig.exec(&pod, "hangs", &["ps", "-o", "args"]).await;
        let left = processes
            .lines()
            .filter(|line| line.trim() == "sleep 1000")
            .count();
        assert!(left <= 2, "{processes}");
    }
}

/// Answers with this head, and then with more of the same until it is cut off; counts what it could send.
async fn flood(head: &'static str, more: &'static [u8]) -> (u16, Arc<AtomicUsize>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let most = Arc::new(AtomicUsize::new(0));
    let counted = most.clone();
    let task = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let counted = counted.clone();
            tokio::spawn(async move {
                let mut asked = [0; 4096];
                drop(stream.read(&mut asked).await);
                drop(stream.write_all(head.as_bytes()).await);
                let mut sent = 0;
                while stream.write_all(more).await.is_ok() {
                    sent += more.len();
                    counted.fetch_max(sent, Ordering::SeqCst);
                }
            });
        }
    });
    (port, most, task)
}

async fn a_target_that_floods_is_cut_off(on: TestRuntime) {
    const MOST: usize = 16 << 20;
    let Some(node_rig) = on.start().await else {
        return;
    };
    let (body, body_sent, first) = flood(
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
        &[b'x'; 4096],
    )
    .await;
    let (head, head_sent, second) = flood(
        "HTTP/1.1 200 OK\r\n",
        b"x-more: and more and more and more\r\n",
    )
    .await;
    let get = |port: u16| json!({ "httpGet": { "path": "/", "port": port, "host": "127.0.0.1" } });
    let floods = ready_by("body", SERVE_ON, get(body));
    let head = ready_by("head", SERVE_ON, get(head));
    node_rig.drop_pod(&pod("flooded", json!({ "containers": [floods, head] })));
    // A body is read up to the limit of an event's message; a head without an end is no answer.
    let pod = node_rig
        .until("flooded", "takes the answer that has a head", |pod| {
            container_is_ready(pod, "body")
        })
        .await;
    assert!(!container_is_ready(&pod, "head"));
    node_rig
        .until_event("Unhealthy", &["Readiness probe failed: Get", "127.0.0.1"])
        .await;
    for sent in [body_sent, head_sent] {
        let sent = sent.load(Ordering::SeqCst);
        println!("{sent} bytes were sent before the end");
        assert!(sent < MOST, "{sent}");
    }
    first.abort();
    second.abort();
}
