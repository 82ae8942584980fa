//! For tests: a runtime with one running container, and a listener on loopback.

#![expect(
    missing_debug_implementations,
    reason = "a rig of closures and servers"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::time::Duration;

use logic_api::types::ContainerId;
use plugin_host::PluginClient;
use runtime_fake::{Clock, Fake, FakeSettings};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, spawn_local};

use crate::runtime::RuntimeClient;
use crate::runtime::fake::serve;
use crate::runtime::testing::running_container;

/// A runtime-fake in the test's process, and a container that sleeps in it.
pub struct Rig {
    pub fake: Fake,
    pub runtime: RuntimeClient,
    pub id: ContainerId,
    _folder: TempDir,
}

impl Rig {
    pub async fn start() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fake");
        let fake = Fake::open_at(path, FakeSettings::default(), Clock::start()).unwrap();
        let channel = serve(&fake);
        let id = running_container(channel.clone(), &folder.path().join("logs")).await;
        let line = PluginClient::fixed("runtime", channel);
        Rig {
            fake,
            runtime: RuntimeClient::new(line, Duration::from_secs(120)),
            id,
            _folder: folder,
        }
    }
}

/// Accepts connections on a port, and closes them at once.
pub struct TestListener {
    pub port: u16,
    task: JoinHandle<()>,
}

impl TestListener {
    pub async fn open(port: u16) -> TestListener {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = spawn_local(async move { while listener.accept().await.is_ok() {} });
        TestListener { port, task }
    }

    /// Closes the listener: connections are refused from now on. Returns its port.
    pub async fn close(self) -> u16 {
        self.task.abort();
        drop(self.task.await);
        self.port
    }
}
