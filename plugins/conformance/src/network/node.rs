//! What tests of one network plugin make beside the suite: sandboxes with namespaces of their own, and the plugin as a
//! real process. Every failure is a panic that says what failed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proto::network::network_client::NetworkClient;
use proto::network::{AddRequest, Attachment, CheckRequest, DeleteRequest, Pod, PrepareGcRequest};
use tonic::transport::Channel;

/// A client of the plugin.
pub type Client = NetworkClient<Channel>;

/// The longest that a plugin may take to answer after its start, on a machine that others keep busy.
const START_TIMEOUT: Duration = Duration::from_secs(60);
static NODES: AtomicU32 = AtomicU32::new(0);

/// Returns a name unlike that of any other node: at most eight bytes, good for an interface and for a namespace.
pub fn unique_name(letter: char) -> String {
    let number = NODES.fetch_add(1, Ordering::Relaxed);
    format!("{letter}{:x}-{number}", std::process::id() & 0xf_ffff)
}

/// Runs ip(8), which must succeed.
pub fn ip(arguments: &[&str]) {
    let mut command = Command::new("ip");
    match command.args(arguments).output() {
        Ok(output) if output.status.success() => {}
        failed => panic!("ip {arguments:?}: {failed:?}"),
    }
}

/// Returns the path of a namespace of ip(8).
pub fn path_of(namespace: &str) -> PathBuf {
    Path::new("/run/netns").join(namespace)
}

/// Takes a namespace away, if it is still there.
pub fn delete_namespace(name: &str) {
    let mut delete = Command::new("ip");
    delete.args(["netns", "delete", name]).stderr(Stdio::null());
    delete.status().map(drop).unwrap_or_default();
}

/// A sandbox of a test, whose namespace ends with it.
#[derive(Debug)]
pub struct TestSandbox {
    /// Its id.
    pub id: String,
    /// The name of its namespace for ip(8).
    pub name: String,
}

impl TestSandbox {
    /// Makes it, with a namespace.
    pub fn make(node: &str, id: &str) -> TestSandbox {
        let name = format!("{node}-{id}");
        ip(&["netns", "add", &name]);
        TestSandbox {
            id: id.to_owned(),
            name,
        }
    }

    /// Returns the path of its namespace.
    pub fn netns(&self) -> String {
        path_of(&self.name).display().to_string()
    }

    /// Returns its attachment to the default network.
    pub fn attachment(&self) -> Attachment {
        attachment(&self.id)
    }

    /// Returns the request that attaches it.
    pub fn add(&self) -> AddRequest {
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

    /// Returns the request that detaches it.
    pub fn delete(&self) -> DeleteRequest {
        DeleteRequest {
            attachment: Some(self.attachment()),
            netns: self.netns(),
            ..DeleteRequest::default()
        }
    }

    /// Returns the request that checks its attachment.
    pub fn check(&self) -> CheckRequest {
        CheckRequest {
            attachment: Some(self.attachment()),
            netns: self.netns(),
            ..CheckRequest::default()
        }
    }

    /// Takes its namespace away.
    pub fn end(&self) {
        delete_namespace(&self.name);
    }
}

impl Drop for TestSandbox {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the attachment of a sandbox to the default network.
pub fn attachment(sandbox: &str) -> Attachment {
    Attachment {
        sandbox_id: sandbox.to_owned(),
        ..Attachment::default()
    }
}

/// A plugin in a process of its own.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts the example program of this name in a folder that has its `configuration.json`, behind these words:
    /// `nsenter --net=...`. Returns when it answers.
    pub async fn start(name: &str, folder: &Path, before: &[&str]) -> (Process, Client) {
        let test = std::env::current_exe().unwrap_or_default();
        let target = test.parent().and_then(Path::parent);
        let program = target.unwrap_or(Path::new("/")).join("examples").join(name);
        let program = program.display().to_string();
        let words: Vec<_> = before.iter().copied().chain([program.as_str()]).collect();
        let child = Command::new(words[0])
            .args(&words[1..])
            .args(["--socket", "plugin.sock", "--dir", "own"])
            .args(["--configuration", "configuration.json"])
            .current_dir(folder)
            .stderr(Stdio::inherit())
            .spawn();
        let process = match child {
            Ok(child) => Process(child),
            Err(error) => panic!("{words:?}: {error}"),
        };
        let mut client = Client::new(sdk::testing::connect(&folder.join("plugin.sock")));
        let up = async {
            while client.prepare_gc(PrepareGcRequest {}).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        let up = tokio::time::timeout(START_TIMEOUT, up).await;
        assert!(up.is_ok(), "{words:?} does not answer in {START_TIMEOUT:?}");
        (process, client)
    }

    /// Kills it as nothing but SIGKILL does.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Already dead, unless a test failed.
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
