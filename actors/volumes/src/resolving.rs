//! Resolves pods' volumes with the current objects and drivers.
//!
//! A pod is resolved when its worker requests it, when an object changes that a volume is made from, when a driver
//! comes or goes, when another pod releases a volume that only one may have, for a token's renewal, and each period.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Volume};
use kernel::{Context, TimerId};
use logic_api::objects::StaticObjects;
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_volumes::object_changes::is_changed;
use logic_volumes::reconciler::{DesiredVolume, ResolveTrigger};
use logic_volumes::resolve::expansion::{Expansion, NodeResize, expansion};
use logic_volumes::resolve::{self, ResolveContext, event_reasons};
use logic_volumes::{Dependency, ResolvedVolume, UnresolvedVolume, VolumeId};
use state::events::EventType;

use super::{Msg, VolumeCompletion, VolumeManager, VolumeTimer};

/// Pods that are resolved before other messages are handled: a few milliseconds.
const MAX_RESOLVED_AT_ONCE: usize = 64;
/// A token that has expired already is not renewed more often than this.
const MIN_RESYNC_DELAY: Duration = Duration::from_secs(10);

/// The dependencies of one pod's volumes, and when they are resolved again.
#[derive(Debug, Default)]
pub(super) struct ResolveState {
    uses: BTreeSet<Dependency>,
    again: Option<TimerId>,
    /// Volumes for which an event said that they are not expanded for a reader.
    readers: BTreeSet<String>,
    /// Drivers without room on the node for volumes of this pod.
    full: BTreeSet<String>,
}

impl ResolveState {
    pub(super) fn is_full(&self) -> bool {
        !self.full.is_empty()
    }

    pub(super) fn end(self, ctx: &mut Context<Msg>) {
        if let Some(timer) = self.again {
            ctx.cancel(timer);
        }
    }
}

/// The desired volumes of a pod, and their dependencies.
struct PodDesiredVolumes {
    by_name: BTreeMap<String, Result<DesiredVolume, UnresolvedVolume>>,
    uses: BTreeSet<Dependency>,
    refresh_at: Option<Timestamp>,
    readers: BTreeMap<String, String>,
    growths: Vec<(VolumeId, Volume, NodeResize)>,
    full: BTreeSet<String>,
}

/// The pods whose volumes are resolved again, and the objects with which they were last.
#[derive(Debug)]
pub(super) struct ResolveQueue {
    pub(super) objects: Arc<StaticObjects>,
    stale: BTreeSet<PodUid>,
}

impl ResolveQueue {
    pub(super) fn new(objects: Arc<StaticObjects>) -> Self {
        ResolveQueue {
            objects,
            stale: BTreeSet::new(),
        }
    }

    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.stale.remove(uid);
    }
}

impl VolumeManager {
    pub(super) fn await_objects(&mut self, ctx: &mut Context<Msg>) {
        let mut changes = self.peers.objects.changes();
        ctx.run(async move {
            changes.next().await;
            VolumeCompletion::ObjectsChanged.into()
        });
        self.check_objects(ctx);
    }

    /// Queues the pods whose volumes are made from a changed object.
    fn check_objects(&mut self, ctx: &mut Context<Msg>) {
        let now = self.peers.objects.snapshot();
        if Arc::ptr_eq(&now, &self.resolving.objects) {
            return;
        }
        let before = std::mem::replace(&mut self.resolving.objects, now.clone());
        self.schedule_refreshes(ctx);
        let touched = self.pods.iter().filter(|(_, wanting)| {
            let mut uses = wanting.resolving.uses.iter();
            uses.any(|uses| is_changed(uses, &before, &now))
        });
        let touched: Vec<PodUid> = touched.map(|(uid, _)| uid.clone()).collect();
        self.resolving.stale.extend(touched);
        self.resolve_soon(ctx);
    }

    pub(super) fn resolve_all_pods(&mut self, ctx: &mut Context<Msg>) {
        self.resolving.stale.extend(self.pods.keys().cloned());
        self.resolve_soon(ctx);
    }

    fn resolve_soon(&self, ctx: &mut Context<Msg>) {
        if !self.resolving.stale.is_empty() {
            ctx.run(async { Msg::Due(VolumeTimer::Resolve) });
        }
    }

    /// Resolves some of the queued pods; other messages of this actor come in between.
    pub(super) fn resolve_some(&mut self, ctx: &mut Context<Msg>) {
        let some: Vec<PodUid> = self
            .resolving
            .stale
            .iter()
            .take(MAX_RESOLVED_AT_ONCE)
            .cloned()
            .collect();
        for uid in &some {
            self.resolving.stale.remove(uid);
        }
        self.resolve_all(&some, ResolveTrigger::Resync, ctx);
        self.resolve_soon(ctx);
    }

    pub(super) fn resync_pod(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) {
        if let Some(wanting) = self.pods.get_mut(uid) {
            wanting.resolving.again = None;
            self.world.refresh(uid);
            self.resolve_all(std::slice::from_ref(uid), ResolveTrigger::Resync, ctx);
        }
    }

