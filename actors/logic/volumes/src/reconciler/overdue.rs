//! Calls of CSI drivers that are not answered in time.
//!
//! As upstream, a driver has two minutes for a call. [`StateOfWorld::mark_overdue`] names a driver that has not answered
//! long before that, because a process that is stopped or hangs gives no other sign. The operation goes on.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use logic_api::types::EventLevel;

use super::StateOfWorld;
use super::concurrency::{ConcurrencyGroup, RunningOperation, RunningOperations};
use super::operation::{OperationTarget, VolumeOperation, changes_ownership};
use crate::resolve::event_reasons::{self, Operation};
use crate::{VolumeId, VolumeKind};

/// Short enough that events and the node's condition name the driver within ten seconds of the call.
const OVERDUE_AFTER: Duration = Duration::from_secs(8);

/// The call of a driver that an operation waits for.
#[derive(Debug)]
pub(super) struct DriverCall {
    driver: String,
    volume: VolumeId,
    rpc: DriverRpc,
    /// Whether the plugin may change the ownership of the volume's files after the call, which takes its time.
    walks: bool,
    /// The message; none before the call is overdue.
    overdue: Option<String>,
}

/// The calls of CSI's node service that operations wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
enum DriverRpc {
    #[strum(serialize = "NodeStageVolume")]
    Stage,
    #[strum(serialize = "NodeUnstageVolume")]
    Unstage,
    #[strum(serialize = "NodePublishVolume")]
    Publish,
    #[strum(serialize = "NodeUnpublishVolume")]
    Unpublish,
    #[strum(serialize = "NodeExpandVolume")]
    Expand,
}

impl DriverCall {
    /// None where the operation calls no driver.
    pub(super) fn of(task: &VolumeOperation, group: &ConcurrencyGroup) -> Option<Self> {
        let ConcurrencyGroup::Backend(kind, driver) = group else {
            return None;
        };
        if *kind != VolumeKind::Csi.as_str() {
            return None;
        }
        let (rpc, walks) = match task {
            VolumeOperation::Stage { .. } => (DriverRpc::Stage, false),
            VolumeOperation::Unstage(_) => (DriverRpc::Unstage, false),
            VolumeOperation::Mount { volume, .. } => {
                (DriverRpc::Publish, changes_ownership(volume))
            }
            VolumeOperation::Unmount { .. } => (DriverRpc::Unpublish, false),
            VolumeOperation::Expand { .. } => (DriverRpc::Expand, false),
            VolumeOperation::Remove { .. } => return None,
        };
        Some(DriverCall {
            driver: driver.clone(),
            volume: task.volume()?.clone(),
            rpc,
            walks,
            overdue: None,
        })
    }

    fn message(&self, since: Timestamp) -> String {
        let (driver, rpc): (_, &str) = (&self.driver, self.rpc.into());
        let since = since.strftime("%Y-%m-%dT%H:%M:%SZ");
        let walk = match self.walks {
            true => ", or the ownership of the volume's files is still being changed",
            false => "",
        };
        format!("driver {driver} has not answered {rpc} since {since}{walk}")
    }
}

impl RunningOperation {
    pub(super) fn is_overdue(&self) -> bool {
        self.why_overdue().is_some()
    }

    pub(super) fn why_overdue(&self) -> Option<String> {
        self.call.as_ref()?.overdue.clone()
    }
}

impl RunningOperations {
    /// Marks the calls that are overdue since the last time, and returns them.
    fn mark_overdue(&mut self, now: Instant, at: Timestamp) -> Vec<OverdueCall> {
        let mut marked = Vec::new();
        for (subject, running) in self.iter_mut() {
            let waited = now.saturating_duration_since(running.since);
            let Some(call) = running.call.as_mut().filter(|call| call.overdue.is_none()) else {
                continue;
            };
            if waited >= OVERDUE_AFTER {
                let message = call.message(at.checked_sub(waited).unwrap_or(at));
                call.overdue = Some(message.clone());
                marked.push((subject.clone(), call.rpc, message));
            }
        }
        marked
    }

