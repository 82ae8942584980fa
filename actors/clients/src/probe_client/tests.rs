//! Real sockets on loopback, in the test's own runtime: correct servers, and faulty ones.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use kernel::testing::run_paused;
use logic_pods::probes::result::ProbeOutcome;
use logic_pods::probes::target::{HttpTarget, RequestPurpose};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

use super::grpc::HealthCheckRequest;
use super::http::{HttpError, HttpResponse, exchange};
use super::{MAX_BODY, ProbeClient};

const TEST_TIMEOUT: Duration = Duration::from_secs(1);
const CERTIFICATE: &[u8] = include_bytes!("testdata/localhost.pem");
const KEY: &[u8] = include_bytes!("testdata/localhost.key");

fn target(scheme: &str, port: u16, path: &str) -> HttpTarget {
    HttpTarget {
        scheme: scheme.into(),
        host: "127.0.0.1".into(),
        port,
        path: path.into(),
        url: format!("{scheme}://127.0.0.1:{port}{path}"),
        host_header: None,
        headers: vec![
            (
                "User-Agent".into(),
                RequestPurpose::Probe.user_agent().into(),
            ),
            ("x-muffins-or-cupcakes".into(), "muffins".into()),
        ],
    }
}

/// Upstream's TestTcpHealthChecker.
#[test]
fn a_port_that_listens_is_reached_and_another_one_refuses() {
    run_paused(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let probe_client = ProbeClient::default();
        probe_client
            .dial("127.0.0.1", port, TEST_TIMEOUT)
            .await
            .unwrap();
        drop(listener);
        let error = probe_client
            .dial("127.0.0.1", port, TEST_TIMEOUT)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("dial tcp 127.0.0.1:{port}: connect: connection refused")
        );
    });
}

/// On the real clock: a paused one does not wait for the look-up's thread.
#[tokio::test]
async fn a_name_is_looked_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let probe_client = ProbeClient::default();
    probe_client
        .dial("localhost", port, TEST_TIMEOUT)
        .await
        .unwrap();
}

#[test]
fn nobody_is_reached_where_there_is_no_address() {
    run_paused(|| async {
        let error = ProbeClient::default()
            .dial("", 80, TEST_TIMEOUT)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "dial tcp :80: missing address");
    });
}

#[test]
fn a_host_that_swallows_packets_is_given_up_in_time() {
    run_paused(|| async {
        // A backlog that is never accepted from: the third connection is never answered.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let port = listener.local_addr().unwrap().port();
        let probe_client = ProbeClient::default();
        let mut kept = Vec::new();
        let error = loop {
            match probe_client.dial("127.0.0.1", port, TEST_TIMEOUT).await {
                Ok(stream) => kept.push(stream),
                Err(error) => break error,
            }
            assert!(kept.len() < 10, "the backlog never fills");
        };
        let expected = format!("dial tcp 127.0.0.1:{port}: i/o timeout");
        assert_eq!(error.to_string(), expected);
    });
}

/// The answer of a scripted server to a request.
enum ServerScript {
    Answer(String),
    /// Sends this, then nothing more, and keeps the connection open.
    Stall(&'static str),
    /// Sends this without end.
    Flood(&'static str, &'static str),
}

fn answer(status: u16, headers: &str, body: &str) -> ServerScript {
    ServerScript::Answer(format!(
        "HTTP/1.1 {status} Some Reason\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    ))
}

/// Answers by a script that sees the request's text; returns the port.
async fn serve(script: impl Fn(&str) -> ServerScript + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = Rc::new(script);
    spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let script = script.clone();
            spawn_local(async move { play(stream, &*script).await });
        }
    });
    port
}

async fn play(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    script: &dyn Fn(&str) -> ServerScript,
) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    match script(&String::from_utf8_lossy(&request)) {
        ServerScript::Answer(text) => {
            stream.write_all(text.as_bytes()).await.ok();
            stream.shutdown().await.ok();
        }
        ServerScript::Stall(text) => {
            stream.write_all(text.as_bytes()).await.ok();
            std::future::pending().await
        }
        ServerScript::Flood(head, again) => {
            stream.write_all(head.as_bytes()).await.ok();
            while stream.write_all(again.as_bytes()).await.is_ok() {
                tokio::task::yield_now().await;
            }
        }
    }
}

fn got(
    script: impl Fn(&str) -> ServerScript + 'static,
    path: &'static str,
) -> Result<HttpResponse, HttpError> {
    run_paused(|| async {
        let port = serve(script).await;
        ProbeClient::default()
            .get(&target("http", port, path), TEST_TIMEOUT)
            .await
    })
}

/// An error's text with the port taken out.
fn text(error: HttpError) -> String {
    let text = error.to_string();
    let (before, after) = text.split_once("127.0.0.1:").unwrap_or((&text, ""));
    let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}{after}")
}

