//! The node: its sandboxes and containers, and everything that calls about them share.
//!
//! **Invariant:** the lock of the state is never held over an await, and nothing waits on a disk or a process under it.
//! Calls about one object follow each other by a keyed lock; objects are independent of each other.

mod follow;
mod recover;
mod state;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blocking_pool::{BlockingPool, KeyedGuard, KeyedLock, RemovalError, Removals};
use monitor::{Handler, Launch, Monitor};
use proto::cri::{ContainerEventResponse, ContainerEventType};
use tokio::sync::broadcast;

pub(crate) use follow::{ended_unknown, record_of};
pub(crate) use state::{ContainerEntry, NodeState};

use crate::clock;
use crate::error::CallError;
use crate::layout::Layout;
use crate::record::convert;
use crate::record::{self, ContainerRecord, RecordStore, RecordSync, SandboxRecord};
use crate::sandbox::network::Network;
use crate::settings::Programs;
use crate::spec::{CgroupDriver, HostFacts};
use crate::stats::UsageCache;

/// The longest that files and mounts of this node may take.
const FILES_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that one OCI runtime's call may take.
const OCI_TIMEOUT_MS: u64 = 120_000;
/// How long a call waits for another one about the same object: longer than any grace of a stop within a lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(300);
/// Events that a reader may be behind.
const MAX_EVENTS: usize = 4096;
/// How long a call waits for the removal of a tree whose owner is gone already: mostly its space is free at the answer.
const REMOVAL_WAIT: Duration = Duration::from_secs(10);
/// How long before a tree is tried again of which something could not be removed.
const RETRY_REMOVAL: Duration = Duration::from_secs(600);

/// What a node is opened with.
#[derive(Debug)]
pub(crate) struct NodeParts {
    pub(crate) layout: Layout,
    pub(crate) host: HostFacts,
    pub(crate) driver: CgroupDriver,
    pub(crate) programs: Programs,
    pub(crate) images: images::Store,
    pub(crate) registries: Option<PathBuf>,
    /// Whether images' volumes stay on writable layers.
    pub(crate) ignore_image_volumes: bool,
    /// Folders of CDI files, the one of the highest priority last.
    pub(crate) cdi_folders: Vec<PathBuf>,
    pub(crate) network: Option<Network>,
    pub(crate) pool: BlockingPool,
    pub(crate) boot: String,
    /// What each handler can do.
    pub(crate) features: BTreeMap<String, Features>,
    /// Why no pod of this node can have a user namespace; none if they can.
    pub(crate) no_user_namespaces: Option<String>,
}

/// What an OCI runtime says that it can do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    /// Mounts that are read-only with everything below them.
    pub(crate) recursive_read_only: bool,
    pub(crate) user_namespaces: bool,
}

impl NodeParts {
    /// Returns what a handler can do; one that is not known can do nothing of it.
    pub(crate) fn features(&self, handler: &str) -> Features {
        self.features.get(handler).copied().unwrap_or_default()
    }

    /// Tells why pods of a handler can have no user namespaces, if they can't.
    pub(crate) fn user_namespaces(&self, handler: &str) -> Result<(), String> {
        match &self.no_user_namespaces {
            Some(why) => Err(why.clone()),
            None if !self.features(handler).user_namespaces => {
                Err(format!("runtime handler {handler:?} has none"))
            }
            None => Ok(()),
        }
    }
}

/// The node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) parts: NodeParts,
    pub(crate) sandbox_records: RecordStore,
    pub(crate) container_records: RecordStore,
    /// What `note_sandbox` and `note_container` have written.
    record_sync: RecordSync,
    pub(crate) usage: UsageCache,
    removals: Removals,
    state: Mutex<NodeState>,
    locks: KeyedLock,
    events: broadcast::Sender<Arc<ContainerEventResponse>>,
}

