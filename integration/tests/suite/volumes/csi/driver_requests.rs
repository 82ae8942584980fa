//! The requests to a driver, as its `CSIDriver` and the volume's objects demand.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::*;

on_each_runtime! {
    files_get_the_pods_group_as_the_driver_wants_it,
    a_driver_that_sets_groups_itself_is_told_the_group,
    a_driver_is_given_tokens_and_again_when_they_change,
    secrets_go_with_the_calls_that_they_are_for,
    a_volume_waits_until_it_is_attached,
    a_driver_that_does_not_stage_publishes_alone,
}

/// A pod whose files belong to group 4321.
fn grouped(name: &str, claim: &str) -> Value {
    let spec = json!({ "securityContext": { "fsGroup": 4321 } });
    merged(pod(name, claimed(claim)), json!({ "spec": spec }))
}

fn group_of(path: &Path) -> (u32, bool) {
    let file = fs::metadata(path).unwrap();
    (file.gid(), file.mode() & 0o2070 == 0o2070)
}

async fn files_get_the_pods_group_as_the_driver_wants_it(on: TestRuntime) {
    let file_policy = json!({ "fsGroupPolicy": "File" });
    let Some(rig) = CsiRig::start(on, &[], file_policy).await else {
        return;
    };
    let none = json!({ "fsGroupPolicy": "None" });
    let other = rig.another("none.example.com", &[], none).await;
    let data = rig.claim("file", json!({}));
    let untouched = other.create_volume(&handle("none")).unwrap();
    rig.drop_claim("none", "none.example.com", json!({}));
    for folder in [&data, &untouched] {
        fs::create_dir(folder.join("inner")).unwrap();
        fs::write(folder.join("inner/file"), "").unwrap();
    }
    rig.drop_pod(&grouped("with", "file"));
    rig.drop_pod(&grouped("without", "none"));
    rig.node_rig.until_running("with").await;
    rig.node_rig.until_running("without").await;
    for path in ["", "inner"] {
        assert_eq!(group_of(&data.join(path)), (4321, true), "{path}");
    }
    assert_eq!(group_of(&data.join("inner/file")).0, 4321);
    for path in ["", "inner", "inner/file"] {
        assert_eq!(group_of(&untouched.join(path)), (0, false), "{path}");
    }
    rig.remove_pod("with").await;
    rig.remove_pod("without").await;
    rig.until_unused().await;
    until_unused(&other).await;
}

async fn a_driver_that_sets_groups_itself_is_told_the_group(on: TestRuntime) {
    let flags = ["--abilities=stage,stats,mount-group"];
    let Some(rig) = CsiRig::start(on, &flags, json!({ "fsGroupPolicy": "File" })).await else {
        return;
    };
    let data = rig.claim("web", json!({}));
    rig.drop_pod(&grouped("with", "web"));
    rig.node_rig.until_running("with").await;
    for call in ["NodeStageVolume", "NodePublishVolume"] {
        let asked = rig.until_done(call, 1).await;
        let capability = &asked[0]["volume_capability"];
        assert_eq!(capability["mount"]["volume_mount_group"], "4321");
        // It knows no finer word.
        assert_eq!(capability["access_mode"], "SINGLE_NODE_WRITER");
    }
    assert_eq!(group_of(&data), (4321, true));
    rig.remove_pod("with").await;
    rig.until_unused().await;
}

/// A token that `kubectl create token` would show, which lasts for so many seconds.
fn token(word: &str, seconds: u64) -> Value {
    let end = kernel::wall() + Duration::from_secs(seconds);
    let end = jiff::Timestamp::try_from(end).unwrap();
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "metadata": { "name": "robot", "namespace": "default" },
        "spec": { "audiences": ["vault"] },
        "status": { "token": word, "expirationTimestamp": end.to_string() },
    })
}

fn given(request: &Value) -> Value {
    let key = "csi.storage.k8s.io/serviceAccount.tokens";
    let text = request["volume_context"][key].as_str().unwrap_or_default();
    let tokens: Value = serde_json::from_str(text).unwrap_or_default();
    tokens["vault"]["token"].clone()
}

async fn a_driver_is_given_tokens_and_again_when_they_change(on: TestRuntime) {
    let spec = json!({ "tokenRequests": [{ "audience": "vault" }], "requiresRepublish": true });
    let Some(rig) = CsiRig::start(on, &[], spec).await else {
        return;
    };
    rig.claim("web", json!({}));
    let account = json!({ "spec": { "serviceAccountName": "robot" } });
    rig.drop_pod(&merged(pod("robot", claimed("web")), account));
    let missing = ["failed to fetch token", "default/robot", "vault"];
    rig.node_rig.until_event("FailedMount", &missing).await;
    rig.drop_object("token", &token("first", 15));
    let published = rig.until_done("NodePublishVolume", 1).await;
    assert_eq!(given(&published[0]), "first", "{published:#?}");

    // It grows old, and there is another then.
    rig.drop_object("token", &token("second", 3600));
    let pod = rig.node_rig.until_running("robot").await;
    let published = rig.until_done("NodePublishVolume", 2).await;
    assert_eq!(given(published.last().unwrap()), "second", "{published:#?}");
    assert_mounted_once(&rig.target(&pod, "pv-web"));
    assert_eq!(rig.until_done("NodeStageVolume", 1).await.len(), 1);
    rig.remove_pod("robot").await;
    rig.until_unused().await;
}

