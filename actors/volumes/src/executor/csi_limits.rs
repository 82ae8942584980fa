//! Drivers are asked again how many volumes they take on this node: each period of their `CSIDriver`, and at once
//! when a controller finds no room for another volume.
//!
//! Upstream: pkg/volume/csi/csi_node_updater.go, `VerifyExhaustedResource` of csi_plugin.go (1.36).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clients::storage::{StorageError, StoragePlugin};
use kernel::{Context, TimerId};
use logic_volumes::csi_node::update_period;

use crate::executor::StuckProcess;
use crate::{Msg, VolumeCompletion, VolumeManager, VolumeTimer};

/// Upstream's timeout for any call of a driver.
const DRIVER_CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// When each driver is asked again.
#[derive(Debug, Default)]
pub(crate) struct LimitRefreshes {
    /// The next request, by driver.
    due: BTreeMap<String, RefreshTimer>,
    /// Drivers that have not answered yet, and are not asked twice at once.
    asked: BTreeSet<String>,
}

#[derive(Debug)]
struct RefreshTimer {
    period: Duration,
    timer: TimerId,
}

impl VolumeManager {
    /// Adapts the timers to changed drivers or objects: a driver whose period stays keeps its timer.
    pub(crate) fn schedule_refreshes(&mut self, ctx: &mut Context<Msg>) {
        let mut old = std::mem::take(&mut self.inquiries.due);
        for (driver, period) in self.periods() {
            let same = old.remove(&driver).and_then(|due| {
                let same = due.period == period;
                if !same {
                    ctx.cancel(due.timer);
                }
                same.then_some(due)
            });
            let due = same.unwrap_or_else(|| due(&driver, period, ctx));
            self.inquiries.due.insert(driver, due);
        }
        old.into_values().for_each(|due| ctx.cancel(due.timer));
    }

    fn periods(&self) -> BTreeMap<String, Duration> {
        let drivers = self.drivers.admitted().keys().filter_map(|name| {
            let object = self.resolving.objects.csi_drivers.get(name)?;
            Some((name.clone(), update_period(object)?))
        });
        drivers.collect()
    }

    pub(crate) fn refresh_due_limits(&mut self, driver: String, ctx: &mut Context<Msg>) {
        let Some(held) = self.inquiries.due.get_mut(&driver) else {
            return;
        };
        *held = due(&driver, held.period, ctx);
        self.refresh_limits(driver, ctx);
    }

    /// As upstream, only drivers with a period are asked.
    pub(crate) fn no_room(&mut self, drivers: BTreeSet<String>, ctx: &mut Context<Msg>) {
        for driver in drivers {
            if self.inquiries.due.contains_key(&driver) {
                self.refresh_limits(driver, ctx);
            }
        }
    }

    fn refresh_limits(&mut self, driver: String, ctx: &mut Context<Msg>) {
        if !self.inquiries.asked.insert(driver.clone()) {
            return;
        }
        let storage = self.peers.storage.clone();
        ctx.run(async move {
            let answer = storage.inquire(&driver, DRIVER_CALL_TIMEOUT).await;
            VolumeCompletion::LimitsRefreshed { driver, answer }.into()
        });
    }

    pub(crate) fn on_limits_refreshed(
        &mut self,
        driver: &str,
        answer: Result<(), StorageError>,
        ctx: &mut Context<Msg>,
    ) {
        self.inquiries.asked.remove(driver);
        if let Err(error) = answer {
            tracing::warn!(driver, "does not say how many volumes it takes: {error}");
            if let Some(worn) = StuckProcess::of(StoragePlugin::Csi, None, &error) {
                self.replace(worn, ctx);
            }
        }
    }
}

fn due(driver: &str, period: Duration, ctx: &mut Context<Msg>) -> RefreshTimer {
    let driver = driver.to_owned();
    let timer = ctx.after(period, Msg::Due(VolumeTimer::RefreshLimits { driver }));
    RefreshTimer { period, timer }
}
