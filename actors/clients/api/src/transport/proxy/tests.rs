//! Proxies of three kinds before the server, and the rules of the environment.

use kernel::testing::run_paused;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use http_proxy::ProxyEnvironment;

use super::*;
use crate::testing::{Rig, ScriptedReply, acceptor, access, map, maps, nobody};
use crate::{ApiClient, RestConfigError};

/// What a proxy was asked, and its port. It answers what it is told to and then passes on to the server.
struct TestProxy {
    port: u16,
    asked: mpsc::UnboundedReceiver<Vec<u8>>,
}

/// Bytes to read, and bytes to answer them with; or the end of a header.
type Exchange = (Option<usize>, &'static [u8]);

impl TestProxy {
    async fn start(server: u16, exchanges: &'static [Exchange]) -> TestProxy {
        TestProxy::start_within(server, exchanges, None).await
    }

    /// The same, within TLS where it is given.
    async fn start_within(
        server: u16,
        exchanges: &'static [Exchange],
        tls: Option<TlsAcceptor>,
    ) -> TestProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (told, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                client.set_nodelay(true).unwrap();
                let mut client: BoxedStream = match &tls {
                    Some(tls) => match tls.accept(client).await {
                        Ok(client) => Box::new(client),
                        Err(_) => continue,
                    },
                    None => Box::new(client),
                };
                for (length, answer) in exchanges {
                    told.send(heard(&mut client, *length).await).unwrap();
                    client.write_all(answer).await.unwrap();
                    client.flush().await.unwrap();
                }
                let mut server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                server.set_nodelay(true).unwrap();
                tokio::spawn(async move {
                    drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
                });
            }
        });
        TestProxy { port, asked }
    }

    fn asked(&mut self) -> Vec<u8> {
        self.asked.try_recv().unwrap()
    }
}

async fn heard(client: &mut BoxedStream, length: Option<usize>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while length.map_or(!bytes.ends_with(b"\r\n\r\n"), |length| bytes.len() < length) {
        bytes.push(client.read_u8().await.unwrap());
    }
    bytes
}

async fn server() -> Rig {
    Rig::tls(|_, _| ScriptedReply::json(&map("a", 1))).await
}

const CONNECTED: &[Exchange] = &[(None, b"HTTP/1.1 200 Connection established\r\n\r\n")];

#[test]
fn a_server_is_reached_through_the_kubeconfigs_proxy() {
    run_paused(|| async {
        let rig = server().await;
        let mut proxy = TestProxy::start(rig.port, CONNECTED).await;
        let url = format!("http://me:s%40cret@127.0.0.1:{}", proxy.port);
        let client = rig.client_of(json!({"proxy-url": url}), json!({})).unwrap();
        maps(&client).get("a").await.unwrap();
        let asked = String::from_utf8(proxy.asked()).unwrap();
        let start = format!("CONNECT 127.0.0.1:{} HTTP/1.1\r\n", rig.port);
        assert!(asked.starts_with(&start), "{asked}");
        let login = format!(
            "proxy-authorization: Basic {}\r\n",
            BASE64.encode("me:s@cret")
        );
        assert!(
            asked.to_lowercase().contains(&login.to_lowercase()),
            "{asked}"
        );
        maps(&client).get("a").await.unwrap();
        assert_eq!(rig.connections(), 1, "HTTP/2 within the tunnel");
        assert!(proxy.asked.try_recv().is_err());
    });
}

#[test]
fn a_server_is_reached_through_a_proxy_that_speaks_tls_and_shows_a_trusted_certificate() {
    run_paused(|| async {
        let rig = server().await;
        let tls = acceptor(&rig.authority, b"http/1.1");
        let mut proxy = TestProxy::start_within(rig.port, CONNECTED, Some(tls)).await;
        let of = |host: &str| {
            let url = format!("https://{host}:{}", proxy.port);
            rig.client_of(json!({"proxy-url": url}), json!({})).unwrap()
        };
        maps(&of("127.0.0.1")).get("a").await.unwrap();
        let error = maps(&of("localhost")).get("a").await.unwrap_err();
        let text = kernel::error_chain(&error);
        assert!(text.contains("the proxy localhost:"), "{text}");
        assert!(text.contains("certificate"), "{text}");
        assert!(proxy.asked().starts_with(b"CONNECT 127.0.0.1:"));
    });
}

