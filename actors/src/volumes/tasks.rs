//! Operations on volumes, carried out by the storage plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kernel::Context;
use kernel::plugin as host;
use logic::pod::PodView;
use logic::volumes::resolve::words;
use logic::volumes::world::{Ending, Place, Task, Trace, Unstage};
use logic::volumes::{Kind, Mode, Relabel, VolumeId, paths};

use super::{Msg, Volumes, counted};
use crate::storage::{self, Class, MountWish, Plugin, PodRef, Storage, StorageError};
use cluster::events::{Object, Type};

/// What came of an operation.
#[derive(Debug)]
pub struct Ended {
    task: Task,
    ending: Ending,
    /// What a person should know although it worked.
    warnings: Vec<String>,
}

/// Everything that carrying out a task needs.
struct Errand {
    storage: Storage,
    root: PathBuf,
    pod: PodRef,
}

impl Volumes {
    pub(super) fn begin(&self, task: Task, ctx: &mut Context<Msg>) {
        self.growth_begins(&task);
        let errand = Errand {
            storage: self.peers.storage.clone(),
            root: self.peers.rules.node.root_dir.clone(),
            pod: self.pod_of(&task),
        };
        ctx.run(async move {
            let within = task.within();
            let mut warnings = Vec::new();
            let began = kernel::now();
            let ending = match errand.carry_out(&task, within, &mut warnings).await {
                Ok(ending) => ending,
                Err(error) => failed(error),
            };
            counted::count(&task, &ending, began);
            Msg::Ended(Box::new(Ended {
                task,
                ending,
                warnings,
            }))
        });
    }

    fn pod_of(&self, task: &Task) -> PodRef {
        let Task::Mount { place, .. } = task else {
            return PodRef::default();
        };
        let Some(wanting) = self.pods.get(&place.uid) else {
            return PodRef {
                uid: place.uid.clone(),
                ..PodRef::default()
            };
        };
        let spec = wanting.pod.spec();
        let account = spec.and_then(|spec| spec.service_account_name.clone());
        PodRef {
            uid: place.uid.clone(),
            namespace: wanting.pod.namespace().to_owned(),
            name: wanting.pod.name().to_owned(),
            service_account: account.unwrap_or_default(),
        }
    }

    pub(super) fn ended(&mut self, ended: Ended, ctx: &mut Context<Msg>) {
        let Ended {
            task,
            ending,
            warnings,
        } = ended;
        if let Ending::Stuck {
            generation,
            message,
        } = &ending
        {
            let worn = Worn {
                plugin: plugin_of(&task),
                generation: *generation,
                volume: task.volume().cloned(),
                message: message.clone(),
            };
            self.replace(worn, ctx);
        }
        if let (Task::Mount { place, .. }, Ending::Mounted { .. }) = (&task, &ending) {
            self.tell_of_mount(place, warnings, ctx);
        }
        if let (Task::Unmount { place, .. }, Ending::Done) = (&task, &ending) {
            self.measures.forget(place);
        }
        self.growth_ended(&task, &ending);
        self.world.ended(&task, ending, ctx.now());
    }

    /// Upstream tells of a raw volume that is mapped, and of any other only what is odd about it.
    fn tell_of_mount(&self, place: &Place, warnings: Vec<String>, ctx: &Context<Msg>) {
        for warning in warnings {
            let reason = reason_of(&warning);
            self.tell_pod(&place.uid, Type::Warning, (reason, warning), ctx);
        }
        if place.mode == Mode::Block {
            for text in mapped(&self.peers.rules.node.root_dir, place) {
                self.tell_pod(&place.uid, Type::Normal, (words::MOUNTED, text), ctx);
            }
        }
    }

