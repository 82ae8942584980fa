//! The operator's socket, which `oxctl` speaks to: HTTP/1 and JSON over a Unix socket for its owner alone.
//!
//! - **Owns** the socket.
//! - **Hears** nothing but its own accept loop.
//! - **Tells** no other actor; it asks the managers, and passes the operator's requests on to plugin hosts.
//! - **Never** injects a fault into an actor unless the agent was started for that.
//!
//! The paths are in `route.rs`. A refused request is answered with `{"error": SENTENCE}`.

mod api_answers;
mod checkpoint;
mod commands;
mod console;
mod device_view;
mod images;
mod machine_view;
mod route;
#[cfg(test)]
mod tests;
mod top_view;
mod variables;
mod views;
mod volume_list;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use clients::runtime::RuntimeClient;
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
use serving::{Policy, ReadOnlyHandlers};
use state::assignments::Assignments;
use state::{events, status};

pub use self::checkpoint::{Archives, ContainerCheckpointError, ContainerCheckpoints};
pub use self::console::Console;
pub use self::device_view::DeviceRow;
pub use self::images::{RuntimeImageRow, RuntimeImages};
pub use self::machine_view::{CpuRow, CpuUsage, MachineView, MemoryRow};
use self::route::{AdminError, AdminRoute};
pub use self::top_view::{ContainerUsage, NodeUsage, PodUsage, ProcessRow, TopView};
pub use self::variables::Variable;
pub use self::views::{AgentVersion, PodRow};
use super::node_api::NodeApi;
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
    /// Lists its images.
    pub runtime: RuntimeClient,
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
    console: Console,
    /// What the HTTPS API answers with: figures, metrics and the configuration.
    api: Rc<NodeApi>,
    /// Answers for the paths of the kubelet's API.
    node: ReadOnlyHandlers<NodeApi>,
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
    /// The policy is that of the HTTPS API, some of whose paths are served here too.
    pub fn new(path: PathBuf, peers: AdminPeers, (api, policy): (Rc<NodeApi>, &Policy)) -> Self {
        let server = AdminServer {
            console: Console::new(peers.clone()),
            node: ReadOnlyHandlers::of_admin_socket(policy, api.clone()),
            peers,
            api,
        };
        Admin {
            path: path.into(),
            server: Rc::new(server),
            traffic: Rc::default(),
        }
    }

    fn address(&self) -> String {
        self.path.display().to_string()
    }
}

impl RequestHandler for AdminServer {
    async fn answer(&self, request: Request<Incoming>) -> HandlerResponse {
        if let Err(refused) = route::check_browser(request.method(), request.headers()) {
            return refused.into();
        }
        let path = request.uri().path();
        if path.starts_with("/stats/") || path.starts_with("/containerLogs/") {
            return self.node.answer(request).await;
        }
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
            AdminRoute::View(view) => views::answer(peers, view).await,
            AdminRoute::Console { path } => Ok(self.console.answer(&path).await),
            AdminRoute::EventsToCome => views::events_to_come(&peers.events).await,
            AdminRoute::Top { age } => Ok(json(
                StatusCode::OK,
                &top_view::view((peers, &self.api), age).await,
            )),
            AdminRoute::Config => Ok(json(StatusCode::OK, &api_answers::config(&self.api).await?)),
            AdminRoute::Variables => Ok(json(
                StatusCode::OK,
                &variables::list(&peers.pod_manager).await?,
            )),
            AdminRoute::Metrics(which) => api_answers::metrics(&self.api, which).await,
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
