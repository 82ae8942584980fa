//! The manager of dynamic resources: has drivers prepare the ResourceClaims of pods, and undo that.
//!
//! - **Owns** the claims in use with their state file, the health of their devices with its file, and the connections
//!   to the drivers.
//! - **Hears** of drivers that come and go, of pods whose claims are to be prepared or undone, and which devices a
//!   container gets; and the results of its own calls.
//! - **Tells** the pod manager which pods' devices have changed their health, shows what it knows to all that read it, has the plugin watcher tell all drivers
//!   when it starts, and the pod manager each minute which pods there are. It asks no actor: pods ask it.
//! - **Never** starts a call before the state file names the claim and its pods, so that nothing stays prepared that
//!   is known to no agent; never has one driver wait for another, or a claim's jobs overtake each other.
//!
//! Upstream: pkg/kubelet/cm/dra/manager.go and plugin/dra_plugin_manager.go (1.36). A state file that is damaged keeps
//! the kubelet from starting; here it is set aside, and the pods that are there are prepared again.

mod health;
mod jobs;
mod links;
pub mod plugin_watcher;
mod question;
mod reconcile;
mod slices;
mod state_file;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kernel::{Actor, Context, Exit, Recipient, Reply, watch};
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_placement::claims::health::{HEALTH_FILE, HealthCache, KnownClaims};
use logic_placement::claims::{
    ClaimCache, ClaimEntry, ClaimGates, ClaimKey, ClaimLocks, ClaimsError, ContainerClaimError,
    DriverEndpoint, DriverError, DriverName, DriverRegistry, ResourceSliceSelector, STATE_FILE,
    container_devices,
};
use pods::pod_manager::claims::ClaimRequest;
use serde::Serialize;

pub use self::jobs::JobEvent;
use self::jobs::{Job, Recording};
use self::links::Link;
pub use self::links::LinkEvent;
pub use self::question::Question;
use self::slices::SliceCleanup;
pub use self::slices::SliceEvent;
use self::state_file::StateFile;
pub use self::state_file::WriteResult;

/// Room for a question and a job of each of a node's pods at once.
pub const MAILBOX: usize = 1024;
/// What a driver has for a call, as upstream.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);
/// Before the first look for pods that are gone and still have claims, and between looks while the pods are not known.
const UNKNOWN_PERIOD: Duration = Duration::from_secs(5);
/// Between these looks later, as upstream.
const RECONCILE_PERIOD: Duration = Duration::from_secs(60);

/// The section of the configuration.
#[derive(Debug, Clone)]
pub struct DynamicResourcesConfig {
    /// The name that the node has in the API.
    pub node_name: String,
    /// The agent's root folder, which the state files are in.
    pub root_dir: PathBuf,
    pub gates: ClaimGates,
    pub health: HealthWatch,
}

/// Whether drivers are asked how their devices are (gate `ResourceHealthStatus`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HealthWatch {
    #[default]
    On,
    Off,
}

/// Asks the plugin watcher to register every driver again: this actor has just started.
#[derive(Debug)]
pub struct DriverResync;

/// Asks which pods are not over; the answer, told to this recipient, is none before every source has told its pods. It
/// is told, and not waited for, since pods wait for this actor.
#[derive(Debug)]
pub struct PodsQuery(pub Recipient<Option<BTreeSet<PodUid>>>);

/// The pods whose devices' health has changed: their statuses are to be made anew.
#[derive(Debug)]
pub struct HealthChanged(pub BTreeSet<PodUid>);

/// What the manager needs of the API server; nothing on a node without one.
#[derive(Debug, Clone, Default)]
pub struct ClaimApi {
    /// Reads a ResourceClaim.
    pub claims: Option<Question<ClaimKey, ResourceClaim>>,
    /// Deletes the node's ResourceSlices.
    pub slices: Option<Question<ResourceSliceSelector, ()>>,
}

/// The actors that the manager works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub api: ClaimApi,
    /// The pod manager.
    pub pods: Recipient<PodsQuery>,
    pub drivers: Recipient<DriverResync>,
    pub status: Recipient<HealthChanged>,
    /// What is known of the claims, for the pods' statuses.
    pub known: watch::Sender<Arc<KnownClaims>>,
}

/// Messages of the manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Takes in a driver's socket, or refuses it, and keeps connected to it (upstream: RegisterPlugin).
    Registered {
        driver: DriverName,
        socket: PathBuf,
        /// The services that the driver lists, such as `v1.DRAPlugin`.
        versions: Vec<String>,
        reply: Reply<Result<(), DriverError>>,
    },
    /// Forgets a driver's socket (upstream: DeRegisterPlugin).
    Deregistered { driver: DriverName, socket: PathBuf },
    /// Has the pod's claims prepared, and answers when they are. May be sent again at any time.
    Prepare {
        pod: Arc<Pod>,
        reply: Reply<Result<(), ClaimsError>>,
    },
    /// Has the pod's claims undone that no other pod uses, and answers when they are. May be sent again at any time.
    Unprepare {
        pod: Arc<Pod>,
        reply: Reply<Result<(), ClaimsError>>,
    },
    /// Answers the CDI names of the devices of this container of the pod, of any kind.
    Devices {
        pod: Arc<Pod>,
        container: String,
        reply: Reply<Result<Vec<String>, ContainerClaimError>>,
    },
    /// Follows a connection to a driver.
    Link(LinkEvent),
    /// Goes on with a job.
    Job(JobEvent),
    /// Goes on with the jobs that waited for the state file.
    Recorded(WriteResult),
    /// Takes it that the file of the devices' health is written, or is not.
    HealthRecorded(WriteResult),
    /// Follows the deletion of ResourceSlices.
    Slices(SliceEvent),
    /// Looks for pods that are gone and still have claims.
    Tick,
    /// Undoes the claims of those that are none of these pods.
    Pods(Option<BTreeSet<PodUid>>),
}

