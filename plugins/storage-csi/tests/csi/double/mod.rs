//! A CSI driver: volumes are folders, or files for raw ones, bound where they are asked for. It tells what it was
//! asked, and fails as ordered.

mod node;
mod registrar;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub(crate) use csi::node_service_capability::rpc::Type as Ability;
use proto::csi;
use proto::csi::identity_server::IdentityServer;
use proto::csi::node_server::NodeServer;
use proto::registration::registration_server::RegistrationServer;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tonic::Code;
use tonic::service::Routes;
use tonic::transport::Server;

/// A call that the driver received.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    Stage(csi::NodeStageVolumeRequest),
    Unstage(csi::NodeUnstageVolumeRequest),
    Publish(csi::NodePublishVolumeRequest),
    Unpublish(csi::NodeUnpublishVolumeRequest),
    Stats(csi::NodeGetVolumeStatsRequest),
    Expand(csi::NodeExpandVolumeRequest),
    Info,
}

impl Call {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Stage(_) => "stage",
            Self::Unstage(_) => "unstage",
            Self::Publish(_) => "publish",
            Self::Unpublish(_) => "unpublish",
            Self::Stats(_) => "stats",
            Self::Expand(_) => "expand",
            Self::Info => "info",
        }
    }
}

/// How the driver fails, once for each order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It says this, and does nothing.
    Says(Code),
    /// It does it, and says this.
    DoesAndSays(Code),
    /// It fails with a very long message.
    Rambles,
    /// It never answers.
    Hangs,
    /// It says that all is well, and does nothing.
    Nothing,
    /// It leaves a link where it should bring the volume.
    Link,
}

/// How a driver registers.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) name: &'static str,
    /// What it calls itself when it is asked directly; the name, unless it lies.
    pub(crate) own_name: Option<&'static str>,
    pub(crate) kind: &'static str,
    pub(crate) versions: Vec<&'static str>,
    pub(crate) node_id: &'static str,
    pub(crate) abilities: Vec<Ability>,
    pub(crate) greets: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            name: "d.example.com",
            own_name: None,
            kind: "CSIPlugin",
            versions: vec!["1.0.0"],
            node_id: "node-of-d",
            abilities: vec![
                Ability::StageUnstageVolume,
                Ability::GetVolumeStats,
                Ability::ExpandVolume,
                Ability::VolumeCondition,
            ],
            greets: true,
        }
    }
}

/// The driver. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Double {
    pub(crate) manner: Arc<Manner>,
    inner: Arc<Mutex<Inner>>,
    changes: watch::Sender<u64>,
    /// Where its volumes are kept.
    backing: PathBuf,
}

#[derive(Debug, Default)]
struct Inner {
    calls: Vec<Call>,
    faults: BTreeMap<&'static str, Vec<Fault>>,
    told: Vec<(bool, String)>,
    /// What is added to the seven volumes that it takes.
    more: i64,
}

/// Serves until it is dropped; its socket's file goes with it.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) socket: PathBuf,
    task: AbortHandle,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
        drop(fs::remove_file(&self.socket));
    }
}

impl Double {
    pub(crate) fn new(folder: &Path, manner: Manner) -> Self {
        let backing = folder.join("backing");
        fs::create_dir_all(&backing).unwrap();
        Self {
            manner: Arc::new(manner),
            inner: Arc::default(),
            changes: watch::Sender::new(0),
            backing,
        }
    }

    /// Serves CSI at `socket`.
    pub(crate) fn serve(&self, socket: PathBuf) -> Serving {
        let routes = Routes::new(NodeServer::new(self.clone()));
        serve(
            socket,
            routes.add_service(IdentityServer::new(self.clone())),
        )
    }

    /// Registers at `socket`; its driver is at `endpoint`.
    pub(crate) fn register(&self, socket: PathBuf, endpoint: &Path) -> Serving {
        let registrar = registrar::Registrar {
            double: self.clone(),
            endpoint: endpoint.display().to_string(),
        };
        serve(socket, Routes::new(RegistrationServer::new(registrar)))
    }

    /// Has the next call of that word fail.
    pub(crate) fn fail(&self, word: &'static str, fault: Fault) {
        self.inner().faults.entry(word).or_default().push(fault);
    }

    /// It takes so many volumes more from now on.
    pub(crate) fn takes_more(&self, more: i64) {
        self.inner().more += more;
    }

    /// What it was asked since this was last asked, as words.
    pub(crate) fn words(&self) -> Vec<&'static str> {
        let calls = self.calls();
        calls
            .iter()
            .map(Call::word)
            .filter(|&word| word != "info")
            .collect()
    }

    /// What it was asked since this was last asked.
    pub(crate) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.inner().calls)
    }

    /// Waits until it was notified of its registration's result so many times.
    pub(crate) async fn told(&self, times: usize) -> Vec<(bool, String)> {
        self.until(|inner| inner.told.len() >= times).await;
        self.inner().told.clone()
    }

    /// Waits until a call of that word has arrived.
    pub(crate) async fn asked(&self, word: &str) {
        self.until(|inner| inner.calls.iter().any(|call| call.word() == word))
            .await;
    }

    async fn until(&self, holds: impl Fn(&Inner) -> bool) {
        let mut changes = self.changes.subscribe();
        let waited = tokio::time::timeout(Duration::from_secs(20), async {
            while !holds(&self.inner()) {
                changes.changed().await.unwrap();
            }
        });
        assert!(waited.await.is_ok(), "{:?}", self.inner());
    }

    /// Where a volume's files are kept.
    pub(crate) fn kept(&self, volume: &str) -> PathBuf {
        self.backing.join(volume)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Writes a call down; how it is to fail, if it is.
    fn note(&self, call: Call) -> Option<Fault> {
        let fault = {
            let mut inner = self.inner();
            let faults = inner.faults.get_mut(call.word());
            let fault = faults
                .filter(|faults| !faults.is_empty())
                .map(|faults| faults.remove(0));
            inner.calls.push(call);
            fault
        };
        self.changes.send_modify(|change| *change += 1);
        fault
    }
}

fn serve(socket: PathBuf, routes: Routes) -> Serving {
    drop(fs::remove_file(&socket));
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let incoming = futures_util::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let serving = Server::builder()
        .add_routes(routes)
        .serve_with_incoming(incoming);
    let task = tokio::spawn(async move { drop(serving.await) });
    Serving {
        socket,
        task: task.abort_handle(),
    }
}
