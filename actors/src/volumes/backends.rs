//! The storage plugins: what they can do, what they found, and which drivers stand behind them.

use std::fs;
use std::time::Duration;

use kernel::Context;
use logic::types::PodUid;
use logic::volumes::Kind;
use logic::volumes::world::Ability;

use super::{Listing, Msg, Volumes};
use crate::storage::{Abilities, BackendNews, Plugin, StorageError};

/// A plugin looks through the pods' folders for it.
const LIST_WITHIN: Duration = Duration::from_secs(30);
const WATCH_WITHIN: Duration = Duration::from_secs(10);
/// Between attempts.
const AGAIN: Duration = Duration::from_secs(1);
/// More folders of pods than this are not looked at at once; the next start sees the rest.
const MOST_FOLDERS: usize = 10_000;

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
                let abilities: Vec<(Kind, Ability)> =
                    listing.abilities.into_iter().filter_map(known).collect();
                let kinds: Vec<Kind> = abilities.iter().map(|(kind, _)| *kind).collect();
                self.world.introduce(abilities);
                self.world.listed(kinds, listing.found);
            }
            Err(error) => {
                tracing::warn!(plugin = plugin.name(), "cannot be listed: {error}");
                if let StorageError::Stuck { generation, .. } = error
                    && let Some(host) = self.peers.hosts.get(plugin.name())
                {
                    let worn = kernel::plugin::Msg::Replace { generation };
                    drop(host.tell(worn));
                }
                self.ask_plugin(plugin, AGAIN, ctx);
            }
        }
    }

    /// Follows the drivers behind the CSI plugin.
    pub(super) fn follow(&self, after: Duration, ctx: &mut Context<Msg>) {
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

    pub(super) fn backend_news(
        &mut self,
        _plugin: Plugin,
        news: Option<BackendNews>,
        ctx: &mut Context<Msg>,
    ) {
        match news {
            Some(BackendNews::There(backend)) => {
                let name = backend.name.clone();
                tracing::info!(
                    driver = name,
                    endpoint = backend.endpoint,
                    "a driver is there"
                );
                self.refused.remove(&backend.endpoint);
                self.backends.insert(name.clone(), backend);
                self.world.encourage(&name);
                self.resolve_all(ctx);
            }
            Some(BackendNews::Gone(name)) => {
                tracing::info!(driver = name, "a driver is gone");
                self.backends.remove(&name);
                self.resolve_all(ctx);
            }
            Some(BackendNews::Refused {
                endpoint,
                name,
                why,
            }) => {
                tracing::warn!(driver = name, endpoint, "a driver is refused: {why}");
                self.refused.insert(endpoint, why);
            }
            Some(BackendNews::Synced) => {}
            None => self.follow(AGAIN, ctx),
        }
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