impl From<ClaimRequest> for Msg {
    fn from(request: ClaimRequest) -> Msg {
        match request {
            ClaimRequest::Prepare { pod, reply } => Msg::Prepare { pod, reply },
            ClaimRequest::Unprepare { pod, reply } => Msg::Unprepare { pod, reply },
            ClaimRequest::Devices {
                pod,
                container,
                reply,
            } => Msg::Devices {
                pod,
                container,
                reply,
            },
        }
    }
}

/// What is known of drivers and claims.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub drivers: BTreeMap<DriverName, Vec<DriverEndpoint>>,
    pub claims: Vec<ClaimEntry>,
    /// Jobs that are at work or wait.
    pub jobs: usize,
    /// Jobs that wait for another one at the same claim.
    pub waiting: usize,
    /// Why the state file was set aside at the start.
    pub damaged: Option<String>,
}

/// The manager of dynamic resources.
#[derive(Debug)]
pub struct DynamicResources {
    config: DynamicResourcesConfig,
    peers: Peers,

    cache: ClaimCache,
    file: StateFile,
    damaged: Option<String>,
    drivers: DriverRegistry,
    /// By number.
    links: BTreeMap<u64, Link>,
    health: HealthCache,
    health_file: StateFile,
    /// By number.
    jobs: BTreeMap<u64, Job>,
    locks: ClaimLocks,
    recording: Recording,
    slices: SliceCleanup,
    /// Until every source has told its pods, and the runtime what it has.
    pods_unknown: bool,
    /// The number of the next job or link.
    next: u64,
}

impl Actor for DynamicResources {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.read_claims().await?;
        self.read_health().await;
        self.publish();
        self.begin_slice_cleanup(ctx);
        ctx.after(UNKNOWN_PERIOD, Msg::Tick);
        if let Err(full) = self.peers.drivers.tell(DriverResync) {
            tracing::warn!("drivers are known once they register again: {full}");
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Registered {
                driver,
                socket,
                versions,
                reply,
            } => reply.send(self.register(driver, socket, &versions, ctx)),
            Msg::Deregistered { driver, socket } => self.deregister(&driver, &socket, ctx),
            Msg::Prepare { pod, reply } => self.prepare(pod, reply, ctx),
            Msg::Unprepare { pod, reply } => self.unprepare(&pod, reply, ctx),
            Msg::Devices {
                pod,
                container,
                reply,
            } => reply.send(self.devices(&pod, &container)),
            Msg::Link(event) => self.link_event(event, ctx),
            Msg::Job(event) => self.job_event(event, ctx),
            Msg::Recorded(result) => self.recorded(result, ctx),
            Msg::HealthRecorded(result) => self.health_recorded(result, ctx),
            Msg::Slices(event) => self.slice_event(event, ctx),
            Msg::Tick => self.tick(ctx),
            Msg::Pods(pods) => self.reconcile(pods, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            drivers: self.drivers.drivers().clone(),
            claims: self.cache.entries().cloned().collect(),
            jobs: self.jobs.len(),
            waiting: self.locks.waiting(),
            damaged: self.damaged.clone(),
        }
    }
}

impl DynamicResources {
    pub fn new(config: DynamicResourcesConfig, peers: Peers) -> Self {
        DynamicResources {
            file: StateFile::new(config.root_dir.join(STATE_FILE)),
            health_file: StateFile::new(config.root_dir.join(HEALTH_FILE)),
            config,
            peers,
            cache: ClaimCache::default(),
            damaged: None,
            drivers: DriverRegistry::default(),
            links: BTreeMap::new(),
            health: HealthCache::default(),
            jobs: BTreeMap::new(),
            locks: ClaimLocks::default(),
            recording: Recording::default(),
            slices: SliceCleanup::default(),
            pods_unknown: true,
            next: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn devices(&self, pod: &Pod, container: &str) -> Result<Vec<String>, ContainerClaimError> {
        let found = pod.container(container);
        found.map_or(Ok(Vec::new()), |(_, container)| {
            container_devices(&self.cache, pod, &container, self.config.gates)
        })
    }

    /// Shows what is known of the claims to those that write statuses, and others that only read.
    fn publish(&self) {
        self.peers.known.send_replace(Arc::new(KnownClaims {
            claims: self.cache.clone(),
            health: self.health.clone(),
            gates: self.config.gates,
        }));
    }

    fn show_claims_in_use(&self) {
        self.publish();
        metrics::node::dynamic_resources::in_use(&self.cache.claims_in_use());
    }
}
