//! Kubeconfigs, and the errors of bad ones.

use kernel::testing::run_paused;
use serde_json::{Value, json};

use crate::testing::{Rig, ScriptedReply, access, map, nobody};
use crate::{ApiClient, RestConfigError};

fn refusal(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, text).unwrap();
    let error = ApiClient::new(access(path.clone()), nobody()).unwrap_err();
    assert!(!error.transient(), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&path.display().to_string()), "{text}");
    text
}

fn kubeconfig(cluster: Value, user: Value) -> String {
    json!({
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "there", "user": "me"}}],
        "clusters": [{"name": "there", "cluster": cluster}],
        "users": [{"name": "me", "user": user}],
    })
    .to_string()
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn a_kubeconfig_that_leads_nowhere_is_refused_by_the_field() {
    run_paused(|| async {
        let server = json!({"server": "https://10.0.0.1:6443", "insecure-skip-tls-verify": true});
        let of = |key: &str, value: Value| {
            let mut cluster = server.clone();
            cluster[key] = value;
            kubeconfig(cluster, json!({}))
        };
        let user = |user: Value| kubeconfig(server.clone(), user);
        let exec = |key: &str, value: Value| {
            let mut exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "interactiveMode": "Never"});
            exec[key] = value;
            user(json!({"exec": exec}))
        };
        let cases = [
            (
                kubeconfig(server.clone(), json!({})).replace("\"here\"", "\"\""),
                "current-context",
            ),
            (
                kubeconfig(server.clone(), json!({}))
                    .replace("current-context\":\"here", "current-context\":\"else"),
                "contexts",
            ),
            (
                kubeconfig(server.clone(), json!({}))
                    .replace("cluster\":\"there", "cluster\":\"else"),
                "clusters",
            ),
            (
                kubeconfig(server.clone(), json!({})).replace("user\":\"me", "user\":\"else"),
                "users",
            ),
            (of("server", json!("")), "clusters[].cluster.server"),
            (of("server", json!("ftp://x")), "clusters[].cluster.server"),
            (
                of("server", json!("https://a b")),
                "clusters[].cluster.server",
            ),
            (
                of("proxy-url", json!("ftp://10.0.0.9:3128")),
                "clusters[].cluster.proxy-url",
            ),
            (
                of("certificate-authority-data", json!("%%%")),
                "clusters[].cluster.certificate-authority-data",
            ),
            (
                of("certificate-authority-data", json!("YQ==")),
                "clusters[].cluster.insecure-skip-tls-verify",
            ),
            (
                kubeconfig(
                    json!({"server": "https://a", "certificate-authority-data": "YQ=="}),
                    json!({}),
                ),
                "clusters[].cluster.certificate-authority",
            ),
            (
                of("tls-server-name", json!("a b")),
                "clusters[].cluster.tls-server-name",
            ),
            (
                user(json!({"client-certificate-data": "YQ=="})),
                "users[].user.client-key",
            ),
            (
                user(json!({"client-key-data": "YQ=="})),
                "users[].user.client-certificate",
            ),
            (
                user(json!({"client-certificate-data": "YQ==", "client-key-data": "YQ=="})),
                "users[].user.client-certificate",
            ),
            (user(json!({"token": "a\nb"})), "users[].user.token"),
            (
                user(json!({"auth-provider": {"name": "x"}})),
                "users[].user.auth-provider",
            ),
            (
                exec("apiVersion", json!("client.authentication.k8s.io/v1alpha1")),
                "users[].user.exec.apiVersion",
            ),
            (exec("command", json!("")), "users[].user.exec.command"),
            (
                exec("interactiveMode", json!("Always")),
                "users[].user.exec.interactiveMode",
            ),
            (
                exec("interactiveMode", Value::Null),
                "users[].user.exec.interactiveMode",
            ),
        ];
        for (text, field) in cases {
            let said = refusal(&text);
            assert!(
                said.contains(&format!("{field}: expected ")),
                "{field}: {said}"
            );
        }
    });
}

#[test]
fn a_file_that_is_no_kubeconfig_is_not_quoted() {
    run_paused(|| async {
        for text in [
            "users: S3cret",
            "users: [{name: a, user: {token: [S3cret]}}]",
            "a: b: S3cret",
            "- S3cret",
            "users: [{user: {token: \"S3cret",
        ] {
            let said = refusal(text);
            assert!(said.contains("expected"), "{said}");
            assert!(!said.contains("S3cret"), "{said}");
        }
    });
}

#[test]
fn a_file_that_is_missing_is_named() {
    run_paused(|| async {
        let error = ApiClient::new(access("/nowhere/kubeconfig".into()), nobody()).unwrap_err();
        assert!(
            matches!(&error, RestConfigError::Unread { path, .. } if path.ends_with("kubeconfig"))
        );
        assert!(error.transient());
        let rig = Rig::tls(|_, _| ScriptedReply::json(&map("a", 1))).await;
        let error = rig
            .client_of(json!({"certificate-authority": "none.crt"}), json!({}))
            .unwrap_err();
        assert!(error.to_string().contains("none.crt"), "{error}");
    });
}