/// Upstream's TestHTTPProbeChecker: the request.
#[test]
fn the_request_is_the_definitions_own_and_asks_for_the_connection_to_be_closed() {
    let answer = got(|request| answer(200, "", request), "/a?b").unwrap();
    let (first, headers) = answer.body.split_once("\r\n").unwrap();
    assert_eq!(first, "GET /a?b HTTP/1.1");
    for line in [
        "User-Agent: kube-probe/1.36\r\n",
        "X-Muffins-Or-Cupcakes: muffins\r\n",
        "Connection: close\r\n",
        "Host: 127.0.0.1:",
    ] {
        assert!(headers.contains(line), "{line} is not in {headers}");
    }
    assert!(!headers.contains("Accept-Encoding"));
}

/// Upstream's TestHTTPProbeChecker: statuses and redirects.
#[test]
fn redirects_are_followed_to_their_end() {
    let script = |request: &str| match request.split(' ').nth(1).unwrap() {
        "/" => answer(302, "Location: /new\r\n", "moved"),
        "/new" => answer(500, "", "bad"),
        _ => answer(308, "Location: http://0.0.0.0/\r\n", "elsewhere"),
    };
    assert_eq!(got(script, "/").unwrap().status, 500);
    let elsewhere = got(script, "/elsewhere").unwrap();
    let expected = HttpResponse {
        status: 308,
        body: "elsewhere".into(),
    };
    assert_eq!(elsewhere, expected);
}

/// Upstream's TestHTTPProbeChecker_NonLocalRedirects: the loop.
#[test]
fn a_loop_of_redirects_ends() {
    let error = got(|_| answer(302, "Location: /loop\r\n", ""), "/loop").unwrap_err();
    assert!(
        error.to_string().ends_with("stopped after 10 redirects"),
        "{error}"
    );
}

/// Upstream's TestHTTPProbeChecker_HostHeaderPreservedAfterRedirect.
#[test]
fn the_named_host_is_said_to_the_server_and_again_after_a_redirect() {
    let status = run_paused(|| async {
        let port = serve(
            |request| match request.contains("Host: www.success.com\r\n") {
                true if request.starts_with("GET / ") => answer(302, "Location: /x\r\n", ""),
                true => answer(200, "", ""),
                false => answer(400, "", ""),
            },
        )
        .await;
        let mut target = target("http", port, "/");
        target.host_header = Some("www.success.com".into());
        ProbeClient::default()
            .get(&target, TEST_TIMEOUT)
            .await
            .unwrap()
            .status
    });
    assert_eq!(status, 200);
}

/// Upstream's TestHTTPProbeChecker_PayloadTruncated and TestHTTPProbeChecker_PayloadNormal.
#[test]
fn of_a_body_only_the_beginning_is_read() {
    let long = "a".repeat(MAX_BODY + 1);
    let body = got(move |_| answer(200, "", &long), "/").unwrap().body;
    assert_eq!(body, "a".repeat(MAX_BODY));
    let short = "a".repeat(MAX_BODY - 1);
    let body = got(move |_| answer(200, "", &short), "/").unwrap().body;
    assert_eq!(body.len(), MAX_BODY - 1);
}

/// As Go's client, which takes 10 MiB in all.
#[test]
fn headers_are_taken_whatever_their_size_and_number() {
    let one = format!("X-Long: {}\r\n", "x".repeat(200_000));
    let many: String = (0..50_000).map(|n| format!("X-{n}: a\r\n")).collect();
    for headers in [one, many] {
        let reply = got(move |_| answer(200, &headers, "fine"), "/").unwrap();
        assert_eq!((reply.status, reply.body.as_str()), (200, "fine"));
    }
    let endless = format!("X: {}\r\n", "x".repeat(1_000_000)).repeat(11);
    let error = got(move |_| answer(200, &endless, "fine"), "/").unwrap_err();
    let expected = "net/http: server response headers exceeded 10485760 bytes; aborted";
    assert!(text(error).contains(expected));
}

#[test]
fn who_floods_is_cut_off_at_the_limit() {
    // Long, so that ten MiB of them are not a million writes.
    const HEADER: &str = concat!(
        "a: 0123456789012345678901234567890123456789012345678901234567890123456789",
        "0123456789012345678901234567890123456789012345678901234567890123456789\r\n",
    );
    let endless = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = got(move |_| ServerScript::Flood(endless, "4\r\nlogs\r\n"), "/").unwrap();
    assert_eq!(answer.body.len(), MAX_BODY);
    let error = got(|_| ServerScript::Flood("HTTP/1.1 200 OK\r\n", HEADER), "/").unwrap_err();
    assert!(matches!(error, HttpError::Get { .. }), "{error}");
}

