//! The storage plugins: what they can do, what they found, and which drivers stand behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use kernel::Context;
use logic::types::PodUid;
use logic::volumes::csi_node::{Admitted, admit};
use logic::volumes::world::{Ability, World};
use logic::volumes::{Backend, Kind};

use super::tasks::Worn;
use super::{Listing, Msg, Volumes, counted};
use crate::storage::{Abilities, BackendNews, Plugin, StorageError};

/// A plugin looks through the pods' folders for it.
const LIST_WITHIN: Duration = Duration::from_secs(30);
const WATCH_WITHIN: Duration = Duration::from_secs(10);
/// Between attempts.
const AGAIN: Duration = Duration::from_secs(1);
/// More folders of pods than this are not looked at at once; the next start sees the rest.
const MOST_FOLDERS: usize = 10_000;
/// More drivers than this are not meant for one node, nor more sockets that are none.
const MOST_DRIVERS: usize = 256;

/// The drivers that registered.
#[derive(Debug, Default)]
pub(super) struct Drivers {
    all: BTreeMap<String, Backend>,
    admitted: Admitted,
    /// Sockets of drivers that were refused, and why.
    refused: BTreeMap<String, String>,
    /// Who was told of since the stream of news began; none when all have been.
    told: Option<BTreeSet<String>>,
    /// As the API server has them; empty where there is none.
    node_labels: BTreeMap<String, String>,
}

impl Drivers {
    pub(super) fn names(&self) -> Vec<String> {
        self.admitted.backends.keys().cloned().collect()
    }

    pub(super) fn admitted(&self) -> &BTreeMap<String, Backend> {
        &self.admitted.backends
    }

    /// Labels of the node from their topology.
    pub(super) fn labels(&self) -> &BTreeMap<String, String> {
        &self.admitted.labels
    }

    /// The node's labels are these: whether other drivers are taken now.
    pub(super) fn look_at(&mut self, node_labels: BTreeMap<String, String>) -> bool {
        let changed = self.node_labels != node_labels;
        self.node_labels = node_labels;
        if changed {
            self.judge();
        }
        changed
    }

    pub(super) fn refused(&self) -> Vec<String> {
        let refused = self.refused.iter().chain(&self.admitted.refused);
        refused.map(|(who, why)| format!("{who}: {why}")).collect()
    }

    /// A stream of news begins, with everything that there is.
    fn begin(&mut self) {
        self.told = Some(BTreeSet::new());
    }

    fn come(&mut self, backend: Backend) {
        if let Some(told) = &mut self.told {
            told.insert(backend.name.clone());
        }
        self.refused.remove(&backend.endpoint);
        let room = self.all.len() < MOST_DRIVERS || self.all.contains_key(&backend.name);
        if room {
            self.all.insert(backend.name.clone(), backend);
        }
        self.judge();
    }

    fn go(&mut self, name: &str) {
        self.all.remove(name);
        self.judge();
    }

    fn refuse(&mut self, endpoint: String, why: String) {
        if self.refused.len() < MOST_DRIVERS || self.refused.contains_key(&endpoint) {
            self.refused.insert(endpoint, why);
        }
    }

    /// Whoever was not told of is gone.
    fn synced(&mut self) {
        if let Some(told) = self.told.take() {
            self.all.retain(|name, _| told.contains(name));
            self.judge();
        }
    }

    fn judge(&mut self) {
        self.admitted = admit(&self.all, &self.node_labels);
        for (name, why) in &self.admitted.refused {
            tracing::warn!(driver = name, "a driver is not taken: {why}");
        }
    }
}

impl Volumes {
    /// Asks a plugin what it can do and what it found, until it answers.
    pub(super) fn ask_plugin(&self, plugin: Plugin, after: Duration, ctx: &mut Context<Msg>) {
        let storage = self.peers.storage.clone();
        ctx.run(async move {
            tokio::time::sleep(after).await;
            let asked = async {
                Ok(Listing {
                    abilities: storage.abilities(plugin, LIST_WITHIN).await?,
                    found: storage.list(plugin, LIST_WITHIN).await?,
                })
            };
            Msg::Listed(plugin, Box::new(asked.await))
        });
    }

