//! Carries out operations on volumes through the storage plugins; beside it is what else these are asked for.

pub(crate) mod batches;
pub(crate) mod csi_limits;
pub(crate) mod drivers;
mod measured_at_once;
pub(crate) mod measurements;
mod subpaths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clients::storage::{
    self, MountPod, MountSpec, RefusalClass, Storage, StorageError, StoragePlugin,
};
use kernel::Context;
use logic_api::pod::PodView;
use logic_volumes::reconciler::{
    FailureEffect, MountPoint, OperationResult, StateOfWorld, UnstageOperation, VolumeOperation,
};
use logic_volumes::resolve::event_reasons;
use logic_volumes::{Relabel, VolumeId, VolumeKind, VolumeMode, paths};
use state::events::{EventType, InvolvedObject};

use super::{Msg, VolumeCompletion, VolumeManager, metrics};

/// The result of an operation.
#[derive(Debug)]
pub struct FinishedOperation {
    task: VolumeOperation,
    ending: OperationResult,
    /// Problems to report although the operation succeeded.
    warnings: Vec<String>,
}

/// What carrying out an operation needs.
struct OperationExecutor {
    storage: Storage,
    root: PathBuf,
    pod: MountPod,
}

impl VolumeManager {
    pub(super) fn begin(&self, task: VolumeOperation, ctx: &mut Context<Msg>) {
        self.reporter
            .resize_begins(self.peers.cluster.as_ref(), &task);
        let sync_request = OperationExecutor {
            storage: self.peers.storage.clone(),
            root: self.peers.rules.node.root_dir.clone(),
            pod: self.pod_of(&task),
        };
        ctx.run(async move {
            let within = task.within();
            let mut warnings = Vec::new();
            let began = kernel::now();
            let ending = match sync_request.carry_out(&task, within, &mut warnings).await {
                Ok(ending) => ending,
                Err(error) => failed(error),
            };
            metrics::count(&task, &ending, began);
            let finished = FinishedOperation {
                task,
                ending,
                warnings,
            };
            VolumeCompletion::OperationFinished(finished).into()
        });
    }

    fn pod_of(&self, task: &VolumeOperation) -> MountPod {
        let VolumeOperation::Mount { place, .. } = task else {
            return MountPod::default();
        };
        let Some(wanting) = self.pods.get(&place.uid) else {
            return MountPod {
                uid: place.uid.clone(),
                ..MountPod::default()
            };
        };
        let spec = wanting.pod.spec();
        let account = spec.and_then(|spec| spec.service_account_name.clone());
        MountPod {
            uid: place.uid.clone(),
            namespace: wanting.pod.namespace().to_owned(),
            name: wanting.pod.name().to_owned(),
            service_account: account.unwrap_or_default(),
        }
    }

    pub(super) fn on_operation_finished(
        &mut self,
        ended: FinishedOperation,
        ctx: &mut Context<Msg>,
    ) {
        let FinishedOperation {
            task,
            ending,
            warnings,
        } = ended;
        if let OperationResult::Stuck {
            generation,
            message,
        } = &ending
        {
            let stuck = StuckProcess {
                plugin: plugin_of(&task),
                generation: *generation,
                volume: task.volume().cloned(),
                message: message.clone(),
            };
            self.replace(stuck, ctx);
        }
        if let (VolumeOperation::Mount { place, .. }, OperationResult::Mounted { .. }) =
            (&task, &ending)
        {
            self.report_mount(place, warnings, ctx);
        }
        if let (VolumeOperation::Unmount { place, .. }, OperationResult::Done) = (&task, &ending) {
            self.measures.forget(place);
        }
        let cluster = self.peers.cluster.as_ref();
        self.reporter.resize_ended(cluster, &task, &ending);
        self.world.finish(&task, ending, ctx.now());
    }

    /// As upstream, records an event for a mapped raw volume, and for any other only its warnings.
    fn report_mount(&self, place: &MountPoint, warnings: Vec<String>, ctx: &Context<Msg>) {
        for warning in warnings {
            let reason = reason_of(&warning);
            self.record_event(&place.uid, EventType::Warning, (reason, warning), ctx);
        }
        if place.mode == VolumeMode::Block {
            for text in mapped(&self.peers.rules.node.root_dir, place) {
                self.record_event(
                    &place.uid,
                    EventType::Normal,
                    (event_reasons::MOUNTED, text),
                    ctx,
                );
            }
        }
    }

