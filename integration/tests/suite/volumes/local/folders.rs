//! emptyDir and hostPath.

use std::os::unix::net::UnixListener;

use super::claims::LoopDisk;
use super::*;

on_real_runtimes! {
    an_empty_folder_is_shared_by_the_pod_and_lives_as_long,
    a_path_of_the_node_is_what_the_pod_expects_or_holds_it_up,
}

async fn an_empty_folder_is_shared_by_the_pod_and_lives_as_long(on: TestRuntime) {
    let Some(node_rig) = node(on, |builder| builder).await else {
        return;
    };
    let both = [("scratch", "/scratch"), ("ram", "/ram")];
    let first = "at /scratch /ram; df -k /ram | tail -n 1 | awk '{print $1, $2}'; \
                 dd if=/dev/zero of=/ram/big bs=1k count=2000 2> /dev/null || echo full; rm /ram/big; \
                 echo kept >> /scratch/kept; echo kept >> /ram/kept";
    let second = "while [ ! -s /ram/kept ]; do sleep 0.1; done; cat /scratch/kept /ram/kept";
    let spec = json!({
        "volumes": [
            { "name": "scratch", "emptyDir": { "sizeLimit": "1Mi" } },
            { "name": "ram", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
        ],
        "containers": [container_of("first", first, &both), container_of("second", second, &both)],
    });
    node_rig.begin(&pod("folders", &spec));
    let pod = node_rig.until_running("folders").await;
    assert_eq!(
        node_rig.heard(&pod, "first").await,
        ["/scratch 777 0:0", "/ram 1777 0:0", "tmpfs 1024", "full"]
    );
    assert_eq!(node_rig.heard(&pod, "second").await, ["kept", "kept"]);
    let folder = node_rig
        .folder_of(&pod)
        .join("volumes/kubernetes.io~empty-dir");
    assert_eq!(mounted(&folder), [folder.join("ram").display().to_string()]);

    // Another instance of the container finds what the first one left.
    let killed = id_of(container(&pod, "first").unwrap());
    node_rig.kill_container(&killed).await;
    let pod = node_rig
        .until("folders", "has another container", |pod| {
            let first = container(pod, "first").unwrap();
            is_running(first) && id_of(first) != killed
        })
        .await;
    let both = "cat /scratch/kept /ram/kept | tr '\\n' ' '";
    node_rig
        .until_says(&pod, "first", both, "kept kept kept kept ")
        .await;
    node_rig.end(&pod, "folders").await;
}

fn host_path(name: &str, path: &Path, kind: &str) -> Value {
    json!({ "name": name, "hostPath": { "path": path, "type": kind } })
}

async fn a_path_of_the_node_is_what_the_pod_expects_or_holds_it_up(on: TestRuntime) {
    let Some(node_rig) = node(on, |builder| builder).await else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/data"), "data").unwrap();
    fs::write(at("file"), "file").unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    let null = PathBuf::from("/dev/null");
    let disk = LoopDisk::new(&at("image"));
    let volumes = [
        host_path("any", &at("folder"), ""),
        host_path("folder", &at("folder"), "Directory"),
        host_path("new-folder", &at("new/folder"), "DirectoryOrCreate"),
        host_path("file", &at("file"), "File"),
        host_path("new-file", &at("new-file"), "FileOrCreate"),
        host_path("socket", &at("socket"), "Socket"),
        host_path("char", &null, "CharDevice"),
        host_path("block", &disk.0, "BlockDevice"),
    ];
    let mounts = [
        ("any", "/any"),
        ("folder", "/folder"),
        ("new-folder", "/new-folder"),
        ("file", "/file"),
        ("new-file", "/new-file"),
        ("socket", "/socket"),
        ("char", "/char"),
        ("block", "/block"),
    ];
    let says = "look /any/data /folder/data /file; at /new-folder /new-file; \
                [ -S /socket ] && echo socket; [ -c /char ] && echo character; \
                [ -b /block ] && echo block; echo made > /new-folder/made";
    // A group of the pod is no matter of the node's own paths.
    let spec = json!({
        "securityContext": { "fsGroup": 2000 },
        "volumes": volumes, "containers": [container_of("app", says, &mounts)],
    });
    node_rig.begin(&pod("paths", &spec));
    let pod = node_rig.until_running("paths").await;
    assert_eq!(
        node_rig.heard(&pod, "app").await,
        [
            "/any/data 644 0:0 data",
            "/folder/data 644 0:0 data",
            "/file 644 0:0 file",
            "/new-folder 755 0:0",
            "/new-file 644 0:0",
            "socket",
            "character",
            "block",
        ]
    );
    node_rig.end(&pod, "paths").await;
    assert_eq!(fs::read_to_string(at("new/folder/made")).unwrap(), "made\n");
    assert!(at("folder/data").exists());

    let wrong = json!({
        "volumes": [host_path("wrong", &at("later"), "Directory")],
        "containers": [container_of("app", "ls /wrong", &[("wrong", "/wrong")])],
    });
    node_rig.begin(&super::pod("wrong", &wrong));
    let path = at("later");
    let message = format!(
        "MountVolume.SetUp failed for volume \"wrong\" : hostPath type check failed: {} is not a directory",
        path.display()
    );
    node_rig.until_event("FailedMount", &[&message]).await;
    fs::create_dir(&path).unwrap();
    fs::write(path.join("come"), "").unwrap();
    let pod = node_rig.until_running("wrong").await;
    assert_eq!(node_rig.heard(&pod, "app").await, ["come"]);
    node_rig.end(&pod, "wrong").await;
}