    pub(super) fn listed(
        &mut self,
        plugin: Plugin,
        answer: Result<Listing, StorageError>,
        ctx: &mut Context<Msg>,
    ) {
        match answer {
            Ok(listing) => {
                let known = |(kind, abilities): (String, Abilities)| {
                    Some((Kind::from_name(&kind)?, ability(abilities)))
                };
                let abilities = listing.abilities.into_iter().filter_map(known);
                let own = |(kind, _): &(Kind, Ability)| Plugin::of(*kind) == plugin;
                self.world.introduce(abilities.filter(own));
                // A kind that it does not serve is not mounted either.
                let kinds = World::kinds().filter(|kind| Plugin::of(*kind) == plugin);
                counted::count_found(&listing.found);
                self.world.listed(kinds, listing.found);
            }
            Err(error) => {
                tracing::warn!(plugin = plugin.name(), "cannot be listed: {error}");
                if let Some(worn) = Worn::of(plugin, None, &error) {
                    self.replace(worn, ctx);
                }
                self.ask_plugin(plugin, AGAIN, ctx);
            }
        }
    }

    /// Follows the drivers behind the CSI plugin.
    pub(super) fn follow(&mut self, after: Duration, ctx: &mut Context<Msg>) {
        self.drivers.begin();
        let (storage, own) = (self.peers.storage.clone(), ctx.addr().clone());
        let plugin = Plugin::Csi;
        ctx.run(async move {
            tokio::time::sleep(after).await;
            if let Ok(mut news) = storage.watch(plugin, WATCH_WITHIN).await {
                while let Some(told) = news.next().await {
                    let msg = Msg::Backends(plugin, Some(told));
                    if own.send(msg, WATCH_WITHIN).await.is_err() {
                        break;
                    }
                }
            }
            Msg::Backends(plugin, None)
        });
    }

    pub(super) fn backend_news(&mut self, news: Option<BackendNews>, ctx: &mut Context<Msg>) {
        let before = self.drivers.names();
        match news {
            Some(BackendNews::There(backend)) => {
                let (name, endpoint) = (backend.name.clone(), backend.endpoint.clone());
                tracing::info!(driver = name, endpoint, "a driver is there");
                self.drivers.come(backend);
                self.world.encourage(&name);
                return self.drivers_changed(ctx);
            }
            Some(BackendNews::Gone(name)) => {
                tracing::info!(driver = name, "a driver is gone");
                self.drivers.go(&name);
            }
            Some(BackendNews::Refused {
                endpoint,
                name,
                why,
            }) => {
                tracing::warn!(driver = name, endpoint, "a driver is refused: {why}");
                self.drivers.refuse(endpoint, why);
            }
            Some(BackendNews::Synced) => self.drivers.synced(),
            None => self.follow(AGAIN, ctx),
        }
        if before != self.drivers.names() {
            self.drivers_changed(ctx);
        }
    }

    pub(super) fn drivers_changed(&mut self, ctx: &mut Context<Msg>) {
        self.tell_drivers();
        self.time_inquiries(ctx);
        self.resolve_everybody(ctx);
    }

    /// Which pods have folders: read from the folder of pods itself, which is no volume.
    pub(super) fn look_for_folders(&self, ctx: &mut Context<Msg>) {
        let pods = self.peers.rules.node.root_dir.join("pods");
        ctx.run(async move {
            let read = tokio::task::spawn_blocking(move || {
                let entries = fs::read_dir(pods).into_iter().flatten().flatten();
                let names = entries.take(MOST_FOLDERS);
                let names = names.filter_map(|entry| entry.file_name().into_string().ok());
                names.map(PodUid::from).collect()
            });
            Msg::Folders(read.await.unwrap_or_default())
        });
    }
}

fn ability(abilities: Abilities) -> Ability {
    Ability {
        staged: abilities.staged,
        updates: abilities.updates,
        expand: abilities.expand,
    }
}
