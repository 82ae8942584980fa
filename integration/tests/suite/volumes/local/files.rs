//! configMap, secret, downwardAPI and projected: the files' content, owner and permissions.

use super::*;

on_real_runtimes! {
    files_are_what_the_objects_say_and_belong_to_whom_the_pod_says,
    files_without_anything_said_are_for_everybody_to_read,
    an_object_that_is_missing_holds_the_pod_up_unless_it_is_optional,
    another_volume_is_mounted_within_files_that_nobody_may_write,
    whom_to_trust_and_what_proves_the_pod_are_files_like_any_other,
}

fn settings() -> String {
    config_map(
        "settings",
        json!({ "data": { "plain": "text", "other": "more" }, "binaryData": { "bin": "/wD+gA==" } }),
    )
}

fn hidden() -> String {
    object(
        "Secret",
        "hidden",
        json!({ "data": { "password": "c2VzYW1l" } }),
    )
}

/// As `kubectl create token` shows it.
fn token() -> String {
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "metadata": { "name": "builder", "namespace": "default" },
        "spec": { "audiences": ["vault"], "expirationSeconds": 3600 },
        "status": { "token": "abc.def", "expirationTimestamp": "2099-01-01T00:00:00Z" },
    })
    .to_string()
}

fn volumes() -> Value {
    let field =
        |path: &str, field: &str| json!({ "path": path, "fieldRef": { "fieldPath": field } });
    let memory = json!({ "containerName": "app", "resource": "limits.memory", "divisor": "1Mi" });
    json!([
        { "name": "config", "configMap": { "name": "settings", "defaultMode": 0o400 } },
        { "name": "chosen", "configMap": { "name": "settings", "items": [
            { "key": "plain", "path": "a/b/renamed", "mode": 0o444 },
        ] } },
        { "name": "hidden", "secret": { "secretName": "hidden", "defaultMode": 0o440 } },
        { "name": "about", "downwardAPI": { "items": [
            field("labels", "metadata.labels"),
            { "path": "memory", "resourceFieldRef": memory },
        ] } },
        { "name": "all", "projected": { "defaultMode": 0o604, "sources": [
            { "configMap": { "name": "settings", "items": [{ "key": "plain", "path": "plain" }] } },
            { "secret": { "name": "hidden", "items": [{ "key": "password", "path": "sub/password", "mode": 0o600 }] } },
            { "downwardAPI": { "items": [field("name", "metadata.name")] } },
            { "serviceAccountToken": { "path": "token", "audience": "vault", "expirationSeconds": 3600 } },
        ] } },
        { "name": "none", "configMap": { "name": "nobody", "optional": true } },
    ])
}

const MOUNTS: [(&str, &str); 6] = [
    ("config", "/config"),
    ("chosen", "/chosen"),
    ("hidden", "/hidden"),
    ("about", "/about"),
    ("all", "/all"),
    ("none", "/none"),
];

fn spec(says: &str, security: &Value) -> Value {
    let mut app = container_of("app", says, &MOUNTS);
    app["resources"] = json!({ "limits": { "memory": "64Mi" } });
    json!({
        "serviceAccountName": "builder", "securityContext": security,
        "volumes": volumes(), "containers": [app],
    })
}