    /// A process with a stuck thread is worn: another one takes its place.
    pub(super) fn replace(&mut self, worn: Worn, ctx: &mut Context<Msg>) {
        let Worn {
            plugin,
            generation,
            volume,
            message,
        } = worn;
        let node = Object::node(&self.peers.rules.node.node_name);
        let text = format!("{message}; plugin {} is replaced", plugin.name());
        let recorder = &self.peers.recorder;
        recorder.record(
            super::timestamp(ctx),
            Type::Warning,
            node,
            "VolumeStuck",
            text,
        );
        if let Some(host) = self.peers.hosts.get(plugin.name())
            && let Err(full) = host.tell(host::Msg::Replace { generation })
        {
            tracing::warn!(plugin = plugin.name(), "the worn process stays: {full}");
        }
        let key = (plugin, generation);
        if !self.worn.contains_key(&key) {
            let line = self.peers.storage.line(plugin).clone();
            ctx.run(async move {
                line.ended(generation).await;
                Msg::Buried(plugin, generation)
            });
        }
        self.worn.entry(key).or_default().insert(volume, message);
        self.tell_stuck();
    }

    /// What hangs, each with its name: over an operation, or over work within a volume.
    pub(super) fn stuck(&self) -> Vec<String> {
        let over = self.worn.values().flatten();
        let over = over.map(|(volume, message)| match volume {
            Some(id) => format!("{id}: {message}"),
            None => message.clone(),
        });
        let stuck: BTreeSet<String> = self.world.stuck().into_iter().chain(over).collect();
        stuck.into_iter().collect()
    }

    pub(super) fn buried(&mut self, plugin: Plugin, generation: u64) {
        self.worn.remove(&(plugin, generation));
        let storage = &self.peers.storage;
        self.world
            .buried(|kind, generation| !storage.line(Plugin::of(kind)).exists(generation));
        self.tell_stuck();
    }
}

/// A plugin's process that gave up a thread.
#[derive(Debug)]
pub struct Worn {
    plugin: Plugin,
    generation: u64,
    /// Over which volume; none where it is over no single one.
    volume: Option<VolumeId>,
    message: String,
}

/// What a process hangs over, and the message of each.
pub(super) type Over = BTreeMap<Option<VolumeId>, String>;

impl Worn {
    pub(super) fn of(
        plugin: Plugin,
        volume: Option<&VolumeId>,
        error: &StorageError,
    ) -> Option<Self> {
        match error {
            StorageError::Stuck {
                generation,
                message,
            } => Some(Worn {
                plugin,
                generation: *generation,
                volume: volume.cloned(),
                message: message.clone(),
            }),
            StorageError::Refused { .. } | StorageError::Unanswered { .. } => None,
        }
    }
}

/// Upstream's two messages of a raw volume that is mapped, with its folders of it.
fn mapped(root: &Path, place: &Place) -> [String; 2] {
    let plugins = root.join("plugins");
    let global = if place.kind == Kind::Csi {
        let devices = plugins.join("kubernetes.io/csi/volumeDevices");
        devices.join(&place.folder).join("dev")
    } else {
        let devices = plugins.join(paths::escaped(place.kind));
        devices.join("volumeDevices").join(&place.folder)
    };
    let own = paths::pod(root, &place.uid)
        .join("volumeDevices")
        .join(paths::escaped(place.kind));
    [("globalMapPath", global), ("volumeMapPath", own)].map(|(word, path)| {
        let (volume, path) = (&place.folder, path.display().to_string());
        format!("MapVolume.MapPodDevice succeeded for volume {volume:?} {word} {path:?}")
    })
}

/// Upstream's reasons for what is odd about a volume that is mounted nevertheless.
fn reason_of(warning: &str) -> &'static str {
    match warning {
        text if text.starts_with("The requested fsGroup") => words::ALREADY_MOUNTED,
        text if text.starts_with("Setting volume ownership") => "VolumePermissionChangeInProgress",
        _ => "VolumeWarning",
    }
}

fn plugin_of(task: &Task) -> Plugin {
    match task {
        Task::Stage { volume } => Plugin::of(volume.kind),
        Task::Unstage(staged) => Plugin::of(staged.kind),
        Task::Mount { place, .. } | Task::Unmount { place, .. } | Task::Grow { place, .. } => {
            Plugin::of(place.kind)
        }
        Task::Remove { .. } => Plugin::Local,
    }
}