/// Upstream's TestHTTPProbeChecker: the server that sleeps.
#[test]
fn who_does_not_answer_is_given_up_at_the_deadline() {
    let error = got(|_| ServerScript::Stall(""), "/").unwrap_err();
    assert_eq!(
        text(error),
        "Get \"http:///\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    );
}

#[test]
fn a_body_that_stops_halfway_is_no_answer_and_no_refusal() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    let error = got(move |_| ServerScript::Stall(head), "/").unwrap_err();
    assert!(error.in_body());
    let text =
        "context deadline exceeded (Client.Timeout or context cancellation while reading body)";
    assert_eq!(error.to_string(), text);
    let error = got(move |_| ServerScript::Answer(head.into()), "/").unwrap_err();
    assert_eq!(error.to_string(), "unexpected EOF");
}

/// As `nc -l` does, and Go's client takes it.
#[tokio::test]
async fn a_server_that_answers_before_it_is_asked_is_heard() {
    let (near, mut far) = tokio::io::duplex(MAX_BODY);
    let response = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nready";
    far.write_all(response).await.unwrap();
    let asked = exchange(near, Request::default(), kernel::now() + TEST_TIMEOUT);
    let served = async {
        let mut request = [0; 4];
        far.read_exact(&mut request).await.unwrap();
        drop(far);
    };
    let (got, ()) = tokio::join!(asked, served);
    let healthy = HttpResponse {
        status: 200,
        body: "ready".into(),
    };
    assert_eq!(got.unwrap().answer, healthy);
}

#[test]
fn what_is_no_http_is_told() {
    let error = got(|_| ServerScript::Answer(String::new()), "/").unwrap_err();
    assert!(text(error).ends_with("EOF"));
    let error = got(|_| ServerScript::Answer("SSH-2.0\r\n\r\n".into()), "/").unwrap_err();
    assert!(text(error).ends_with("malformed HTTP response"));
}

#[test]
fn what_cannot_be_asked_is_told() {
    let errors = run_paused(|| async {
        let probe_client = ProbeClient::default();
        let mut bad = target("http", 1, "/");
        bad.headers = vec![("a b".into(), "c".into())];
        let mut errors = Vec::new();
        for target in [bad, target("baz", 1, "/"), target("http", 1, "/")] {
            errors.push(text(
                probe_client.get(&target, TEST_TIMEOUT).await.unwrap_err(),
            ));
        }
        errors
    });
    let expected = [
        "Get \"http:///\": net/http: invalid header field name \"a b\"",
        "Get \"baz:///\": unsupported protocol scheme \"baz\"",
        "Get \"http:///\": dial tcp 127.0.0.1:1: connect: connection refused",
    ];
    assert_eq!(errors, expected);
}

async fn serve_tls(script: impl Fn(&str) -> ServerScript + 'static) -> u16 {
    let certificates = CertificateDer::pem_slice_iter(CERTIFICATE);
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            certificates.collect::<Result<_, _>>().unwrap(),
            PrivateKeyDer::from_pem_slice(KEY).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                play(stream, &script).await;
            }
        }
    });
    port
}

#[test]
fn over_tls_every_certificate_is_taken() {
    let answer = run_paused(|| async {
        let port = serve_tls(|_| answer(200, "", "safe")).await;
        ProbeClient::default()
            .get(&target("https", port, "/"), TEST_TIMEOUT)
            .await
    });
    assert_eq!(answer.unwrap().body, "safe");
}

/// Upstream's TestIsHTTPResponseError.
#[test]
fn a_server_that_speaks_plain_http_is_recognised() {
    let found = |said: &'static str| {
        run_paused(|| async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            spawn_local(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(said.as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            });
            let target = target("https", port, "/");
            ProbeClient::default()
                .get(&target, TEST_TIMEOUT)
                .await
                .unwrap_err()
        })
    };
    let error = found("HTTP/1.1 400 Bad Request\r\n\r\n");
    assert!(error.speaks_http());
    assert!(text(error).ends_with("http: server gave HTTP response to HTTPS client"));
    let error = found("SSH-2.0-OpenSSH_9.2\r\n");
    assert!(!error.speaks_http(), "{error}");
}

#[test]
fn a_tls_handshake_that_never_ends_is_given_up_at_the_deadline() {
    let error = run_paused(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent = spawn_local(async move { listener.accept().await });
        let target = target("https", port, "/");
        let error = ProbeClient::default()
            .get(&target, TEST_TIMEOUT)
            .await
            .unwrap_err();
        drop(silent.await);
        error
    });
    assert!(error.is_deadline());
}

