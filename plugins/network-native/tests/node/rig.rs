//! A node of one test: namespaces, a folder of networks, and the plugin in a process within.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use conformance::network::node::{
    Client, Process, TestSandbox, delete_namespace, ip, path_of, unique_name,
};
use proto::network::{AddRequest, Capabilities, PortMapping};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

/// Where Debian has the programs.
pub(crate) const PROGRAMS: &str = "/usr/lib/cni";

/// Who does the steps of chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doer {
    BuiltIn,
    Programs,
}

pub(crate) struct Node {
    folder: tempfile::TempDir,
    /// Unlike that of any other node, and good for a namespace's name.
    pub(crate) name: String,
    pub(crate) bin_dirs: Vec<PathBuf>,
}

/// Tells whether the programs are installed. Without them a test that compares has nothing to compare with; with
/// `CI=true` that panics.
pub(crate) fn programs(names: &[&str]) -> bool {
    let absent = names
        .iter()
        .find(|name| !Path::new(PROGRAMS).join(name).exists());
    let Some(absent) = absent else { return true };
    let why =
        format!("{PROGRAMS}/{absent} is missing: apt-get install containernetworking-plugins");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
    eprintln!("skipped: {why}");
    false
}

impl Node {
    /// In a namespace of its own, without a network and without programs.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("conf")).unwrap();
        let name = unique_name('b');
        ip(&["netns", "add", &name]);
        ip(&["-n", &name, "link", "set", "lo", "up"]);
        Self {
            bin_dirs: vec![folder.path().join("none")],
            folder,
            name,
        }
    }

    /// With a network of these plugins.
    pub(crate) fn with(plugins: Value) -> Self {
        let node = Self::new();
        node.network(plugins);
        node
    }

    pub(crate) fn network(&self, plugins: Value) {
        let list = json!({ "cniVersion": "1.0.0", "name": "net", "plugins": plugins });
        fs::write(self.path("conf/10-net.conflist"), list.to_string()).unwrap();
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    /// The usual first plugin of a chain: a bridge with addresses of both versions.
    pub(crate) fn bridge(&self, more: Value) -> Value {
        let mut bridge = json!({
            "type": "bridge",
            "bridge": "testbridge",
            "isGateway": true,
            "ipam": self.host_local(),
        });
        merge(&mut bridge, more);
        bridge
    }

    pub(crate) fn host_local(&self) -> Value {
        json!({
            "type": "host-local",
            "dataDir": self.path("addresses"),
            "ranges": [[{ "subnet": "10.78.0.0/24" }], [{ "subnet": "fd00:78::/64" }]],
            "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
        })
    }

    pub(crate) async fn start(&self, doer: Doer) -> (Process, Client) {
        let (bin_dirs, name) = match doer {
            Doer::BuiltIn => (self.bin_dirs.clone(), "network-native"),
            Doer::Programs => (vec![PROGRAMS.into()], "network-programs"),
        };
        let configuration = json!({ "confDir": self.path("conf"), "binDirs": bin_dirs });
        fs::write(self.path("configuration.json"), configuration.to_string()).unwrap();
        let within = format!("--net={}", path_of(&self.name).display());
        Process::start(name, self.folder.path(), &["nsenter", &within]).await
    }

    pub(crate) fn sandbox(&self, id: &str) -> TestSandbox {
        TestSandbox::make(&self.name, id)
    }

    /// What a program says that runs within the node's namespace.
    pub(crate) fn output(&self, words: &[&str]) -> String {
        output(&self.name, words)
    }

    /// The files of host-local's folder, with what is in them.
    pub(crate) fn addresses(&self) -> BTreeMap<String, String> {
        let Ok(entries) = fs::read_dir(self.path("addresses/net")) else {
            return BTreeMap::new();
        };
        let files = entries.map(|entry| {
            let entry = entry.unwrap();
            let text = fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), text)
        });
        files.filter(|(name, _)| name != "lock").collect()
    }

    /// What iptables and nf_tables have of pods: the lines of iptables' own listing, and the rules of our tables by
    /// the plugin's reading of them.
    pub(crate) fn iptables(&self) -> String {
        let mut all = String::new();
        for program in ["iptables", "ip6tables"] {
            for table in ["nat", "filter"] {
                all += &self.output(&[program, "-t", table, "-S"]);
            }
        }
        all
    }

    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(
            self.output(&["ip", "-o", "link", "show", "type", "veth"]),
            ""
        );
        assert_eq!(
            self.output(&["ip", "-o", "link", "show", "type", "ifb"]),
            ""
        );
        let addresses = self.addresses();
        let held = addresses.keys().filter(|name| !name.starts_with("last_"));
        assert_eq!(held.count(), 0, "{addresses:?}");
        for line in self.iptables().lines() {
            for word in ["CNI-DN-", "CNI-SN-", "10.78.0.", "fd00:78:"] {
                assert!(!line.contains(word), "{line}");
            }
        }
        assert_eq!(crate::view::pods_rules(&self.name), Vec::<String>::new());
        for folder in ["own/results", "own/unfinished"] {
            let left = fs::read_dir(self.path(folder)).map_or(0, Iterator::count);
            assert_eq!(left, 0, "{folder}");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        delete_namespace(&self.name);
    }
}

pub(crate) fn merge(into: &mut Value, more: Value) {
    let (Value::Object(into), Value::Object(more)) = (into, more) else {
        panic!("two objects")
    };
    into.extend(more);
}

/// With ports: of the node, of the pod, the protocol, the node's address.
pub(crate) fn add_with(sandbox: &TestSandbox, ports: &[(u32, u32, &str, &str)]) -> AddRequest {
    let mappings = ports
        .iter()
        .map(|(host, container, protocol, address)| PortMapping {
            host_port: *host,
            container_port: *container,
            protocol: (*protocol).to_owned(),
            host_ip: (*address).to_owned(),
        });
    AddRequest {
        capabilities: Some(Capabilities {
            port_mappings: mappings.collect(),
            ..Capabilities::default()
        }),
        ..sandbox.add()
    }
}

/// The addresses of a result, without prefix lengths.
pub(crate) fn addresses(result: &proto::network::Result) -> Vec<String> {
    let each = result.ips.iter().map(|ip| ip.address.split('/').next());
    each.map(|address| address.unwrap().to_owned()).collect()
}

/// What a program says that runs within a namespace.
pub(crate) fn output(namespace: &str, words: &[&str]) -> String {
    let output = Command::new("nsenter")
        .arg(format!("--net={}", path_of(namespace).display()))
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Does `work` on a thread within a namespace.
pub(crate) fn within<T: Send + 'static>(
    namespace: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    let namespace = File::open(path_of(namespace)).unwrap();
    std::thread::spawn(move || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), kind).unwrap();
        work()
    })
}
