//! The standard CNI plugins (bridge, host-local, portmap), in a network namespace that stands for the node's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proto::network::{Capabilities, PortMapping};
use serde_json::json;

use conformance::network::node::ip;

use super::rig::{Node, names};

const FOLDER: &str = "/usr/lib/cni";
const NEEDED: [&str; 3] = ["bridge", "host-local", "portmap"];

pub(crate) struct Standard {
    pub(crate) node: Node,
    netns: String,
}

impl Standard {
    /// None, with a sentence, where the plugins are not installed; with `CI=true` that panics.
    pub(crate) fn new(masquerade: bool) -> Option<Self> {
        let absent = NEEDED
            .iter()
            .find(|name| !Path::new(FOLDER).join(name).exists());
        if let Some(absent) = absent {
            let why = format!(
                "{FOLDER}/{absent} is missing: apt-get install containernetworking-plugins"
            );
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
            eprintln!("skipped: {why}");
            return None;
        }
        let mut node = Node::new();
        node.bin_dirs = vec![FOLDER.into()];
        let addresses = node.path("addresses");
        node.conf(
            "10-net.conflist",
            &json!({
                "cniVersion": "1.0.0",
                "name": "net",
                "plugins": [
                    {
                        "type": "bridge",
                        "bridge": "testbridge",
                        "isGateway": true,
                        "ipMasq": masquerade,
                        "ipam": {
                            "type": "host-local",
                            "dataDir": addresses,
                            "ranges": [[{ "subnet": "10.78.0.0/24" }], [{ "subnet": "fd00:78::/64" }]],
                            "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
                        },
                    },
                    { "type": "portmap", "capabilities": { "portMappings": true } },
                ],
            }),
        );
        let netns = format!("{}-node", node.name);
        ip(&["netns", "add", &netns]);
        ip(&["-n", &netns, "link", "set", "lo", "up"]);
        Some(Self { node, netns })
    }

    fn entry(&self) -> String {
        format!("--net=/run/netns/{}", self.netns)
    }

    /// The words that put a program into the node's namespace.
    pub(crate) fn before(&self) -> Vec<&'static str> {
        vec!["nsenter", self.entry().leak()]
    }

    pub(crate) fn addresses(&self) -> PathBuf {
        self.node.path("addresses")
    }

    /// Tells whether host-local has an address for the attachment.
    pub(crate) fn has_address(addresses: &Path, sandbox: &str, interface: &str) -> bool {
        let folder = addresses.join("net");
        let files = names(&folder).into_iter();
        files
            .filter(|name| name.contains("10.78.") || name.contains("fd00"))
            .any(|name| {
                let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
                let mut lines = text.lines().map(str::trim);
                lines.next() == Some(sandbox) && lines.next() == Some(interface)
            })
    }

    fn output(&self, words: &[&str]) -> String {
        let output = Command::new("nsenter")
            .arg(self.entry())
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn links(&self) -> String {
        self.output(&["ip", "-o", "link", "show", "type", "veth"])
    }

    pub(crate) fn rules(&self) -> String {
        self.output(&["iptables", "-t", "nat", "-S"])
    }

    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(self.links(), "");
        let files = names(&self.addresses().join("net"));
        assert!(
            files
                .iter()
                .all(|name| !name.contains("10.78.0.") || name.starts_with("last_")),
            "{files:?}"
        );
        for word in ["CNI-DN-", "CNI-SN-", "10.78.0."] {
            let rules = self.rules();
            let left = rules.lines().filter(|line| line.contains(word));
            // The bridge's own masquerading chains go with each pod.
            assert_eq!(left.count(), 0, "{rules}");
        }
        for folder in ["own/results", "own/unfinished"] {
            assert!(names(&self.node.path(folder)).is_empty(), "{folder}");
        }
    }
}

impl Drop for Standard {
    fn drop(&mut self) {
        let delete = Command::new("ip")
            .args(["netns", "delete", &self.netns])
            .status();
        delete.map(drop).unwrap_or_default();
    }
}

#[tokio::test]
async fn a_pod_gets_addresses_routes_and_ports_and_leaves_nothing() {
    let Some(standard) = Standard::new(true) else {
        return;
    };
    let (process, mut client) = standard.node.process(&standard.before()).await;
    let sandbox = standard.node.sandbox("a");
    let mut request = sandbox.add();
    let mapping = PortMapping {
        host_port: 8078,
        container_port: 80,
        protocol: "TCP".to_owned(),
        host_ip: String::new(),
    };
    request.capabilities = Some(Capabilities {
        port_mappings: vec![mapping],
        ..Capabilities::default()
    });
    let answer = client.add(request.clone()).await.unwrap().into_inner();
    let result = answer.result.unwrap();
    let addresses: Vec<_> = result.ips.iter().map(|ip| ip.address.as_str()).collect();
    assert_eq!(addresses, ["10.78.0.2/24", "fd00:78::2/64"]);
    let inside = Command::new("ip")
        .args(["-n", &sandbox.name, "-o", "addr"])
        .output()
        .unwrap();
    let inside = String::from_utf8(inside.stdout).unwrap();
    assert!(
        inside.contains("10.78.0.2/24") && inside.contains("127.0.0.1"),
        "{inside}"
    );
    assert!(
        standard.rules().contains("--dport 8078"),
        "{}",
        standard.rules()
    );
    assert_ne!(standard.links(), "");

    // A successor knows it, and takes all of it away.
    process.kill();
    let (_process, mut client) = standard.node.process(&standard.before()).await;
    let again = client.add(request).await.unwrap().into_inner();
    assert_eq!(again.result.unwrap().ips, result.ips);
    // The bridge plugin leaves its masquerading where the namespace is gone first; the contract's suite takes
    // namespaces away without it.
    client.delete(sandbox.delete()).await.unwrap();
    standard.assert_nothing_left();
}
