//! Tokens in files, and plugins. A plugin is a process, so the clock is the machine's.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use kernel::testing::{pass, run_paused};
use serde_json::{Value, json};

use crate::ApiError;
use crate::testing::{Rig, ScriptedReply, map, maps};

const API_VERSION: &str = "client.authentication.k8s.io/v1";

fn authorization(rig: &Rig) -> Vec<String> {
    let heard = rig.requests();
    let header =
        |heard: &crate::testing::ReceivedRequest| heard.headers.get("authorization").cloned();
    let headers = heard
        .iter()
        .map(|heard| header(heard).unwrap_or_else(|| "".parse().unwrap()));
    headers
        .map(|header| header.to_str().unwrap().to_owned())
        .collect()
}

/// Upstream's TestCachingTokenSource.
#[test]
fn a_token_file_is_read_again_as_it_changes() {
    run_paused(|| async {
        let rig = Rig::tls(|_, _| ScriptedReply::json(&map("a", 1))).await;
        let path = rig.folder.path().join("token");
        let client = rig
            .client_of(json!({}), json!({"tokenFile": "token", "token": "inline"}))
            .unwrap();
        maps(&client).get("a").await.unwrap();
        std::fs::write(&path, "one\n").unwrap();
        maps(&client).get("a").await.unwrap();
        std::fs::write(&path, "two").unwrap();
        maps(&client).get("a").await.unwrap();
        pass(Duration::from_secs(60)).await;
        maps(&client).get("a").await.unwrap();
        std::fs::remove_file(&path).unwrap();
        pass(Duration::from_secs(60)).await;
        maps(&client).get("a").await.unwrap();
        assert_eq!(
            authorization(&rig),
            [
                "Bearer inline",
                "Bearer one",
                "Bearer one",
                "Bearer two",
                "Bearer two"
            ]
        );
    });
}

/// Upstream's `tokenSourceTransport`: what was refused is asked for again.
#[test]
fn a_refused_token_is_read_again_at_once() {
    run_paused(|| async {
        let rig = Rig::tls(
            |_, heard| match heard.headers["authorization"] == "Bearer new" {
                true => ScriptedReply::json(&map("a", 1)),
                false => ScriptedReply::of(
                    401,
                    &json!({"code": 401, "reason": "Unauthorized", "message": "who"}),
                ),
            },
        )
        .await;
        let path = rig.folder.path().join("token");
        std::fs::write(&path, "old").unwrap();
        let client = rig
            .client_of(json!({}), json!({"tokenFile": "token"}))
            .unwrap();
        let trouble = ApiError::from(maps(&client).get("a").await.unwrap_err());
        assert!(matches!(trouble, ApiError::Unauthorized { .. }));
        assert_eq!(rig.requests().len(), 1, "the same token is not tried twice");
        std::fs::write(&path, "new").unwrap();
        maps(&client).get("a").await.unwrap();
    });
}

#[test]
fn fixed_credentials_go_with_every_request() {
    run_paused(|| async {
        for (user, header) in [
            (json!({"token": "abc"}), "Bearer abc"),
            (
                json!({"username": "me", "password": "secret"}),
                "Basic bWU6c2VjcmV0",
            ),
            (json!({}), ""),
        ] {
            let rig = Rig::tls(|_, _| ScriptedReply::json(&map("a", 1))).await;
            maps(&rig.client_of(json!({}), user).unwrap())
                .get("a")
                .await
                .unwrap();
            assert_eq!(authorization(&rig), [header]);
        }
    });
}

