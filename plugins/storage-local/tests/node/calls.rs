//! Answers of the calls, beyond what the contract checks of all storage plugins.

use std::fs;

use mounts::table::MountTable;
use proto::storage::volume::Source;
use proto::storage::{
    BindSubpathRequest, CapabilitiesRequest, ExpandRequest, HostPath, Local, MapBlockRequest,
    Measure, Medium, ReadFileRequest, RemovePodRequest, StageRequest, StatsRequest, UnstageRequest,
    Volume, WatchRequest,
};
use serde_json::{Value, json};
use tonic::Code;

use crate::rig::{Node, empty_dir, files, list, names, unmount};

async fn refusal(node: &Node, configuration: Value) -> String {
    let info = storage_local::info("0");
    let home = node.path("refused");
    fs::create_dir_all(&home).unwrap();
    let started = sdk::testing::start(&home, info, configuration, storage_local::build).await;
    fs::remove_dir_all(&home).unwrap();
    started.unwrap_err().to_string()
}

#[tokio::test]
async fn a_wrong_configuration_is_refused_with_its_field() {
    let node = Node::new();
    for (configuration, why) in [
        (json!({}), "missing field `rootDir`"),
        (json!(null), "missing field `rootDir`"),
        (
            json!({ "rootDir": "/x", "more": 1 }),
            "unknown field `more`",
        ),
        (
            json!({ "rootDir": "var/lib/kubelet" }),
            "rootDir \"var/lib/kubelet\" is not an absolute path",
        ),
        (
            json!({ "rootDir": "/x/../y" }),
            "rootDir \"/x/../y\" is not a plain path",
        ),
        (
            json!({ "rootDir": "/x", "rootPropagation": "wide" }),
            "unknown variant `wide`",
        ),
    ] {
        let refusal = refusal(&node, configuration).await;
        assert!(refusal.contains(why), "{refusal}");
    }
}

#[tokio::test]
async fn the_root_is_made_a_shared_mount_once_where_that_is_wanted() {
    let node = Node::new();
    // A mount of its own in a place of the test's own, to end with the test.
    let shared = || {
        let table = MountTable::read().unwrap();
        let layers = table.layers(&node.root());
        let shared = layers.iter().filter(|entry| {
            entry
                .propagation
                .iter()
                .any(|word| word.starts_with("shared:"))
        });
        (layers.len(), shared.count())
    };
    for home in ["one", "two"] {
        let configuration = json!({ "rootDir": node.root(), "rootPropagation": "shared" });
        let home = node.path(home);
        fs::create_dir(&home).unwrap();
        let info = storage_local::info("0");
        let plugin = sdk::testing::start(&home, info, configuration, storage_local::build).await;
        drop(plugin.unwrap());
        assert_eq!(shared(), (1, 1));
    }
}