    /// Sets the desired volumes of these pods in the reconciler.
    pub(super) fn resolve_all(
        &mut self,
        uids: &[PodUid],
        cause: ResolveTrigger,
        ctx: &mut Context<Msg>,
    ) {
        if uids.is_empty() {
            return;
        }
        self.check_objects(ctx);
        let objects = self.resolving.objects.clone();
        for uid in uids {
            let Some(wanting) = self.pods.get(uid) else {
                continue;
            };
            let pod = wanting.pod.clone();
            let cause = match wanting.is_ending {
                true => ResolveTrigger::Ending,
                false => cause,
            };
            let desired = self.desired_volumes(&pod, &objects, ctx);
            for (id, entry, grow) in desired.growths {
                self.note_growth(&id, &pod, &entry, grow);
            }
            self.report_read_only(uid, &desired.readers, ctx);
            self.world.set_desired(uid, desired.by_name, cause);
            let again = self.again_at(uid, desired.refresh_at, ctx);
            let mut full = BTreeSet::new();
            if let Some(wanting) = self.pods.get_mut(uid) {
                let resolving = &mut wanting.resolving;
                resolving.uses = desired.uses;
                full = &desired.full - &resolving.full;
                resolving.full = desired.full;
                resolving.readers = desired.readers.into_keys().collect();
                if let Some(timer) = resolving.again.replace(again) {
                    ctx.cancel(timer);
                }
            }
            self.no_room(full, ctx);
        }
    }

    fn desired_volumes(
        &self,
        pod: &Pod,
        objects: &StaticObjects,
        ctx: &Context<Msg>,
    ) -> PodDesiredVolumes {
        let (taken, labels) = (self.taken_for(pod), self.labels());
        let attached = self.reporter.attached();
        let context = ResolveContext {
            objects,
            node: &self.peers.rules.node,
            labels: &labels,
            backends: self.drivers.admitted(),
            selinux: self.policy.selinux,
            now: ctx.timestamp(),
            taken: &taken,
            attached,
        };
        let mut desired = PodDesiredVolumes {
            by_name: BTreeMap::new(),
            uses: BTreeSet::new(),
            refresh_at: None,
            readers: BTreeMap::new(),
            growths: Vec::new(),
            full: BTreeSet::new(),
        };
        for (name, resolved) in resolve::all(pod, &context) {
            let volume = match resolved {
                Ok(resolved) => {
                    desired.uses.extend(resolved.uses.iter().cloned());
                    let refresh = desired.refresh_at.into_iter().chain(resolved.refresh_at);
                    desired.refresh_at = refresh.min();
                    Ok(self.desired_volume(pod, &name, resolved, (&context, &mut desired)))
                }
                Err(unresolved) => {
                    desired.uses.extend(unresolved.uses.iter().cloned());
                    if unresolved.reason == event_reasons::ATTACH_LIMIT {
                        let drivers = unresolved.uses.iter();
                        let drivers = drivers.filter(|uses| uses.kind == "CSIDriver");
                        desired.full.extend(drivers.map(|uses| uses.name.clone()));
                    }
                    Err(unresolved)
                }
            };
            desired.by_name.insert(name, volume);
        }
        desired
    }

    /// Which pods have which volume; empty for a pod whose kinds of volumes are never shared.
    fn taken_for(&self, pod: &Pod) -> BTreeMap<VolumeId, BTreeSet<PodUid>> {
        let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
        let mut volumes = volumes.unwrap_or_default().iter();
        // In-tree kinds of disks may be migrated to drivers.
        let own = |volume: &Volume| {
            volume.config_map.is_some()
                || volume.secret.is_some()
                || volume.projected.is_some()
                || volume.empty_dir.is_some()
                || volume.downward_api.is_some()
                || volume.host_path.is_some()
        };
        match volumes.all(own) {
            true => BTreeMap::new(),
            false => self.world.taken(),
        }
    }

    fn desired_volume(
        &self,
        pod: &Pod,
        name: &str,
        resolved: ResolvedVolume,
        (context, wishes): (&ResolveContext<'_>, &mut PodDesiredVolumes),
    ) -> DesiredVolume {
        let grown = self.world.grown_to(&resolved.volume.id);
        let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
        let mut volumes = volumes.unwrap_or_default().iter();
        let entry = volumes.find(|volume| volume.name == name);
        let expansion = entry.and_then(|entry| expansion(pod, entry, context, grown));
        let grow = match expansion {
            Some(Expansion::Resize(grow)) => {
                let size = grow.size;
                let id = resolved.volume.id.clone();
                let growth = entry.map(|entry| (id, entry.clone(), grow));
                wishes.growths.extend(growth);
                Some(size)
            }
            Some(Expansion::ReadOnly) => {
                let folder = resolved.volume.folder.clone();
                wishes.readers.insert(name.to_owned(), folder);
                None
            }
            None => None,
        };
        DesiredVolume {
            volume: resolved.volume,
            grow,
        }
    }

    /// Records once that a volume is not expanded for a pod that may only read it.
    fn report_read_only(
        &self,
        uid: &PodUid,
        readers: &BTreeMap<String, String>,
        ctx: &Context<Msg>,
    ) {
        let Some(wanting) = self.pods.get(uid) else {
            return;
        };
        for (name, folder) in readers {
            if !wanting.resolving.readers.contains(name) {
                let event = event_reasons::read_only_not_expanded(folder);
                self.record_event(uid, EventType::Warning, (event.reason, event.message), ctx);
            }
        }
    }

    /// After the period, spread by the pod's UID so that not all come at once; sooner for a token's renewal.
    fn again_at(
        &self,
        uid: &PodUid,
        refresh: Option<Timestamp>,
        ctx: &mut Context<Msg>,
    ) -> TimerId {
        let spread = uid.as_str().bytes().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let period = self.policy.resync;
        let half = u64::try_from(period.as_millis()).unwrap_or(u64::MAX) / 2;
        let mut wait = period + Duration::from_millis(spread % half.max(1));
        if let Some(refresh) = refresh {
            let left = refresh.duration_since(ctx.timestamp());
            wait = wait.min(
                Duration::try_from(left)
                    .unwrap_or_default()
                    .max(MIN_RESYNC_DELAY),
            );
        }
        let uid = uid.clone();
        ctx.after(wait, Msg::Due(VolumeTimer::ResyncPod { uid }))
    }
}
