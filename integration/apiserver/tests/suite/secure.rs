//! kubectl at a guarded server: TLS, identities, rights.

use std::process::{Command, Stdio};

use apiserver::{AccessControl, CallerIdentity, Server, ServerOptions, SigningPolicy};
use serde_json::json;

use crate::find;

struct SecureServer {
    server: Server,
    home: tempfile::TempDir,
}

impl SecureServer {
    fn start() -> SecureServer {
        let server = Server::start_now(ServerOptions {
            security: AccessControl::Guarded,
            ..ServerOptions::default()
        })
        .unwrap();
        for name in ["a", "b"] {
            server
                .post("/api/v1/nodes", &json!({"metadata": {"name": name}}))
                .unwrap();
        }
        SecureServer {
            server,
            home: tempfile::tempdir().unwrap(),
        }
    }

    /// Runs kubectl as this identity; the error is its standard error.
    fn run(&self, identity: &CallerIdentity, arguments: &[&str]) -> Result<String, String> {
        let config = self.home.path().join("kubeconfig");
        std::fs::write(&config, self.server.kubeconfig(identity).unwrap()).unwrap();
        let kubectl = find("kubectl").expect("kubectl is not on the PATH: install one");
        let mut command = Command::new(kubectl);
        command
            .arg("--kubeconfig")
            .arg(config)
            .arg("--cache-dir")
            .arg(self.home.path())
            .args(arguments);
        let output = command
            .env("HOME", self.home.path())
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }
}

#[test]
fn everybody_gets_what_is_his_right() {
    let guarded = SecureServer::start();
    let nodes = ["get", "nodes", "-o", "name"];
    assert_eq!(
        guarded.run(&CallerIdentity::admin(), &nodes).unwrap(),
        "node/a\nnode/b\n"
    );
    let node = CallerIdentity::node("a");
    assert_eq!(
        guarded
            .run(&node, &["get", "node", "a", "-o", "name"])
            .unwrap(),
        "node/a\n"
    );
    let refused = [
        (
            node.clone(),
            "node 'a' cannot read all nodes, only its own Node object",
        ),
        (
            CallerIdentity::Token("wrong".to_string()),
            "You must be logged in to the server",
        ),
    ];
    for (identity, why) in refused {
        let complaint = guarded.run(&identity, &nodes).unwrap_err();
        assert!(complaint.contains(why), "{identity:?}: {complaint}");
    }
    let complaint = guarded
        .run(
            &node,
            &["label", "node", "a", "node-restriction.kubernetes.io/x=y"],
        )
        .unwrap_err();
    assert!(
        complaint.contains("is not allowed to modify labels: node-restriction.kubernetes.io/x"),
        "{complaint}"
    );
}

#[test]
fn a_token_of_a_service_account_lets_in_until_it_is_revoked() {
    let guarded = SecureServer::start();
    guarded.server.judge(|question| {
        (question.user == "system:serviceaccount:default:default").then_some(true)
    });
    let token = guarded
        .run(&CallerIdentity::admin(), &["create", "token", "default"])
        .unwrap();
    let account = CallerIdentity::Token(token.trim().to_string());
    assert_eq!(
        guarded
            .run(&account, &["get", "nodes", "-o", "name"])
            .unwrap(),
        "node/a\nnode/b\n"
    );
    guarded.server.revoke_token(token.trim());
    assert!(
        guarded
            .run(&account, &["get", "nodes"])
            .unwrap_err()
            .contains("must be logged in")
    );
}

#[test]
fn a_held_request_is_approved_by_hand() {
    let guarded = SecureServer::start();
    guarded.server.sign(SigningPolicy::Hold);
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let spec = json!({"request": "bm9uc2Vuc2U=", "signerName": "kubernetes.io/kubelet-serving", "usages": ["digital signature", "server auth"]});
    guarded
        .server
        .post(path, &json!({"metadata": {"name": "r"}, "spec": spec}))
        .unwrap();
    guarded
        .run(&CallerIdentity::admin(), &["certificate", "approve", "r"])
        .unwrap();
    let request = guarded.server.get(&format!("{path}/r")).unwrap();
    let kinds: Vec<_> = request["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| condition["type"].clone())
        .collect();
    // What it asks for is no request at all: the signer says so when it is approved.
    assert_eq!(kinds, ["Approved", "Failed"]);
}
