//! Drivers are asked again how many volumes they take on this node: each period that its `CSIDriver` names, and at once
//! when a controller finds no room for another one.
//!
//! Upstream: pkg/volume/csi/csi_node_updater.go, `VerifyExhaustedResource` of csi_plugin.go (1.36).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kernel::{Context, TimerId};
use logic::volumes::csi_node::update_period;

use super::tasks::Worn;
use super::{Msg, Volumes};
use crate::storage::{Plugin, StorageError};

/// Upstream's, for any call of a driver.
const WITHIN: Duration = Duration::from_secs(120);

/// Whom to ask when.
#[derive(Debug, Default)]
pub(super) struct Inquiries {
    /// By driver.
    due: BTreeMap<String, Due>,
    /// Those that have not answered yet: nobody is asked twice at once.
    asked: BTreeSet<String>,
}

#[derive(Debug)]
struct Due {
    period: Duration,
    timer: TimerId,
}

impl Volumes {
    /// Drivers, or what is said of them, are others now: who keeps its period keeps its time.
    pub(super) fn time_inquiries(&mut self, ctx: &mut Context<Msg>) {
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
            let object = self.objects.csi_drivers.get(name)?;
            Some((name.clone(), update_period(object)?))
        });
        drivers.collect()
    }

    pub(super) fn inquire(&mut self, driver: String, ctx: &mut Context<Msg>) {
        let Some(held) = self.inquiries.due.get_mut(&driver) else {
            return;
        };
        *held = due(&driver, held.period, ctx);
        self.ask_anew(driver, ctx);
    }

    /// As upstream, only who tells of its room at all is asked: it has a period.
    pub(super) fn no_room(&mut self, drivers: BTreeSet<String>, ctx: &mut Context<Msg>) {
        for driver in drivers {
            if self.inquiries.due.contains_key(&driver) {
                self.ask_anew(driver, ctx);
            }
        }
    }

    fn ask_anew(&mut self, driver: String, ctx: &mut Context<Msg>) {
        if !self.inquiries.asked.insert(driver.clone()) {
            return;
        }
        let storage = self.peers.storage.clone();
        ctx.run(async move {
            let answer = storage.inquire(&driver, WITHIN).await;
            Msg::Inquired { driver, answer }
        });
    }

    pub(super) fn inquired(
        &mut self,
        driver: &str,
        answer: Result<(), StorageError>,
        ctx: &mut Context<Msg>,
    ) {
        self.inquiries.asked.remove(driver);
        if let Err(error) = answer {
            tracing::warn!(driver, "does not say how many volumes it takes: {error}");
            if let Some(worn) = Worn::of(Plugin::Csi, None, &error) {
                self.replace(worn, ctx);
            }
        }
    }
}

fn due(driver: &str, period: Duration, ctx: &mut Context<Msg>) -> Due {
    let driver = driver.to_owned();
    let timer = ctx.after(period, Msg::Inquire { driver });
    Due { period, timer }
}
