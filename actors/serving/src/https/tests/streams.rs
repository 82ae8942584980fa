//! Streams: switched with the runtime, and carried byte for byte.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::rig::{Rig, SOON, WEBSOCKET, open, run};
use crate::node::NodeError;
use crate::policy::Policy;

/// The runtime's streaming server: it reads a head, gives this answer, and hands the connection over.
struct StreamRuntime {
    url: String,
    listener: TcpListener,
}

impl StreamRuntime {
    async fn start(rig: &Rig) -> StreamRuntime {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/exec/token?x=1", listener.local_addr().unwrap());
        rig.node.url.replace(url.clone());
        StreamRuntime { url, listener }
    }

    async fn next(&self, answer: &str) -> (TcpStream, String) {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let head = head(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        (stream, head)
    }
}

async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(SOON, stream.read_u8()).await;
        head.push(byte.expect("in time").unwrap());
    }
    String::from_utf8(head).unwrap()
}

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n\r\nfirst";
const SPDY: &str = "host: node\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\nx-stream-protocol-version: v4.channel.k8s.io\r\nauthorization: Bearer secret\r\n\r\n";

/// Upstream's TestServeExecInContainer, TestServeAttachContainer, TestServePortForward.
#[test]
fn streams_are_carried_both_ways_and_ended_one_by_one() {
    run(open, async |rig: Rig| {
        rig.token("secret", "alice");
        let runtime = StreamRuntime::start(&rig).await;
        assert!(runtime.url.starts_with("http://127.0.0.1"));
        for (path, asked) in [
            (
                "POST /exec/ns/p/c?command=sh&command=a+b&input=1&output=1&tty=1&error=1",
                "exec c [\"sh\", \"a b\"] RemoteCommandOptions { stdin: true, stdout: true, stderr: false, tty: true }",
            ),
            (
                "GET /exec/ns/p/uid-p/c?command=sh&error=1",
                "exec c [\"sh\"] RemoteCommandOptions { stdin: false, stdout: false, stderr: true, tty: false }",
            ),
            (
                "POST /attach/ns/p/uid-p/c?output=1",
                "attach c RemoteCommandOptions { stdin: false, stdout: true, stderr: false, tty: false }",
            ),
            ("POST /portForward/ns/p", "forward []"),
            ("POST /portForward/ns/p/uid-p", "forward []"),
        ] {
            rig.node.asked.borrow_mut().clear();
            let mut caller = rig.connect(None).await;
            caller
                .write_all(format!("{path} HTTP/1.1\r\n{SPDY}").as_bytes())
                .await
                .unwrap();
            let (mut there, sent) = runtime.next(SWITCH).await;
            let method = path.split(' ').next().unwrap();
            assert!(
                sent.starts_with(&format!("{method} /exec/token?x=1 HTTP/1.1\r\n")),
                "{sent}"
            );
            let sent = sent.to_ascii_lowercase();
            for header in [
                "upgrade: spdy/3.1",
                "connection: upgrade",
                "x-stream-protocol-version: v4.channel.k8s.io",
                "x-forwarded-for: 127.0.0.1",
            ] {
                assert!(sent.contains(header), "{header} in {sent}");
            }
            assert!(!sent.contains("secret"), "{sent}");
            let answer = head(&mut caller).await.to_ascii_lowercase();
            assert!(answer.starts_with("http/1.1 101"), "{answer}");
            assert!(
                answer.contains("x-stream-protocol-version: v4.channel.k8s.io"),
                "{answer}"
            );
            let mut first = [0; 5];
            caller.read_exact(&mut first).await.unwrap();
            assert_eq!(&first, b"first");
            let big = vec![7_u8; 1 << 20];
            let (sent, got) = tokio::join!(
                async {
                    caller.write_all(&big).await.unwrap();
                    caller.flush().await.unwrap();
                    caller.shutdown().await.unwrap();
                },
                async {
                    let mut got = Vec::new();
                    there.read_to_end(&mut got).await.unwrap();
                    got
                }
            );
            assert_eq!(((), got.len()), (sent, big.len()), "to its end");
            there.write_all(b"still here").await.unwrap();
            drop(there);
            let mut rest = Vec::new();
            let read = tokio::time::timeout(SOON, caller.read_to_end(&mut rest)).await;
            drop(read.unwrap());
            assert_eq!(rest, b"still here", "the other direction had more to say");
            assert_eq!(*rig.node.asked.borrow(), [asked]);
        }
    });
}