async fn secrets_go_with_the_calls_that_they_are_for(on: TestRuntime) {
    let flags = [
        "--stage-secret=word=stage",
        "--publish-secret=word=publish",
        "--expand-secret=word=expand",
    ];
    let Some(rig) = CsiRig::start(on, &flags, json!({})).await else {
        return;
    };
    let secret = |name: &str, word: &str| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "vault" },
            "stringData": { "word": word },
        });
        rig.drop_object(&format!("secret-{name}"), &secret);
    };
    let reference = |name: &str| json!({ "namespace": "vault", "name": name });
    rig.claim(
        "web",
        json!({ "csi": {
            "nodeStageSecretRef": reference("stage"), "nodePublishSecretRef": reference("publish"),
            "nodeExpandSecretRef": reference("expand"),
        } }),
    );
    rig.drop_pod(&pod("web", claimed("web")));
    let missing = ["fetching NodeStageSecretRef vault/stage failed"];
    rig.node_rig.until_event("FailedMount", &missing).await;
    secret("stage", "stage");
    let missing = ["fetching NodePublishSecretRef vault/publish failed"];
    rig.node_rig.until_event("FailedMount", &missing).await;
    secret("publish", "publish");
    secret("expand", "expand");
    rig.node_rig.until_running("web").await;
    rig.drop_claim(
        "web",
        DRIVER,
        json!({ "capacity": { "storage": "128Mi" }, "csi": {
            "nodeStageSecretRef": reference("stage"), "nodePublishSecretRef": reference("publish"),
            "nodeExpandSecretRef": reference("expand"),
        } }),
    );
    let expanded = rig.until_done("NodeExpandVolume", 1).await;
    assert_eq!(expanded[0]["secrets"]["word"], "expand");
    // The log puts its words in quotes.
    let log = rig.node_rig.node.log().replace('\\', "");
    for word in ["publish", "expand"] {
        let shown = format!("\"word\":\"{word}\"");
        assert!(!log.contains(&shown), "a secret is in the log");
    }
    rig.remove_pod("web").await;
    rig.until_unused().await;
}

async fn a_volume_waits_until_it_is_attached(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({ "attachRequired": true })).await else {
        return;
    };
    rig.claim("web", json!({}));
    rig.drop_pod(&pod("web", claimed("web")));
    let words = ["MountVolume.WaitForAttach failed for volume \"pv-web\" : "];
    let message = rig.node_rig.until_event("FailedMount", &words).await;
    let name = message
        .split(' ')
        .find(|word| word.starts_with("csi-"))
        .unwrap_or_else(|| panic!("{message}"));
    let attachment = |attached: bool| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": { "name": name.trim_end_matches(':') },
            "spec": { "attacher": DRIVER, "nodeName": "node", "source": { "persistentVolumeName": "pv-web" } },
            "status": { "attached": attached, "attachmentMetadata": { "device": "sdx" } },
        })
    };
    rig.drop_object("attachment", &attachment(false));
    let words = ["is not attached for volume attachment"];
    rig.node_rig.until_event("FailedMount", &words).await;
    assert_eq!(
        rig.driver.done("NodeStageVolume").unwrap(),
        Vec::<Value>::new()
    );
    rig.drop_object("attachment", &attachment(true));
    rig.node_rig.until_running("web").await;
    for call in ["NodeStageVolume", "NodePublishVolume"] {
        let asked = rig.until_done(call, 1).await;
        assert_eq!(asked[0]["publish_context"]["device"], "sdx", "{call}");
    }
    let shown = rig.shown().await;
    let in_use = json!([format!("kubernetes.io/csi/{DRIVER}^h-web")]);
    assert_eq!(shown["in_use"], in_use, "{shown:#}");
    rig.remove_pod("web").await;
    rig.until_unused().await;
    rig.until_shown("nothing is in use", |shown| shown["in_use"] == json!([]))
        .await;
}

async fn a_driver_that_does_not_stage_publishes_alone(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &["--abilities=nothing"], json!({})).await else {
        return;
    };
    let data = rig.claim(
        "web",
        json!({ "csi": { "volumeAttributes": { "color": "blue" } } }),
    );
    let pod = rig.run("web", "web").await;
    fs::write(rig.target(&pod, "pv-web").join("file"), "kept").unwrap();
    let calls = rig.driver.journal().unwrap();
    let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
    assert!(!names.contains(&"NodeStageVolume"), "{names:?}");
    let published = rig.until_done("NodePublishVolume", 1).await;
    assert_eq!(published[0]["volume_context"]["color"], "blue");
    rig.remove_pod("web").await;
    rig.until_unused().await;
    assert_eq!(read(&data.join("file")), "kept");
}
