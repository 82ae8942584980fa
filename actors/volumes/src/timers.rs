//! What the volume manager does later.

use kernel::Context;
use logic_api::types::PodUid;

use super::{Msg, VolumeManager};

/// What a timer of the volume manager is for.
#[derive(Debug)]
pub enum VolumeTimer {
    /// Resolves the next queued pods.
    Resolve,
    /// Resolves a pod's volumes again: a token must be renewed, or the sync period has passed.
    ResyncPod { uid: PodUid },
    /// Plans again: a delay has passed.
    Plan,
    /// Answers a request whose deadline has passed.
    TimedOut { uid: PodUid, turn: u64 },
    /// Asks a driver again how many volumes it takes on this node: its period has passed.
    RefreshLimits { driver: String },
    /// Measures the due volumes.
    Measure,
}

impl VolumeManager {
    pub(super) fn due(&mut self, timer: VolumeTimer, ctx: &mut Context<Msg>) {
        match timer {
            VolumeTimer::Resolve => self.resolve_some(ctx),
            VolumeTimer::ResyncPod { uid } => self.resync_pod(&uid, ctx),
            // The manager plans after every message.
            VolumeTimer::Plan => self.wake = None,
            VolumeTimer::TimedOut { uid, turn } => self.on_timeout(&uid, turn),
            VolumeTimer::RefreshLimits { driver } => self.refresh_due_limits(driver, ctx),
            VolumeTimer::Measure => self.measure(ctx),
        }
    }
}
