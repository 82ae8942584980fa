//! The device manager: the plugins that give containers devices of vendors, and what they have given.
//!
//! - **Owns** the inventory of devices, what has been allocated (upstream's checkpoint), and the plugins' own service on
//!   `device-plugins/kubelet.sock` below the agent's folder.
//! - **Hears** plugins that register, list and go, and of the pods' side: which devices a plugin prefers, what a pod has been
//!   assigned, which container starts, which pod has ended.
//! - **Tells** the inventory to those that assign devices, and the numbers of devices to the node status manager.
//! - **Never** waits for a plugin: each has a lane of its own, and one that hangs delays its own pods alone.
//!
//! What is allocated is in the checkpoint before it is answered. Upstream: pkg/kubelet/cm/devicemanager (1.36); which
//! devices a container gets is decided in `logic_placement::devices`.

mod batch;
mod checkpoint;
mod folder;
mod lane;
mod node_plugins;
mod plugin;
mod plugins;
mod registrar;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernel::{Actor, Context, Exit, Recipient, Reply, TimerId};
use logic_api::types::PodUid;
use logic_placement::devices::{
    ContainerDevices, DeviceAllocations, DeviceCallError, DeviceInventory, NodeDevices,
    PreferenceQuestion,
};
use logic_placement::topology::{Assignment, HeldAssignments};
use pods::pod_manager::devices::DeviceRequest;
use serde::Serialize;

use self::batch::Batch;
use self::checkpoint::{CheckpointStore, CheckpointWrite};
pub use self::folder::{has_checkpoint, plugin_folder};
use self::lane::PluginLane;
pub use self::node_plugins::DevicePluginHandler;
pub use self::plugin::PluginEvent;
pub use self::registrar::{PluginEndpoint, RegistrationCall};

/// A hundred plugins that list at once, and as many pods that start.
pub const MAILBOX: usize = 256;

/// Messages of the device manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Checks a plugin that is to be registered, and connects to it.
    Register(RegistrationCall),
    /// Lets go of the plugin of a resource, whose socket is gone from the folder of node plugins.
    Deregister { resource: String },
    /// Takes in what a plugin, or the way to it, has come to.
    Plugin(Box<PluginEvent>),
    /// Asks a plugin which of the devices it prefers: their ids, or why there is no answer.
    Prefer {
        question: PreferenceQuestion,
        reply: Reply<Result<BTreeSet<String>, String>>,
    },
    /// Has plugins give a pod the devices that it has been assigned, each where they have not already.
    Allocate {
        pod: PodUid,
        assignment: Arc<Assignment>,
        reply: Reply<Result<(), DeviceCallError>>,
    },
    /// Has plugins prepare a container's devices before it starts, and answers what it gets with them: none where
    /// nothing has been allocated to it.
    PreStart {
        pod: PodUid,
        container: String,
        reply: Reply<Result<Option<ContainerDevices>, DeviceCallError>>,
    },
    /// Frees the devices of a pod that has ended.
    Forget { pod: PodUid },
    /// Answers which devices every pod holds.
    Held { reply: Reply<HeldAssignments> },
    /// Takes in what has come of writing the checkpoint.
    Saved(CheckpointWrite),
    /// Writes the checkpoint, if it has changed.
    Save,
    /// Removes resources whose plugins have been gone for too long, and tells what could not be told.
    Tick,
    /// Tells everything again: a peer restarted.
    Resync,
    /// Fails: no plugin can register any more.
    ListenerFailed(tonic::transport::Error),
}

impl From<DeviceRequest> for Msg {
    fn from(request: DeviceRequest) -> Msg {
        match request {
            DeviceRequest::Prefer { question, reply } => Msg::Prefer { question, reply },
            DeviceRequest::Allocate {
                pod,
                assignment,
                reply,
            } => Msg::Allocate {
                pod,
                assignment,
                reply,
            },
            DeviceRequest::PreStart {
                pod,
                container,
                reply,
            } => Msg::PreStart {
                pod,
                container,
                reply,
            },
            DeviceRequest::Forget { pod } => Msg::Forget { pod },
        }
    }
}

/// The plugins and what they have.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub socket: PathBuf,
    /// By resource.
    pub plugins: BTreeMap<String, PluginView>,
    /// Pods that hold devices.
    pub pods: usize,
    /// Why lists of plugins were not taken, by resource, since they last were.
    pub refused_lists: BTreeMap<String, String>,
}

/// One plugin, and the devices of its resource.
#[derive(Debug, Serialize)]
pub struct PluginView {
    pub connected: bool,
    pub devices: usize,
    pub healthy: usize,
    /// Calls that wait for an answer, or for their turn.
    pub calls: usize,
}

