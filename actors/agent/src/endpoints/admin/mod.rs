//! The operator's socket, which `oxctl` speaks to: HTTP/1 and JSON over a Unix socket for its owner alone.
//!
//! - **Owns** the socket.
//! - **Hears** nothing but its own accept loop.
//! - **Tells** no other actor; it asks the managers, and passes the operator's requests on to plugin hosts.
//! - **Never** injects a fault into an actor unless the agent was started for that.
//!
//! The paths are in `route.rs`. A refused request is answered with `{"error": SENTENCE}`.

mod checkpoint;
mod commands;
mod device_view;
mod images;
mod machine_view;
mod route;
#[cfg(test)]
mod tests;
mod views;
mod volume_list;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Request, StatusCode};
use kernel::error_chain;
use kernel::{Actor, Addr, Context, Exit, Supervisor, watch};
use logic_placement::claims::health::KnownClaims;
use plugin_host::{self as plugin, Declaration};
use pods::runtime::handover;
use pods::{images as keeper, pod_manager};
use serving::http::{HandlerResponse, Limits, RequestHandler, Traffic, json, refusal, serve};
use state::assignments::Assignments;
use state::{events, status};

pub use self::checkpoint::{Archives, ContainerCheckpointError, ContainerCheckpoints};
pub use self::device_view::DeviceRow;
pub use self::machine_view::{CpuRow, CpuUsage, MachineView, MemoryRow};
use self::route::{AdminError, AdminRoute};
pub use self::views::{AgentVersion, PodRow};
use super::{AcceptError, Msg, Snapshot, listen};

/// A client that follows events keeps its connection for hours.
const LIMITS: Limits = Limits {
    connections: 64,
    life: None,
};

/// Whether faults may be injected into actors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultInjection {
    Allowed,
    Forbidden,
}

impl FaultInjection {
    /// The environment variable that allows it when it is `1`.
    pub const VARIABLE: &'static str = "OXLET_FAULT_INJECTION";

    /// Reads the environment variable; only called when the agent starts.
    pub fn from_environment() -> Self {
        match std::env::var_os(Self::VARIABLE).is_some_and(|value| value == "1") {
            true => FaultInjection::Allowed,
            false => FaultInjection::Forbidden,
        }
    }
}

/// The plugins' hosts, and the declared plugins.
#[derive(Debug, Clone)]
pub struct Plugins {
    /// The hosts' supervisor, whose children's snapshots are shown.
    pub group: Supervisor,
    /// The hosts by their actors' names.
    pub hosts: BTreeMap<String, Addr<plugin::Msg>>,
    /// Every declared plugin by its own name; each declaration has its host's name.
    pub choices: BTreeMap<String, Declaration>,
}

/// The actors that the admin server asks.
#[derive(Debug, Clone)]
pub struct AdminPeers {
    pub root: Supervisor,
    pub plugins: Plugins,
    pub handover: Addr<handover::Msg>,
    pub pod_manager: Addr<pod_manager::Msg>,
    pub images: Addr<keeper::Msg>,
    pub volumes: Addr<volumes::Msg>,
    pub statuses: Addr<status::Msg>,
    pub events: Addr<events::Msg>,
    pub checkpoints: ContainerCheckpoints,
    pub assignments: Assignments,
    pub claims: watch::Receiver<Arc<KnownClaims>>,
    pub faults: FaultInjection,
}

/// The admin server.
#[derive(Debug)]
pub struct Admin {
    path: Arc<Path>,

    server: Rc<AdminServer>,

    traffic: Rc<Traffic>,
}

#[derive(Debug)]
struct AdminServer {
    peers: AdminPeers,
}

impl Actor for Admin {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let listener = listen::unix(&self.path).await?;
        let (server, traffic, address) =
            (self.server.clone(), self.traffic.clone(), self.address());
        ctx.run(async move {
            let source = serve(listener, server, traffic, LIMITS).await;
            Msg::Deaf(AcceptError { address, source })
        });
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Deaf(deaf) => Err(deaf.into()),
        }
    }

    async fn stop(&mut self, _ctx: &mut Context<Msg>) {
        // A socket that is left behind is replaced by the next agent.
        drop(std::fs::remove_file(&self.path));
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            address: self.address(),
            connections: self.traffic.connections(),
            requests: self.traffic.requests(),
        }
    }
}

impl Admin {
    pub fn new(path: PathBuf, peers: AdminPeers) -> Self {
        Admin {
            path: path.into(),
            server: Rc::new(AdminServer { peers }),
            traffic: Rc::default(),
        }
    }

    fn address(&self) -> String {
        self.path.display().to_string()
    }
}

impl RequestHandler for AdminServer {
    async fn answer(&self, request: Request<Incoming>) -> HandlerResponse {
        match self.dispatch(&request).await {
            Ok(answer) => answer,
            Err(refused) => refused.into(),
        }
    }
}

impl AdminServer {
    async fn dispatch(&self, request: &Request<Incoming>) -> Result<HandlerResponse, AdminError> {
        let peers = &self.peers;
        match AdminRoute::of(request)? {
            AdminRoute::Version => Ok(json(StatusCode::OK, &AgentVersion::this())),
            AdminRoute::Tree => Ok(json(StatusCode::OK, &peers.root.tree().await)),
            AdminRoute::Plugins => Ok(json(StatusCode::OK, &views::plugins(peers).await)),
            AdminRoute::Pods => Ok(json(StatusCode::OK, &views::pods(peers).await?)),
            AdminRoute::Cpus => Ok(json(
                StatusCode::OK,
                &machine_view::view(&peers.assignments, &peers.pod_manager).await?,
            )),
            AdminRoute::Devices => {
                let claims = peers.claims.borrow().clone();
                let held = (&peers.assignments, &*claims);
                let rows = device_view::view(held, &peers.pod_manager).await?;
                Ok(json(StatusCode::OK, &rows))
            }
            AdminRoute::Images => Ok(json(StatusCode::OK, &images::list(&peers.images).await?)),
            AdminRoute::Volumes => Ok(json(
                StatusCode::OK,
                &volume_list::view(&peers.volumes).await?,
            )),
            AdminRoute::Events => Ok(json(StatusCode::OK, &views::events(&peers.events).await?)),
            AdminRoute::EventsToCome => views::events_to_come(&peers.events).await,
            AdminRoute::Why { pod } => Ok(json(
                StatusCode::OK,
                &views::why(&peers.pod_manager, pod).await?,
            )),
            AdminRoute::Restart { plugin } => commands::restart(&peers.plugins, &plugin).await,
            AdminRoute::SwapPlan { plugin, to } => commands::swap_plan(peers, &plugin, to).await,
            AdminRoute::Swap {
                plugin,
                to,
                consent,
            } => commands::swap(peers, &plugin, to, consent).await,
            AdminRoute::Checkpoint(wanted) => commands::checkpoint(peers, wanted).await,
            AdminRoute::Fault { path, fault } => commands::fault(peers, &path, fault),
        }
    }
}

impl From<AdminError> for HandlerResponse {
    fn from(refused: AdminError) -> HandlerResponse {
        let mut answer = refusal(refused.status(), &error_chain(&refused));
        if let AdminError::Method { expected } = refused {
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static(expected));
        }
        answer
    }
}
