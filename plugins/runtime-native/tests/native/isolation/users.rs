//! Pods with users of their own, by each OCI runtime: root inside, somebody without any power on the node.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use proto::cri::*;
use serde_json::json;

use crate::network::PodNetwork;
use crate::rig::Rig;
use crate::volumes::WITH_VOLUMES;

const LENGTH: u32 = 65_536;
const FIRST: u32 = 3 * LENGTH;
const SECOND: u32 = 4 * LENGTH;

fn ids(first: u32) -> Vec<IdMapping> {
    vec![IdMapping {
        container_id: 0,
        host_id: first,
        length: LENGTH,
    }]
}

fn users(first: u32) -> UserNamespace {
    UserNamespace {
        mode: NamespaceMode::Pod.into(),
        uids: ids(first),
        gids: ids(first),
    }
}

async fn rig(runtime: &str, network: &PodNetwork) -> Rig {
    let network = json!({ "network": { "socket": network.socket() } });
    match runtime {
        "runc" => Rig::start_with(network).await,
        _ => Rig::start_own(network).await,
    }
}

fn options(first: u32) -> NamespaceOption {
    NamespaceOption {
        pid: NamespaceMode::Container.into(),
        userns_options: Some(users(first)),
        ..NamespaceOption::default()
    }
}

fn pod(rig: &Rig, name: &str, first: u32) -> PodSandboxConfig {
    let mut config = rig.pod(name);
    let linux = config.linux.as_mut().unwrap();
    let security = linux.security_context.as_mut().unwrap();
    security.namespace_options = Some(options(first));
    config.hostname = format!("host-of-{name}");
    config
}

fn container(rig: &Rig, name: &str, first: u32) -> ContainerConfig {
    let mut config = rig.container(name, "sleep 3600");
    let linux = config.linux.get_or_insert_default();
    let security = linux.security_context.get_or_insert_default();
    security.namespace_options = Some(options(first));
    config
}

fn volume(host: &Path, inside: &str, first: Option<u32>) -> Mount {
    fs::create_dir_all(host).unwrap();
    let lines = first.map(ids).unwrap_or_default();
    Mount {
        container_path: inside.to_owned(),
        host_path: host.display().to_string(),
        uid_mappings: lines.clone(),
        gid_mappings: lines,
        ..Mount::default()
    }
}

