//! A node of one test: namespaces, a folder of networks, and the plugin in a process within.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proto::network::network_client::NetworkClient;
use proto::network::{
    AddRequest, Attachment, Capabilities, CheckRequest, DeleteRequest, Pod, PortMapping,
    PrepareGcRequest,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use tonic::transport::Channel;

pub(crate) type Client = NetworkClient<Channel>;

/// Where Debian has the programs.
pub(crate) const PROGRAMS: &str = "/usr/lib/cni";
static NODES: AtomicU32 = AtomicU32::new(0);

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
        let number = NODES.fetch_add(1, Ordering::Relaxed);
        let name = format!("b{:x}-{number}", std::process::id() & 0xf_ffff);
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
        Process::start(self, doer).await
    }

    pub(crate) fn sandbox(&self, id: &str) -> Sandbox {
        let name = format!("{}-{id}", self.name);
        ip(&["netns", "add", &name]);
        Sandbox {
            id: id.to_owned(),
            name,
        }
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

pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) name: String,
}

impl Sandbox {
    pub(crate) fn netns(&self) -> String {
        path_of(&self.name)
    }

    pub(crate) fn add(&self) -> AddRequest {
        AddRequest {
            attachment: Some(self.attachment()),
            pod: Some(Pod {
                namespace: "ns".to_owned(),
                name: "pod".to_owned(),
                uid: "uid".to_owned(),
            }),
            netns: self.netns(),
            owner: "test".to_owned(),
            ..AddRequest::default()
        }
    }

    /// With ports: of the node, of the pod, the protocol, the node's address.
    pub(crate) fn add_with(&self, ports: &[(u32, u32, &str, &str)]) -> AddRequest {
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
            ..self.add()
        }
    }

    fn attachment(&self) -> Attachment {
        Attachment {
            sandbox_id: self.id.clone(),
            ..Attachment::default()
        }
    }

    pub(crate) fn delete(&self) -> DeleteRequest {
        DeleteRequest {
            attachment: Some(self.attachment()),
            netns: self.netns(),
            ..DeleteRequest::default()
        }
    }

    pub(crate) fn check(&self) -> CheckRequest {
        CheckRequest {
            attachment: Some(self.attachment()),
            netns: self.netns(),
            ..CheckRequest::default()
        }
    }

    /// Takes the namespace away.
    pub(crate) fn end(&self) {
        delete_namespace(&self.name);
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        delete_namespace(&self.name);
    }
}

/// The addresses of a result, without prefix lengths.
pub(crate) fn addresses(result: &proto::network::Result) -> Vec<String> {
    let each = result.ips.iter().map(|ip| ip.address.split('/').next());
    each.map(|address| address.unwrap().to_owned()).collect()
}

fn delete_namespace(name: &str) {
    // Gone already where the test took it away.
    let mut delete = Command::new("ip");
    delete.args(["netns", "delete", name]).stderr(Stdio::null());
    delete.status().map(drop).unwrap_or_default();
}

pub(crate) fn path_of(namespace: &str) -> String {
    format!("/run/netns/{namespace}")
}

pub(crate) fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments:?}: {words}");
}

/// What a program says that runs within a namespace.
pub(crate) fn output(namespace: &str, words: &[&str]) -> String {
    let output = Command::new("nsenter")
        .arg(format!("--net={}", path_of(namespace)))
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

/// The real process, within the node's namespace.
pub(crate) struct Process(Child);

impl Process {
    async fn start(node: &Node, doer: Doer) -> (Self, Client) {
        let bin_dirs = match doer {
            Doer::BuiltIn => node.bin_dirs.clone(),
            Doer::Programs => vec![PROGRAMS.into()],
        };
        let configuration = json!({ "confDir": node.path("conf"), "binDirs": bin_dirs });
        fs::write(node.path("configuration.json"), configuration.to_string()).unwrap();
        let test = std::env::current_exe().unwrap();
        let target = test.parent().and_then(Path::parent).unwrap();
        let name = match doer {
            Doer::BuiltIn => "network-native",
            Doer::Programs => "network-programs",
        };
        let child = Command::new("nsenter")
            .arg(format!("--net={}", path_of(&node.name)))
            .arg(target.join("examples").join(name))
            .args(["--socket", "plugin.sock", "--dir", "own"])
            .args(["--configuration", "configuration.json"])
            .current_dir(node.path(""))
            .stderr(Stdio::inherit())
            .spawn();
        let process = Self(child.unwrap());
        let mut client = Client::new(sdk::testing::connect(&node.path("plugin.sock")));
        let up = async {
            while client.prepare_gc(PrepareGcRequest {}).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), up)
            .await
            .unwrap();
        (process, client)
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already dead, unless a test failed.
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}
