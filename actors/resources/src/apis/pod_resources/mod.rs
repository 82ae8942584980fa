//! The pod resources socket: which devices, claims, CPUs and memory each container has.
//!
//! - **Owns** its socket, `pod-resources/kubelet.sock` below the agent's folder.
//! - **Hears** nothing but its own accept loop.
//! - **Tells** no other actor; it asks the pod manager which pods there are, and reads what they hold and have claimed.
//! - **Never** answers more often than a limit allows: clients that watch devices poll it often.
//!
//! Upstream: pkg/kubelet/apis/podresources, pkg/kubelet/server/server.go (ListenAndServePodResources), 1.36.

mod convert;
mod service;
#[cfg(test)]
mod tests;
mod v1alpha1;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernel::{Actor, Addr, Context, Exit, watch};
use logic_placement::claims::health::KnownClaims;
use pods::pod_manager;
use serde::Serialize;
use serving::listen;
use state::assignments::Assignments;
use tonic::service::Routes;

use self::service::PodResourcesService;
use super::connections::ConnectionSlots;

/// Room for its own accept loop.
pub const MAILBOX: usize = 8;

/// The path of the socket below the agent's root folder.
pub fn socket(root_dir: &Path) -> PathBuf {
    root_dir.join("pod-resources/kubelet.sock")
}

/// Messages of the pod resources server.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Fails: no connection is accepted any more.
    ListenerFailed(tonic::transport::Error),
}

/// The socket's path, and the number of open connections.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub socket: PathBuf,
    pub connections: usize,
}

/// The pod resources server.
#[derive(Debug)]
pub struct PodResources {
    socket: Arc<Path>,

    lister: PodResourcesService,

    connections: ConnectionSlots,
}

impl Actor for PodResources {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let listener = listen::unix(&self.socket).await?;
        let services =
            Routes::new(self.lister.clone().service()).add_service(self.lister.clone().older());
        let connections = self.connections.clone();
        ctx.run(async move { Msg::ListenerFailed(connections.serve(listener, services).await) });
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::ListenerFailed(error) => Err(error.into()),
        }
    }

    async fn stop(&mut self, _ctx: &mut Context<Msg>) {
        // A socket that is left behind is replaced by the next agent.
        drop(std::fs::remove_file(&self.socket));
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            socket: self.socket.to_path_buf(),
            connections: self.connections.open(),
        }
    }
}

impl PodResources {
    pub fn new(
        root_dir: &Path,
        pod_manager: Addr<pod_manager::Msg>,
        held: (Assignments, watch::Receiver<Arc<KnownClaims>>),
    ) -> Self {
        PodResources {
            socket: socket(root_dir).into(),
            lister: PodResourcesService::new(pod_manager, held),
            connections: ConnectionSlots::default(),
        }
    }
}