#[test]
fn websockets_bring_their_ports_and_leave_their_tokens() {
    run(open, async |rig: Rig| {
        rig.token("token", "alice");
        let runtime = StreamRuntime::start(&rig).await;
        let mut caller = rig.connect(None).await;
        let protocols = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9rZW4";
        let ask = format!(
            "GET /portForward/ns/p?port=80,443 HTTP/1.1\r\n{WEBSOCKET}sec-websocket-protocol: {protocols}\r\n\r\n"
        );
        caller.write_all(ask.as_bytes()).await.unwrap();
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n";
        let (_there, sent) = runtime.next(switch).await;
        assert!(
            sent.to_ascii_lowercase()
                .contains("sec-websocket-protocol: v4.channel.k8s.io\r\n"),
            "{sent}"
        );
        assert!(head(&mut caller).await.starts_with("HTTP/1.1 101"));
        assert_eq!(*rig.node.asked.borrow(), ["forward [80, 443]"]);
        assert_eq!(*rig.reviews.asked.borrow(), ["token token"]);
        let no_ports = "connection: Upgrade\r\nupgrade: websocket\r\n";
        let told = rig.ask_upgrade("GET /portForward/ns/p", no_ports).await;
        assert_eq!(
            (told.status, told.body.as_str()),
            (400, "query parameter \"port\" is required")
        );
    });
}

/// Upstream's TestServeExecInContainerIdleTimeout.
#[test]
fn idle_streams_are_ended() {
    let quick = |policy: &mut Policy| {
        open(policy);
        policy.idle = Duration::from_millis(300);
    };
    run(quick, async |rig: Rig| {
        let runtime = StreamRuntime::start(&rig).await;
        let mut caller = rig.connect(None).await;
        let ask = format!(
            "POST /exec/ns/p/c?command=sh&output=1 HTTP/1.1\r\n{}",
            SPDY.replace("authorization: Bearer secret\r\n", "")
        );
        caller.write_all(ask.as_bytes()).await.unwrap();
        let (mut there, _) = runtime.next(SWITCH).await;
        head(&mut caller).await;
        let mut rest = Vec::new();
        drop(
            tokio::time::timeout(SOON, caller.read_to_end(&mut rest))
                .await
                .expect("ended"),
        );
        drop(
            tokio::time::timeout(SOON, there.read_to_end(&mut rest))
                .await
                .expect("ended"),
        );
        assert_eq!(rest, b"first");
    });
}

#[test]
fn refusals_of_the_runtime_are_passed_on() {
    run(open, async |rig: Rig| {
        let runtime = StreamRuntime::start(&rig).await;
        let upgrade = "connection: Upgrade\r\nupgrade: SPDY/3.1\r\n";
        let line = "POST /exec/ns/p/c?command=sh&output=1";
        let answers = [
            (
                "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\ngone",
                404,
                "gone",
            ),
            (
                "HTTP/1.1 503 X\r\nconnection: close\r\n\r\nbusy",
                503,
                "busy",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
                500,
                "invalid upgrade response: status code 200\n",
            ),
        ];
        for (answer, status, text) in answers {
            let (told, _) = tokio::join!(rig.ask_upgrade(line, upgrade), async {
                drop(runtime.next(answer).await);
            });
            assert_eq!((told.status, told.body.as_str()), (status, text));
        }
        drop(runtime);
        let told = rig.ask_upgrade(line, upgrade).await;
        assert_eq!(told.status, 500);
        assert!(
            told.body
                .starts_with("cannot connect to the runtime's streaming server"),
            "{}",
            told.body
        );
        for url in ["https://127.0.0.1:1/x", "/x", "", "http:///x"] {
            rig.node.url.replace(url.to_owned());
            let told = rig.ask_upgrade(line, upgrade).await;
            assert_eq!(told.status, 500, "{url}");
        }
    });
}

#[test]
fn what_cannot_be_a_stream_is_refused() {
    run(open, async |rig: Rig| {
        let upgrade = "connection: Upgrade\r\nupgrade: SPDY/3.1\r\n";
        let cases = [
            (
                "POST /exec/ns/p/c?command=sh",
                400,
                "you must specify at least 1 of stdin, stdout, stderr",
            ),
            (
                "POST /exec/ns/p/c?command=sh&tty=1&error=1",
                400,
                "you must specify at least 1 of stdin, stdout, stderr",
            ),
            (
                "POST /exec/ns/nope/c?command=sh&output=1",
                404,
                "pod does not exist",
            ),
            (
                "POST /attach/ns/p/nope/c?output=1",
                500,
                "pod p_ns not found",
            ),
            ("POST /portForward/ns/p/nope", 404, "pod not found"),
        ];
        for (line, status, text) in cases {
            let told = rig.ask_upgrade(line, upgrade).await;
            assert_eq!((told.status, told.body.as_str()), (status, text), "{line}");
        }
        let told = rig.ask("POST /exec/ns/p/c?command=sh&output=1").await;
        assert_eq!(
            (told.status, told.body.as_str()),
            (500, "Upgrade request required\n")
        );
        assert!(rig.node.asked.borrow().is_empty());
        for (trouble, status) in [
            (
                NodeError::NotFound("container not found (\"c\")".into()),
                404,
            ),
            (NodeError::Exhausted("too many".into()), 429),
            (NodeError::Failed("no".into()), 500),
        ] {
            let text = trouble.to_string();
            rig.node.trouble.replace(Some(trouble));
            let told = rig
                .ask_upgrade("POST /exec/ns/p/c?command=sh&output=1", upgrade)
                .await;
            assert_eq!((told.status, told.body), (status, text));
        }
    });
}
