//! A client, the double, and a kubelet that says what it was asked.

use std::sync::Arc;

use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::{Server, ServerOptions};

const POD: &str = "/api/v1/namespaces/default/pods/a";

/// Starts a kubelet that takes only clients of the cluster, and a server with one pod on it.
async fn rig() -> Server {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let authority = &server.state.auth.authority;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .unwrap();
    let (certificate, key) = authority.serving().unwrap();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(kubelet(stream));
            }
        }
    });
    server
        .post(
            "/api/v1/nodes",
            &json!({"metadata": {"name": "n"}, "status": {}}),
        )
        .unwrap();
    let status = json!({"addresses": [{"type": "Hostname", "address": "absent"}, {"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}});
    server
        .patch("/api/v1/nodes/n/status", &json!({"status": status}))
        .unwrap();
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]});
    server
        .post(
            "/api/v1/namespaces/default/pods",
            &json!({"metadata": {"name": "a"}, "spec": spec}),
        )
        .unwrap();
    server
}

/// Answers with the request's line; echoes after an upgrade, and refuses the log of tail 7.
async fn kubelet(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let head = head(&mut stream).await;
    let line = head.lines().next().unwrap_or_default().to_string();
    if head.to_lowercase().contains("upgrade: spdy/3.1") {
        stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4\r\n\r\n").await.unwrap();
        stream.write_all(line.as_bytes()).await.unwrap();
        let mut bytes = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut bytes).await {
            stream.write_all(&bytes[..count]).await.unwrap();
        }
        stream.shutdown().await.unwrap_or_default();
        return;
    }
    let (code, text) = if line.contains("tailLines=7") {
        ("400 Bad Request", "container is waiting".to_string())
    } else {
        ("200 OK", line)
    };
    let answer = format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\n\r\n",
        text.len()
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

async fn ask(server: &Server, path: &str, headers: &str) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n").as_bytes())
        .await
        .unwrap();
    (head(&mut stream).await, stream)
}

const SPDY: &str = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4\r\n";

#[tokio::test]
async fn an_upgraded_connection_is_carried_byte_for_byte() {
    let server = rig().await;
    let (head, mut stream) = ask(&server, &format!("{POD}/exec?command=sh&stdin=true"), SPDY).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(
        head.to_lowercase()
            .contains("x-stream-protocol-version: v4"),
        "{head}"
    );
    let line = b"GET /exec/default/a/c?input=1&command=sh HTTP/1.1";
    let mut heard = vec![0; line.len()];
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, line);
    let said: Vec<u8> = (0..=255).collect();
    stream.write_all(&said).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, said);
}

#[tokio::test]
async fn what_wants_no_upgrade_gets_a_refusal() {
    let server = rig().await;
    assert!(
        ask(&server, &format!("{POD}/exec?command=sh"), "")
            .await
            .0
            .starts_with("HTTP/1.1 400")
    );
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n";
    assert!(
        ask(&server, &format!("{POD}/exec?command=sh"), websocket)
            .await
            .0
            .starts_with("HTTP/1.1 400")
    );
    assert!(
        ask(&server, &format!("{POD}x/exec?command=sh"), SPDY)
            .await
            .0
            .starts_with("HTTP/1.1 404")
    );
}

#[tokio::test]
async fn newer_websockets_are_carried_where_the_node_declares_that_it_understands_them() {
    let server = rig().await;
    let websocket = |protocol: &str| {
        format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: {protocol}\r\n"
        )
    };
    let exec = format!("{POD}/exec?command=sh");
    let newer = websocket("a, v5.channel.k8s.io");
    assert!(
        ask(&server, &exec, &newer)
            .await
            .0
            .starts_with("HTTP/1.1 400")
    );
    let status = json!({"status": {"declaredFeatures": ["ExtendWebSocketsToKubelet"]}});
    server.patch("/api/v1/nodes/n/status", &status).unwrap();
    // This kubelet says what it was asked.
    assert!(
        ask(&server, &exec, &newer)
            .await
            .0
            .starts_with("HTTP/1.1 200")
    );
    let older = websocket("v4.channel.k8s.io");
    assert!(
        ask(&server, &exec, &older)
            .await
            .0
            .starts_with("HTTP/1.1 400")
    );
}

async fn body(server: &Server, path: &str) -> (String, String) {
    let (head, mut stream) = ask(server, path, "Connection: close\r\n").await;
    let mut body = String::new();
    stream.read_to_string(&mut body).await.unwrap();
    (head, body)
}

#[tokio::test]
async fn logs_and_the_proxy_of_a_node_come_from_its_kubelet() {
    let server = rig().await;
    let (head, text) = body(&server, &format!("{POD}/log?tailLines=5")).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(
        text.contains("GET /containerLogs/default/a/c?tailLines=5 HTTP/1.1"),
        "{text}"
    );
    let (_, text) = body(&server, "/api/v1/nodes/n/proxy/configz?x=y").await;
    assert!(text.contains("GET /configz?x=y HTTP/1.1"), "{text}");
    let (head, text) = body(&server, &format!("{POD}/log?tailLines=7")).await;
    let status: Value = serde_json::from_str(&text).unwrap();
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    assert_eq!(
        (status["reason"].as_str(), status["message"].as_str()),
        (Some("BadRequest"), Some("container is waiting"))
    );
}
