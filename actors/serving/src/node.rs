//! The interface of the node behind the servers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, PodUid};

use crate::healthz::HealthChecks;
use crate::http::HandlerResponse;

/// The node behind the server. Every answer comes within a deadline of the node's own.
#[allow(
    async_fn_in_trait,
    reason = "servers stay on their thread, so the futures need no Send"
)]
pub trait KubeletHost: HealthChecks {
    /// Returns the desired pods, without mirrors.
    async fn pods(&self) -> Result<PodsWithStatuses, NodeError>;

    /// Returns the pods that run in the runtime, with as much of their definition as it knows.
    async fn running_pods(&self) -> Result<Vec<Pod>, NodeError>;

    /// Returns the URL at which the runtime streams this command.
    async fn exec(&self, wanted: Exec) -> Result<String, NodeError>;

    /// Returns the URL at which the runtime streams the container's first process.
    async fn attach(&self, wanted: Attach) -> Result<String, NodeError>;

    /// Returns the URL at which the runtime forwards these ports; none are named with SPDY.
    async fn port_forward(&self, pod: &Pod, ports: Vec<i32>) -> Result<String, NodeError>;

    /// Runs a command to its end and returns what it wrote.
    async fn run(&self, wanted: RunCommand) -> Result<Vec<u8>, NodeError>;

    /// Writes the container to a file, and returns its path.
    async fn checkpoint(&self, wanted: ContainerCheckpointRequest) -> Result<String, NodeError>;

    /// Returns where the runtime writes the container's log.
    async fn log_path(&self, container: &ContainerId) -> Result<PathBuf, NodeError>;

    /// Returns whether the container still runs; true while the runtime does not answer.
    async fn is_running(&self, container: &ContainerId) -> Result<bool, NodeError>;

    /// Returns metrics in the text format 0.0.4.
    async fn metrics(&self, which: Metrics) -> Result<String, NodeError>;

    /// Returns the JSON of a `stats.v1alpha1` summary.
    async fn summary(&self, detail: Detail) -> Result<Vec<u8>, NodeError>;

    /// Returns the JSON of `{"kubeletconfig": ...}`.
    async fn configz(&self) -> Result<Vec<u8>, NodeError>;

    /// Returns every flag and its value.
    fn flags(&self) -> BTreeMap<String, String>;

    /// Returns name, version and start time for `/statusz`.
    fn about(&self) -> ComponentInfo;

    /// Answers a request for a path beneath `/console/`; only where the operator has it served.
    async fn console(&self, path: &str) -> HandlerResponse;

    /// Sets the verbosity of the log; the error is the reason for a refusal.
    fn set_verbosity(&self, level: u32) -> Result<(), String>;
}

/// The pods, and statuses that are newer than those in their definitions.
#[derive(Debug, Clone, Default)]
pub struct PodsWithStatuses {
    pub pods: Vec<Arc<Pod>>,
    /// By UID; a pod without one has none yet.
    pub statuses: BTreeMap<PodUid, Arc<PodStatus>>,
}

impl PodsWithStatuses {
    /// Returns the pod of this name.
    pub fn named(&self, namespace: &str, name: &str) -> Option<&Arc<Pod>> {
        let mut pods = self.pods.iter();
        pods.find(|pod| pod.name() == name && pod.namespace() == namespace)
    }

    /// Returns the newest status that is known of a pod.
    pub fn status<'a>(&'a self, pod: &'a Pod) -> Option<&'a PodStatus> {
        let kept = self.statuses.get(&pod.uid()).map(Arc::as_ref);
        kept.or(pod.status.as_ref())
    }
}

/// A command in a container.
#[derive(Debug, Clone)]
pub struct Exec {
    pub pod: Arc<Pod>,
    pub container: String,
    pub command: Vec<String>,
    pub streams: RemoteCommandOptions,
}

/// The streams of a container's first process; its spec says whether it has a terminal.
#[derive(Debug, Clone)]
pub struct Attach {
    pub pod: Arc<Pod>,
    pub container: String,
    pub streams: RemoteCommandOptions,
}

/// The requested streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteCommandOptions {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    /// The streams are a terminal's: no stderr of its own.
    pub tty: bool,
}

/// A command that is run to its end (`/run`).
#[derive(Debug, Clone)]
pub struct RunCommand {
    pub pod: Arc<Pod>,
    pub container: String,
    pub command: Vec<String>,
}

/// A container to be checkpointed to a file.
#[derive(Debug, Clone)]
pub struct ContainerCheckpointRequest {
    pub pod: Arc<Pod>,
    pub container: String,
    /// The caller's timeout; none leaves it to the runtime.
    pub timeout: Option<Duration>,
}

/// A metrics endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metrics {
    /// `/metrics`
    Own,
    /// `/metrics/cadvisor`
    Cadvisor,
    /// `/metrics/probes`
    Probes,
    /// `/metrics/resource`
    Resource,
    /// `/metrics/slis`
    Slis,
}

/// The scope of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    Everything,
    OnlyCpuAndMemory,
}

/// The component, for `/statusz`.
#[derive(Debug, Clone)]
pub struct ComponentInfo {
    /// When the process started.
    pub started: SystemTime,
    pub version: String,
    /// The Kubernetes release whose kubelet it replaces.
    pub emulates: String,
}

/// Why the node cannot answer. The text is what the caller reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    #[error("{0}")]
    NotFound(String),
    /// Too many requests of this kind at once.
    #[error("{0}")]
    Exhausted(String),
    #[error("{0}")]
    Failed(String),
}

impl NodeError {
    /// Returns whether the same request may succeed later.
    pub fn transient(&self) -> bool {
        match self {
            NodeError::NotFound(_) => false,
            NodeError::Exhausted(_) | NodeError::Failed(_) => true,
        }
    }
}
