//! Files that change while containers use them.

use std::time::Duration;

use super::*;

on_real_runtimes! {
    a_running_container_sees_each_change_as_a_whole,
    what_was_said_never_to_change_does_not,
    a_token_is_another_one_before_the_first_is_over,
    a_killed_plugin_and_a_restarted_agent_leave_volumes_as_they_are_and_go_on,
}

fn version(number: u32) -> String {
    let text = format!("{number} ").repeat(500);
    config_map("settings", json!({ "data": { "a": text, "b": text } }))
}

fn spec(says: &str) -> Value {
    json!({
        "volumes": [{ "name": "config", "configMap": { "name": "settings" } }],
        "containers": [container_of("app", says, &[("config", "/config")])],
    })
}

async fn a_running_container_sees_each_change_as_a_whole(on: TestRuntime) {
    let Some(node_rig) = node(on, |builder| builder.object("settings.json", &version(0))).await
    else {
        return;
    };
    // Looks at both files of one version again and again, and says when they differ.
    let watch = "(while true; do d=/config/$(readlink /config/..data); a=$(cat $d/a 2> /dev/null) && \
                 b=$(cat $d/b 2> /dev/null) && { [ \"$a\" = \"$b\" ] || echo torn; }; done) & true";
    node_rig.begin(&pod("changing", &spec(watch)));
    let pod = node_rig.until_running("changing").await;
    assert_eq!(node_rig.heard(&pod, "app").await, Vec::<String>::new());
    for number in 1..=5 {
        node_rig
            .node
            .drop_object("settings.json", &version(number))
            .unwrap();
        let text = format!("{number} ");
        node_rig
            .until_says(&pod, "app", "head -c 2 /config/b", &text)
            .await;
    }
    // Names come and go with the keys.
    let other = config_map("settings", json!({ "data": { "c": "only" } }));
    node_rig.node.drop_object("settings.json", &other).unwrap();
    node_rig
        .until_says(&pod, "app", "ls /config | tr '\\n' ' '", "c ")
        .await;
    let log = fs::read_to_string(node_rig.logs_of(&pod).join("app/0.log")).unwrap();
    assert!(!log.contains("torn"), "{log}");
    node_rig.end(&pod, "changing").await;
}

async fn what_was_said_never_to_change_does_not(on: TestRuntime) {
    let fixed = |text: &str| {
        config_map(
            "settings",
            json!({ "immutable": true, "data": { "a": text } }),
        )
    };
    let changing = |text: &str| config_map("changing", json!({ "data": { "a": text } }));
    let objects = |builder: Builder| {
        let builder = builder.object("settings.json", &fixed("first"));
        builder.object("changing.json", &changing("first"))
    };
    let Some(node_rig) = node(on, objects).await else {
        return;
    };
    let mut spec = spec("true");
    let volumes = spec["volumes"].as_array_mut().unwrap();
    volumes.push(json!({ "name": "changing", "configMap": { "name": "changing" } }));
    let mounts = spec["containers"][0]["volumeMounts"]
        .as_array_mut()
        .unwrap();
    mounts.push(json!({ "name": "changing", "mountPath": "/changing" }));
    node_rig.begin(&pod("fixed", &spec));
    let pod = node_rig.until_running("fixed").await;
    node_rig
        .node
        .drop_object("settings.json", &fixed("second"))
        .unwrap();
    node_rig
        .node
        .drop_object("changing.json", &changing("second"))
        .unwrap();
    node_rig
        .until_says(&pod, "app", "cat /changing/a", "second")
        .await;
    assert_eq!(
        node_rig.in_container(&pod, "app", "cat /config/a").await,
        "first"
    );
    node_rig.end(&pod, "fixed").await;
}

async fn a_token_is_another_one_before_the_first_is_over(on: TestRuntime) {
    let token = |text: &str, seconds: u64| {
        let expires = kernel::wall() + Duration::from_secs(seconds);
        let expires = jiff::Timestamp::try_from(expires).unwrap();
        json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "metadata": { "name": "builder", "namespace": "default" },
            "spec": { "audiences": ["vault"], "expirationSeconds": 3600 },
            "status": { "token": text, "expirationTimestamp": expires.to_string() },
        })
        .to_string()
    };
    let first = token("first", 600);
    let Some(node_rig) = node(on, |builder| builder.object("token.json", &first)).await else {
        return;
    };
    let source = json!({ "serviceAccountToken": { "path": "token", "audience": "vault" } });
    let spec = json!({
        "serviceAccountName": "builder",
        "volumes": [{ "name": "proof", "projected": { "sources": [source] } }],
        "containers": [container_of("app", "true", &[("proof", "/proof")])],
    });
    node_rig.begin(&pod("proving", &spec));
    let pod = node_rig.until_running("proving").await;
    let look = "cat /proof/token";
    node_rig.until_says(&pod, "app", look, "first").await;
    let second = token("second", 3600);
    node_rig.node.drop_object("token.json", &second).unwrap();
    node_rig.until_says(&pod, "app", look, "second").await;
    node_rig.end(&pod, "proving").await;
}

async fn a_killed_plugin_and_a_restarted_agent_leave_volumes_as_they_are_and_go_on(
    on: TestRuntime,
) {
    let objects = |builder: Builder| builder.object("settings.json", &version(0)).with_patience();
    let Some(mut node_rig) = node(on, objects).await else {
        return;
    };
    let mut spec = spec("echo -n kept > /ram/kept");
    let volumes = spec["volumes"].as_array_mut().unwrap();
    volumes.push(json!({ "name": "ram", "emptyDir": { "medium": "Memory" } }));
    let mounts = spec["containers"][0]["volumeMounts"]
        .as_array_mut()
        .unwrap();
    mounts.push(json!({ "name": "ram", "mountPath": "/ram" }));
    node_rig.begin(&pod("lasting", &spec));
    let pod = node_rig.until_running("lasting").await;
    node_rig.heard(&pod, "app").await;
    let table = mounted(&node_rig.folder_of(&pod));

    assert!(node_rig.node.kill_plugin_named("storage-local"));
    node_rig
        .node
        .drop_object("settings.json", &version(1))
        .unwrap();
    node_rig
        .until_says(&pod, "app", "head -c 2 /config/a", "1 ")
        .await;

    node_rig.node.kill9().unwrap();
    node_rig
        .node
        .drop_object("settings.json", &version(2))
        .unwrap();
    node_rig.node.begin().await.unwrap();
    node_rig
        .until_says(&pod, "app", "head -c 2 /config/a", "2 ")
        .await;
    let again = node_rig.until_running("lasting").await;
    let before = std::slice::from_ref(&pod);
    assert_eq!(identities(&[again]), identities(before));
    assert_eq!(mounted(&node_rig.folder_of(&pod)), table);
    assert_eq!(
        node_rig.in_container(&pod, "app", "cat /ram/kept").await,
        "kept"
    );
    node_rig.end(&pod, "lasting").await;
}
