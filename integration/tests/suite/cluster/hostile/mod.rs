//! The node's ports answer every client clearly, and serve only the authorized.

mod callers;
mod requests;

use apiserver::{CertificateWithKey, Server};
use integration::tls::{self, RawResponse};
use integration::wait_until;

use super::*;
use crate::suite::node_rig::restarts;

const SECRET: &str = "open-sesame-77";

/// A node that caches decisions for an instant only, logs at the highest level, and runs a pod with a secret.
async fn guarded() -> Cluster {
    guarded_by(ServerKind::Double).await
}

/// The same with this server.
async fn guarded_by(which: ServerKind) -> Cluster {
    let instant = json!({ "cacheTTL": "1ms" });
    let instants = json!({ "cacheAuthorizedTTL": "1ms", "cacheUnauthorizedTTL": "1ms" });
    let node = Node::builder().config(&json!({
        "authentication": { "webhook": instant },
        "authorization": { "webhook": instants },
        "logging": { "format": "json", "verbosity": 10 },
    }));
    let cluster = start_on(which, node).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "key" }, "stringData": { "word": SECRET },
    });
    let secrets = "/api/v1/namespaces/default/secrets";
    cluster.server.post(secrets, &secret).unwrap();
    let mut web = pod("web");
    web["spec"]["volumes"] = json!([{ "name": "key", "secret": { "secretName": "key" } }]);
    web["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "key", "mountPath": "/key" }]);
    cluster.apply(&web).unwrap();
    cluster
        .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
        .await
        .unwrap();
    cluster
}

fn request(line: &str, headers: &str) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n{headers}\r\n").into_bytes()
}

async fn ask(
    cluster: &Cluster,
    caller: Option<&CertificateWithKey>,
    line: &str,
    headers: &str,
) -> RawResponse {
    let (port, bytes) = (cluster.node.https_port(), request(line, headers));
    tls::send(port, caller, &bytes).await.unwrap()
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn master(server: &Server, seconds: i64) -> CertificateWithKey {
    let made = server.client_certificate("kubernetes-admin", "system:masters", seconds);
    made.unwrap()
}

/// The token of the pod's own service account.
fn token_of(cluster: &Cluster, pod: &Value) -> String {
    let volumes = format!("pods/{}/volumes/kubernetes.io~projected", uid(pod));
    let volumes = std::fs::read_dir(cluster.node.root().join(volumes)).unwrap();
    let volume = volumes.flatten().next().unwrap().path();
    std::fs::read_to_string(volume.join("token")).unwrap()
}

/// No server fell, and the log has none of these words.
async fn assert_unhurt(cluster: &Cluster, secrets: &[&str]) {
    assert_eq!(restarts(&cluster.node.admin("/tree").await.unwrap()), 0);
    let log = cluster.node.log();
    assert!(log.contains("\"v\":4"), "the log says little");
    for secret in secrets.iter().chain(&[SECRET, "PRIVATE KEY"]) {
        assert!(!log.contains(secret), "the log has {}", &secret[..4]);
    }
}