#[test]
fn a_server_is_reached_through_socks_with_and_without_a_login() {
    run_paused(|| async {
        let rig = server().await;
        let bound = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50";
        let cases: [(&[Exchange], &str); 2] = [
            (&[(Some(3), b"\x05\x00"), (Some(10), bound)], "127.0.0.1"),
            (
                &[
                    (Some(4), b"\x05\x02"),
                    (Some(7), b"\x01\x00"),
                    (Some(10), bound),
                ],
                "me:pw@127.0.0.1",
            ),
        ];
        for (exchanges, authority) in cases {
            let exchanges: &'static [Exchange] = Vec::leak(exchanges.to_vec());
            let mut proxy = TestProxy::start(rig.port, exchanges).await;
            let url = format!("socks5://{authority}:{}", proxy.port);
            let client = rig.client_of(json!({"proxy-url": url}), json!({})).unwrap();
            maps(&client).get("a").await.unwrap();
            if exchanges.len() == 3 {
                assert_eq!(proxy.asked(), b"\x05\x02\x00\x02");
                assert_eq!(proxy.asked(), b"\x01\x02me\x02pw");
            } else {
                assert_eq!(proxy.asked(), b"\x05\x01\x00");
            }
            let [high, low] = rig.port.to_be_bytes();
            assert_eq!(proxy.asked(), [5, 1, 0, 1, 127, 0, 0, 1, high, low]);
        }
    });
}

#[test]
fn a_proxy_that_refuses_is_named_without_its_login() {
    run_paused(|| async {
        let rig = server().await;
        let cases: [(&'static [Exchange], &str, &str); 5] = [
            (
                &[(None, b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")],
                "http",
                "407 Proxy",
            ),
            (&[(None, b"SSH-2.0-x\r\n\r\n")], "http", "no HTTP"),
            (&[(Some(4), b"\x05\xff")], "socks5", "another kind of login"),
            (
                &[(Some(4), b"\x05\x00"), (Some(10), b"\x05\x02\x00\x01")],
                "socks5",
                "its rules (2)",
            ),
            (&[(Some(4), b"HT")], "socks5", "no SOCKS 5"),
        ];
        for (exchanges, scheme, expected) in cases {
            let proxy = TestProxy::start(rig.port, exchanges).await;
            let url = format!("{scheme}://me:secret@127.0.0.1:{}", proxy.port);
            let client = rig.client_of(json!({"proxy-url": url}), json!({})).unwrap();
            let error = maps(&client).get("a").await.unwrap_err();
            let text = kernel::error_chain(&error);
            assert!(text.contains(expected), "{text}");
            assert!(text.contains(&proxy.port.to_string()), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
        assert!(rig.requests().is_empty());
    });
}

#[test]
fn the_environments_proxy_is_for_servers_that_no_rule_excepts_and_the_kubeconfigs_for_all() {
    run_paused(|| async {
        let rig = server().await;
        let mut proxy = TestProxy::start(rig.port, CONNECTED).await;
        let client = |cluster, proxies| {
            let mut access = access(rig.kubeconfig(cluster, json!({})));
            access.proxies = proxies;
            ApiClient::new(access, nobody())
        };
        let elsewhere = json!({"server": "https://api.example.com:6443"});
        let proxies = ProxyEnvironment {
            https: format!("127.0.0.1:{}", proxy.port),
            ..ProxyEnvironment::default()
        };
        let through = client(elsewhere.clone(), proxies.clone()).unwrap();
        maps(&through).get("a").await.unwrap();
        let asked = String::from_utf8(proxy.asked()).unwrap();
        assert!(
            asked.starts_with("CONNECT api.example.com:6443 "),
            "{asked}"
        );
        let direct = client(json!({}), proxies).unwrap();
        maps(&direct).get("a").await.unwrap();
        assert!(
            proxy.asked.try_recv().is_err(),
            "loopback is reached directly"
        );
        let strange = ProxyEnvironment {
            https: "ftp://x".to_owned(),
            ..ProxyEnvironment::default()
        };
        let error = client(elsewhere, strange).unwrap_err();
        assert!(matches!(&error, RestConfigError::Proxy { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            "HTTPS_PROXY: expected the scheme http, https or socks5, not \"ftp\""
        );
    });
}
