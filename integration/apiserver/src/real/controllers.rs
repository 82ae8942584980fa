//! What a cluster's controllers and its scheduler do for one node: the account and the authority that every pod gets,
//! the rights of joining nodes, certificates approved and signed, pods bound.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::POLL_INTERVAL;
use super::client::CurlClient;
use crate::auth::CertificateAuthority;
use crate::certificates::{self, KubeletSigner};
use crate::clock;
use crate::pods::scheduler;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// A bootstrap token, in its two halves.
pub(super) const TOKEN: (&str, &str) = ("abcdef", "0123456789abcdef");
const JOINERS: &str = "system:bootstrappers:oxlet";

/// Makes what a cluster has from its beginning.
pub(super) fn found(client: &CurlClient, authority: &str) -> anyhow::Result<()> {
    let (id, secret) = TOKEN;
    let map =
        json!({ "metadata": { "name": "kube-root-ca.crt" }, "data": { "ca.crt": authority } });
    let account = json!({ "metadata": { "name": "default" } });
    let token = json!({
        "metadata": { "name": format!("bootstrap-token-{id}") },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": id, "token-secret": secret,
            "usage-bootstrap-authentication": "true", "auth-extra-groups": JOINERS,
        },
    });
    let binding = json!({
        "metadata": { "name": "oxlet-joiners" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": JOINERS }],
    });
    for (path, object) in [
        ("/api/v1/namespaces/default/configmaps", map),
        ("/api/v1/namespaces/default/serviceaccounts", account),
        ("/api/v1/namespaces/kube-system/secrets", token),
        (BINDINGS, binding),
    ] {
        made(client, path, &object).with_context(|| format!("cannot make {object}"))?;
    }
    Ok(())
}

/// Makes an object; the server makes its own namespaces and roles a little after it says that it is ready.
fn made(client: &CurlClient, path: &str, object: &Value) -> anyhow::Result<()> {
    let until = clock::later(clock::now(), 30);
    loop {
        match client.post(path, object) {
            Ok(_) => return Ok(()),
            Err(failure) if failure.code == 404 && clock::now() < until => super::pause(),
            Err(failure) => return Err(failure.into()),
        }
    }
}

/// The thread that stands in for controllers and scheduler; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Controllers {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Controllers {
    pub(super) fn start(
        client: CurlClient,
        authority: Arc<CertificateAuthority>,
    ) -> anyhow::Result<Controllers> {
        let (stop, stopped) = mpsc::channel();
        let work = move || {
            while stopped.recv_timeout(POLL_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                sign_all(&client, &authority);
                bind_all(&client);
            }
        };
        let thread = std::thread::Builder::new().name("controllers".to_string());
        Ok(Controllers {
            stop: Some(stop),
            thread: Some(thread.spawn(work).context("cannot start a thread")?),
        })
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_default();
        }
    }
}

fn items(client: &CurlClient, path: &str) -> Vec<Value> {
    let mut list = client.get(path).unwrap_or_default();
    let items = list["items"].as_array_mut().map(std::mem::take);
    items.unwrap_or_default()
}

/// Approves and signs what kubelets ask for. What fails is tried again at the next look.
fn sign_all(client: &CurlClient, authority: &CertificateAuthority) {
    for mut request in items(client, REQUESTS) {
        let Some(signer) = KubeletSigner::of(&request).filter(|_| !certificates::is_over(&request))
        else {
            continue;
        };
        let path = format!("{REQUESTS}/{}", name(&request));
        certificates::approve(&mut request);
        let Ok(mut request) = client.put(&format!("{path}/approval"), &request) else {
            continue;
        };
        certificates::sign(authority, signer, &mut request, super::YEAR);
        drop(client.put(&format!("{path}/status"), &request));
    }
}

/// Binds pods without a node to the one that is ready.
fn bind_all(client: &CurlClient) {
    let waiting = items(client, "/api/v1/pods?fieldSelector=spec.nodeName%3D");
    let waiting: Vec<&Value> = waiting.iter().filter(|pod| scheduler::waits(pod)).collect();
    if waiting.is_empty() {
        return;
    }
    let nodes = items(client, "/api/v1/nodes");
    let Some(node) = nodes.iter().find(|node| scheduler::is_ready(node)) else {
        return;
    };
    for pod in waiting {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let path = format!("/api/v1/namespaces/{namespace}/pods/{}/binding", name(pod));
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name(pod) },
            "target": { "apiVersion": "v1", "kind": "Node", "name": name(node) },
        });
        drop(client.post(&path, &binding));
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