fn owner(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

async fn succeeds(rig: &Rig, id: &str, script: &str) -> String {
    let (text, code) = rig.exec(id, &format!("exec 2>&1; {script}")).await;
    assert_eq!(code, 0, "{script}: {text}");
    text
}

async fn root_inside_is_nobody_outside(runtime: &str) {
    let Some(network) = PodNetwork::start().await else {
        return;
    };
    let mut rig = rig(runtime, &network).await;
    let pod = pod(&rig, "a", FIRST);
    let id = rig.run_pod(&pod).await;
    let (mapped, plain) = (
        rig.home.path().join("mapped"),
        rig.home.path().join("plain"),
    );
    let mut config = container(&rig, "main", FIRST);
    config.mounts = vec![
        volume(&mapped, "/mapped", Some(FIRST)),
        volume(&plain, "/plain", None),
    ];
    fs::write(mapped.join("of-seven"), "").unwrap();
    chown(mapped.join("of-seven"), Some(7), Some(8)).unwrap();
    let main = rig.run((&id, &pod), config).await;

    let map = succeeds(&rig, &main, "id -u; cat /proc/self/uid_map").await;
    let words: Vec<_> = map.split_whitespace().collect();
    assert_eq!(words, ["0", "0", "196608", "65536"]);
    let process = rig.processes_of(&main);
    assert_eq!(
        owner(&Path::new("/proc").join(process[0].to_string())).0,
        FIRST
    );

    let look = "stat -c '%u %g' /bin/busybox /mapped /mapped/of-seven /plain";
    assert_eq!(
        succeeds(&rig, &main, look).await,
        "0 0\n0 0\n7 8\n65534 65534\n"
    );
    let write = "touch /own /mapped/own && chown 5:6 /own /mapped/own && echo x >> /etc/hosts && echo y > /dev/null && touch /dev/shm/z";
    succeeds(&rig, &main, write).await;
    let upper = rig.root().join("containers").join(&main).join("upper");
    assert_eq!(owner(&upper.join("own")), (FIRST + 5, FIRST + 6));
    assert_eq!(owner(&mapped.join("own")), (5, 6));
    let (text, code) = rig.exec(&main, "touch /plain/own").await;
    assert_ne!(code, 0, "{text}");

    rig.kill_and_restart().await;
    assert_eq!(succeeds(&rig, &main, "hostname").await, "host-of-a\n");
    let later = rig.run((&id, &pod), container(&rig, "later", FIRST)).await;
    assert_eq!(succeeds(&rig, &later, "id -u").await, "0\n");
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

/// What an image's volumes are filled with, an image that is mounted, and a user that isn't root.
async fn images_are_as_without_own_users(runtime: &str) {
    let Some(network) = PodNetwork::start().await else {
        return;
    };
    let mut rig = rig(runtime, &network).await;
    let archive = crate::volumes::archive(&rig, &["/data", "/new"]);
    rig.reconfigure(json!({ "import": [archive] })).await;
    let pod = pod(&rig, "a", FIRST);
    let id = rig.run_pod(&pod).await;
    let mut config = container(&rig, "main", FIRST);
    config.image = crate::images::spec(WITH_VOLUMES);
    let linux = config.linux.as_mut().unwrap();
    let security = linux.security_context.as_mut().unwrap();
    security.run_as_user = Some(Int64Value { value: 1000 });
    security.run_as_group = Some(Int64Value { value: 2000 });
    security.supplemental_groups = vec![44];
    config.mounts = vec![Mount {
        container_path: "/image".to_owned(),
        readonly: true,
        image: crate::images::spec(WITH_VOLUMES),
        uid_mappings: ids(FIRST),
        gid_mappings: ids(FIRST),
        ..Mount::default()
    }];
    let main = rig.run((&id, &pod), config).await;
    let look = "id -u; id -g; id -G; stat -c '%u %g' /data /data/of-image /new /image/bin/busybox";
    assert_eq!(
        succeeds(&rig, &main, look).await,
        "1000\n2000\n2000 44\n33 44\n0 0\n0 0\n0 0\n"
    );
    // By the group that it has beside its own.
    succeeds(&rig, &main, "touch /data/own").await;
    let volumes = rig.root().join("containers").join(&main).join("volumes/0");
    assert_eq!(owner(&volumes.join("own")), (FIRST + 1000, FIRST + 2000));
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn by_runc_images_are_seen_as_theirs_by_own_users() {
    images_are_as_without_own_users("runc").await;
}

#[tokio::test]
async fn by_oxlet_oci_images_are_seen_as_theirs_by_own_users() {
    images_are_as_without_own_users("oxlet-oci").await;
}

/// Two pods that mount the same folder as it is on the disk.
async fn pods_do_not_reach_each_others_files(runtime: &str) {
    let Some(network) = PodNetwork::start().await else {
        return;
    };
    let rig = rig(runtime, &network).await;
    let shared = rig.home.path().join("shared");
    let mut found = Vec::new();
    for (name, first) in [("a", FIRST), ("b", SECOND)] {
        let pod = pod(&rig, name, first);
        let id = rig.run_pod(&pod).await;
        let mut config = container(&rig, "main", first);
        config.mounts = vec![volume(&shared, "/shared", None)];
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        let main = rig.run((&id, &pod), config).await;
        found.push((id, main));
    }
    let [(one_pod, one), (two_pod, two)] = found.as_slice() else {
        panic!("there are two pods");
    };
    succeeds(&rig, one, "umask 077; echo secret > /shared/secret").await;
    assert_eq!(owner(&shared.join("secret")), (FIRST, FIRST));
    let reach = "cat /shared/secret; rm -f /shared/secret; chown 0:0 /shared/secret";
    let (text, _) = rig.exec(two, reach).await;
    assert_eq!(text, "");
    assert_eq!(succeeds(&rig, one, "cat /shared/secret").await, "secret\n");
    let theirs = rig.processes_of(one)[0];
    // Root of one pod is root of nothing else, whatever it asks the kernel for.
    let signal = format!("kill -9 {theirs}; mknod /node c 1 3; mount -t tmpfs t /sys; ls /node");
    assert_ne!(rig.exec(two, &signal).await.1, 0);
    assert_eq!(succeeds(&rig, one, "id -u").await, "0\n");
    for pod in [one_pod, two_pod] {
        rig.remove_pod(pod).await;
    }
    rig.assert_nothing_left().await;
}

/// A pod's network namespace belongs to its users; its processes share a PID namespace that does too.
async fn the_network_and_the_processes_are_the_pods(runtime: &str) {
    let Some(network) = PodNetwork::start().await else {
        return;
    };
    let rig = rig(runtime, &network).await;
    let mut pod = pod(&rig, "a", FIRST);
    let shared = NamespaceOption {
        pid: NamespaceMode::Pod.into(),
        ..options(FIRST)
    };
    let linux = pod.linux.as_mut().unwrap();
    linux.sysctls = [("kernel.shmmax".to_owned(), "4096".to_owned())].into();
    linux.security_context.as_mut().unwrap().namespace_options = Some(shared.clone());
    let id = rig.run_pod(&pod).await;
    let mut config = container(&rig, "main", FIRST);
    let linux = config.linux.as_mut().unwrap();
    let security = linux.security_context.as_mut().unwrap();
    security.namespace_options = Some(shared);
    security.capabilities = Some(Capability {
        add_capabilities: vec!["NET_ADMIN".to_owned()],
        ..Capability::default()
    });
    let main = rig.run((&id, &pod), config).await;
    let set = "echo 7 > /proc/sys/net/ipv4/ip_unprivileged_port_start && busybox ip link set lo down && busybox ip link set lo up && cat /proc/sys/kernel/shmmax /proc/1/comm";
    assert_eq!(succeeds(&rig, &main, set).await, "4096\npause\n");
    let seen = "cat /proc/self/cgroup > /dev/null && ls /sys/class/net && umask && test -c /dev/null && ls -d /dev/mqueue";
    let seen = succeeds(&rig, &main, seen).await;
    assert!(seen.contains("eth0") && seen.contains("0022"), "{seen}");
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

/// Whatever a call has made when the plugin is killed, its successor takes apart.
#[tokio::test]
async fn a_kill_while_pods_with_own_users_are_made_leaves_nothing() {
    let Some(network) = PodNetwork::start().await else {
        return;
    };
    let mut rig = rig("oxlet-oci", &network).await;
    for milliseconds in [20, 60, 100, 140, 180, 240] {
        let pod = pod(&rig, &format!("p{milliseconds}"), FIRST);
        let made = async {
            let id = rig.try_pod(&pod).await?;
            rig.create((&id, &pod), container(&rig, "main", FIRST))
                .await
        };
        let within = std::time::Duration::from_millis(milliseconds);
        drop(tokio::time::timeout(within, made).await);
        rig.kill_and_restart().await;
    }
    let list = ListPodSandboxRequest::default();
    let answer = rig.runtime().list_pod_sandbox(list).await.unwrap();
    for pod in answer.into_inner().items {
        rig.remove_pod(&pod.id).await;
    }
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn what_does_not_go_with_own_users_is_refused_by_its_name() {
    let Some(network) = PodNetwork::start().await else {
        return;
    };
    let rig = rig("oxlet-oci", &network).await;
    let mut on_node = pod(&rig, "node", FIRST);
    let linux = on_node.linux.as_mut().unwrap();
    let security = linux.security_context.as_mut().unwrap();
    let shared = security.namespace_options.as_mut().unwrap();
    shared.set_network(NamespaceMode::Node);
    let refusal = rig.try_pod(&on_node).await.unwrap_err();
    assert!(
        refusal.message().contains("the node's network"),
        "{refusal:?}"
    );

    let pod = pod(&rig, "a", FIRST);
    let id = rig.run_pod(&pod).await;
    let other = container(&rig, "other", SECOND);
    let plain = rig.container("plain", "true");
    let mut odd = container(&rig, "odd", FIRST);
    odd.mounts = vec![volume(&rig.home.path().join("v"), "/v", Some(SECOND))];
    for (config, expected) in [
        (other, "userns_options"),
        (plain, "userns_options"),
        (odd, "uid_mappings"),
    ] {
        let refusal = rig.create((&id, &pod), config).await.unwrap_err();
        assert!(refusal.message().contains(expected), "{refusal:?}");
    }
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn by_runc_root_of_a_pod_with_own_users_is_nobody_on_the_node() {
    root_inside_is_nobody_outside("runc").await;
}

#[tokio::test]
async fn by_oxlet_oci_root_of_a_pod_with_own_users_is_nobody_on_the_node() {
    root_inside_is_nobody_outside("oxlet-oci").await;
}

#[tokio::test]
async fn by_runc_pods_with_other_own_users_do_not_reach_each_others_files() {
    pods_do_not_reach_each_others_files("runc").await;
}

#[tokio::test]
async fn by_oxlet_oci_pods_with_other_own_users_do_not_reach_each_others_files() {
    pods_do_not_reach_each_others_files("oxlet-oci").await;
}

#[tokio::test]
async fn by_runc_the_network_and_the_processes_belong_to_the_own_users() {
    the_network_and_the_processes_are_the_pods("runc").await;
}

#[tokio::test]
async fn by_oxlet_oci_the_network_and_the_processes_belong_to_the_own_users() {
    the_network_and_the_processes_are_the_pods("oxlet-oci").await;
}
