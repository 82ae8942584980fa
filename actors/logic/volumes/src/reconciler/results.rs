//! What the reconciler learns from the end of a task.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use logic_api::types::{EventLevel, PodUid};

use super::StateOfWorld;
use super::actual_state::{
    CompletedMount, ExpansionRefusal, MountState, PendingOperation, PodDemand, PodRemoval,
    StageRecord, StageState, StuckThread,
};
use super::concurrency::ConcurrencyGroup;
use super::content::MountContent;
use super::operation::{
    FailureEffect, MountPoint, OperationKind, OperationResult, OperationTarget, PodVolumeEvent,
    VolumeOperation,
};
use crate::resolve::event_reasons::{self, Operation, VolumeEvent};
use crate::{Relabel, Volume, VolumeId, VolumeKind};

impl StateOfWorld {
    /// A task that a plan asked for came to an end.
    pub fn finish(&mut self, task: &VolumeOperation, ending: OperationResult, now: Instant) {
        let subject = task.subject();
        let Some(ended) = self.running.end(&subject) else {
            debug_assert!(false, "{task:?} was not under way");
            return;
        };
        self.output.overdue_changed |= ended.is_overdue();
        if let Some(shared) = task.volume().and_then(|id| self.shared.get_mut(id)) {
            shared.busy = PendingOperation::No;
        }
        match ending {
            OperationResult::Done | OperationResult::Mounted { .. } => {
                self.backoffs.reset(&subject, task.verb());
                self.succeeded(task, ending);
            }
            OperationResult::Failed { message, trace } => {
                self.backoffs.failed(&subject, task.verb(), now);
                self.failed(task, &message, trace);
            }
            OperationResult::Stuck {
                generation,
                message,
            } => {
                self.backoffs.failed(&subject, task.verb(), now);
                self.mark_stuck(task, generation, &message);
                self.failed(task, &message, FailureEffect::Something);
            }
        }
        self.queue.push(subject);
        if let Some(id) = task.volume() {
            self.requeue_volume(&id.clone());
        }
    }

    fn succeeded(&mut self, task: &VolumeOperation, ending: OperationResult) {
        match (task, ending) {
            (VolumeOperation::Stage { volume }, _) => self.staged(volume),
            (VolumeOperation::Unstage(staged), _) => self.unstaged(&staged.id),
            (
                VolumeOperation::Mount { place, volume },
                OperationResult::Mounted { path, relabel },
            ) => {
                self.mark_mounted(place, volume, path, relabel);
            }
            (
                VolumeOperation::Mount { place, .. },
                OperationResult::Done
                | OperationResult::Failed { .. }
                | OperationResult::Stuck { .. },
            ) => {
                debug_assert!(false, "a mount ends with a path: {place:?}");
            }
            (VolumeOperation::Unmount { place, .. }, _) => self.unmounted(place),
            (
                VolumeOperation::Expand {
                    place,
                    volume,
                    size,
                    ..
                },
                _,
            ) => self.on_expanded(place, &volume.id, *size),
            (VolumeOperation::Remove { uid }, _) => self.removed(uid),
        }
    }

    fn staged(&mut self, volume: &Arc<Volume>) {
        let shared = self.shared.entry(volume.id.clone()).or_default();
        shared.stage = StageState::Staged;
        shared.why.clear();
        shared.staged = Some(StageRecord {
            kind: volume.kind,
            mode: volume.mode,
            path: PathBuf::new(),
            concurrency_group: ConcurrencyGroup::of(volume),
            volume: Some(volume.clone()),
        });
    }

    fn unstaged(&mut self, id: &VolumeId) {
        // A pod that was refused for its label need not wait.
        let subject = OperationTarget::Volume(id.clone());
        self.backoffs.reset(&subject, OperationKind::Stage);
        if let Some(shared) = self.shared.get_mut(id) {
            shared.stage = StageState::Absent;
            shared.staged = None;
            shared.grown = 0;
            shared.refused = None;
            shared.why.clear();
        }
    }

    fn mark_mounted(
        &mut self,
        place: &MountPoint,
        volume: &Arc<Volume>,
        path: PathBuf,
        relabel: Relabel,
    ) {
        let Some(mount) = self.mount_mut(place) else {
            return;
        };
        let doing = mount.doing.take();
        let mut content = doing.unwrap_or_else(|| MountContent::new(Volume::clone(volume)));
        content.slim();
        if let Some(want) = mount
            .want
            .as_mut()
            .filter(|want| want.content.is_same(&content))
        {
            want.content.slim();
        }
        let ready = mount.done().is_some_and(|done| done.ready);
        mount.again = false;
        mount.why.clear();
        mount.actual = MountState::Mounted(Box::new(CompletedMount {
            content,
            path,
            relabel,
            ready,
        }));
        self.output.touched.insert(place.uid.clone());
    }