    /// Has the host replace a process with a stuck thread.
    pub(super) fn replace(&mut self, worn: StuckProcess, ctx: &mut Context<Msg>) {
        let StuckProcess {
            plugin,
            generation,
            volume,
            message,
        } = worn;
        let node = InvolvedObject::node(&self.peers.rules.node.node_name);
        let text = format!("{message}; plugin {} is replaced", plugin.name());
        let recorder = &self.peers.recorder;
        recorder.record(
            ctx.timestamp(),
            EventType::Warning,
            node,
            event_reasons::VOLUME_STUCK,
            text,
        );
        if let Some(host) = self.peers.hosts.get(plugin.name())
            && let Err(full) = host.tell(plugin_host::Msg::Replace { generation })
        {
            tracing::warn!(plugin = plugin.name(), "the worn process stays: {full}");
        }
        let key = (plugin, generation);
        if !self.stuck_processes.contains_key(&key) {
            let line = self.peers.storage.line(plugin).clone();
            ctx.run(async move {
                line.ended(generation).await;
                VolumeCompletion::ProcessReplaced(plugin, generation).into()
            });
        }
        self.stuck_processes
            .entry(key)
            .or_default()
            .insert(volume, message);
        self.report_stuck();
    }

    /// The stuck volumes with their errors: over an operation, or over work within the volume.
    pub(super) fn stuck(&self) -> Vec<String> {
        let over = self.stuck_processes.values().flatten();
        let over = over.map(|(volume, message)| match volume {
            Some(id) => format!("{id}: {message}"),
            None => message.clone(),
        });
        let stuck: BTreeSet<String> = self.world.stuck().into_iter().chain(over).collect();
        stuck.into_iter().collect()
    }

    pub(super) fn on_process_replaced(&mut self, plugin: StoragePlugin, generation: u64) {
        self.stuck_processes.remove(&(plugin, generation));
        let storage = &self.peers.storage;
        self.world.process_gone(|kind, generation| {
            !storage.line(StoragePlugin::of(kind)).exists(generation)
        });
        self.report_stuck();
    }
}

/// A plugin's process that abandoned a thread.
#[derive(Debug)]
pub struct StuckProcess {
    plugin: StoragePlugin,
    generation: u64,
    /// The volume that the thread is stuck over; none if it is no single one.
    volume: Option<VolumeId>,
    message: String,
}

/// The volumes that a process is stuck over, each with the message.
pub(super) type StuckVolumes = BTreeMap<Option<VolumeId>, String>;

/// Whether an operation on the volume takes too long, or a process that is being replaced is stuck over it.
fn hangs(
    world: &StateOfWorld,
    stuck: &BTreeMap<(StoragePlugin, u64), StuckVolumes>,
    id: &VolumeId,
) -> bool {
    let mut over = stuck.values().flat_map(StuckVolumes::keys).flatten();
    world.hangs(id) || over.any(|held| held == id)
}

impl StuckProcess {
    pub(super) fn of(
        plugin: StoragePlugin,
        volume: Option<&VolumeId>,
        error: &StorageError,
    ) -> Option<Self> {
        match error {
            StorageError::Stuck {
                generation,
                message,
            } => Some(StuckProcess {
                plugin,
                generation: *generation,
                volume: volume.cloned(),
                message: message.clone(),
            }),
            StorageError::Refused { .. } | StorageError::Unanswered { .. } => None,
        }
    }
}