#[tokio::test]
async fn the_kinds_are_those_of_the_node_and_none_is_staged() {
    let node = Node::new();
    let (_plugin, mut client) = node.plugin().await;
    let answer = client
        .capabilities(CapabilitiesRequest {})
        .await
        .unwrap()
        .into_inner();
    let words: Vec<_> = answer.kinds.iter().map(|kind| kind.kind.as_str()).collect();
    assert_eq!(
        words,
        [
            "empty-dir",
            "host-path",
            "configmap",
            "secret",
            "projected",
            "downward-api",
            "local-volume",
            "nfs"
        ]
    );
    assert!(answer.kinds.iter().all(|kind| !kind.staged && !kind.expand));
    let blocks = answer.kinds.iter().filter(|kind| kind.block);
    assert_eq!(
        blocks.map(|kind| kind.kind.as_str()).collect::<Vec<_>>(),
        ["local-volume"]
    );
    let volume = || {
        Some(Volume {
            kind: "local-volume".to_owned(),
            ..Volume::default()
        })
    };
    let stage = StageRequest {
        volume: volume(),
        ..StageRequest::default()
    };
    let expand = ExpandRequest {
        volume: volume(),
        ..ExpandRequest::default()
    };
    let codes = [
        client.stage(stage).await.unwrap_err().code(),
        client
            .unstage(UnstageRequest::default())
            .await
            .unwrap_err()
            .code(),
        client.expand(expand).await.unwrap_err().code(),
    ];
    assert_eq!(codes, [Code::Unimplemented; 3]);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_makes_nothing() {
    let node = Node::new();
    let (_plugin, mut client) = node.plugin().await;
    let disk = || empty_dir(Medium::Default);
    let good = || node.mount("u", "empty-dir", "v", disk());
    let mut requests = Vec::new();
    for target in [
        "",
        "/etc",
        "/etc/passwd",
        "pods/u/volumes/kubernetes.io~empty-dir/v",
    ] {
        let mut request = good();
        request.target = target.to_owned();
        requests.push(request);
    }
    let mut request = good();
    request.target = format!("{}/../v", request.target);
    requests.push(request);
    let mut request = good();
    request.target = request.target.replace("empty-dir", "secret");
    requests.push(request);
    let mut request = good();
    request.volume = None;
    requests.push(request);
    let mut request = good();
    request.pod = None;
    requests.push(request);
    requests.push(node.mount("u", "example", "v", disk()));
    requests.push(node.mount("u", "csi", "v", disk()));
    requests.push(node.mount("u", "secret", "v", disk()));
    requests.push(node.mount("u", "empty-dir", "v", files(Medium::Default, &[])));
    requests.push(node.mount("u", "secret", "v", files(Medium::Memory, &[("../x", b"")])));
    let file = HostPath {
        path: "/etc/../etc".to_owned(),
        r#type: String::new(),
    };
    requests.push(node.mount("u", "host-path", "v", Source::HostPath(file)));
    for request in requests {
        let text = format!("{request:?}");
        let refused = client.mount(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{text}: {refused}");
    }
    for folder in [
        "",
        "/",
        "/etc",
        &node.root().join("pods").display().to_string(),
    ] {
        let request = RemovePodRequest {
            folder: folder.to_owned(),
            within_ms: 0,
        };
        let refused = client.remove_pod(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{folder}");
    }
    assert!(names(&node.root().join("pods")).is_empty());
}

#[tokio::test]
async fn a_path_of_the_node_is_its_own_answer_and_is_not_touched_by_its_end() {
    let node = Node::new();
    let (_plugin, mut client) = node.plugin().await;
    let path = node.path("host/data").display().to_string();
    let source = HostPath {
        path: path.clone(),
        r#type: "DirectoryOrCreate".to_owned(),
    };
    let mut request = node.mount("u", "host-path", "v", Source::HostPath(source));
    request.target = String::new();
    let answer = client.mount(request.clone()).await.unwrap().into_inner();
    assert_eq!(answer.path, path);
    fs::write(node.path("host/data/kept"), "").unwrap();
    client.unmount(unmount(&request)).await.unwrap();
    assert!(node.path("host/data/kept").exists());
    assert!(list(&mut client).await.is_empty());
}

#[tokio::test]
async fn ten_megabytes_of_secret_arrive_whole() {
    let node = Node::new();
    let (_plugin, mut client) = node.plugin().await;
    let large: Vec<u8> = (0..10_u32 << 20).map(|n| n.to_le_bytes()[1]).collect();
    let source = files(Medium::Memory, &[("large", &large), ("small", b"x")]);
    let request = node.mount("u", "secret", "v", source);
    for _ in 0..2 {
        let path = client
            .mount(request.clone())
            .await
            .unwrap()
            .into_inner()
            .path;
        assert_eq!(path, request.target);
        assert!(fs::read(node.target("u", "secret", "v").join("large")).unwrap() == large);
    }
    let read = ReadFileRequest {
        kind: "secret".to_owned(),
        root: request.target.clone(),
        path: "small".to_owned(),
        max_bytes: 10,
        ..ReadFileRequest::default()
    };
    let data = client.read_file(read).await.unwrap().into_inner().data;
    assert_eq!(data, b"x");
}

#[tokio::test]
async fn a_path_within_a_volume_is_bound_for_a_container_and_follows_no_update() {
    let node = Node::new();
    let (_plugin, mut client) = node.plugin().await;
    let mount = |text: &[u8]| {
        node.mount(
            "u",
            "configmap",
            "v",
            files(Medium::Default, &[("a", text)]),
        )
    };
    let request = mount(b"one");
    client.mount(request.clone()).await.unwrap();
    let target = node.root().join("pods/u/volume-subpaths/v/c/0");
    let bind = BindSubpathRequest {
        kind: "configmap".to_owned(),
        pod_uid: "u".to_owned(),
        volume_name: "v".to_owned(),
        root: request.target.clone(),
        subpath: "a".to_owned(),
        container: "c".to_owned(),
        target: target.display().to_string(),
        ..BindSubpathRequest::default()
    };
    let path = client.bind_subpath(bind).await.unwrap().into_inner().path;
    client.mount(mount(b"two")).await.unwrap();
    assert_eq!(fs::read(path).unwrap(), b"one");
    let seen = node.target("u", "configmap", "v").join("a");
    assert_eq!(fs::read(seen).unwrap(), b"two");
}

#[tokio::test]
async fn a_local_disk_is_mapped_by_its_link() {
    let node = Node::new();
    let (_plugin, mut client) = node.plugin().await;
    let file = node.path("file");
    fs::write(&file, "").unwrap();
    let source = Local {
        path: file.display().to_string(),
        ..Local::default()
    };
    let mount = node.mount("u", "local-volume", "pv", Source::Local(source));
    let map = |mount: &proto::storage::MountRequest, target: String| MapBlockRequest {
        volume: mount.volume.clone(),
        pod: mount.pod.clone(),
        target,
        ..MapBlockRequest::default()
    };
    let link = mount.target.replace("volumes", "volumeDevices");
    let refused = client.map_block(map(&mount, link)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let refused = client
        .map_block(map(&mount, mount.target.clone()))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let secret = node.mount("u", "secret", "v", files(Medium::Memory, &[]));
    let refused = client
        .map_block(map(&secret, String::new()))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn each_medium_is_measured_in_its_way() {
    let node = Node::new();
    let (_plugin, mut client) = node.plugin().await;
    for (name, medium, measure) in [
        ("memory", Medium::Memory, Measure::FileSystemFigures),
        ("disk", Medium::Default, Measure::Walk),
    ] {
        let request = node.mount("u", "empty-dir", name, empty_dir(medium));
        let path = client.mount(request).await.unwrap().into_inner().path;
        fs::write(
            node.target("u", "empty-dir", name).join("x"),
            vec![1; 1 << 20],
        )
        .unwrap();
        let stats = StatsRequest {
            kind: "empty-dir".to_owned(),
            path,
            ..StatsRequest::default()
        };
        let answer = client.stats(stats).await.unwrap().into_inner();
        assert_eq!(answer.measure(), measure);
        let used = answer.used.unwrap();
        assert!((1 << 20..2 << 20).contains(&used), "{name}: {used}");
        assert!(answer.capacity.unwrap() > answer.available.unwrap());
    }
}

#[tokio::test]
async fn nothing_is_told_of_backends() {
    let node = Node::new();
    let (_plugin, mut client) = node.plugin().await;
    let mut events = client.watch(WatchRequest {}).await.unwrap().into_inner();
    // Whatever comes after an answer to a later call did not come before it.
    list(&mut client).await;
    let next = tokio::time::timeout(std::time::Duration::ZERO, events.message()).await;
    assert!(next.is_err(), "{next:?}");
}
