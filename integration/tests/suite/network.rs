//! The network plugin on a node: containerd calls it by `oxlet-cni`, and runs no CNI plugin of its own but loopback.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use integration::agent::{Node, program};
use integration::containerd::Containerd;
use integration::wait_until;
use serde_json::{Value, json};

use super::node_rig::{CONVERGENCE_TIMEOUT, is_ready, server};

const PORT: u16 = 28_407;

/// What a node's network consists of beside its containerd.
struct NodeNetwork {
    dir: PathBuf,
    bridge: String,
    root: PathBuf,
}

impl NodeNetwork {
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    /// Everything that there is of attachments: records, addresses, interfaces, rules.
    fn left(&self) -> Vec<String> {
        let own = self.root.join("oxlet/plugins/network");
        let mut left = Self::names(&own.join("results"));
        left.extend(Self::names(&own.join("unfinished")));
        let addresses = Self::names(&self.dir.join("addresses").join(&self.bridge));
        left.extend(addresses.into_iter().filter(|name| name.starts_with("10.")));
        let interfaces = Path::new("/sys/class/net").join(&self.bridge).join("brif");
        left.extend(Self::names(&interfaces));
        let rules = Command::new("iptables")
            .args(["-t", "nat", "-S"])
            .output()
            .unwrap();
        let rules = String::from_utf8(rules.stdout).unwrap();
        let ours = rules
            .lines()
            .filter(|rule| rule.contains(&PORT.to_string()));
        left.extend(ours.map(ToOwned::to_owned));
        left
    }
}

/// Has containerd call `oxlet-cni`; its own network's configuration becomes the network plugin's.
fn hand_over(rig: &Containerd, root: &Path) -> NodeNetwork {
    let dir = rig.dir();
    let text = fs::read_to_string(dir.join("cni/10-bridge.conflist")).unwrap();
    let network: Value = serde_json::from_str(&text).unwrap();
    fs::create_dir(dir.join("network")).unwrap();
    fs::write(dir.join("network/10-bridge.conflist"), text).unwrap();
    let programs = dir.join("cni-bin");
    fs::remove_file(&programs).unwrap();
    fs::create_dir(&programs).unwrap();
    symlink("/usr/lib/cni/loopback", programs.join("loopback")).unwrap();
    symlink(program("oxlet-cni").unwrap(), programs.join("oxlet-cni")).unwrap();
    let own = json!({
        "cniVersion": "1.0.0",
        "name": "oxlet",
        "plugins": [{
            "type": "oxlet-cni",
            "socket": root.join("oxlet/plugins/network.sock"),
            "owner": "containerd",
            "capabilities": { "portMappings": true },
        }],
    });
    fs::write(dir.join("cni/00-oxlet.conflist"), own.to_string()).unwrap();
    NodeNetwork {
        dir: dir.to_owned(),
        bridge: network["name"].as_str().unwrap().to_owned(),
        root: root.to_owned(),
    }
}

mod containerd {
    use super::*;

    #[tokio::test]
    async fn a_pod_of_containerd_gets_its_address_from_the_network_plugin_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let Some(mut rig) = Containerd::for_test(dir.path()).await else {
            return;
        };
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("root");
        let network = hand_over(&rig, &root);
        rig.restart().await.unwrap();
        let configuration =
            json!({ "confDir": dir.path().join("network"), "binDirs": ["/usr/lib/cni"] });
        let node = Node::builder()
            .runtime(&rig)
            .config(&json!({ "cgroupRoot": rig.cgroup() }))
            .network(&configuration)
            .at(home.path())
            .start()
            .await
            .unwrap();
        assert_eq!(node.root(), root);
        assert_eq!(network.left(), Vec::<String>::new());

        let port = format!(
            "    image: localhost/oxlet/busybox:1\n    ports: [{{containerPort: 80, hostPort: {PORT}}}]\n"
        );
        let manifest = server("web").replace("    image: localhost/oxlet/busybox:1\n", &port);
        node.drop_manifest("web", &manifest).unwrap();
        let pod = node.until("web", CONVERGENCE_TIMEOUT, "is running and ready", is_ready);
        let pod = pod
            .await
            .unwrap_or_else(|error| panic!("{error:#}\n{}", rig.log()));
        let address = pod.status.unwrap().pod_ip.unwrap();
        let left = network.left();
        let has = |words: &str| left.iter().any(|one| one.contains(words));
        assert!(
            has(&address) && has(&network.bridge) && has("veth"),
            "{left:?}"
        );
        assert!(has(&format!("--dport {PORT}")), "{left:?}");
        let plugins = node.oxctl(&["plugins"]).await.unwrap();
        let line = plugins.lines().find(|line| line.starts_with("network "));
        assert!(line.is_some_and(|line| line.contains("ready")), "{plugins}");

        // What is taken away while the plugin is away is taken away by its successor.
        assert!(node.kill_plugin_named("network"));
        node.remove_manifest("web").unwrap();
        node.until_gone("web", CONVERGENCE_TIMEOUT).await.unwrap();
        let nothing = async || network.left().is_empty();
        let waited = wait_until(CONVERGENCE_TIMEOUT, "nothing is left", nothing).await;
        assert!(waited.is_ok(), "{:?}", network.left());
    }
}