/// What those that assign devices have to know.
#[derive(Debug, Clone)]
pub struct DevicesChanged {
    pub inventory: Arc<DeviceInventory>,
    /// The pods that have a device whose health has changed: their status is to be written anew.
    pub pods: BTreeSet<PodUid>,
}

/// Who is told.
#[derive(Debug, Clone, Default)]
pub struct Peers {
    pub assigners: Vec<Recipient<DevicesChanged>>,
    /// The node status manager.
    pub node: Option<Recipient<NodeDevices>>,
    /// The watcher of node plugins, if there is one.
    pub plugins: Option<Recipient<PluginResync>>,
}

/// Asks the plugin watcher to register every plugin again: the device manager has just started.
#[derive(Debug)]
pub struct PluginResync;

/// The device manager.
#[derive(Debug)]
pub struct DeviceManager {
    /// `device-plugins` below the agent's folder.
    folder: PathBuf,

    peers: Peers,

    inventory: DeviceInventory,
    /// Resources that were there and are no more.
    removed: BTreeSet<String>,
    allocations: DeviceAllocations,
    /// By resource.
    plugins: BTreeMap<String, PluginLane>,
    /// Counts the plugins that have registered: what is heard of one that has been replaced is told apart by it.
    generation: u64,
    batches: BTreeMap<u64, Batch>,
    next_batch: u64,
    checkpoint: CheckpointStore,
    refused_lists: BTreeMap<String, String>,
    /// What the node status manager was told last; none where it is to be told again.
    node_told: Option<NodeDevices>,
    /// The pods of changes that some assigner has not been told.
    untold: Option<BTreeSet<PodUid>>,
    timer: Option<TimerId>,
}

impl Actor for DeviceManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        folder::prepare(&self.folder)?;
        self.restore(ctx.now());
        self.serve(ctx).await?;
        let plugins = self.peers.plugins.as_ref();
        if plugins.is_some_and(|plugins| plugins.tell(PluginResync).is_err()) {
            tracing::warn!("device plugins are known once they register again");
        }
        self.tell(BTreeSet::new(), ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Register(call) => self.register(call, ctx),
            Msg::Deregister { resource } => self.deregister(&resource, ctx),
            Msg::Plugin(event) => self.plugin(*event, ctx),
            Msg::Prefer { question, reply } => self.prefer(question, reply, ctx),
            Msg::Allocate {
                pod,
                assignment,
                reply,
            } => self.allocate(pod, &assignment, reply, ctx),
            Msg::PreStart {
                pod,
                container,
                reply,
            } => self.pre_start(pod, container, reply, ctx),
            Msg::Forget { pod } => self.forget(&pod, ctx),
            Msg::Held { reply } => reply.send(self.allocations.held()),
            Msg::Saved(write) => self.saved(write, ctx),
            Msg::Save => self.save(ctx),
            Msg::Tick => self.tick(ctx),
            Msg::Resync => self.tell_again(ctx),
            Msg::ListenerFailed(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn stop(&mut self, _ctx: &mut Context<Msg>) {
        // A socket that is left behind is replaced by the next agent.
        drop(std::fs::remove_file(folder::socket(&self.folder)));
    }

    fn snapshot(&self) -> Snapshot {
        let view = |(name, resource): (&str, &logic_placement::devices::DeviceResource)| {
            let lane = self.plugins.get(name);
            let view = PluginView {
                connected: lane.is_some_and(PluginLane::is_connected),
                devices: resource.devices().len(),
                healthy: resource.healthy().count(),
                calls: lane.map_or(0, PluginLane::calls),
            };
            (name.to_owned(), view)
        };
        Snapshot {
            socket: folder::socket(&self.folder),
            plugins: self.inventory.resources().map(view).collect(),
            pods: self.allocations.held().len(),
            refused_lists: self.refused_lists.clone(),
        }
    }
}

impl DeviceManager {
    /// A device manager below the agent's folder.
    pub fn new(root_dir: &Path, peers: Peers) -> Self {
        let folder = plugin_folder(root_dir);
        DeviceManager {
            checkpoint: CheckpointStore::new(&folder),
            folder,
            peers,
            inventory: DeviceInventory::default(),
            removed: BTreeSet::new(),
            allocations: DeviceAllocations::default(),
            plugins: BTreeMap::new(),
            generation: 0,
            batches: BTreeMap::new(),
            next_batch: 0,
            refused_lists: BTreeMap::new(),
            node_told: None,
            untold: None,
            timer: None,
        }
    }

    /// Takes over what the checkpoint has: devices stay with their pods, and resources are there without devices until
    /// their plugins are back.
    fn restore(&mut self, now: std::time::Instant) {
        let restored = self.checkpoint.load();
        self.allocations = restored.allocations;
        for resource in restored.resources {
            self.inventory.restored(&resource, now);
        }
    }
}
