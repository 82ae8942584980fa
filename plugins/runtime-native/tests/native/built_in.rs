//! Containers by the OCI runtime that ships with the plugin: what other runtimes understand it does too.

use std::path::Path;

use proto::cri::{Mount, MountPropagation, NamespaceMode, PodSandboxConfig};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};

use serde_json::json;

use crate::rig::Rig;

fn shared_pids(rig: &Rig, name: &str) -> PodSandboxConfig {
    let mut pod = rig.pod(name);
    let linux = pod.linux.as_mut().unwrap();
    let context = linux.security_context.as_mut().unwrap();
    let options = context.namespace_options.as_mut().unwrap();
    options.set_pid(NamespaceMode::Pod);
    pod
}

#[tokio::test]
async fn containers_of_a_pod_share_its_process_ids_when_asked_to() {
    let rig = Rig::start_own(json!({})).await;
    let pod = shared_pids(&rig, "shared");
    let id = rig.run_pod(&pod).await;
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        let mut config = rig.container(name, "sleep 3600");
        let linux = config.linux.get_or_insert_default();
        let context = linux.security_context.get_or_insert_default();
        context.namespace_options.get_or_insert_default().pid = NamespaceMode::Pod.into();
        ids.push(rig.run((&id, &pod), config).await);
    }
    let (first, code) = rig
        .exec(&ids[0], "cat /proc/1/comm; pidof sleep | wc -w")
        .await;
    assert_eq!((first.as_str(), code), ("pause\n2\n", 0));
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_containers_processes_ignore_and_block_no_signal() {
    let rig = Rig::start_own(json!({})).await;
    let pod = rig.pod("signals");
    let id = rig.run_pod(&pod).await;
    let container = rig
        .run((&id, &pod), rig.container("main", "exec sleep 3600"))
        .await;
    let looked = "grep -hE 'Sig(Ign|Blk)' /proc/1/status /proc/self/status | tr -d '\\t' | sort -u";
    let (masks, _) = rig.exec(&container, looked).await;
    for mask in masks.lines().map(|line| line.split(':').next_back()) {
        let mask = u64::from_str_radix(mask.unwrap(), 16).unwrap();
        // Of the real-time ones C libraries keep two for themselves, and leave them ignored where they start programs.
        assert_eq!(mask & 0x7fff_ffff, 0, "{masks}");
    }
    // What most notice it by: a reader that has enough ends the writer, without a word.
    let (said, code) = rig.exec(&container, "yes 2>&1 | head -n 1").await;
    assert_eq!((said.as_str(), code), ("y\n", 0));
    rig.remove_pod(&id).await;
}

/// Its limits, and which devices it may use: with what a container may do by default, that would be the node's disk.
#[tokio::test]
async fn a_container_reads_its_groups_and_changes_nothing_of_them() {
    let rig = Rig::start_own(json!({})).await;
    for pod in [rig.pod("own"), shared_pids(&rig, "joined")] {
        let id = rig.run_pod(&pod).await;
        let mut config = rig.container("main", "exec sleep 3600");
        let linux = config.linux.get_or_insert_default();
        let context = linux.security_context.get_or_insert_default();
        context.namespace_options = pod
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref())
            .and_then(|context| context.namespace_options.clone());
        let container = rig.run((&id, &pod), config).await;
        let (mounts, _) = rig.exec(&container, "grep cgroup /proc/self/mounts").await;
        assert!(!mounts.is_empty());
        for mount in mounts.lines() {
            let options = mount.split(' ').nth(3).unwrap();
            let is_closed = options.split(',').any(|option| option == "ro");
            // What is covered by a mount at the same place is nobody's to write to.
            assert!(
                is_closed || mount.starts_with("tmpfs /sys/fs/cgroup "),
                "{mounts}"
            );
        }
        let group = "g=/sys/fs/cgroup; [ -d $g/memory ] && g=$g/memory; cat $g/cgroup.procs";
        let (processes, code) = rig.exec(&container, group).await;
        assert!(code == 0 && !processes.is_empty(), "{processes}");
        let tries = "cd /sys/fs/cgroup; \
            mkdir made; echo x > file; \
            for f in devices/devices.allow */cgroup.procs cgroup.procs memory/memory.limit_in_bytes memory.max; do \
                [ ! -e $f ] || ! echo 1 > $f || echo wrote $f; \
            done 2>/dev/null; ls -d made file";
        let (wrote, _) = rig.exec(&container, tries).await;
        assert_eq!(wrote, "");
        rig.remove_pod(&id).await;
    }
    rig.assert_nothing_left().await;
}

