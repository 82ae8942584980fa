//! WebSockets that the runtime need not know.

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;

use super::rig::{Rig, SOON, WEBSOCKET, open, run};
use crate::policy::Policy;

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n\r\n";
const EXEC: &str = "/exec/ns/p/c?command=sh&input=1&output=1&error=1";
const V5: &str = "base64url.bearer.authorization.k8s.io.dG9rZW4, v5.channel.k8s.io";
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// The runtime's streaming server.
struct WebSocketRuntime(TcpListener);

impl WebSocketRuntime {
    async fn start(rig: &Rig) -> WebSocketRuntime {
        rig.token("token", "alice");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/exec/token", listener.local_addr().unwrap());
        rig.node.url.replace(url);
        WebSocketRuntime(listener)
    }

    /// Reads the head of a request, and gives this answer.
    async fn next(&self, answer: &str) -> (TcpStream, String) {
        let (mut stream, _) = self.0.accept().await.unwrap();
        let head = head(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        (stream, head)
    }
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(SOON, stream.read_u8()).await;
        head.push(byte.expect("in time").unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

/// Asks for a WebSocket; returns the head of the answer.
async fn asked(rig: &Rig, path: &str, protocols: &str) -> (TlsStream<TcpStream>, String) {
    let mut caller = rig.connect(None).await;
    let ask =
        format!("GET {path} HTTP/1.1\r\n{WEBSOCKET}sec-websocket-protocol: {protocols}\r\n\r\n");
    caller.write_all(ask.as_bytes()).await.unwrap();
    let head = match path.starts_with("/exec") {
        true => head(&mut caller).await,
        false => String::new(),
    };
    (caller, head)
}

/// Sends a message, as clients must: masked.
async fn say(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap();
    let mut frame = vec![0x82, 0xfe];
    frame.extend(length.to_be_bytes());
    let mask = [1, 2, 3, 4];
    frame.extend(mask);
    frame.extend(
        bytes
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    to.write_all(&frame).await.unwrap();
    to.flush().await.unwrap();
}

/// Reads a frame: its opcode and its content.
async fn hear(from: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let read = async {
        let kind = from.read_u8().await.unwrap() & 0xf;
        let length = match from.read_u8().await.unwrap() {
            126 => u64::from(from.read_u16().await.unwrap()),
            127 => from.read_u64().await.unwrap(),
            short => u64::from(short),
        };
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        from.read_exact(&mut bytes).await.unwrap();
        (kind, bytes)
    };
    tokio::time::timeout(SOON, read).await.expect("in time")
}

async fn status(from: &mut (impl AsyncRead + Unpin)) -> Value {
    let (_, message) = hear(from).await;
    assert_eq!(message[0], 3, "{message:?}");
    serde_json::from_slice(&message[1..]).unwrap()
}

/// A frame of SPDY with bytes of a stream.
fn data(stream: u8, last: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    [&[0, 0, 0, stream, last, 0, 0, length], bytes].concat()
}

async fn frame(from: &mut TcpStream) -> ([u8; 5], Vec<u8>) {
    let mut head = [0; 8];
    from.read_exact(&mut head).await.unwrap();
    let length = u32::from_be_bytes([0, head[5], head[6], head[7]]);
    let mut body = vec![0; usize::try_from(length).unwrap()];
    from.read_exact(&mut body).await.unwrap();
    (head[..5].try_into().unwrap(), body)
}

/// Upstream's TestStreamTranslator_LoopbackStdinToStdout and its siblings (streamtranslator_test.go).
#[test]
fn streams_of_a_command_go_on_as_spdy() {
    run(open, async |rig: Rig| {
        let runtime = WebSocketRuntime::start(&rig).await;
        let (mut caller, head) = asked(&rig, EXEC, V5).await;
        assert!(head.starts_with("http/1.1 101"), "{head}");
        for header in [
            "sec-websocket-protocol: v5.channel.k8s.io\r\n",
            "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n",
        ] {
            assert!(head.contains(header), "{head}");
        }
        assert_eq!(hear(&mut caller).await, (2, vec![1]), "somebody is there");
        let (mut there, sent) = runtime.next(SWITCH).await;
        assert!(sent.starts_with("post /exec/token http/1.1\r\n"), "{sent}");
        assert!(
            sent.contains("x-stream-protocol-version: v4.channel.k8s.io\r\n"),
            "{sent}"
        );
        assert!(
            !sent.contains("dg9rzw4") && !sent.contains("websocket"),
            "{sent}"
        );
        for (at, kind) in ["error", "stdin", "stdout", "stderr"].iter().enumerate() {
            let (head, body) = frame(&mut there).await;
            assert_eq!(head, [0x80, 3, 0, 1, 0]);
            assert_eq!(usize::from(body[3]), 2 * at + 1);
            assert!(body.windows(kind.len()).any(|part| part == kind.as_bytes()));
        }
        say(&mut caller, b"\0typed").await;
        let (head, body) = frame(&mut there).await;
        assert_eq!((head, body.as_slice()), ([0, 0, 0, 3, 0], &b"typed"[..]));
        say(&mut caller, &[255, 0]).await;
        assert_eq!(frame(&mut there).await, ([0, 0, 0, 3, 1], Vec::new()));
        say(&mut caller, b"\0too late").await;
        // A ping is answered, and shows that nothing came before it.
        there
            .write_all(&[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 2])
            .await
            .unwrap();
        assert_eq!(
            frame(&mut there).await,
            ([0x80, 3, 0, 6, 0], vec![0, 0, 0, 2])
        );
        let end = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
        let frames = [
            data(5, 0, b"out"),
            data(7, 0, b"err"),
            data(1, 1, end),
            data(5, 1, b"more"),
            vec![0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 5],
        ];
        there.write_all(&frames.concat()).await.unwrap();
        for said in [&b"\x01out"[..], b"\x02err", b"\x01more"] {
            assert_eq!(hear(&mut caller).await, (2, said.to_vec()));
        }
        let told = status(&mut caller).await;
        assert_eq!(told["reason"], "NonZeroExitCode");
        assert_eq!(told["details"]["causes"][0]["message"], "7");
        assert_eq!(hear(&mut caller).await.0, 8, "and goodbye");
        let mut rest = Vec::new();
        there.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"");
    });
}

#[test]
fn trouble_with_the_runtime_is_told_in_the_websocket() {
    run(open, async |rig: Rig| {
        let runtime = WebSocketRuntime::start(&rig).await;
        let (mut caller, _) = asked(&rig, EXEC, V5).await;
        hear(&mut caller).await;
        runtime
            .next("HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\ngone\n")
            .await;
        let told = status(&mut caller).await;
        let why = "Internal error occurred: unable to upgrade connection: gone";
        assert_eq!(
            (told["code"].as_u64(), told["message"].as_str()),
            (Some(500), Some(why))
        );

        let (mut caller, _) = asked(&rig, EXEC, V5).await;
        hear(&mut caller).await;
        let older = SWITCH.replace("v4.", "v3.");
        runtime.next(&older).await;
        let told = status(&mut caller).await;
        assert!(
            told["message"]
                .as_str()
                .unwrap()
                .contains("unable to negotiate protocol")
        );

        let (mut caller, _) = asked(&rig, EXEC, V5).await;
        hear(&mut caller).await;
        let (mut there, _) = runtime.next(SWITCH).await;
        there.write_all(&data(5, 0, b"half")).await.unwrap();
        there.shutdown().await.unwrap();
        assert_eq!(hear(&mut caller).await.1, b"\x01half");
        let told = status(&mut caller).await;
        let why = "Internal error occurred: error reading from error stream: unexpected EOF";
        assert_eq!(told["message"], why, "half an answer is no success");

        drop(runtime);
        let (mut caller, _) = asked(&rig, EXEC, V5).await;
        hear(&mut caller).await;
        let told = status(&mut caller).await;
        assert!(told["message"].as_str().unwrap().contains("cannot connect"));
    });
}

#[test]
fn command_ends_with_the_caller_and_what_he_may_not_say() {
    run(open, async |rig: Rig| {
        let runtime = WebSocketRuntime::start(&rig).await;
        let huge = [&[0x82, 0xff][..], &(5_u64 << 20).to_be_bytes(), &[0; 4]].concat();
        let unmasked = [0x82, 2, 0, 1].to_vec();
        let half_a_close = [0x82, 0x81, 0, 0, 0, 0, 255].to_vec();
        for bytes in [
            huge,
            unmasked,
            half_a_close,
            b"nonsense".to_vec(),
            Vec::new(),
        ] {
            let (mut caller, _) = asked(&rig, EXEC, V5).await;
            hear(&mut caller).await;
            let (mut there, _) = runtime.next(SWITCH).await;
            caller.write_all(&bytes).await.unwrap();
            caller.flush().await.unwrap();
            if bytes.is_empty() {
                drop(caller);
            }
            let mut rest = Vec::new();
            let read = tokio::time::timeout(SOON, there.read_to_end(&mut rest)).await;
            drop(read.expect("the runtime's stream ends"));
        }
        for (path, headers, status) in [
            (
                EXEC,
                "sec-websocket-version: 12\r\nsec-websocket-key: x\r\n",
                400,
            ),
            (EXEC, "sec-websocket-version: 13\r\n", 400),
            ("/exec/ns/p/c?command=sh", "", 400),
            ("/exec/ns/nope/c?command=sh&output=1", "", 404),
        ] {
            let headers = format!(
                "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n{headers}"
            );
            let told = rig.ask_upgrade(&format!("GET {path}"), &headers).await;
            assert_eq!(told.status, status, "{path}: {told:?}");
        }
    });
}

/// Upstream's TestTunnelingHandler_UpgradeStreamingAndTunneling and its siblings (streamtunnel_test.go).
#[test]
fn spdy_of_a_forwarded_port_goes_through_the_websocket() {
    run(open, async |rig: Rig| {
        let runtime = WebSocketRuntime::start(&rig).await;
        let (mut caller, _) = asked(&rig, "/portForward/ns/p", TUNNEL).await;
        let answer = SWITCH.replace("v4.channel", "portforward");
        let (mut there, sent) = runtime.next(&answer).await;
        assert!(sent.starts_with("post /exec/token http/1.1\r\n"), "{sent}");
        for header in [
            "upgrade: spdy/3.1\r\n",
            "x-stream-protocol-version: portforward.k8s.io\r\n",
            "x-forwarded-for: 127.0.0.1\r\n",
        ] {
            assert!(sent.contains(header), "{header} in {sent}");
        }
        assert!(!sent.contains("websocket"), "{sent}");
        let answer = head(&mut caller).await;
        let chosen = "sec-websocket-protocol: spdy/3.1+portforward.k8s.io\r\n";
        assert!(
            answer.starts_with("http/1.1 101") && answer.contains(chosen),
            "{answer}"
        );
        assert_eq!(*rig.node.asked.borrow(), ["forward []"]);
        let big: Vec<u8> = (0..60_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        say(&mut caller, &big).await;
        let mut got = vec![0; big.len()];
        there.read_exact(&mut got).await.unwrap();
        assert!(got == big);
        there.write_all(&big).await.unwrap();
        let mut got = Vec::new();
        while got.len() < big.len() {
            got.extend(hear(&mut caller).await.1);
        }
        assert!(got == big);
        drop(there);
        assert_eq!(hear(&mut caller).await.0, 8, "goodbye");

        let (mut caller, _) = asked(&rig, "/portForward/ns/p", TUNNEL).await;
        runtime
            .next("HTTP/1.1 503 X\r\ncontent-length: 4\r\n\r\nbusy")
            .await;
        assert!(head(&mut caller).await.starts_with("http/1.1 503"));
        let (mut caller, _) = asked(&rig, "/portForward/ns/p", TUNNEL).await;
        runtime.next(&SWITCH.replace("SPDY/3.1", "other")).await;
        assert!(head(&mut caller).await.starts_with("http/1.1 500"));
    });
}

#[test]
fn newer_websockets_are_the_runtimes_affair_where_the_gate_is_off() {
    let off = |policy: &mut Policy| {
        open(policy);
        policy.paths.websockets = false;
    };
    run(off, async |rig: Rig| {
        let runtime = WebSocketRuntime::start(&rig).await;
        let answering = async {
            let answer = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno";
            runtime.next(answer).await.1
        };
        let asking = asked(&rig, EXEC, V5);
        let (sent, (_, head)) = tokio::join!(answering, asking);
        assert!(
            sent.contains("sec-websocket-protocol: v5.channel.k8s.io\r\n"),
            "{sent}"
        );
        assert!(head.starts_with("http/1.1 403"), "{head}");
    });
}

/// Upstream's TestGetExecWebSocketHandlerSelection and its siblings of attach and port-forward, TestWebsocketExecAttach.
#[test]
fn who_speaks_a_newer_protocol_is_served_here_and_counted_and_an_older_one_is_carried_on() {
    run(open, async |rig: Rig| {
        let runtime = WebSocketRuntime::start(&rig).await;
        let attach = "/attach/ns/p/c?input=1&output=1";
        let tunnel = SWITCH.replace("v4.channel", "portforward");
        let older = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-protocol: v4.channel.k8s.io\r\n\r\n";
        let v4 = "base64url.bearer.authorization.k8s.io.dG9rZW4, v4.channel.k8s.io";
        for (kind, path, protocols, answer, chosen, counted) in [
            ("exec", EXEC, V5, SWITCH, "v5.channel.k8s.io", 1),
            ("attach", attach, V5, SWITCH, "v5.channel.k8s.io", 1),
            (
                "portforward",
                "/portForward/ns/p",
                TUNNEL,
                &tunnel,
                TUNNEL,
                1,
            ),
            ("exec", EXEC, v4, older, "v4.channel.k8s.io", 0),
            ("attach", attach, v4, older, "v4.channel.k8s.io", 0),
        ] {
            let count = || {
                let counter = &metrics::api::http::WEBSOCKETS;
                counter.with_label_values(&[kind]).get()
            };
            let before = count();
            let asking = async {
                let (mut caller, mut told) = asked(&rig, path, protocols).await;
                if told.is_empty() {
                    told = head(&mut caller).await;
                }
                (caller, told)
            };
            let ((_caller, told), (_there, sent)) = tokio::join!(asking, runtime.next(answer));
            let chosen = format!("sec-websocket-protocol: {chosen}\r\n").to_lowercase();
            assert!(
                told.starts_with("http/1.1 101") && told.contains(&chosen),
                "{told}"
            );
            assert_eq!(sent.contains("upgrade: websocket"), counted == 0, "{sent}");
            assert_eq!(count() - before, counted, "{kind} {protocols}");
        }
    });
}
