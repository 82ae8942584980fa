//! A node of one test: folders, scripted CNI plugins, sandboxes, and the plugin in this process or in one of its own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conformance::network::node::{Client, Process, TestSandbox, unique_name};
use proto::network::{Attachment, GcRequest, NetworkStatus, PrepareGcRequest, StatusRequest};
use sdk::testing::Plugin;
use serde_json::{Value, json};

pub(crate) struct Node {
    folder: tempfile::TempDir,
    /// Unlike that of any other node: at most eight bytes, good for an interface's name.
    pub(crate) name: String,
    pub(crate) bin_dirs: Vec<PathBuf>,
    pub(crate) cache: Option<PathBuf>,
}

impl Node {
    /// With the scripts `first` and `second`, and no network.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["bin", "conf", "state"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let node = Self {
            name: unique_name('n'),
            bin_dirs: vec![folder.path().join("bin")],
            cache: None,
            folder,
        };
        node.script("first");
        node.script("second");
        node
    }

    /// With a network of the script `first`, in a version.
    pub(crate) fn with_network(version: &str) -> Self {
        let node = Self::new();
        node.conflist("10-net.conflist", "net", version, &["first"]);
        node
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    pub(crate) fn script(&self, name: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, include_str!("plugin.sh")).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    pub(crate) fn conf(&self, file: &str, text: &Value) {
        // As an operator's tool does it: never seen half-written.
        let scratch = self.path("conf").join(".scratch");
        fs::write(&scratch, text.to_string()).unwrap();
        fs::rename(&scratch, self.path("conf").join(file)).unwrap();
    }

    pub(crate) fn conflist(&self, file: &str, network: &str, version: &str, plugins: &[&str]) {
        let plugins: Vec<_> = plugins.iter().map(|name| json!({ "type": name })).collect();
        self.conf(
            file,
            &json!({ "cniVersion": version, "name": network, "plugins": plugins }),
        );
    }

    /// Tells the scripts what to do: "fail.ADD.second".
    pub(crate) fn tell(&self, what: &str, words: &str) {
        fs::write(self.path("state").join(what), words).unwrap();
    }

    pub(crate) fn untell(&self, what: &str) {
        fs::remove_file(self.path("state").join(what)).unwrap();
    }

    /// The calls of the scripts, "ADD first a", in their order.
    pub(crate) fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("state/log")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// What a script read on its standard input: "ADD.first.a".
    pub(crate) fn stdin(&self, call: &str) -> Value {
        let text = fs::read(self.path("state").join(format!("stdin.{call}"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// What the scripts have made and not taken away, addresses too.
    pub(crate) fn made(&self) -> BTreeSet<String> {
        let all = names(&self.path("state")).into_iter();
        all.filter(|name| name.starts_with("made.") || name.starts_with("ip."))
            .collect()
    }

    pub(crate) fn configuration(&self) -> Value {
        let mut configuration = json!({ "confDir": self.path("conf"), "binDirs": self.bin_dirs });
        if let Some(cache) = &self.cache {
            configuration["cacheDir"] = json!(cache);
        }
        configuration
    }

    pub(crate) async fn plugin(&self) -> (Plugin, Client) {
        let info = network_cni::info("0");
        let build = network_cni::build;
        let folder = self.folder.path();
        let plugin = sdk::testing::start(folder, info, self.configuration(), build).await;
        let plugin = plugin.unwrap();
        let client = Client::new(plugin.channel.clone());
        (plugin, client)
    }

    /// Starts the plugin in a process of its own, behind these words: `nsenter --net=...`.
    pub(crate) async fn process(&self, before: &[&str]) -> (Process, Client) {
        let configuration = self.configuration().to_string();
        fs::write(self.path("configuration.json"), configuration).unwrap();
        Process::start("network-cni", self.folder.path(), before).await
    }

    pub(crate) fn sandbox(&self, id: &str) -> TestSandbox {
        TestSandbox::make(&self.name, id)
    }
}

pub(crate) async fn status(client: &mut Client, network: &str) -> Vec<NetworkStatus> {
    let network = network.to_owned();
    let request = StatusRequest {
        network,
        within_ms: 0,
    };
    client.status(request).await.unwrap().into_inner().networks
}

/// Waits until the default network is ready or not, and why; a clock that runs ends it.
pub(crate) async fn until_status(client: &mut Client, ready: bool, words: &str) {
    let seen = async {
        loop {
            let first = status(client, "").await.remove(0);
            if first.ready == ready && first.message.contains(words) {
                return;
            }
        }
    };
    let seen = tokio::time::timeout(Duration::from_secs(60), seen);
    seen.await
        .unwrap_or_else(|_| panic!("never ready {ready} with {words:?}"));
}

/// Waits until a fact holds.
pub(crate) async fn until(what: &str, mut fact: impl FnMut() -> bool) {
    let seen = async {
        while !fact() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let seen = tokio::time::timeout(Duration::from_secs(60), seen);
    seen.await.unwrap_or_else(|_| panic!("never: {what}"));
}

pub(crate) async fn collect(
    client: &mut Client,
    valid: &[&TestSandbox],
    within_ms: u32,
) -> proto::network::GcResponse {
    let mark = client.prepare_gc(PrepareGcRequest {}).await.unwrap();
    let valid = valid.iter().map(|sandbox| Attachment {
        network: "net".to_owned(),
        ..sandbox.attachment()
    });
    let request = GcRequest {
        networks: vec!["net".to_owned()],
        owner: "test".to_owned(),
        valid: valid.collect(),
        mark: mark.into_inner().mark,
        within_ms,
    };
    client.gc(request).await.unwrap().into_inner()
}

/// The names in a folder; none where there is no folder.
pub(crate) fn names(folder: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return BTreeSet::new();
    };
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}
