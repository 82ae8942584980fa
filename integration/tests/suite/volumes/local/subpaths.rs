//! subPath and subPathExpr.

use super::*;

on_real_runtimes! {
    a_mount_shows_a_path_within_the_volume_and_nothing_above_it,
    a_path_that_leads_out_of_the_volume_is_refused,
}

async fn a_mount_shows_a_path_within_the_volume_and_nothing_above_it(on: TestRuntime) {
    let map = config_map("settings", json!({ "data": { "a": "one", "b": "two" } }));
    let Some(node_rig) = node(on, |builder| builder.object("settings.json", &map)).await else {
        return;
    };
    let volumes = json!([
        { "name": "scratch", "emptyDir": {} },
        { "name": "config", "configMap": { "name": "settings" } },
    ]);
    let mounts = [
        ("scratch", "/deep"),
        ("scratch", "/own"),
        ("config", "/etc/one.conf"),
        ("scratch", "/all"),
    ];
    let says = "echo x > /deep/file; echo y > /own/file; cat /etc/one.conf; echo; cd /all; find . -type f | sort";
    let mut app = container_of("app", says, &mounts);
    app["env"] =
        json!([{ "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }]);
    let app = with_mount(app, 0, json!({ "subPath": "a/b" }));
    let app = with_mount(app, 1, json!({ "subPathExpr": "logs/$(POD)" }));
    let app = with_mount(app, 2, json!({ "subPath": "a" }));
    node_rig.begin(&pod(
        "paths",
        &json!({ "volumes": volumes, "containers": [app] }),
    ));
    let pod = node_rig.until_running("paths").await;
    assert_eq!(
        node_rig.heard(&pod, "app").await,
        ["one", "./a/b/file", "./logs/paths-node/file"]
    );
    // A path that is bound stays what it was, whatever becomes of the volume.
    let later = config_map(
        "settings",
        json!({ "data": { "a": "changed", "b": "two" } }),
    );
    node_rig.node.drop_object("settings.json", &later).unwrap();
    let seen = node_rig
        .folder_of(&pod)
        .join("volumes/kubernetes.io~configmap/config/a");
    let changed = wait_until(CONVERGENCE_TIMEOUT, "the volume changes", async || {
        fs::read_to_string(&seen).is_ok_and(|text| text == "changed")
    });
    changed.await.unwrap();
    assert_eq!(
        node_rig
            .in_container(&pod, "app", "cat /etc/one.conf")
            .await,
        "one"
    );
    node_rig.end(&pod, "paths").await;
}

async fn a_path_that_leads_out_of_the_volume_is_refused(on: TestRuntime) {
    let Some(node_rig) = node(on, |builder| builder).await else {
        return;
    };
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("secret"), "secret").unwrap();
    let first = format!(
        "ln -s {} /scratch/out; ln -s /scratch/in /scratch/inner",
        secret.path().display()
    );
    let init = json!({
        "name": "init", "image": "localhost/oxlet/busybox:1", "command": ["sh", "-c", first],
        "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }],
    });
    let app = with_mount(
        container_of("app", "ls /out", &[("scratch", "/out")]),
        0,
        json!({ "subPath": "out" }),
    );
    let spec = json!({
        "volumes": [{ "name": "scratch", "emptyDir": {} }],
        "initContainers": [init], "containers": [app],
    });
    node_rig.begin(&pod("escape", &spec));
    let pod = node_rig
        .until("escape", "is refused", |pod| {
            waiting(pod, "app").0 == "CreateContainerConfigError"
        })
        .await;
    let (_, message) = waiting(&pod, "app");
    let words = "failed to prepare subPath for volumeMount \"scratch\" of container \"app\"";
    assert!(message.starts_with(words), "{message}");
    assert!(secret.path().join("secret").exists());
    let inside = fs::read_dir(secret.path()).unwrap().count();
    assert_eq!(inside, 1);
    node_rig.end(&pod, "escape").await;
    assert!(secret.path().join("secret").exists());
}
