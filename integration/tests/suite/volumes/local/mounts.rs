//! Properties of a container's mount: read-only, recursively so, and propagation of later mounts below it.

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::*;

on_real_runtimes! {
    mounts_spread_as_the_container_asks,
}

/// containerd makes mounts recursively read-only from 2.0 on, the native runtime does.
mod recursive {
    use super::*;

    mod containerd {
        #[tokio::test]
        async fn recursive_read_only_is_refused_where_the_runtime_cannot_do_it() {
            let on = super::TestRuntime::Containerd;
            super::recursive_read_only_is_refused_where_the_runtime_cannot_do_it(on).await;
        }
    }
    mod native {
        #[tokio::test]
        async fn recursive_read_only_covers_the_mounts_below() {
            super::recursive_read_only_covers_the_mounts_below(super::TestRuntime::Native).await;
        }
    }
}

/// A shared mount in a folder of one test.
struct SharedMount(tempfile::TempDir);

impl SharedMount {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        tmpfs(folder.path());
        let none = None::<&str>;
        mount(none, folder.path(), none, MsFlags::MS_SHARED, none).unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::create_dir(folder.path().join("theirs")).unwrap();
        Self(folder)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for SharedMount {
    fn drop(&mut self) {
        for point in mounted(self.0.path()).iter().rev() {
            umount2(point.as_str(), MntFlags::MNT_DETACH).unwrap();
        }
    }
}

fn tmpfs(path: &Path) {
    mount(
        Some("tmpfs"),
        path,
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .unwrap();
}

async fn mounts_spread_as_the_container_asks(on: TestRuntime) {
    let Some(node_rig) = node(on, |builder| builder).await else {
        return;
    };
    let shared = SharedMount::new();
    let mounting = |name: &str, propagation: &str| {
        let container = container_of(name, "true", &[("shared", "/shared")]);
        with_mount(container, 0, json!({ "mountPropagation": propagation }))
    };
    let mut mighty = mounting("both-ways", "Bidirectional");
    mighty["securityContext"] = json!({ "privileged": true });
    let spec = json!({
        "volumes": [{ "name": "shared", "hostPath": { "path": shared.0.path(), "type": "Directory" } }],
        "containers": [mounting("none", "None"), mounting("host", "HostToContainer"), mighty],
    });
    node_rig.begin(&pod("spread", &spec));
    let pod = node_rig.until_running("spread").await;
    tmpfs(&shared.at("inner"));
    fs::write(shared.at("inner/seen"), "seen").unwrap();
    let look = "cat /shared/inner/seen 2> /dev/null; true";
    node_rig.until_says(&pod, "host", look, "seen").await;
    node_rig.until_says(&pod, "both-ways", look, "seen").await;
    assert_eq!(node_rig.in_container(&pod, "none", look).await, "");

    let theirs =
        "mount -t tmpfs x /shared/theirs && echo -n theirs > /shared/theirs/seen && echo -n ok";
    assert_eq!(node_rig.in_container(&pod, "both-ways", theirs).await, "ok");
    assert_eq!(
        fs::read_to_string(shared.at("theirs/seen")).unwrap(),
        "theirs"
    );
    let look = "cat /shared/theirs/seen 2> /dev/null; true";
    node_rig.until_says(&pod, "host", look, "theirs").await;
    assert_eq!(node_rig.in_container(&pod, "none", look).await, "");
    node_rig.end(&pod, "spread").await;
    assert_eq!(
        fs::read_to_string(shared.at("theirs/seen")).unwrap(),
        "theirs"
    );
}

async fn recursive_read_only_is_refused_where_the_runtime_cannot_do_it(on: TestRuntime) {
    let Some(node_rig) = node(on, |builder| builder).await else {
        return;
    };
    let mounting = |name: &str, mode: &str| {
        let says = "touch /scratch/x || echo refused";
        let container = container_of(name, says, &[("scratch", "/scratch")]);
        with_mount(
            container,
            0,
            json!({ "readOnly": true, "recursiveReadOnly": mode }),
        )
    };
    let spec = json!({
        "volumes": [{ "name": "scratch", "emptyDir": {} }],
        "containers": [mounting("wish", "IfPossible"), mounting("must", "Enabled")],
    });
    node_rig.begin(&pod("deep", &spec));
    let holds = |pod: &Pod| {
        let wish = container(pod, "wish").is_some_and(is_running);
        wish && waiting(pod, "must").0 == "CreateContainerConfigError"
    };
    let pod = node_rig.until("deep", "half of it runs", holds).await;
    let (_, message) = waiting(&pod, "must");
    assert_eq!(
        message,
        "failed to resolve recursive read-only mode: volume \"scratch\" requested recursive read-only mode, but it is not supported by the runtime"
    );
    assert_eq!(node_rig.heard(&pod, "wish").await, ["refused"]);
    let mounts = container(&pod, "wish")
        .unwrap()
        .volume_mounts
        .clone()
        .unwrap();
    assert_eq!(mounts[0].recursive_read_only.as_deref(), Some("Disabled"));
    node_rig.end(&pod, "deep").await;
}

async fn recursive_read_only_covers_the_mounts_below(on: TestRuntime) {
    let shared = SharedMount::new();
    tmpfs(&shared.at("inner"));
    let Some(node_rig) = node(on, |builder| builder).await else {
        return;
    };
    let mounting = |name: &str, fields: Value| {
        let says = "touch /shared/inner/x || echo refused";
        with_mount(
            container_of(name, says, &[("shared", "/shared")]),
            0,
            fields,
        )
    };
    let spec = json!({
        "volumes": [{ "name": "shared", "hostPath": { "path": shared.0.path() } }],
        "containers": [
            mounting("deep", json!({ "readOnly": true, "recursiveReadOnly": "Enabled" })),
            mounting("flat", json!({ "readOnly": true })),
        ],
    });
    node_rig.begin(&pod("deep", &spec));
    let pod = node_rig.until_running("deep").await;
    assert_eq!(node_rig.heard(&pod, "deep").await, ["refused"]);
    assert_eq!(node_rig.heard(&pod, "flat").await, Vec::<String>::new());
    let mounts = container(&pod, "deep")
        .unwrap()
        .volume_mounts
        .clone()
        .unwrap();
    assert_eq!(mounts[0].recursive_read_only.as_deref(), Some("Enabled"));
    node_rig.end(&pod, "deep").await;
}