    /// Why the calls of a group take their time; none where none of them is overdue.
    fn overdue_in(&self, group: &ConcurrencyGroup) -> Option<String> {
        let mut calls = self.iter().filter(|one| one.claim.lane == *group);
        calls.find_map(RunningOperation::why_overdue)
    }
}

type OverdueCall = (OperationTarget, DriverRpc, String);

impl StateOfWorld {
    /// Tells the pods whose driver has not answered in time, once for each call. `at` is the time of day at `now`.
    pub fn mark_overdue(&mut self, now: Instant, at: Timestamp) {
        for call in self.running.mark_overdue(now, at) {
            self.output.overdue_changed = true;
            self.tell_overdue(call);
        }
    }

    /// Tells a pod whose volume waits for a slot that calls which the driver does not answer have; once, unless the pod
    /// has been told another reason already.
    pub(super) fn tell_blocked(&mut self, task: &VolumeOperation, group: &ConcurrencyGroup) {
        let Some(call) = DriverCall::of(task, group) else {
            return;
        };
        let Some(cause) = self.running.overdue_in(group) else {
            return;
        };
        let subject = task.subject();
        let why = match &subject {
            OperationTarget::Volume(id) => self.shared.get_mut(id).map(|shared| &mut shared.why),
            OperationTarget::Mount(place) => self.mount_mut(place).map(|mount| &mut mount.why),
            OperationTarget::Pod(_) => None,
        };
        if let Some(why) = why.filter(|why| why.is_empty()) {
            let message = format!("waits for other volumes of its driver: {cause}");
            message.clone_into(why);
            self.tell_overdue((subject, call.rpc, message));
        }
    }

    /// When the next call will be overdue.
    pub fn next_overdue(&self) -> Option<Instant> {
        let waits = |call: &DriverCall| call.overdue.is_none();
        let running = self.running.iter();
        let waiting = running.filter(|one| one.call.as_ref().is_some_and(waits));
        waiting.map(|one| one.since + OVERDUE_AFTER).min()
    }

    /// Whether [`stuck`](Self::stuck) differs by a call of a driver since it was last asked.
    pub fn take_overdue_change(&mut self) -> bool {
        std::mem::take(&mut self.output.overdue_changed)
    }

    /// The overdue calls, each with its volume's name. A change of ownership is no sign of a driver that hangs.
    pub(super) fn overdue(&self) -> impl Iterator<Item = String> {
        let calls = self.running.iter().filter_map(|one| one.call.as_ref());
        calls.filter(|call| !call.walks).filter_map(|call| {
            let message = call.overdue.as_ref()?;
            Some(format!("{}: {message}", call.volume))
        })
    }

    fn tell_overdue(&mut self, (subject, rpc, message): OverdueCall) {
        let place = match subject {
            OperationTarget::Mount(place) => place,
            OperationTarget::Volume(id) if rpc == DriverRpc::Stage => {
                return self.tell_stage_waiters(&id, &message);
            }
            // No pod has the volume that is unstaged.
            OperationTarget::Volume(_) | OperationTarget::Pod(_) => return,
        };
        let event = match rpc {
            DriverRpc::Unpublish => {
                event_reasons::not_unpublished(place.mode, &place.folder, &message)
            }
            DriverRpc::Expand => {
                let operation = match self.is_expanded_at_mount(&place) {
                    true => Operation::ExpandAtMount,
                    false => Operation::Expand,
                };
                event_reasons::failed(operation, place.mode, &place.folder, &message)
            }
            DriverRpc::Stage | DriverRpc::Unstage | DriverRpc::Publish => {
                event_reasons::failed(Operation::Publish, place.mode, &place.folder, &message)
            }
        };
        self.tell(&place.uid, EventLevel::Warning, event);
    }
}