/// A folder of the node that is a shared mount of its own while this lives.
struct SharedMount<'a>(&'a Path);

impl SharedMount<'_> {
    fn make(path: &Path) -> SharedMount<'_> {
        std::fs::create_dir_all(path.join("below")).unwrap();
        mount_bind(path, path).unwrap();
        mount_change(path, MountPropagationFlags::SHARED).unwrap();
        SharedMount(path)
    }

    /// Mounts a file system below it.
    fn mount_below(&self) {
        let below = self.0.join("below");
        mount("t", &below, "tmpfs", MountFlags::empty(), None).unwrap();
        std::fs::write(below.join("seen"), "").unwrap();
    }
}

impl Drop for SharedMount<'_> {
    fn drop(&mut self) {
        for path in [self.0.join("own"), self.0.join("below"), self.0.to_owned()] {
            // What isn't mounted needs no unmounting.
            if let Err(_absent) = unmount(path, UnmountFlags::DETACH) {}
        }
    }
}

#[tokio::test]
async fn mounts_spread_between_node_and_container_as_far_as_asked() {
    let rig = Rig::start_own(json!({})).await;
    let mut pod = rig.pod("spread");
    let linux = pod.linux.as_mut().unwrap();
    linux.security_context.as_mut().unwrap().privileged = true;
    let id = rig.run_pod(&pod).await;
    let folder = rig.home.path().join("volume");
    let shared = SharedMount::make(&folder);
    let mut ids = Vec::new();
    for (name, propagation) in [
        ("private", MountPropagation::PropagationPrivate),
        ("slave", MountPropagation::PropagationHostToContainer),
        ("shared", MountPropagation::PropagationBidirectional),
    ] {
        let mut config = rig.container(name, "sleep 3600");
        let linux = config.linux.get_or_insert_default();
        let context = linux.security_context.get_or_insert_default();
        context.privileged = true;
        config.mounts.push(Mount {
            host_path: folder.display().to_string(),
            container_path: "/volume".to_owned(),
            propagation: propagation.into(),
            ..Mount::default()
        });
        ids.push(rig.run((&id, &pod), config).await);
    }
    shared.mount_below();
    for (container, expected) in ids.iter().zip([1, 0, 0]) {
        assert_eq!(
            rig.exec(container, "test -e /volume/below/seen").await.1,
            expected
        );
    }
    for (container, expected) in ids.iter().zip([false, false, true]) {
        let script =
            "mkdir -p /volume/own && mount -t tmpfs t /volume/own && touch /volume/own/made";
        assert_eq!(rig.exec(container, script).await.1, 0);
        assert_eq!(folder.join("own/made").exists(), expected);
    }
    rig.remove_pod(&id).await;
    drop(shared);
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_mount_is_read_only_with_everything_below_it_when_asked_to() {
    let rig = Rig::start_own(json!({})).await;
    let pod = rig.pod("read-only");
    let id = rig.run_pod(&pod).await;
    let folder = rig.home.path().join("volume");
    let shared = SharedMount::make(&folder);
    shared.mount_below();
    for (name, recursive, expected) in [("flat", false, 0), ("deep", true, 1)] {
        let mut config = rig.container(name, "sleep 3600");
        config.mounts.push(Mount {
            host_path: folder.display().to_string(),
            container_path: "/volume".to_owned(),
            readonly: true,
            recursive_read_only: recursive,
            ..Mount::default()
        });
        let container = rig.run((&id, &pod), config).await;
        assert_eq!(rig.exec(&container, "touch /volume/new").await.1, 1);
        let code = rig.exec(&container, "touch /volume/below/new").await.1;
        assert_eq!(code, expected, "{name}");
    }
    rig.remove_pod(&id).await;
    drop(shared);
    rig.assert_nothing_left().await;
}
