//! Lifetimes of volumes: ephemeral with the pod, or persistent.

use super::*;

on_each_runtime! {
    an_inline_volume_lives_and_ends_with_its_pod,
    a_pods_own_claim_is_taken_and_anothers_is_not,
    a_volume_for_one_pod_waits_for_the_other_to_end,
    a_node_takes_no_more_volumes_than_the_driver_bears,
}

async fn an_inline_volume_lives_and_ends_with_its_pod(on: TestRuntime) {
    let spec = json!({ "volumeLifecycleModes": ["Ephemeral"], "podInfoOnMount": true });
    let flags = ["--publish-secret=key=sesame"];
    let Some(rig) = CsiRig::start(on, &flags, spec).await else {
        return;
    };
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "hidden", "namespace": "default" },
        "stringData": { "key": "sesame" },
    });
    rig.drop_object("hidden", &secret);
    let source = json!({ "csi": {
        "driver": DRIVER, "volumeAttributes": { "color": "blue" }, "nodePublishSecretRef": { "name": "hidden" },
    } });
    rig.drop_pod(&pod("inline", source));
    let pod = rig.node_rig.until_running("inline").await;
    let published = rig.until_done("NodePublishVolume", 1).await;
    let context = &published[0]["volume_context"];
    let expected = [
        ("color", "blue"),
        ("csi.storage.k8s.io/ephemeral", "true"),
        ("csi.storage.k8s.io/pod.name", "inline-node"),
        ("csi.storage.k8s.io/pod.namespace", "default"),
        ("csi.storage.k8s.io/pod.uid", &uid(&pod)),
    ];
    for (key, value) in expected {
        assert_eq!(context[key], value, "{context:#}");
    }
    let handle = published[0]["volume_id"].as_str().unwrap().to_owned();
    assert!(handle.starts_with("csi-"), "{handle}");
    let target = rig.target(&pod, "data");
    assert_mounted_once(&target);
    fs::write(target.join("file"), "short-lived").unwrap();
    assert!(rig.driver.data(&handle).join("file").exists());
    rig.remove_pod("inline").await;
    rig.until_unused().await;
    assert!(!rig.driver.data(&handle).exists());
    let staged = rig.driver.done("NodeStageVolume").unwrap();
    assert!(staged.is_empty(), "{staged:#?}");
}

async fn a_pods_own_claim_is_taken_and_anothers_is_not(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    let template = json!({ "ephemeral": { "volumeClaimTemplate": { "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": SIZE } },
    } } } });
    rig.drop_pod(&pod("own", template));
    let missing = ["default/own-node-data", "not found"];
    rig.node_rig.until_event("FailedMount", &missing).await;
    // What the controller does for a pod of the API.
    let claim = "own-node-data";
    let data = rig.claim(claim, json!({}));
    let foreign =
        ["PVC default/own-node-data was not created for pod default/own-node (pod is not owner)"];
    rig.node_rig.until_event("FailedMount", &foreign).await;
    let owner = rig.node_rig.until("own", "is there", |_| true).await;
    let file = format!("objects/claim-{claim}.json");
    let mut owned: Value =
        serde_json::from_str(&read(&rig.node_rig.node.dir().join(file))).unwrap();
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": "own-node", "uid": uid(&owner), "controller": true,
    }]);
    rig.drop_object(&format!("claim-{claim}"), &owned);
    let pod = rig.node_rig.until_running("own").await;
    let target = rig.target(&pod, "pv-own-node-data");
    fs::write(target.join("file"), "mine").unwrap();
    assert_eq!(read(&data.join("file")), "mine");
    rig.remove_pod("own").await;
    rig.until_unused().await;
}

async fn a_volume_for_one_pod_waits_for_the_other_to_end(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &[], json!({})).await else {
        return;
    };
    rig.claim("web", json!({ "accessModes": ["ReadWriteOncePod"] }));
    rig.run("first", "web").await;
    rig.drop_pod(&pod("second", claimed("web")));
    let taken = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    rig.node_rig.until_event("FailedMount", &[taken]).await;
    let published = rig.until_done("NodePublishVolume", 1).await;
    let mode = &published[0]["volume_capability"]["access_mode"];
    assert_eq!(mode, "SINGLE_NODE_SINGLE_WRITER");
    assert_eq!(rig.driver.mounts().len(), 2, "staged, and published once");
    rig.remove_pod("first").await;
    rig.node_rig.until_running("second").await;
    rig.remove_pod("second").await;
    rig.until_unused().await;
}

async fn a_node_takes_no_more_volumes_than_the_driver_bears(on: TestRuntime) {
    let Some(rig) = CsiRig::start(on, &["--max-volumes=1"], json!({})).await else {
        return;
    };
    let shown = rig.shown().await;
    let driver = &shown["csi_node"]["spec"]["drivers"][0];
    assert_eq!(driver["allocatable"]["count"], 1, "{driver:#}");
    rig.claim("one", json!({}));
    rig.claim("two", json!({}));
    rig.run("first", "one").await;
    rig.drop_pod(&pod("second", claimed("two")));
    let full = ["pv-two", "node exceeds max volume count"];
    rig.node_rig.until_event("FailedMount", &full).await;
    rig.remove_pod("first").await;
    rig.node_rig.until_running("second").await;
    rig.remove_pod("second").await;
    rig.until_unused().await;
}
