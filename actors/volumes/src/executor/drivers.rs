//! The storage plugins: their capabilities, the volumes that they found, and the drivers behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use clients::storage::{DriverEvent, StorageCapabilities, StorageError, StoragePlugin};
use kernel::Context;
use logic_api::types::PodUid;
use logic_volumes::csi_node::{AdmittedDrivers, admit};
use logic_volumes::reconciler::{KindCapabilities, StateOfWorld};
use logic_volumes::{ReconstructedVolume, RegisteredDriver, VolumeKind};

use crate::executor::StuckProcess;
use crate::{Msg, VolumeCompletion, VolumeManager, metrics};

/// For a plugin that searches all pods' folders.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a plugin may take to begin a watch of its drivers; it answers from memory.
const WATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Between attempts to ask a plugin.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Pods' folders that are read; the next start handles the rest.
const MAX_FOLDERS: usize = 10_000;
/// Drivers, and refused sockets, that are kept; no node has more.
const MAX_DRIVERS: usize = 256;

/// The first answers of a plugin: its capabilities and its volumes.
#[derive(Debug)]
pub struct PluginListing {
    abilities: Vec<(String, StorageCapabilities)>,
    found: Vec<ReconstructedVolume>,
}

/// The registered drivers.
#[derive(Debug, Default)]
pub(crate) struct DriverRegistry {
    all: BTreeMap<String, RegisteredDriver>,
    admitted: AdmittedDrivers,
    /// Sockets of refused drivers, with the reason.
    refused: BTreeMap<String, String>,
    /// The drivers sent since the stream of events began; none once all have been.
    announced: Option<BTreeSet<String>>,
    /// The labels of the node's object; empty without one.
    node_labels: BTreeMap<String, String>,
}

impl DriverRegistry {
    pub(crate) fn names(&self) -> Vec<String> {
        self.admitted.backends.keys().cloned().collect()
    }

    pub(crate) fn admitted(&self) -> &BTreeMap<String, RegisteredDriver> {
        &self.admitted.backends
    }

    /// The node's labels from the drivers' topology.
    pub(crate) fn labels(&self) -> &BTreeMap<String, String> {
        &self.admitted.labels
    }

    /// Sets the node's labels, and admits drivers again; returns whether the labels changed.
    pub(crate) fn look_at(&mut self, node_labels: BTreeMap<String, String>) -> bool {
        let changed = self.node_labels != node_labels;
        self.node_labels = node_labels;
        if changed {
            self.admit_all();
        }
        changed
    }

    pub(crate) fn refused(&self) -> Vec<String> {
        let refused = self.refused.iter().chain(&self.admitted.refused);
        refused.map(|(who, why)| format!("{who}: {why}")).collect()
    }

    /// A stream of events begins, and sends all drivers first.
    fn begin(&mut self) {
        self.announced = Some(BTreeSet::new());
    }

    fn add(&mut self, backend: RegisteredDriver) {
        if let Some(told) = &mut self.announced {
            told.insert(backend.name.clone());
        }
        self.refused.remove(&backend.endpoint);
        let room = self.all.len() < MAX_DRIVERS || self.all.contains_key(&backend.name);
        if room {
            self.all.insert(backend.name.clone(), backend);
        }
        self.admit_all();
    }

    fn remove(&mut self, name: &str) {
        self.all.remove(name);
        self.admit_all();
    }

    fn refuse(&mut self, endpoint: String, why: String) {
        if self.refused.len() < MAX_DRIVERS || self.refused.contains_key(&endpoint) {
            self.refused.insert(endpoint, why);
        }
    }

    /// Drops the drivers that were not sent again.
    fn synced(&mut self) {
        if let Some(told) = self.announced.take() {
            self.all.retain(|name, _| told.contains(name));
            self.admit_all();
        }
    }

    fn admit_all(&mut self) {
        self.admitted = admit(&self.all, &self.node_labels);
        for (name, why) in &self.admitted.refused {
            tracing::warn!(driver = name, "a driver is not taken: {why}");
        }
    }
}

impl VolumeManager {
    /// Asks a plugin for its capabilities and its volumes, until it answers.
    pub(crate) fn ask_plugin(
        &self,
        plugin: StoragePlugin,
        after: Duration,
        ctx: &mut Context<Msg>,
    ) {
        let storage = self.peers.storage.clone();
        ctx.run(async move {
            tokio::time::sleep(after).await;
            let asked = async {
                Ok(PluginListing {
                    abilities: storage.abilities(plugin, LIST_TIMEOUT).await?,
                    found: storage.list(plugin, LIST_TIMEOUT).await?,
                })
            };
            VolumeCompletion::Listed(plugin, asked.await).into()
        });
    }

