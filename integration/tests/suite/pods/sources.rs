//! Where pods come from: manifests in a folder and from a URL, good ones, changed ones and bad ones.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use integration::wait_until;
use nix::sys::stat::Mode;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::suite::node_rig::*;

on_each_runtime! {
    a_manifest_that_changes_replaces_its_pod,
    a_list_and_json_are_manifests_too,
    pods_come_from_an_http_url,
    bad_manifests_are_named_and_hide_nothing,
}

async fn a_manifest_that_changes_replaces_its_pod(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    node_rig
        .node
        .drop_manifest("web.yaml", &server("web"))
        .unwrap();
    let before = node_rig.until_running("web").await;
    let changed = server("web").replace("sleep 1;", "sleep 2;");
    node_rig.node.drop_manifest("web.yaml", &changed).unwrap();
    let old = uid(&before);
    let after = node_rig
        .until("web", "is another one", |pod| {
            uid(pod) != old && is_ready(pod)
        })
        .await;
    assert_eq!(container(&after, "app").unwrap().restart_count, 0);
    let cri = node_rig.cri().await;
    wait_until(
        CONVERGENCE_TIMEOUT,
        "nothing of the old pod is left",
        async || {
            let made = cri.containers_of("web").await.unwrap();
            made.len() == 1 && made[0].id == id_of(container(&after, "app").unwrap())
        },
    )
    .await
    .unwrap();
    assert_eq!(cri.sandboxes().await.unwrap().len(), 1);
}

async fn a_list_and_json_are_manifests_too(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let indented = |name: &str| server(name).replace('\n', "\n  ");
    let list = format!(
        "apiVersion: v1\nkind: PodList\nitems:\n- {}\n- {}\n",
        indented("one"),
        indented("two")
    );
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "three", "namespace": "other" },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "app", "image": "localhost/oxlet/busybox:1", "command": ["sleep", "1000"] }],
        },
    });
    node_rig.node.drop_manifest("list.yaml", &list).unwrap();
    node_rig
        .node
        .drop_manifest("three.json", &pod.to_string())
        .unwrap();
    for name in ["one", "two", "three"] {
        node_rig.until_running(name).await;
    }
    let three = node_rig.node.pod("three").await.unwrap().unwrap();
    assert_eq!(three.metadata.namespace.as_deref(), Some("other"));
    assert!(three.metadata.creation_timestamp.is_some() || three.status.is_some());

    node_rig
        .node
        .drop_manifest("list.yaml", &server("two"))
        .unwrap();
    node_rig.until_gone("one").await;
}

async fn pods_come_from_an_http_url(on: TestRuntime) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/pods.yaml", listener.local_addr().unwrap());
    let body = std::sync::Arc::new(std::sync::Mutex::new(server("distant")));
    let served = body.clone();
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let body = served.lock().unwrap().clone();
            let mut asked = [0; 4096];
            drop(stream.read(&mut asked).await);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            drop(stream.write_all(format!("{head}{body}").as_bytes()).await);
        }
    });
    let fields = json!({ "staticPodURL": url.clone(), "httpCheckFrequency": "1s" });
    let Some(node_rig) = on.start_with(|builder| builder.config(&fields)).await else {
        return;
    };
    node_rig
        .node
        .drop_manifest("near.yaml", &server("near"))
        .unwrap();
    let pod = node_rig.until_running("distant").await;
    node_rig.until_running("near").await;
    assert_eq!(
        pod.metadata.annotations.as_ref().unwrap()["kubernetes.io/config.source"],
        "http"
    );
    *body.lock().unwrap() = server("other");
    node_rig.until_running("other").await;
    node_rig.until_gone("distant").await;
    // A source that talks nonsense, or not at all, ends nothing.
    *body.lock().unwrap() = "kind: [Pod".to_owned();
    node_rig.until_event("InvalidManifest", &[&url]).await;
    serving.abort();
    wait_until(CONVERGENCE_TIMEOUT, "its silence is noticed", async || {
        node_rig
            .node
            .log()
            .contains(&format!("{url}: cannot connect"))
    })
    .await
    .unwrap();
    assert!(is_ready(
        &node_rig.node.pod("other").await.unwrap().unwrap()
    ));
    assert!(is_ready(&node_rig.node.pod("near").await.unwrap().unwrap()));
}

/// What is wrong, in which file, and the words that its event must hold.
fn bad_manifests(folder: &Path) -> Vec<(&'static str, Vec<&'static str>)> {
    fs::write(folder.join("malformed.yaml"), "apiVersion: v1\nkind: [Pod").unwrap();
    fs::write(folder.join("name.yaml"), server("Not_A_Name")).unwrap();
    fs::write(
        folder.join("policy.yaml"),
        one("policy", "Sometimes", "true"),
    )
    .unwrap();
    fs::write(folder.join("twin-1.yaml"), server("twin")).unwrap();
    fs::write(folder.join("twin-2.yaml"), server("twin")).unwrap();
    let huge = fs::File::create(folder.join("huge.yaml")).unwrap();
    huge.set_len(100 << 20).unwrap();
    fs::create_dir(folder.join("folder.yaml")).unwrap();
    nix::unistd::mkfifo(&folder.join("pipe.yaml"), Mode::S_IRWXU).unwrap();
    symlink("/nowhere/at/all", folder.join("dangling.yaml")).unwrap();
    vec![
        ("malformed.yaml", vec![]),
        ("name.yaml", vec!["metadata.name", "Not_A_Name"]),
        ("policy.yaml", vec!["spec.restartPolicy", "Sometimes"]),
        (
            "twin-2.yaml",
            vec!["metadata.name", "twin-node", "twin-1.yaml"],
        ),
        ("huge.yaml", vec!["bytes"]),
        ("folder.yaml", vec!["a folder", "expected a regular file"]),
        ("pipe.yaml", vec!["expected a regular file"]),
        ("dangling.yaml", vec!["link", "expected"]),
    ]
}

async fn bad_manifests_are_named_and_hide_nothing(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    node_rig
        .node
        .drop_manifest("a-good.yaml", &server("good"))
        .unwrap();
    let good = node_rig.until_running("good").await;
    let bad = bad_manifests(&node_rig.node.manifests());
    let misspelt = server("late").replace("restartPolicy", "restartPolitics");
    node_rig
        .node
        .drop_manifest("z-late.yaml", &misspelt)
        .unwrap();
    node_rig.until_running("late").await;
    node_rig.until_running("twin").await;
    node_rig
        .until_event("UnknownFields", &["spec.restartPolitics"])
        .await;
    for (file, mut words) in bad {
        let path = node_rig.node.manifests().join(file).display().to_string();
        words.push(&path);
        let message = node_rig.until_event("InvalidManifest", &words).await;
        println!("{message}");
    }
    let mut names: Vec<String> = Vec::new();
    for pod in node_rig.node.pods().await.unwrap() {
        names.push(pod.metadata.name.unwrap());
    }
    assert_eq!(names, ["good-node", "late-node", "twin-node"]);
    let after = node_rig.node.pod("good").await.unwrap().unwrap();
    assert_eq!(id_of(containers(&after)[0]), id_of(containers(&good)[0]));
    assert!(!node_rig.node.log().contains("panicked"));
}
