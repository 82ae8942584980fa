//! A kubelet's folder of one test, requests with defaults, and the plugin in this process or in one of its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mounts::mount::{How, unmount_with};
use mounts::table::MountTable;
use proto::storage::storage_client::StorageClient;
use proto::storage::volume::Source;
use proto::storage::{
    CapabilitiesRequest, EmptyDir, File, FileSet, Found, ListRequest, Medium, MountRequest, Pod,
    UnmountRequest, Volume,
};
use sdk::testing::Plugin;
use serde_json::{Value, json};
use tonic::transport::Channel;

pub(crate) type Client = StorageClient<Channel>;

pub(crate) struct Node {
    folder: tempfile::TempDir,
}

impl Node {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("kubelet/pods")).unwrap();
        Self { folder }
    }

    /// A path beside the kubelet's folder.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path("kubelet")
    }

    pub(crate) fn configuration(&self) -> Value {
        json!({ "rootDir": self.root() })
    }

    pub(crate) async fn plugin(&self) -> (Plugin, Client) {
        let info = storage_local::info("0");
        let configuration = self.configuration();
        let build = storage_local::build;
        let plugin = sdk::testing::start(self.folder.path(), info, configuration, build).await;
        let plugin = plugin.unwrap();
        let client = client(plugin.channel.clone());
        (plugin, client)
    }

    pub(crate) fn target(&self, uid: &str, kind: &str, name: &str) -> PathBuf {
        let below = format!("pods/{uid}/volumes/kubernetes.io~{kind}/{name}");
        self.root().join(below)
    }

    pub(crate) fn mount(&self, uid: &str, kind: &str, name: &str, source: Source) -> MountRequest {
        let volume = Volume {
            id: format!("kubernetes.io/{kind}/{uid}-{name}"),
            kind: kind.to_owned(),
            name: name.to_owned(),
            source: Some(source),
        };
        let pod = Pod {
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            name: "pod".to_owned(),
            service_account: String::new(),
        };
        MountRequest {
            volume: Some(volume),
            pod: Some(pod),
            target: self.target(uid, kind, name).to_str().unwrap().to_owned(),
            ..MountRequest::default()
        }
    }

    /// Everything mounted below the kubelet's folder, as often as it is.
    pub(crate) fn mounted(&self) -> Vec<PathBuf> {
        let table = MountTable::read().unwrap();
        let below = table.below(&self.root());
        let mut paths: Vec<_> = below
            .iter()
            .map(|entry| entry.mount_point.clone())
            .collect();
        paths.sort();
        paths
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let table = MountTable::read().unwrap();
        for entry in table.below(self.folder.path()).into_iter().rev() {
            drop(unmount_with(&entry.mount_point, How::Detach));
        }
    }
}

pub(crate) fn unmount(mount: &MountRequest) -> UnmountRequest {
    let volume = mount.volume.as_ref().unwrap();
    UnmountRequest {
        volume_id: volume.id.clone(),
        kind: volume.kind.clone(),
        name: volume.name.clone(),
        pod_uid: mount.pod.as_ref().unwrap().uid.clone(),
        target: mount.target.clone(),
        within_ms: 0,
    }
}

pub(crate) fn empty_dir(medium: Medium) -> Source {
    Source::EmptyDir(EmptyDir {
        medium: medium.into(),
        ..EmptyDir::default()
    })
}

pub(crate) fn files(medium: Medium, files: &[(&str, &[u8])]) -> Source {
    let file = |&(path, data): &(&str, &[u8])| File {
        path: path.to_owned(),
        data: data.to_owned(),
        mode: 0o644,
        owner: None,
    };
    Source::Files(FileSet {
        files: files.iter().map(file).collect(),
        medium: medium.into(),
        ..FileSet::default()
    })
}

pub(crate) fn client(channel: Channel) -> Client {
    StorageClient::new(channel)
        .max_decoding_message_size(sdk::MESSAGE_LIMIT)
        .max_encoding_message_size(sdk::MESSAGE_LIMIT)
}

pub(crate) async fn list(client: &mut Client) -> Vec<Found> {
    let answer = client.list(ListRequest::default()).await.unwrap();
    answer.into_inner().found
}

/// The real process.
pub(crate) struct Process(Child);

/// The plugin alone, as a program: Cargo builds examples beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap();
    target.join("examples/storage-local")
}

impl Process {
    pub(crate) async fn start(node: &Node) -> (Self, Client) {
        Self::start_at(node, "plugin.sock").await
    }

    /// One of several on the same folder.
    pub(crate) async fn start_at(node: &Node, socket: &str) -> (Self, Client) {
        std::fs::write(
            node.path("configuration.json"),
            node.configuration().to_string(),
        )
        .unwrap();
        let child = Command::new(program())
            .args(["--socket", socket, "--dir", "state"])
            .args(["--configuration", "configuration.json"])
            .current_dir(node.path(""))
            .stderr(Stdio::null())
            .spawn();
        let process = Self(child.unwrap());
        let mut client = client(sdk::testing::connect(&node.path(socket)));
        let up = async {
            while client.capabilities(CapabilitiesRequest {}).await.is_err() {
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

    /// Private memory, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        line.unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already dead, unless a test failed.
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

/// The names in a folder.
pub(crate) fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}