fn failed(error: StorageError) -> Ending {
    match error {
        StorageError::Stuck {
            generation,
            message,
        } => Ending::Stuck {
            generation,
            message,
        },
        StorageError::Refused { class, message } => Ending::Failed {
            message,
            trace: match class {
                Class::Invalid | Class::Unimplemented => Trace::Refusal,
                Class::Missing => Trace::Nothing,
                Class::Late | Class::Failed => Trace::Something,
            },
        },
        error @ StorageError::Unanswered { .. } => Ending::Failed {
            message: error.to_string(),
            trace: Trace::Something,
        },
    }
}

impl Errand {
    async fn carry_out(
        &self,
        task: &Task,
        within: Duration,
        warnings: &mut Vec<String>,
    ) -> Result<Ending, StorageError> {
        match task {
            Task::Stage { volume } => {
                self.storage.stage(volume, within).await?;
            }
            Task::Unstage(staged) => self.storage.unstage(&as_staged(staged), within).await?,
            Task::Mount { place, volume } => {
                let wish = MountWish {
                    volume: (**volume).clone(),
                    pod: self.pod.clone(),
                    target: self.target(place),
                };
                return self.mount(place.mode, &wish, within, warnings).await;
            }
            Task::Unmount { place, id } => self.unmount(place, id, within).await?,
            Task::Grow {
                volume, path, size, ..
            } => {
                let growth = storage::Growth {
                    volume: (**volume).clone(),
                    path: Some(path.clone()),
                    size: *size,
                };
                self.storage.expand(&growth, within).await?;
            }
            Task::Remove { uid } => {
                let folder = paths::pod(&self.root, uid);
                let kept = self.storage.remove_pod(&folder, within).await?;
                if !kept.is_empty() {
                    return Ok(Ending::Failed {
                        message: kept.join("; "),
                        trace: Trace::Something,
                    });
                }
            }
        }
        Ok(Ending::Done)
    }

    async fn mount(
        &self,
        mode: Mode,
        wish: &MountWish,
        within: Duration,
        warnings: &mut Vec<String>,
    ) -> Result<Ending, StorageError> {
        match mode {
            Mode::FileSystem => {
                let answer = self.storage.mount(wish, within).await?;
                warnings.extend(answer.warnings);
                Ok(Ending::Mounted {
                    path: answer.path,
                    relabel: answer.relabel,
                })
            }
            Mode::Block => Ok(Ending::Mounted {
                path: self.storage.map_block(wish, within).await?,
                relabel: Relabel::No,
            }),
        }
    }

    /// What is bound from within a volume goes before the volume.
    async fn unmount(
        &self,
        place: &Place,
        id: &VolumeId,
        within: Duration,
    ) -> Result<(), StorageError> {
        let folder = paths::subpaths(&self.root, &place.uid);
        let storage = &self.storage;
        storage
            .release_subpaths(&place.uid, None, &folder, within)
            .await?;
        let at = storage::Place {
            plugin: Plugin::of(place.kind),
            id: id.clone(),
            kind: place.kind.as_str().to_owned(),
            folder: place.folder.clone(),
            uid: place.uid.clone(),
            target: self.target(place),
        };
        match place.mode {
            Mode::FileSystem => storage.unmount(&at, within).await,
            Mode::Block => storage.unmap_block(&at, within).await,
        }
    }

    fn target(&self, place: &Place) -> PathBuf {
        paths::target(
            &self.root,
            &place.uid,
            place.kind,
            &place.folder,
            place.mode,
        )
    }
}

fn as_staged(staged: &Unstage) -> storage::Staged {
    storage::Staged {
        plugin: Plugin::of(staged.kind),
        id: staged.id.clone(),
        kind: staged.kind.as_str().to_owned(),
        path: staged.path.clone(),
        mode: staged.mode,
        volume: staged.volume.as_ref().map(|volume| (**volume).clone()),
    }
}
