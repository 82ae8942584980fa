//! The pods socket: the pods of the node with their statuses, for clients on the node, while the API server is away too.
//!
//! - **Owns** its socket, `pods-api/pods-api.sock` below the agent's folder.
//! - **Hears** nothing but its own accept loop.
//! - **Tells** no other actor; it asks the pod manager for pods, and the status manager for statuses and their changes.
//! - **Never** waits for a client: one that watches and does not keep up is dropped.
//!
//! It is there with the feature gate `PodsAPI` alone.
//!
//! Upstream: pkg/kubelet/apis/pods, pkg/kubelet/server/server.go (ListenAndServePodsServer), 1.36.

mod service;
#[cfg(test)]
mod tests;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernel::{Actor, Addr, Context, Exit};
use pods::pod_manager;
use serde::Serialize;
use serving::listen;
use state::status;
use tonic::service::Routes;

use self::service::PodsService;
use super::connections::ConnectionSlots;

/// Room for its own accept loop.
pub const MAILBOX: usize = 8;

/// The path of the socket below the agent's root folder.
pub fn socket(root_dir: &Path) -> PathBuf {
    root_dir.join("pods-api/pods-api.sock")
}

/// Messages of the pods API's server.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Fails: no connection is accepted any more.
    ListenerFailed(tonic::transport::Error),
}

/// The socket's path, and the numbers of open connections and of watches.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub socket: PathBuf,
    pub connections: usize,
    pub watches: usize,
}

/// The pods API's server.
#[derive(Debug)]
pub struct PodsApi {
    socket: Arc<Path>,

    service: PodsService,

    connections: ConnectionSlots,
}

impl Actor for PodsApi {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let listener = listen::unix(&self.socket).await?;
        let services = Routes::new(self.service.clone().server());
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
            watches: self.service.watches(),
        }
    }
}

impl PodsApi {
    pub fn new(
        root_dir: &Path,
        pod_manager: Addr<pod_manager::Msg>,
        statuses: Addr<status::Msg>,
    ) -> Self {
        PodsApi {
            socket: socket(root_dir).into(),
            service: PodsService::new(pod_manager, statuses),
            connections: ConnectionSlots::default(),
        }
    }
}
