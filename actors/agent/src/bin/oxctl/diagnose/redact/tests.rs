//! What leaves a text, and what stays.

use super::*;

/// No secret below has another text.
const PLANTED: &str = "pl4nted-S3cret-Value";

fn clean(text: &str) -> String {
    Redactor::default().clean(text)
}

#[test]
fn secrets_leave_by_the_names_before_them() {
    let cases = [
        "DB_PASSWORD=pl4nted-S3cret-Value next",
        "password: pl4nted-S3cret-Value",
        "{\"client-secret\":\"pl4nted-S3cret-Value\",\"a\":1}",
        "{\"apiKey\": \"with \\\" quote pl4nted-S3cret-Value\"}",
        "err=\"x {\\\"token\\\":\\\"pl4nted-S3cret-Value\\\"}\"",
        "Authorization: Custom a=b, pl4nted-S3cret-Value",
        "\"Authorization\":[\"Bearer pl4nted-S3cret-Value\"]",
        "{\"auths\":{\"r.example\":{\"auth\":\"pl4nted-S3cret-Value\"}}}",
        "kubectl.kubernetes.io/last-applied-configuration: {\"env\":[{\"value\":\"pl4nted-S3cret-Value\"}]}",
        "\"kubectl.kubernetes.io/last-applied-configuration\":\"{\\\"env\\\":\\\"pl4nted-S3cret-Value\\\"}\"",
        "secret='pl4nted-S3cret-Value'",
        "options: rw,password=pl4nted-S3cret-Value,x",
    ];
    for text in cases {
        let clean = clean(text);
        assert!(!clean.contains(PLANTED), "{text}: {clean}");
        assert!(clean.contains(REMOVED), "{text}: {clean}");
    }
    assert_eq!(clean("PASSWORD=abc user=me"), "PASSWORD=<removed> user=me");
    assert_eq!(
        clean("{\"token\":\"a b\",\"x\":1}"),
        "{\"token\":\"<removed>\",\"x\":1}"
    );
}

#[test]
fn secrets_leave_by_their_form() {
    let jwt = format!("eyJ{}.eyJ{}.{PLANTED}", "a".repeat(20), "b".repeat(20));
    let cases = [
        format!("level=info Bearer {PLANTED}"),
        format!("header bearer \"{PLANTED}\""),
        format!("it is {jwt}"),
        format!("/path/{jwt}"),
        format!("https://me:{PLANTED}@registry.example/v2/"),
        format!("get https://h.example/pods?x={PLANTED}: refused"),
        format!("-----BEGIN RSA PRIVATE KEY-----\n{PLANTED}\n-----END RSA PRIVATE KEY-----\n"),
        format!("k=\"-----BEGIN PRIVATE KEY-----\\n{PLANTED}\\n-----END PRIVATE KEY-----\""),
        format!("{PLANTED}\n-----END EC PRIVATE KEY-----\nrest"),
        format!("rest\n-----BEGIN PRIVATE KEY-----\n{PLANTED}"),
    ];
    for text in cases {
        let clean = clean(&text);
        assert!(!clean.contains(PLANTED), "{text}: {clean}");
    }
    assert_eq!(
        clean("join abcdef.0123456789abcdef now"),
        "join <removed> now"
    );
}

#[test]
fn what_is_no_secret_stays() {
    let texts = [
        "I1126 22:25:35.012345    4711 pleg.rs:120] \"message\" key=\"value\"",
        "MountVolume.SetUp failed for volume \"x\" : secret \"db\" not found",
        "image registry.example/team/app@sha256:0123456789abcdef",
        "kubelet_running_pods{a=\"b\"} 7",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        "36 25 0:31 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate",
        "unix:///run/containerd/containerd.sock",
        "a ----- b -----BEGIN",
        "größe: 1.5 ✓",
    ];
    for text in texts {
        assert_eq!(clean(text), text);
    }
}

#[test]
fn known_values_leave_wherever_they_stand() {
    let mut redactor = Redactor::default();
    redactor.keep(["kube-system".to_owned()]);
    redactor.learn("kube-system\nshort\nümlaut-value\nümlaut-value-that-is-longer\n");
    redactor.learn(PLANTED);
    redactor.learn(PLANTED);
    let text = format!(
        "in kube-system short: x{PLANTED}y ümlaut-value-that-is-longer ümlaut-value! {PLANTED}"
    );
    assert_eq!(
        redactor.clean(&text),
        "in kube-system short: x<removed>y <removed> <removed>! <removed>"
    );
    assert_eq!(redactor.clean("ü"), "ü");
}

#[test]
fn names_of_secrets_are_known_by_their_ends() {
    for name in [
        "DB_PASSWORD",
        "clientSecret",
        "AWS_SECRET_ACCESS_KEY",
        "x-auth",
        "GITHUB_TOKEN",
    ] {
        assert!(is_secret_name(name), "{name}");
    }
    for name in [
        "PATH",
        "secretName",
        "tokenExpirationSeconds",
        "author",
        "KUBERNETES_PORT",
    ] {
        assert!(!is_secret_name(name), "{name}");
    }
}

#[test]
fn json_stays_json() {
    let mut redactor = Redactor::default();
    redactor.learn(PLANTED);
    let mut value = serde_json::json!({
        "authorization": { "mode": "Webhook", "tokens": 3 },
        "clientSecret": "x", "apiKey": ["y", { "plain": "z" }],
        "text": format!("\"a\" {PLANTED} \"b\""),
        "planted-S3cret": { "pl4nted-S3cret-Value": 1 },
    });
    redactor.clean_json(&mut value);
    let expected = serde_json::json!({
        "authorization": { "mode": "Webhook", "tokens": 3 },
        "clientSecret": REMOVED, "apiKey": [REMOVED, { "plain": "z" }],
        "text": format!("\"a\" {REMOVED} \"b\""),
        "planted-S3cret": { REMOVED: 1 },
    });
    assert_eq!(value, expected);
}