/// A plugin that is this script; it notes each run.
fn plugin(rig: &Rig, script: &str) -> Value {
    let path = rig.folder.path().join("plugin");
    std::fs::write(
        &path,
        format!(
            "#!/bin/sh\necho run >> {}/runs\n{script}\n",
            rig.folder.path().display()
        ),
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    json!({"exec": {
        "apiVersion": API_VERSION, "command": "./plugin", "args": ["--for", "me"], "interactiveMode": "Never",
        "env": [{"name": "FLAVOUR", "value": "sour"}], "provideClusterInfo": true, "installHint": "get it",
    }})
}

fn runs(rig: &Rig) -> usize {
    std::fs::read_to_string(rig.folder.path().join("runs"))
        .unwrap_or_default()
        .lines()
        .count()
}

fn answer(status: &Value) -> String {
    let answer = json!({"apiVersion": API_VERSION, "kind": "ExecCredential", "status": status});
    format!("cat <<END\n{answer}\nEND")
}

/// Upstream's TestRefreshCreds: the token, its environment, its cluster, and that it is kept.
#[tokio::test]
async fn a_plugins_token_is_used_until_it_expires() {
    let rig = Rig::tls(|_, _| ScriptedReply::json(&map("a", 1))).await;
    let script = r#"echo "$KUBERNETES_EXEC_INFO" > $(dirname $0)/told; echo "$FLAVOUR $*" >> $(dirname $0)/told"#;
    let kept = format!(
        "{script}\n{}",
        answer(&json!({"token": "abc", "expirationTimestamp": "2999-01-01T00:00:00Z"}))
    );
    let client = rig.client_of(json!({}), plugin(&rig, &kept)).unwrap();
    assert_eq!(runs(&rig), 0, "it runs when it is needed");
    for _ in 0..3 {
        maps(&client).get("a").await.unwrap();
    }
    assert_eq!(authorization(&rig), ["Bearer abc"; 3]);
    assert_eq!(runs(&rig), 1);
    let told = std::fs::read_to_string(rig.folder.path().join("told")).unwrap();
    let (spec, words) = told.split_once('\n').unwrap();
    let spec: Value = serde_json::from_str(spec).unwrap();
    assert_eq!(words.trim(), "sour --for me");
    assert_eq!(spec["kind"], "ExecCredential");
    assert_eq!(spec["apiVersion"], API_VERSION);
    assert_eq!(spec["spec"]["interactive"], false);
    let server = spec["spec"]["cluster"]["server"].as_str().unwrap();
    assert_eq!(server, format!("https://127.0.0.1:{}", rig.port));
    assert!(spec["spec"]["cluster"]["certificate-authority-data"].is_string());
}

/// Upstream's TestRoundTripper, its expired token.
#[tokio::test]
async fn a_plugin_runs_again_when_its_token_has_expired() {
    let rig = Rig::tls(|_, _| ScriptedReply::json(&map("a", 1))).await;
    let script = answer(&json!({"token": "abc", "expirationTimestamp": "2001-01-01T00:00:00Z"}));
    let client = rig.client_of(json!({}), plugin(&rig, &script)).unwrap();
    maps(&client).get("a").await.unwrap();
    let once = runs(&rig);
    maps(&client).get("a").await.unwrap();
    assert!(runs(&rig) > once);
}

/// Upstream's TestTLSCredentials.
#[tokio::test]
async fn a_plugins_certificate_is_who_we_are() {
    let rig = Rig::tls(|_, _| ScriptedReply::json(&map("a", 1))).await;
    let (certificate, key) = rig.pair("plugged");
    let script = answer(&json!({"clientCertificateData": certificate, "clientKeyData": key}))
        .replace("\\n", "\\\\n");
    let client = rig
        .client_of(
            json!({}),
            plugin(
                &rig,
                &script.replace("<<END", "<<'END'").replace("\\\\n", "\\n"),
            ),
        )
        .unwrap();
    maps(&client).get("a").await.unwrap();
    assert!(rig.requests()[0].certificate.is_some());
    assert_eq!(authorization(&rig), [""]);
}

/// Upstream's TestRefreshCreds, what it refuses.
#[tokio::test]
async fn a_plugin_that_gives_nothing_is_named_and_not_quoted() {
    let other = answer(&json!({"token": "S3cret"})).replace("io/v1", "io/v1beta1");
    let cases = [
        ("echo S3cret; exit 3".to_owned(), "exit code 3"),
        ("echo S3cret".to_owned(), "not the JSON of one"),
        (answer(&json!({})), "neither a token nor a certificate"),
        (answer(&json!({"token": "S3cret", "clientCertificateData": "S3cret"})), "no pair"),
        (other, "apiVersion"),
        ("cat <<END\n{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\"}\nEND".to_owned(), "no status"),
    ];
    for (script, why) in cases {
        let rig = Rig::tls(|_, _| ScriptedReply::json(&map("a", 1))).await;
        let client = rig.client_of(json!({}), plugin(&rig, &script)).unwrap();
        let api = kube::Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(
            client.kube(crate::RequestLane::Work),
            "default",
        );
        let made = api
            .create(&kube::api::PostParams::default(), &Default::default())
            .await;
        let text = ApiError::from(made.unwrap_err()).to_string();
        assert!(
            text.starts_with("getting credentials: exec: ") && text.contains(why),
            "{text}"
        );
        assert!(!text.contains("S3cret"), "{text}");
        assert!(rig.requests().is_empty());
    }
}

#[tokio::test]
async fn a_plugin_that_is_missing_says_how_to_get_it() {
    let rig = Rig::tls(|_, _| ScriptedReply::json(&map("a", 1))).await;
    let mut user = plugin(&rig, "");
    user["exec"]["command"] = "./none".into();
    let client = rig.client_of(json!({}), user).unwrap();
    let made = maps(&client)
        .create(&kube::api::PostParams::default(), &Default::default())
        .await;
    let text = ApiError::from(made.unwrap_err()).to_string();
    assert!(
        text.contains("not found") && text.contains("get it"),
        "{text}"
    );
}
