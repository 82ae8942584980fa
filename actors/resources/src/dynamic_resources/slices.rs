//! ResourceSlices of drivers that are not there: deleted, so that no pod is scheduled for their devices.
//!
//! When the agent starts no driver has registered, and all of the node's slices go: drivers publish them anew. Later
//! those of a driver go that has had no connection for a while. Upstream: wipeResourceSlices of
//! pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go (1.36).

use std::collections::BTreeMap;
use std::time::Duration;

use kernel::{Context, TaskId};
use logic_placement::claims::{DriverName, ResourceSliceSelector};

use super::{DynamicResources, Msg};

/// A driver that restarts, or is replaced, is back before; as upstream.
const WIPING_DELAY: Duration = Duration::from_secs(30);
/// Between attempts: the first, and the longest after doubling; as upstream.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// How much longer a pause may be by chance.
const JITTER: f64 = 0.2;

/// A deletion goes on; `driver` is none for all drivers.
#[derive(Debug)]
pub enum SliceEvent {
    /// It is its time.
    Due { driver: Option<DriverName> },
    /// It has succeeded, or has not.
    Deleted {
        driver: Option<DriverName>,
        result: Result<(), String>,
    },
}

/// The deletions that wait or run, by driver.
#[derive(Debug, Default)]
pub(super) struct SliceCleanup {
    pending: BTreeMap<Option<DriverName>, Deletion>,
}

#[derive(Debug)]
struct Deletion {
    task: TaskId,
    /// Until the next attempt, if this one fails.
    retry: Duration,
}

impl DynamicResources {
    pub(super) fn begin_slice_cleanup(&mut self, ctx: &mut Context<Msg>) {
        self.plan_deletion(None, Duration::ZERO, RETRY_MIN, ctx);
    }

    /// Has a driver's slices deleted after a while, or no longer, by whether it can be called.
    pub(super) fn follow_slices(&mut self, driver: &DriverName, ctx: &mut Context<Msg>) {
        let key = Some(driver.clone());
        if self.drivers.is_usable(driver) {
            if let Some(deletion) = self.slices.pending.remove(&key) {
                ctx.abort(deletion.task);
            }
        } else if !self.slices.pending.contains_key(&key) {
            self.plan_deletion(key, WIPING_DELAY, RETRY_MIN, ctx);
        }
    }

    fn plan_deletion(
        &mut self,
        driver: Option<DriverName>,
        after: Duration,
        retry: Duration,
        ctx: &mut Context<Msg>,
    ) {
        if self.peers.api.slices.is_none() {
            return;
        }
        let key = driver.clone();
        let task = ctx.run(async move {
            tokio::time::sleep(after).await;
            Msg::Slices(SliceEvent::Due { driver })
        });
        self.slices.pending.insert(key, Deletion { task, retry });
    }

    pub(super) fn slice_event(&mut self, event: SliceEvent, ctx: &mut Context<Msg>) {
        match event {
            SliceEvent::Due { driver } => self.delete_slices(driver, ctx),
            SliceEvent::Deleted { driver, result } => self.slices_deleted(driver, result, ctx),
        }
    }

    /// A deletion that was called off while this waited is not pending any more.
    fn delete_slices(&mut self, driver: Option<DriverName>, ctx: &mut Context<Msg>) {
        let pending = self.slices.pending.get_mut(&driver);
        let (Some(deletion), Some(api)) = (pending, self.peers.api.slices.clone()) else {
            return;
        };
        let selector = ResourceSliceSelector {
            node: self.config.node_name.clone(),
            driver: driver.clone(),
        };
        deletion.task = ctx.run(async move {
            let result = api.ask(selector).await;
            Msg::Slices(SliceEvent::Deleted { driver, result })
        });
    }

    fn slices_deleted(
        &mut self,
        driver: Option<DriverName>,
        result: Result<(), String>,
        ctx: &mut Context<Msg>,
    ) {
        let Some(deletion) = self.slices.pending.remove(&driver) else {
            return;
        };
        if let Err(why) = result {
            tracing::debug!("ResourceSlices are deleted later: {why}");
            let pause = deletion.retry.mul_f64(1.0 + JITTER * ctx.chance());
            let retry = RETRY_MAX.min(deletion.retry.saturating_mul(2));
            self.plan_deletion(driver, pause, retry, ctx);
        }
    }
}