async fn files_are_what_the_objects_say_and_belong_to_whom_the_pod_says(on: TestRuntime) {
    let objects = |builder: Builder| {
        let builder = builder.object("settings.json", &settings());
        builder
            .object("hidden.json", &hidden())
            .object("token.json", &token())
    };
    let Some(node_rig) = node(on, objects).await else {
        return;
    };
    let security = json!({ "runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000 });
    let says = "look /config/plain /chosen/a/b/renamed /hidden/password /about/labels /about/memory; \
                look /all/plain /all/sub/password /all/name /all/token; \
                base64 /config/bin; ls /config; ls /none; at /config /chosen/a /hidden; \
                grep -E ' /(config|hidden|about|all) ' /proc/mounts | cut -d' ' -f2,3 | sort; \
                echo x > /config/new || echo refused; cd /all; readlink plain; readlink ..data | cut -c-4";
    node_rig.begin(&pod("owned", &spec(says, &security)));
    let pod = node_rig.until_running("owned").await;
    let heard = node_rig.heard(&pod, "app").await;
    let expected = [
        "/config/plain 440 0:2000 text",
        "/chosen/a/b/renamed 444 0:2000 text",
        "/hidden/password 440 0:2000 sesame",
        "/about/labels 644 0:2000 side=\"front\"",
        "/about/memory 644 0:2000 64",
        "/all/plain 644 0:2000 text",
        "/all/sub/password 640 0:2000 sesame",
        "/all/name 644 0:2000 owned-node",
        // For the only user of the pod, and its group.
        "/all/token 640 1000:2000 abc.def",
        "/wD+gA==",
        "bin",
        "other",
        "plain",
        "/config 2777 0:2000",
        "/chosen/a 2755 0:2000",
        "/hidden 3777 0:2000",
    ];
    assert_eq!(heard[..expected.len()], expected);
    let rest = &heard[expected.len()..];
    let media: Vec<_> = rest[..4]
        .iter()
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    let kinds: Vec<_> = media
        .iter()
        .map(|(path, fs)| (*path, *fs == "tmpfs"))
        .collect();
    // A configMap lies on the node's disk, which is memory as well where the test's folder is.
    let disk = nix::sys::statfs::statfs(node_rig.node.dir()).unwrap();
    let is_memory = disk.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC;
    assert_eq!(
        kinds,
        [
            ("/about", true),
            ("/all", true),
            ("/config", is_memory),
            ("/hidden", true)
        ]
    );
    assert_eq!(rest[4..], ["refused", "..data/plain", "..20"]);
    node_rig.end(&pod, "owned").await;
}

async fn files_without_anything_said_are_for_everybody_to_read(on: TestRuntime) {
    let objects = |builder: Builder| {
        let builder = builder.object("settings.json", &settings());
        builder
            .object("hidden.json", &hidden())
            .object("token.json", &token())
    };
    let Some(node_rig) = node(on, objects).await else {
        return;
    };
    let says = "look /config/plain /hidden/password /about/memory /all/token; at /config /hidden";
    node_rig.begin(&pod("plain", &spec(says, &json!({}))));
    let pod = node_rig.until_running("plain").await;
    assert_eq!(
        node_rig.heard(&pod, "app").await,
        [
            "/config/plain 400 0:0 text",
            "/hidden/password 440 0:0 sesame",
            "/about/memory 644 0:0 64",
            "/all/token 604 0:0 abc.def",
            "/config 777 0:0",
            "/hidden 1777 0:0",
        ]
    );
    node_rig.end(&pod, "plain").await;
}

async fn an_object_that_is_missing_holds_the_pod_up_unless_it_is_optional(on: TestRuntime) {
    let Some(node_rig) = node(on, |builder| builder).await else {
        return;
    };
    let spec = json!({
        "volumes": [
            { "name": "config", "configMap": { "name": "settings" } },
            { "name": "hidden", "secret": { "secretName": "hidden", "optional": true } },
        ],
        "containers": [container_of("app", "look /config/plain; ls /hidden", &[("config", "/config"), ("hidden", "/hidden")])],
    });
    node_rig.begin(&pod("late", &spec));
    let words =
        ["MountVolume.SetUp failed for volume \"config\" : configmap \"settings\" not found"];
    node_rig.until_event("FailedMount", &words).await;
    node_rig
        .node
        .drop_object("settings.json", &settings())
        .unwrap();
    let pod = node_rig.until_running("late").await;
    assert_eq!(
        node_rig.heard(&pod, "app").await,
        ["/config/plain 644 0:0 text"]
    );
    node_rig.node.drop_object("hidden.json", &hidden()).unwrap();
    node_rig
        .until_says(&pod, "app", "cat /hidden/password 2>&1", "sesame")
        .await;
    node_rig.end(&pod, "late").await;
}

async fn another_volume_is_mounted_within_files_that_nobody_may_write(on: TestRuntime) {
    let objects = |builder: Builder| {
        let builder = builder.object("settings.json", &settings());
        builder.object("hidden.json", &hidden())
    };
    let Some(node_rig) = node(on, objects).await else {
        return;
    };
    let mounts = [
        ("config", "/etc/app"),
        ("cache", "/etc/app/cache"),
        ("hidden", "/etc/app/keys/secret"),
    ];
    let says =
        "cd /etc/app; cat plain keys/secret/password; echo; echo x > cache/x && ls cache; ls";
    let spec = json!({
        "volumes": [
            { "name": "config", "configMap": { "name": "settings" } },
            { "name": "hidden", "secret": { "secretName": "hidden" } },
            { "name": "cache", "emptyDir": {} },
        ],
        "containers": [container_of("app", says, &mounts)],
    });
    node_rig.begin(&pod("nested", &spec));
    let pod = node_rig.until_running("nested").await;
    assert_eq!(
        node_rig.heard(&pod, "app").await,
        ["textsesame", "x", "bin", "cache", "keys", "other", "plain"]
    );
    node_rig.end(&pod, "nested").await;
}

async fn whom_to_trust_and_what_proves_the_pod_are_files_like_any_other(on: TestRuntime) {
    const ROOT: &str = "-----BEGIN CERTIFICATE-----\ncm9vdA==\n-----END CERTIFICATE-----\n";
    const LEAF: &str = "-----BEGIN CERTIFICATE-----\nbGVhZg==\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\na2V5\n-----END PRIVATE KEY-----\n";
    let bundle = json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": { "name": "roots" }, "spec": { "trustBundle": format!("of ours\n{ROOT}") },
    });
    let issued = json!({
        "type": "Issued", "status": "True", "reason": "R", "message": "M",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest",
        "metadata": { "name": "proof", "namespace": "default" },
        "spec": { "signerName": "example.com/a", "podName": "trusting-node" },
        "status": {
            "conditions": [issued], "certificateChain": LEAF, "notBefore": "2026-01-01T00:00:00Z",
            "beginRefreshAt": "2098-01-01T00:00:00Z", "notAfter": "2099-01-01T00:00:00Z",
        },
    });
    let key = object(
        "Secret",
        "proof",
        json!({ "stringData": { "tls.key": KEY } }),
    );
    let objects = |builder: Builder| {
        let builder = builder.object("roots.json", &bundle.to_string());
        builder
            .object("proof.json", &request.to_string())
            .object("key.json", &key)
    };
    let Some(node_rig) = node(on, objects).await else {
        return;
    };
    let sources = json!([
        { "clusterTrustBundle": { "name": "roots", "path": "roots.pem" } },
        { "podCertificate": { "signerName": "example.com/a", "keyType": "ED25519",
            "credentialBundlePath": "bundle.pem", "certificateChainPath": "chain.pem" } },
    ]);
    let says = "cd /proof; cat roots.pem bundle.pem chain.pem; grep ' /proof ' /proc/mounts | cut -d' ' -f3; ls";
    let spec = json!({
        "volumes": [{ "name": "proof", "projected": { "sources": sources } }],
        "containers": [container_of("app", says, &[("proof", "/proof")])],
    });
    node_rig.begin(&pod("trusting", &spec));
    let pod = node_rig.until_running("trusting").await;
    let expected = format!("{ROOT}{KEY}{LEAF}{LEAF}tmpfs\nbundle.pem\nchain.pem\nroots.pem");
    assert_eq!(node_rig.heard(&pod, "app").await.join("\n"), expected);
    node_rig.end(&pod, "trusting").await;
    assert!(!node_rig.node.log().contains("a2V5"), "a key is in the log");
}
