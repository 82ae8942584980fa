//! Pods with users of their own, by each OCI runtime: root inside, somebody without any power on the node.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use proto::cri::*;
use serde_json::json;

use crate::network::PodNetwork;
use crate::rig::Rig;

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

#[tokio::test]
async fn by_runc_root_of_a_pod_with_own_users_is_nobody_on_the_node() {
    root_inside_is_nobody_outside("runc").await;
}

#[tokio::test]
async fn by_oxlet_oci_root_of_a_pod_with_own_users_is_nobody_on_the_node() {
    root_inside_is_nobody_outside("oxlet-oci").await;
}
