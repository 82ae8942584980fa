//! The way to the API server by the service's environment: HTTPS_PROXY, NO_PROXY.

use std::fs;
use std::io;
use std::sync::{Arc, Mutex};

use apiserver::ServerOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A loopback address is reached without a proxy whatever the environment says; this one is none, and leads to the same place.
const ADDRESS: &str = "0.0.0.0";

/// A proxy that connects whoever asks for it.
struct ProxyDouble {
    url: String,
    /// The places that it was asked for.
    asked: Arc<Mutex<Vec<String>>>,
}

impl ProxyDouble {
    async fn start() -> ProxyDouble {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let places = Arc::clone(&asked);
        drop(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                drop(tokio::spawn(pass(client, Arc::clone(&places))));
            }
        }));
        ProxyDouble { url, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn pass(mut client: TcpStream, asked: Arc<Mutex<Vec<String>>>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let place = head.split(' ').nth(1).unwrap_or_default().to_owned();
    asked.lock().unwrap().push(place.clone());
    let mut server = TcpStream::connect(place).await?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// Starts a node with these variables, whose kubeconfig has the server at [`ADDRESS`]; returns that place.
async fn node_ready(environment: &[(&str, &str)]) -> String {
    let builder = environment
        .iter()
        .fold(Node::builder(), |builder, (name, value)| {
            builder.environment(name, value)
        });
    let mut cluster = Cluster::prepare(builder, ServerOptions::default())
        .await
        .unwrap();
    let url = cluster.double().url();
    let place = url.replace("https://127.0.0.1", ADDRESS);
    let file = cluster.node.dir().join("kubeconfig");
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let server = &mut kubeconfig["clusters"][0]["cluster"];
    server["server"] = json!(format!("https://{place}"));
    server["tls-server-name"] = json!("127.0.0.1");
    fs::write(&file, kubeconfig.to_string()).unwrap();
    cluster.node.begin().await.unwrap();
    cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    place
}

#[tokio::test]
async fn the_environments_proxy_leads_to_the_api_server_unless_no_proxy_has_it() {
    let proxy = ProxyDouble::start().await;
    let place = node_ready(&[("HTTPS_PROXY", &proxy.url)]).await;
    let asked = proxy.asked();
    assert!(
        !asked.is_empty(),
        "the server was reached without the proxy"
    );
    assert!(asked.iter().all(|asked| *asked == place), "{asked:?}");

    let proxy = ProxyDouble::start().await;
    node_ready(&[
        ("HTTPS_PROXY", &proxy.url),
        ("NO_PROXY", "10.0.0.0/8, 0.0.0.0/8"),
    ])
    .await;
    assert_eq!(proxy.asked(), [""; 0]);
}