impl Node {
    fn new(parts: NodeParts) -> Arc<Node> {
        let layout = &parts.layout;
        Arc::new(Node {
            sandbox_records: RecordStore::new(layout.sandboxes(), layout.clone()),
            container_records: RecordStore::new(layout.containers(), layout.clone()),
            record_sync: RecordSync::default(),
            usage: UsageCache::new(),
            removals: Removals::new(),
            state: Mutex::default(),
            locks: KeyedLock::new(),
            events: broadcast::Sender::new(MAX_EVENTS),
            parts,
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a copy of a sandbox's record; its id may be shortened.
    pub(crate) fn sandbox(&self, id: &str) -> Result<SandboxRecord, CallError> {
        let state = self.state();
        let found = state.sandbox(id).map(|entry| entry.record.clone());
        found.ok_or_else(|| CallError::NotFound {
            what: "sandbox",
            id: id.to_owned(),
        })
    }

    /// Returns a copy of a container's record; its id may be shortened.
    pub(crate) fn container(&self, id: &str) -> Result<ContainerRecord, CallError> {
        let state = self.state();
        let found = state.container(id).map(|entry| entry.record.clone());
        found.ok_or_else(|| CallError::NotFound {
            what: "container",
            id: id.to_owned(),
        })
    }

    /// Waits until no other call works on this object.
    pub(crate) async fn lock(&self, id: &str) -> Result<KeyedGuard, CallError> {
        let locked = self.locks.lock(id, LOCK_TIMEOUT).await;
        locked.map_err(CallError::Other)
    }

    /// Does work on files and mounts on a thread.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let done = self
            .parts
            .pool
            .run(what, FILES_TIMEOUT, move || Ok(work()))
            .await;
        done.map_err(CallError::Other)?
    }

    /// Writes a sandbox's record, and takes it over in memory.
    pub(crate) async fn keep_sandbox(&self, record: SandboxRecord) -> Result<(), CallError> {
        let (store, written) = (self.sandbox_records.clone(), record.clone());
        self.blocking("writing a sandbox's record", move || {
            Ok(store.write(&written)?)
        })
        .await?;
        self.state().put_sandbox(record);
        Ok(())
    }

    /// Writes a container's record; the caller takes it over in memory.
    pub(crate) async fn write_container(&self, record: ContainerRecord) -> Result<(), CallError> {
        let store = self.container_records.clone();
        self.blocking("writing a container's record", move || {
            Ok(store.write(&record)?)
        })
        .await
    }

    /// Writes the record of a sandbox that is being made, which the disk has soon, and takes it over in memory.
    pub(crate) async fn note_sandbox(&self, record: SandboxRecord) -> Result<(), CallError> {
        let (store, written) = (self.sandbox_records.clone(), record.clone());
        self.blocking("writing a sandbox's record", move || {
            Ok(store.note(&written)?)
        })
        .await?;
        self.record_sync
            .add(self.sandbox_records.folder(&record.id));
        self.state().put_sandbox(record);
        Ok(())
    }

    /// The same of a container that is being made; the caller takes it over in memory.
    pub(crate) async fn note_container(&self, record: ContainerRecord) -> Result<(), CallError> {
        let (store, folder) = (
            self.container_records.clone(),
            self.container_records.folder(&record.id),
        );
        self.blocking("writing a container's record", move || {
            Ok(store.note(&record)?)
        })
        .await?;
        self.record_sync.add(folder);
        Ok(())
    }

    /// Brings noted records to the disk, for as long as the node is served.
    pub(crate) async fn sync_records(self: Arc<Node>) {
        loop {
            let folders = self.record_sync.next().await;
            let synced = self.blocking("syncing records", move || {
                record::sync(&folders);
                Ok(())
            });
            if let Err(error) = synced.await {
                let error = sdk::error_chain(&error);
                tracing::warn!(error, "records may be lost with the power");
            }
        }
    }

    /// Returns how a monitor runs containers of this handler.
    pub(crate) fn handler(&self, name: &str) -> Result<Handler, CallError> {
        let program = self.parts.programs.handler(name);
        let program = program.ok_or_else(|| CallError::NoHandler(name.to_owned()))?;
        let folder = if name.is_empty() { "default" } else { name };
        Ok(Handler {
            program: program.to_owned(),
            root: self.parts.layout.oci(folder),
            systemd_cgroup: self.parts.driver == CgroupDriver::Systemd,
            is_own: self.parts.programs.is_own(program),
            deadline_ms: OCI_TIMEOUT_MS,
        })
    }

    /// Returns the sandbox's monitor: the one that runs, or a new one that takes over what its predecessor left. One that
    /// hangs is killed and replaced.
    pub(crate) async fn launch(&self, sandbox: &SandboxRecord) -> Result<Monitor, CallError> {
        let _one_at_a_time = self.lock(&format!("monitor of {}", sandbox.id)).await?;
        let launch = Launch {
            program: self.parts.programs.monitor.clone(),
            folder: self.parts.layout.monitor(&sandbox.id),
            cgroup: Some(
                crate::sandbox::cgroup::of_monitor(sandbox, self.parts.driver)
                    .map_err(CallError::Random)?,
            ),
        };
        Ok(launch.start().await?)
    }

    /// Moves a tree of the node's out of its place, and has it removed. Returns when it is out of its place, and mostly
    /// when it is removed.
    pub(crate) async fn discard(
        self: &Arc<Node>,
        tree: PathBuf,
        name: String,
    ) -> Result<(), CallError> {
        let layout = self.parts.layout.clone();
        let moved = self.blocking("moving a tree that is removed", move || {
            layout
                .discard(&tree, &name)
                .map_err(CallError::file("remove", tree))
        });
        if let Some(tree) = moved.await? {
            self.remove_tree(tree).await;
        }
        Ok(())
    }

    /// Removes a tree that was moved out of its place. What takes longer goes on in the background; what cannot be removed
    /// is reported once, and tried again later and at the next start.
    pub(crate) async fn remove_tree(self: &Arc<Node>, tree: PathBuf) {
        match self.removals.remove(&tree, REMOVAL_WAIT).await {
            Ok(()) | Err(RemovalError::Continues { .. }) => {}
            Err(error @ RemovalError::Failed { .. }) => {
                let error = sdk::error_chain(&error);
                tracing::error!(
                    error,
                    "something of a removed container or pod stays for now"
                );
                self.retry_removal(tree);
            }
        }
    }

    fn retry_removal(self: &Arc<Node>, tree: PathBuf) {
        let (node, removals) = (Arc::downgrade(self), self.removals.clone());
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RETRY_REMOVAL).await;
                if node.upgrade().is_none() {
                    return;
                }
                let removed = removals.remove(&tree, RETRY_REMOVAL).await;
                if !matches!(removed, Err(RemovalError::Failed { .. })) {
                    return;
                }
            }
        });
    }

    /// Goes on with the removals that a predecessor had begun.
    pub(crate) async fn resume_removals(&self) -> Result<(), CallError> {
        let (removing, removals) = (self.parts.layout.removing(), self.removals.clone());
        self.blocking("looking for trees that are removed", move || {
            let entries = std::fs::read_dir(&removing);
            for entry in entries.map_err(CallError::file("read", &removing))? {
                let entry = entry.map_err(CallError::file("read", &removing))?;
                removals.begin(&entry.path());
            }
            Ok(())
        })
        .await
    }

    /// Subscribes to container events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<ContainerEventResponse>> {
        self.events.subscribe()
    }

    /// Tells of a container, or of a sandbox as the kubelet's runtimes do, with the state of its pod.
    pub(crate) fn tell(&self, sandbox: &str, subject: &str, kind: ContainerEventType) {
        let event = {
            let state = self.state();
            let status = state
                .sandbox(sandbox)
                .map(|entry| convert::sandbox_status(&entry.record));
            ContainerEventResponse {
                container_id: subject.to_owned(),
                container_event_type: kind.into(),
                created_at: clock::now(),
                pod_sandbox_status: status,
                containers_statuses: convert::pod_statuses(&state, sandbox),
            }
        };
        // Nobody listens: that is no failure.
        drop(self.events.send(Arc::new(event)));
    }
}
