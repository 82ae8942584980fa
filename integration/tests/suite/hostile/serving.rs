//! Port 10250 under callers without a credential.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use apiserver::CertificateWithKey;
use integration::agent::{Builder, Node};
use integration::cluster::Cluster;
use integration::{http, tls};
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, interval};

use crate::suite::node_rig::restarts;

/// A debug build on a busy machine.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// How late a permitted caller may be answered: less than every timeout of a connection that makes no progress.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const LATE: Duration = Duration::from_millis(100);
/// As many as the port has room for.
pub(super) const CONNECTIONS: usize = 512;
const HANDSHAKES_A_SECOND: usize = 2_000;
const FLOOD: Duration = Duration::from_secs(5);
const MEMORY_MIB: u64 = 64;

pub(super) struct Attacked {
    pub(super) cluster: Cluster,
    operator: CertificateWithKey,
}

impl Attacked {
    pub(super) async fn on(builder: Builder) -> Attacked {
        let cluster = Cluster::start(builder).await.unwrap();
        cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
        let server = cluster.double();
        server.token("good-token", "operator", &["system:masters"]);
        let operator = server.client_certificate("kubernetes-admin", "system:masters", 3600);
        Attacked {
            operator: operator.unwrap(),
            cluster,
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.cluster.node.https_port()
    }

    /// Callers with a right are served, and the memory is within its bound.
    pub(super) async fn assert_serves(&self, when: &str) {
        let token = request("good-token");
        for (caller, head) in [(Some(&self.operator), request("")), (None, token)] {
            let began = Instant::now();
            let told = tls::send(self.port(), caller, &head).await.unwrap();
            assert_eq!(told.status, 200, "{when}: {told:?}");
            let took = began.elapsed();
            assert!(took < ANSWER_TIMEOUT, "{when}: {took:?}");
        }
        let memory = self.anonymous_memory();
        assert!(memory < MEMORY_MIB, "{when}: {memory} MiB");
    }

    /// MiB that are no file's: the code of a debug build is large.
    pub(super) fn anonymous_memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.cluster.node.pid().unwrap());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let number = line.unwrap().trim().trim_end_matches(" kB");
        number.parse::<u64>().unwrap() / 1024
    }
}

pub(super) fn request(token: &str) -> Vec<u8> {
    let bearer = match token {
        "" => String::new(),
        token => format!("authorization: Bearer {token}\r\n"),
    };
    format!("GET /healthz HTTP/1.1\r\nhost: node\r\nconnection: close\r\n{bearer}\r\n").into_bytes()
}

/// HTTP/2 that asks for the pods, and opens no window for the answer.
pub(super) fn windowless_request() -> Vec<u8> {
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    // GET, https, a path and an authority, as HPACK; the stream and its headers end here.
    let headers = b"\x82\x87\x04\x05/pods\x01\x04node";
    let length = u8::try_from(headers.len()).unwrap();
    let frame = [0, 0, length, 1, 5, 0, 0, 0, 1];
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &settings[..],
        &frame,
        headers,
    ]
    .concat()
}

/// The first bytes of a handshake, which the server answers with a signature.
fn client_hello() -> Vec<u8> {
    let name = ServerName::try_from("localhost").unwrap();
    let config = Arc::new(tls::any_server(None).unwrap());
    let mut connection = rustls::ClientConnection::new(config, name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

/// Begins handshakes at the rate for so long, and lets the oldest go.
pub(super) async fn flood(port: u16, within: Duration) {
    let hello = client_hello();
    let mut held = VecDeque::new();
    let mut ticks = interval(Duration::from_millis(10));
    let began = Instant::now();
    while began.elapsed() < within {
        ticks.tick().await;
        for _ in 0..HANDSHAKES_A_SECOND / 100 {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            drop(stream.write_all(&hello).await);
            held.push_back(stream);
        }
        while held.len() > CONNECTIONS {
            held.pop_front();
        }
    }
}

/// How long each probe of the actors' thread took, until this is dropped.
async fn probe(port: u16, took: &mut Vec<Duration>) {
    let mut ticks = interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        let began = Instant::now();
        assert_eq!(http::get(port, "/healthz").await.unwrap().status, 200);
        took.push(began.elapsed());
    }
}

#[tokio::test]
async fn nobody_without_a_right_shuts_the_port_or_delays_a_probe() {
    let attacked = Attacked::on(Node::builder()).await;
    let port = attacked.port();
    attacked.assert_serves("before").await;

    let mut windowless = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = tls::connect_http2(port).await.unwrap();
        drop(stream.write_all(&windowless_request()).await);
        windowless.push(stream);
    }
    attacked.assert_serves("no window is open").await;

    let mut invented = Vec::new();
    for number in 0..100 {
        let mut stream = tls::connect(port, None).await.unwrap();
        let head = request(&format!("invented-{number}"));
        stream.write_all(&head).await.unwrap();
        invented.push(stream);
    }
    attacked.assert_serves("tokens are invented").await;

    let mut took = Vec::new();
    tokio::select! {
        () = flood(port, FLOOD) => {}
        () = probe(attacked.cluster.node.healthz_port(), &mut took) => {}
    }
    // The attacker takes its share of the cores: a probe may wait for one of these.
    let late = took.iter().filter(|took| **took > LATE).count();
    assert!(
        took.len() > 50 && late * 20 <= took.len(),
        "{late} of {}: {took:?}",
        took.len()
    );
    attacked.assert_serves("handshakes are begun").await;
    assert_eq!(
        restarts(&attacked.cluster.node.admin("/tree").await.unwrap()),
        0
    );
    drop((windowless, invented));
}
