//! Pods with a network of their own: attached by the network plugin and real CNI plugins.

use std::fs;
use std::path::Path;
use std::process::Command;

use proto::cri::*;
use serde_json::json;

use crate::rig::Rig;

const PLUGINS: &str = "/usr/lib/cni";

/// A network plugin with one network of point-to-point links, whose addresses are files.
pub(crate) struct PodNetwork {
    folder: tempfile::TempDir,
    plugin: sdk::testing::Plugin,
}

impl PodNetwork {
    /// None, with a sentence, where the CNI plugins are not installed; with `CI=true` that panics.
    pub(crate) async fn start() -> Option<PodNetwork> {
        PodNetwork::start_with(&[]).await
    }

    /// Starts it with further plugins in the network's chain.
    async fn start_with(more: &[serde_json::Value]) -> Option<PodNetwork> {
        if !Path::new(PLUGINS).join("ptp").exists() {
            let why =
                format!("{PLUGINS}/ptp is missing: apt-get install containernetworking-plugins");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
            eprintln!("skipped: {why}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("net.d");
        fs::create_dir(&conf).unwrap();
        let mut network = json!({
            "cniVersion": "1.0.0",
            "name": "net",
            "plugins": [{
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "dataDir": folder.path().join("addresses"),
                    "ranges": [[{ "subnet": format!("{}0/24", subnet()) }]],
                },
            }],
        });
        let chain = network["plugins"].as_array_mut().unwrap();
        chain.extend(more.iter().cloned());
        fs::write(conf.join("10-net.conflist"), network.to_string()).unwrap();
        let configuration = json!({ "confDir": conf, "binDirs": [PLUGINS] });
        let info = network_cni::info("0");
        let plugin =
            sdk::testing::start(folder.path(), info, configuration, network_cni::build).await;
        Some(PodNetwork {
            plugin: plugin.unwrap(),
            folder,
        })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.plugin.socket
    }

    fn addresses(&self) -> Vec<String> {
        let folder = self.folder.path().join("addresses/net");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("10.")).collect()
    }

    async fn rig(&self) -> Rig {
        Rig::start_with(json!({ "network": { "socket": self.plugin.socket } })).await
    }
}

fn pod(rig: &Rig, name: &str) -> PodSandboxConfig {
    let mut pod = rig.pod(name);
    pod.hostname = "own-name".to_owned();
    pod.dns_config = Some(DnsConfig {
        servers: vec!["10.0.0.10".to_owned()],
        ..Default::default()
    });
    let linux = pod.linux.as_mut().unwrap();
    linux.sysctls = [(
        "net.ipv4.ip_unprivileged_port_start".to_owned(),
        "7".to_owned(),
    )]
    .into();
    let context = linux.security_context.as_mut().unwrap();
    let options = context.namespace_options.as_mut().unwrap();
    options.set_network(NamespaceMode::Pod);
    pod
}

async fn address(rig: &Rig, id: &str) -> String {
    let request = PodSandboxStatusRequest {
        pod_sandbox_id: id.to_owned(),
        verbose: false,
    };
    let answer = rig.runtime().pod_sandbox_status(request).await.unwrap();
    let status = answer.into_inner().status.unwrap();
    status.network.unwrap().ip
}

/// The first three numbers of this test's addresses: each test is a process of its own.
fn subnet() -> String {
    format!("10.79.{}.", std::process::id() % 251)
}

/// How many links of this test's pods the node has: each has a route to it.
fn links() -> usize {
    let output = Command::new("ip").args(["-o", "route"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| line.contains(&subnet())).count()
}

#[tokio::test]
async fn a_pod_has_an_address_a_name_and_settings_of_its_own_until_it_is_stopped() {
    let Some(network) = PodNetwork::start().await else {
        return;
    };
    let mut rig = network.rig().await;
    let config = pod(&rig, "a");
    let id = rig.run_pod(&config).await;
    let ip = address(&rig, &id).await;
    assert!(ip.starts_with(&subnet()), "{ip}");
    assert_eq!(links(), 1);
    let one = rig
        .run((&id, &config), rig.container("one", "sleep 3600"))
        .await;
    let two = rig
        .run((&id, &config), rig.container("two", "sleep 3600"))
        .await;
    for container in [&one, &two] {
        let (shown, _) = rig.exec(container, "busybox ip addr show eth0").await;
        assert!(shown.contains(&ip), "{shown}");
        let (name, _) = rig.exec(container, "cat /proc/sys/kernel/hostname").await;
        assert_eq!(name, "own-name\n");
        let (set, _) = rig
            .exec(
                container,
                "cat /proc/sys/net/ipv4/ip_unprivileged_port_start",
            )
            .await;
        assert_eq!(set, "7\n");
        let (dns, _) = rig.exec(container, "cat /etc/resolv.conf").await;
        assert_eq!(dns, "nameserver 10.0.0.10\n");
    }
    // The namespace outlives the plugin and every container.
    rig.kill_and_restart().await;
    assert_eq!(address(&rig, &id).await, ip);
    let stopped = StopPodSandboxRequest {
        pod_sandbox_id: id.clone(),
    };
    for _ in 0..2 {
        rig.runtime()
            .stop_pod_sandbox(stopped.clone())
            .await
            .unwrap();
        assert_eq!(network.addresses(), Vec::<String>::new());
        assert_eq!(links(), 0);
    }
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn the_runtime_is_ready_for_pods_when_its_network_is() {
    let Some(network) = PodNetwork::start().await else {
        return;
    };
    let rig = network.rig().await;
    let condition = async |rig: &Rig| {
        let answer = rig
            .runtime()
            .status(StatusRequest::default())
            .await
            .unwrap();
        let conditions = answer.into_inner().status.unwrap().conditions;
        let mut conditions = conditions.into_iter();
        conditions.find(|one| one.r#type == "NetworkReady").unwrap()
    };
    assert!(condition(&rig).await.status);
    drop(network);
    let told = condition(&rig).await;
    assert!(!told.status);
    assert_eq!(told.reason, "NetworkPluginNotReady");
}

#[tokio::test]
async fn a_pod_that_gets_no_network_leaves_nothing() {
    // The second plugin of the chain refuses: the first one's interface and address are there by then.
    let refusing = json!({ "type": "tuning", "sysctl": { "net.no.such.thing": "1" } });
    let Some(network) = PodNetwork::start_with(&[refusing]).await else {
        return;
    };
    let rig = network.rig().await;
    let request = RunPodSandboxRequest {
        config: Some(pod(&rig, "a")),
        runtime_handler: String::new(),
    };
    let refusal = rig.runtime().run_pod_sandbox(request).await.unwrap_err();
    assert!(refusal.message().contains("tuning"), "{refusal:?}");
    assert_eq!(network.addresses(), Vec::<String>::new());
    assert_eq!(links(), 0);
    rig.assert_nothing_left().await;
}