    pub(crate) fn on_listed(
        &mut self,
        plugin: StoragePlugin,
        answer: Result<PluginListing, StorageError>,
        ctx: &mut Context<Msg>,
    ) {
        match answer {
            Ok(listing) => {
                let known = |(kind, abilities): (String, StorageCapabilities)| {
                    Some((VolumeKind::from_name(&kind)?, ability(abilities)))
                };
                let abilities = listing.abilities.into_iter().filter_map(known);
                let own =
                    |(kind, _): &(VolumeKind, KindCapabilities)| StoragePlugin::of(*kind) == plugin;
                self.world.introduce(abilities.filter(own));
                // A kind that the plugin does not serve counts as listed: it has no mounts either.
                let kinds = StateOfWorld::kinds().filter(|kind| StoragePlugin::of(*kind) == plugin);
                metrics::count_found(&listing.found);
                self.world.listed(kinds, listing.found);
            }
            Err(error) => {
                tracing::warn!(plugin = plugin.name(), "cannot be listed: {error}");
                if let Some(worn) = StuckProcess::of(plugin, None, &error) {
                    self.replace(worn, ctx);
                }
                self.ask_plugin(plugin, RETRY_INTERVAL, ctx);
            }
        }
    }

    /// Follows the drivers behind the CSI plugin.
    pub(crate) fn follow(&mut self, after: Duration, ctx: &mut Context<Msg>) {
        self.drivers.begin();
        let (storage, own) = (self.peers.storage.clone(), ctx.addr().clone());
        let plugin = StoragePlugin::Csi;
        ctx.run(async move {
            tokio::time::sleep(after).await;
            if let Ok(mut news) = storage.watch(plugin, WATCH_TIMEOUT).await {
                while let Some(told) = news.next().await {
                    let msg = VolumeCompletion::Driver(Some(told)).into();
                    if own.send(msg, WATCH_TIMEOUT).await.is_err() {
                        break;
                    }
                }
            }
            VolumeCompletion::Driver(None).into()
        });
    }

    pub(crate) fn on_driver_event(&mut self, news: Option<DriverEvent>, ctx: &mut Context<Msg>) {
        let before = self.drivers.names();
        match news {
            Some(DriverEvent::There(backend)) => {
                let (name, endpoint) = (backend.name.clone(), backend.endpoint.clone());
                tracing::info!(driver = name, endpoint, "a driver is there");
                self.drivers.add(backend);
                self.world.retry_driver(&name);
                return self.drivers_changed(ctx);
            }
            Some(DriverEvent::Gone(name)) => {
                tracing::info!(driver = name, "a driver is gone");
                self.drivers.remove(&name);
            }
            Some(DriverEvent::Refused {
                endpoint,
                name,
                why,
            }) => {
                tracing::warn!(driver = name, endpoint, "a driver is refused: {why}");
                self.drivers.refuse(endpoint, why);
            }
            Some(DriverEvent::Synced) => self.drivers.synced(),
            None => self.follow(RETRY_INTERVAL, ctx),
        }
        if before != self.drivers.names() {
            self.drivers_changed(ctx);
        }
    }

    pub(crate) fn drivers_changed(&mut self, ctx: &mut Context<Msg>) {
        self.report_drivers();
        self.schedule_refreshes(ctx);
        self.resolve_all_pods(ctx);
    }

    /// Lists the pods that have folders, from the pods' folder itself.
    pub(crate) fn look_for_folders(&self, ctx: &mut Context<Msg>) {
        let pods = self.peers.rules.node.root_dir.join("pods");
        ctx.run(async move {
            let read = kernel::spawn_blocking(move || {
                let entries = fs::read_dir(pods).into_iter().flatten().flatten();
                let names = entries.take(MAX_FOLDERS);
                let names = names.filter_map(|entry| entry.file_name().into_string().ok());
                names.map(PodUid::from).collect()
            });
            VolumeCompletion::Folders(read.await.unwrap_or_default()).into()
        });
    }
}

fn ability(abilities: StorageCapabilities) -> KindCapabilities {
    KindCapabilities {
        staged: abilities.staged,
        updates: abilities.updates,
        expand: abilities.expand,
    }
}