/// Upstream's two messages about a mapped raw volume, with its paths.
fn mapped(root: &Path, place: &MountPoint) -> [String; 2] {
    let plugins = root.join("plugins");
    let global = if place.kind == VolumeKind::Csi {
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

/// Upstream's event reason for a warning about a mounted volume.
fn reason_of(warning: &str) -> &'static str {
    match warning {
        text if text.starts_with("The requested fsGroup") => event_reasons::ALREADY_MOUNTED,
        text if text.starts_with("Setting volume ownership") => "VolumePermissionChangeInProgress",
        _ => "VolumeWarning",
    }
}

fn plugin_of(task: &VolumeOperation) -> StoragePlugin {
    match task {
        VolumeOperation::Stage { volume } => StoragePlugin::of(volume.kind),
        VolumeOperation::Unstage(staged) => StoragePlugin::of(staged.kind),
        VolumeOperation::Mount { place, .. }
        | VolumeOperation::Unmount { place, .. }
        | VolumeOperation::Expand { place, .. } => StoragePlugin::of(place.kind),
        VolumeOperation::Remove { .. } => StoragePlugin::Local,
    }
}

fn failed(error: StorageError) -> OperationResult {
    match error {
        StorageError::Stuck {
            generation,
            message,
        } => OperationResult::Stuck {
            generation,
            message,
        },
        StorageError::Refused { class, message } => OperationResult::Failed {
            message,
            trace: match class {
                RefusalClass::Invalid | RefusalClass::Unimplemented => FailureEffect::Refusal,
                RefusalClass::Missing => FailureEffect::Nothing,
                RefusalClass::Late | RefusalClass::Failed => FailureEffect::Something,
            },
        },
        error @ StorageError::Unanswered { .. } => OperationResult::Failed {
            message: error.to_string(),
            trace: FailureEffect::Something,
        },
    }
}

impl OperationExecutor {
    async fn carry_out(
        &self,
        task: &VolumeOperation,
        within: Duration,
        warnings: &mut Vec<String>,
    ) -> Result<OperationResult, StorageError> {
        match task {
            VolumeOperation::Stage { volume } => {
                self.storage.stage(volume, within).await?;
            }
            VolumeOperation::Unstage(staged) => {
                self.storage.unstage(&as_staged(staged), within).await?
            }
            VolumeOperation::Mount { place, volume } => {
                let spec = MountSpec {
                    volume: (**volume).clone(),
                    pod: self.pod.clone(),
                    target: self.target(place),
                };
                return self.mount(place.mode, &spec, within, warnings).await;
            }
            VolumeOperation::Unmount { place, id } => self.unmount(place, id, within).await?,
            VolumeOperation::Expand {
                volume, path, size, ..
            } => {
                let growth = storage::ExpandSpec {
                    volume: (**volume).clone(),
                    path: Some(path.clone()),
                    size: *size,
                };
                let expanded = self.storage.expand(&growth, within).await;
                if let Err(StorageError::Refused {
                    class: RefusalClass::Missing,
                    message,
                }) = &expanded
                {
                    // As upstream: the log and the claim tell; the pod has no event.
                    tracing::warn!(volume = %volume.id, "NodeExpandVolume failed: {message}");
                }
                expanded?;
            }
            VolumeOperation::Remove { uid } => {
                let folder = paths::pod(&self.root, uid);
                let kept = self.storage.remove_pod(&folder, within).await?;
                if !kept.is_empty() {
                    return Ok(OperationResult::Failed {
                        message: kept.join("; "),
                        trace: FailureEffect::Something,
                    });
                }
            }
        }
        Ok(OperationResult::Done)
    }

    async fn mount(
        &self,
        mode: VolumeMode,
        wish: &MountSpec,
        within: Duration,
        warnings: &mut Vec<String>,
    ) -> Result<OperationResult, StorageError> {
        match mode {
            VolumeMode::FileSystem => {
                let answer = self.storage.mount(wish, within).await?;
                warnings.extend(answer.warnings);
                Ok(OperationResult::Mounted {
                    path: answer.path,
                    relabel: answer.relabel,
                })
            }
            VolumeMode::Block => Ok(OperationResult::Mounted {
                path: self.storage.map_block(wish, within).await?,
                relabel: Relabel::No,
            }),
        }
    }

    /// Subpaths are unbound before their volume is unmounted.
    async fn unmount(
        &self,
        place: &MountPoint,
        id: &VolumeId,
        within: Duration,
    ) -> Result<(), StorageError> {
        let folder = paths::subpaths(&self.root, &place.uid);
        let storage = &self.storage;
        storage
            .release_subpaths(&place.uid, None, &folder, within)
            .await?;
        let at = storage::UnmountTarget {
            plugin: StoragePlugin::of(place.kind),
            id: id.clone(),
            kind: place.kind.as_str().to_owned(),
            folder: place.folder.clone(),
            uid: place.uid.clone(),
            target: self.target(place),
        };
        match place.mode {
            VolumeMode::FileSystem => storage.unmount(&at, within).await,
            VolumeMode::Block => storage.unmap_block(&at, within).await,
        }
    }

    fn target(&self, place: &MountPoint) -> PathBuf {
        paths::target(
            &self.root,
            &place.uid,
            place.kind,
            &place.folder,
            place.mode,
        )
    }
}

fn as_staged(staged: &UnstageOperation) -> storage::StagedVolume {
    storage::StagedVolume {
        plugin: StoragePlugin::of(staged.kind),
        id: staged.id.clone(),
        kind: staged.kind.as_str().to_owned(),
        path: staged.path.clone(),
        mode: staged.mode,
        volume: staged.volume.as_ref().map(|volume| (**volume).clone()),
    }
}