    fn unmounted(&mut self, place: &MountPoint) {
        let Some(mut mount) = self.take_mount(place) else {
            return;
        };
        mount.actual = MountState::Absent;
        mount.why.clear();
        let id = mount.id.clone();
        self.adopt(place, &mut mount);
        self.put_mount(place, mount);
        self.output.touched.insert(place.uid.clone());
        self.unblock_waiting(&id);
        self.requeue_volume(&id);
    }

    /// Pods that wait for a volume that only one pod may have try at once.
    fn unblock_waiting(&mut self, id: &VolumeId) {
        let users = self.shared.get(id).map(|shared| shared.users.clone());
        for place in users.into_iter().flatten() {
            self.backoffs
                .reset(&OperationTarget::Mount(place), OperationKind::Mount);
        }
        let waits = self.pods.iter().filter(|(_, pod)| pod.is_unresolved());
        self.output
            .unblocked
            .extend(waits.map(|(uid, _)| uid.clone()));
    }

    fn on_expanded(&mut self, place: &MountPoint, id: &VolumeId, size: u64) {
        if let Some(shared) = self.shared.get_mut(id) {
            shared.grown = shared.grown.max(size);
        }
        let event = event_reasons::expanded(&place.folder, &self.node_name);
        self.tell(&place.uid, EventLevel::Normal, event);
    }

    fn removed(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        pod.removal = PodRemoval::No;
        pod.why.clear();
        let places: Vec<MountPoint> = pod.mounts.keys().cloned().collect();
        if pod.demand == PodDemand::Released && places.is_empty() {
            self.pods.remove(uid);
            self.pods_on_node.folders.remove(uid);
            self.backoffs.forget(&OperationTarget::Pod(uid.clone()));
        }
        self.output.touched.insert(uid.clone());
        for place in places {
            self.queue.push(OperationTarget::Mount(place));
        }
    }

    fn failed(&mut self, task: &VolumeOperation, message: &str, trace: FailureEffect) {
        match task {
            VolumeOperation::Stage { volume } => self.stage_failed(volume, message, trace),
            VolumeOperation::Unstage(staged) => {
                if let Some(shared) = self.shared.get_mut(&staged.id) {
                    // One that was found is still as uncertain as it was.
                    if shared.stage == StageState::Staged {
                        shared.stage = StageState::Uncertain;
                    }
                    message.clone_into(&mut shared.why);
                }
            }
            VolumeOperation::Mount { place, volume } => {
                self.mount_failed(place, volume, message, trace)
            }
            VolumeOperation::Unmount { place, .. } => {
                if let Some(mount) = self.mount_mut(place) {
                    message.clone_into(&mut mount.why);
                }
            }
            VolumeOperation::Expand {
                place,
                volume,
                size,
                ..
            } => {
                self.expand_failed(place, &volume.id, *size, (message, trace));
            }
            VolumeOperation::Remove { uid } => {
                self.remove_failed(uid, message);
            }
        }
    }

    fn stage_failed(&mut self, volume: &Arc<Volume>, message: &str, trace: FailureEffect) {
        let shared = self.shared.entry(volume.id.clone()).or_default();
        message.clone_into(&mut shared.why);
        if shared.stage == StageState::Absent && trace == FailureEffect::Something {
            shared.stage = StageState::Uncertain;
            shared.staged = Some(StageRecord {
                kind: volume.kind,
                mode: volume.mode,
                path: PathBuf::new(),
                concurrency_group: ConcurrencyGroup::of(volume),
                volume: Some(volume.clone()),
            });
        }
        self.tell_stage_waiters(&volume.id, message);
    }

    /// Tells the pods that wait for a volume to be staged why it is not.
    pub(super) fn tell_stage_waiters(&mut self, id: &VolumeId, message: &str) {
        let users = self.shared.get(id).map(|shared| shared.users.clone());
        for place in users.into_iter().flatten() {
            let waits = self
                .mount(&place)
                .is_some_and(|mount| mount.want.is_some() && mount.done().is_none());
            if waits {
                let event =
                    event_reasons::failed(Operation::Stage, place.mode, &place.folder, message);
                self.tell(&place.uid, EventLevel::Warning, event);
            }
        }
    }