/// A gRPC server that answers every call with this body and these trailers.
async fn serve_grpc(answer: impl Fn(&[u8]) -> Option<(Vec<u8>, HeaderMap)> + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Rc::new(answer);
    spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                    assert_eq!(request.headers()["user-agent"], "kube-probe/1.36");
                    let asked = request.into_body().collect().await?.to_bytes();
                    let Some((body, trailers)) = answer(&asked) else {
                        return std::future::pending().await;
                    };
                    let body = Full::new(Bytes::from(body));
                    let body = body.with_trailers(async move { Some(Ok(trailers)) });
                    let response = Response::builder().header("content-type", "application/grpc");
                    Ok::<_, hyper::Error>(response.body(body).unwrap())
                }
            });
            let server = hyper::server::conn::http2::Builder::new(LocalExecutor);
            spawn_local(async move {
                drop(server.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
    port
}

/// Runs a connection's tasks beside the test.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        drop(spawn_local(future));
    }
}

fn ok() -> HeaderMap {
    status(0, "")
}

fn status(code: u16, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.to_string().parse().unwrap());
    trailers.insert("grpc-message", message.parse().unwrap());
    trailers
}

fn health(answer: impl Fn(&[u8]) -> Option<(Vec<u8>, HeaderMap)> + 'static) -> ProbeOutcome {
    run_paused(|| async {
        let port = serve_grpc(answer).await;
        let question = HealthCheckRequest {
            host: "127.0.0.1",
            port,
            service: "liveness",
        };
        ProbeClient::default()
            .health(question, 2 * TEST_TIMEOUT)
            .await
    })
}

fn failure(text: &str) -> ProbeOutcome {
    ProbeOutcome::Failure(text.into())
}

/// Upstream's TestGrpcProber_Probe.
#[test]
fn a_service_is_healthy_if_it_says_that_it_serves() {
    let served = health(|asked| {
        assert_eq!(asked, b"\0\0\0\0\x0a\x0a\x08liveness");
        Some((vec![0, 0, 0, 0, 2, 8, 1], ok()))
    });
    assert_eq!(served, ProbeOutcome::Success("service healthy".into()));
    let not = health(|_| Some((vec![0, 0, 0, 0, 2, 8, 2], ok())));
    let text = "service unhealthy (responded with \"NOT_SERVING\")";
    assert_eq!(not, failure(text));
    let unset = health(|_| Some((vec![0, 0, 0, 0, 0], ok())));
    let text = "service unhealthy (responded with \"UNKNOWN\")";
    assert_eq!(unset, failure(text));
}

/// Upstream's TestGrpcProber_Probe: the server that sleeps.
#[test]
fn a_service_that_does_not_answer_is_given_up_at_the_deadline() {
    let text = "timeout: health rpc did not complete within 2s";
    assert_eq!(health(|_| None), failure(text));
}

#[test]
fn a_service_that_refuses_is_quoted() {
    let refused = |code| health(move |_| Some((Vec::new(), status(code, "no such thing"))));
    let text = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): no such thing";
    assert_eq!(refused(12), failure(text));
    let text = "error: health rpc probe failed: rpc error: code = NotFound desc = no such thing";
    assert_eq!(refused(5), failure(text));
}

#[test]
fn a_health_answer_that_makes_no_sense_or_no_end_is_a_failure() {
    for bad in [
        vec![],
        vec![0, 0, 0],
        vec![1, 0, 0, 0, 2, 8, 1],
        vec![0, 0, 0, 0, 9, 8, 1],
        vec![0, 0, 0, 0, 2, 8, 0x80],
        vec![0; 64 << 10],
    ] {
        let outcome = health(move |_| Some((bad.clone(), ok())));
        assert!(matches!(outcome, ProbeOutcome::Failure(_)), "{outcome:?}");
    }
}

/// Upstream's TestGrpcProber_Probe: no host, and a server that speaks no gRPC.
#[test]
fn where_no_grpc_is_spoken_the_probe_fails() {
    let outcomes = run_paused(|| async {
        let probe_client = ProbeClient::default();
        let port = serve(|_| answer(200, "", "res")).await;
        let ask = |host, port| HealthCheckRequest {
            host,
            port,
            service: "",
        };
        [
            probe_client
                .health(ask("127.0.0.1", port), TEST_TIMEOUT)
                .await,
            probe_client.health(ask("127.0.0.1", 1), TEST_TIMEOUT).await,
            probe_client.health(ask("", 32), TEST_TIMEOUT).await,
        ]
    });
    assert!(
        matches!(outcomes[0], ProbeOutcome::Failure(_)),
        "{:?}",
        outcomes[0]
    );
    let text =
        "timeout: failed to connect service \"127.0.0.1:1\" within 1s: context deadline exceeded";
    assert_eq!(outcomes[1], failure(text));
    let text = "error: failed to connect service at \":32\": dial tcp :32: missing address";
    assert_eq!(outcomes[2], failure(text));
}
