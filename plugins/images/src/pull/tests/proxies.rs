//! Proxies of the environment, between a pull and its registry.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::secure::Secure;
use super::*;

/// A proxy that knows one server, whatever it is asked for; returns the heads of what it was asked.
async fn proxy(server: String) -> (String, Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heads = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = heads.clone();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let (server, told) = (server.clone(), told.clone());
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = client.read_u8().await else {
                        return;
                    };
                    head.push(byte);
                }
                let text = String::from_utf8(head.clone()).unwrap();
                let is_tunnel = text.starts_with("CONNECT ");
                told.lock().unwrap().push(text);
                let mut server = TcpStream::connect(server).await.unwrap();
                match is_tunnel {
                    true => client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap(),
                    false => server.write_all(&head).await.unwrap(),
                }
                drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
            });
        }
    });
    (address, heads)
}

fn environment(https: &str, http: &str, none: &str) -> Arc<ProxyEnvironment> {
    Arc::new(ProxyEnvironment {
        https: https.to_owned(),
        http: http.to_owned(),
        none: none.to_owned(),
    })
}

/// The reference of what `address` serves, by a name that only a proxy knows.
fn elsewhere(rig: &Rig, certs: &std::path::Path, scheme: &str) -> Reference {
    rig.registry.serve(&image(), "x:1");
    hosts_toml(
        certs,
        "registry.test:5000",
        &format!("server = '{scheme}://registry.test:5000'"),
    );
    "registry.test:5000/x:1".parse().unwrap()
}

#[tokio::test]
async fn a_registry_without_tls_is_asked_for_through_the_proxy() {
    let rig = Rig::new().await;
    let certs = tempfile::tempdir().unwrap();
    let reference = elsewhere(&rig, certs.path(), "http");
    let (address, heads) = proxy(rig.registry.address.clone()).await;
    let by = |proxies| Pull {
        certs: Some(certs.path().to_owned()),
        proxies,
        ..pull(&reference)
    };
    let through = environment("", &format!("http://me:secret@{address}"), "other.test");
    rig.store.pull(by(through)).await.unwrap();
    let head = heads.lock().unwrap()[0].to_lowercase();
    assert!(
        head.starts_with("get http://registry.test:5000/v2/x/manifests/1 "),
        "{head}"
    );
    assert!(
        head.contains("proxy-authorization: basic bwu6c2vjcmv0\r\n"),
        "{head}"
    );
    // What NO_PROXY excepts is reached directly, where its name is not known.
    let asked = heads.lock().unwrap().len();
    for none in ["registry.test", ".test:5000", "*"] {
        let direct = environment("", &format!("http://{address}"), none);
        rig.store
            .pull(Pull {
                deadline: Instant::now() + Duration::from_secs(2),
                ..by(direct)
            })
            .await
            .unwrap_err();
    }
    assert_eq!(heads.lock().unwrap().len(), asked);
}

#[tokio::test]
async fn a_registry_with_tls_is_reached_through_a_tunnel_and_loopback_without_any_proxy() {
    let rig = Rig::new().await;
    let secure = Secure::start_named("ca = 'ca.pem'", "registry.test").await;
    let port = secure.registry.address.rsplit(':').next().unwrap();
    let reference: Reference = format!("registry.test:{port}/x:1").parse().unwrap();
    secure.registry.serve(&image(), "x:1");
    let (address, heads) = proxy(secure.registry.address.clone()).await;
    let proxies = environment(&address, "http://127.0.0.1:1", "");
    let request = Pull {
        proxies: proxies.clone(),
        ..secure.pull(&reference)
    };
    rig.store.pull(request).await.unwrap();
    let head = heads.lock().unwrap()[0].clone();
    assert!(
        head.starts_with(&format!("CONNECT registry.test:{port} HTTP/1.1\r\n")),
        "{}",
        head
    );
    let local = rig.registry.serve(&image(), "y:1");
    rig.store
        .pull(Pull {
            proxies,
            ..pull(&local)
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_proxy_that_is_none_is_named_by_its_variable() {
    let rig = Rig::with(Limits {
        attempts: 1,
        ..limits()
    })
    .await;
    let certs = tempfile::tempdir().unwrap();
    let reference = elsewhere(&rig, certs.path(), "http");
    let request = Pull {
        certs: Some(certs.path().to_owned()),
        proxies: environment("", "ftp://x", ""),
        ..pull(&reference)
    };
    let error = rig.store.pull(request).await.unwrap_err();
    let PullError::Registry { source, .. } = error else {
        panic!("{error:?}");
    };
    let text = source.failure.to_string();
    assert!(
        text.contains("HTTP_PROXY: expected the scheme http, https or socks5"),
        "{text}"
    );
}