    /// What was mounted stays so, with its old content; what was not is half mounted at worst.
    fn mount_failed(
        &mut self,
        place: &MountPoint,
        volume: &Arc<Volume>,
        message: &str,
        trace: FailureEffect,
    ) {
        let event = event_reasons::failed(Operation::Publish, place.mode, &volume.folder, message);
        self.tell(&place.uid, EventLevel::Warning, event);
        let Some(mut mount) = self.take_mount(place) else {
            return;
        };
        mount.doing = None;
        message.clone_into(&mut mount.why);
        match (&mount.actual, trace) {
            (MountState::Absent, FailureEffect::Something) => mount.actual = MountState::Uncertain,
            (MountState::Mounted(_), FailureEffect::Something) => {
                mount.again = mount.want.is_some()
            }
            (
                MountState::Absent | MountState::Mounted(_),
                FailureEffect::Nothing | FailureEffect::Refusal,
            )
            | (MountState::Uncertain, _) => {}
        }
        self.adopt(place, &mut mount);
        self.put_mount(place, mount);
    }

    fn expand_failed(
        &mut self,
        place: &MountPoint,
        id: &VolumeId,
        size: u64,
        (message, trace): (&str, FailureEffect),
    ) {
        let first = self.is_expanded_at_mount(place);
        let refused = match trace {
            FailureEffect::Nothing => Some(ExpansionRefusal::InUse),
            FailureEffect::Refusal => Some(ExpansionRefusal::Size(size)),
            FailureEffect::Something => None,
        };
        if let Some(shared) = self.shared.get_mut(id)
            && refused.is_some()
        {
            shared.refused = refused;
        }
        if refused == Some(ExpansionRefusal::InUse) {
            // As upstream: it keeps no pod from starting, and the claim alone is told.
            self.accept_current_size(place);
            return;
        }
        let operation = match first && trace == FailureEffect::Something {
            true => Operation::ExpandAtMount,
            false => Operation::Expand,
        };
        let event = event_reasons::failed(operation, place.mode, &place.folder, message);
        self.tell(&place.uid, EventLevel::Warning, event);
    }

    /// Whether the pod does not start before the volume is expanded.
    pub(super) fn is_expanded_at_mount(&self, place: &MountPoint) -> bool {
        let done = self.mount(place).and_then(|mount| mount.done());
        done.is_some_and(|done| !done.ready)
    }

    fn accept_current_size(&mut self, place: &MountPoint) {
        if let Some(mount) = self.mount_mut(place)
            && let MountState::Mounted(done) = &mut mount.actual
        {
            done.ready = true;
        }
        self.output.touched.insert(place.uid.clone());
    }

    fn remove_failed(&mut self, uid: &PodUid, message: &str) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.removal = PodRemoval::No;
            message.clone_into(&mut pod.why);
            let places: Vec<MountPoint> = pod.mounts.keys().cloned().collect();
            for place in places {
                self.queue.push(OperationTarget::Mount(place));
            }
        }
        self.output.touched.insert(uid.clone());
    }

    /// A thread was given up over a volume: it is left alone until that thread is gone.
    fn mark_stuck(&mut self, task: &VolumeOperation, generation: u64, message: &str) {
        let kind = match task {
            VolumeOperation::Stage { volume } => volume.kind,
            VolumeOperation::Unstage(staged) => staged.kind,
            VolumeOperation::Mount { place, .. }
            | VolumeOperation::Unmount { place, .. }
            | VolumeOperation::Expand { place, .. } => place.kind,
            // Nothing of a pod's directory is mounted then: the removal is retried after its back-off.
            VolumeOperation::Remove { .. } => VolumeKind::Image,
        };
        if let Some(shared) = task.volume().and_then(|id| self.shared.get_mut(id)) {
            shared.stuck = Some(StuckThread {
                kind,
                generation,
                message: message.to_owned(),
            });
        }
    }

    pub(super) fn tell(&mut self, uid: &PodUid, weight: EventLevel, told: VolumeEvent) {
        self.output.events.push(PodVolumeEvent {
            uid: uid.clone(),
            weight,
            reason: told.reason,
            message: told.message,
        });
    }

    fn take_mount(&mut self, place: &MountPoint) -> Option<Box<super::actual_state::PodMount>> {
        self.pods.get_mut(&place.uid)?.mounts.remove(place)
    }

    fn put_mount(&mut self, place: &MountPoint, mount: Box<super::actual_state::PodMount>) {
        let pod = self.pods.entry(place.uid.clone()).or_default();
        pod.mounts.insert(place.clone(), mount);
    }
}
