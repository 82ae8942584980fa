//! The health of devices: drivers' reports taken in, recorded, and told to the status manager.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clients::drivers::{DriverCallError, HealthReports};
use kernel::Context;
use logic_placement::claims::DriverName;
use logic_placement::claims::health::{DeviceHealth, DeviceKey, decode_health, encode_health};

use super::{DynamicResources, HealthChanged, LinkEvent, Msg, WriteResult};

/// Between attempts to follow a driver's reports, as upstream.
const RETRY_PERIOD: Duration = Duration::from_secs(5);

impl DynamicResources {
    /// Reads what drivers said before the restart; it holds no longer than they said. Without the file nothing is known.
    pub(super) async fn read_health(&mut self) {
        let content = match self.health_file.read().await {
            Ok(content) => content.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(
                    "{} cannot be read: {error}",
                    self.health_file.path().display()
                );
                return;
            }
        };
        match decode_health(&content) {
            Ok(health) => self.health = health,
            Err(flaw) => tracing::warn!(
                "{} is of no use: {}",
                self.health_file.path().display(),
                kernel::error_chain(&flaw)
            ),
        }
    }

    pub(super) fn open_health(&mut self, number: u64, after: Duration, ctx: &mut Context<Msg>) {
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        let Some(client) = link.client.clone() else {
            return;
        };
        link.health = Some(ctx.run(async move {
            tokio::time::sleep(after).await;
            let (link, result) = (number, client.watch_health().await);
            Msg::Link(LinkEvent::HealthOpened { link, result })
        }));
    }

    pub(super) fn health_opened(
        &mut self,
        number: u64,
        result: Result<HealthReports, DriverCallError>,
        ctx: &mut Context<Msg>,
    ) {
        match result {
            Ok(reports) => self.await_report(number, Box::new(reports), ctx),
            Err(error) => self.health_ended(number, Some(&error), ctx),
        }
    }

    fn await_report(
        &mut self,
        number: u64,
        mut reports: Box<HealthReports>,
        ctx: &mut Context<Msg>,
    ) {
        if let Some(link) = self.links.get_mut(&number) {
            link.health = Some(ctx.run(async move {
                let report = reports.next().await;
                Msg::Link(LinkEvent::HealthReported {
                    link: number,
                    reports,
                    report,
                })
            }));
        }
    }

    pub(super) fn health_reported(
        &mut self,
        number: u64,
        reports: Box<HealthReports>,
        report: Result<Option<BTreeMap<DeviceKey, DeviceHealth>>, DriverCallError>,
        ctx: &mut Context<Msg>,
    ) {
        let Some(link) = self.links.get(&number) else {
            return;
        };
        let driver = link.driver.clone();
        match report {
            Ok(Some(report)) => {
                let changed = self.health.update(ctx.timestamp(), &driver, report);
                self.health_changed(&driver, &changed, ctx);
                self.await_report(number, reports, ctx);
            }
            Ok(None) => self.health_ended(number, None, ctx),
            Err(error) => self.health_ended(number, Some(&error), ctx),
        }
    }

    /// A driver that does not know the call is asked again once it is connected anew.
    fn health_ended(
        &mut self,
        number: u64,
        error: Option<&DriverCallError>,
        ctx: &mut Context<Msg>,
    ) {
        let Some(link) = self.links.get(&number) else {
            return;
        };
        let driver = link.driver.clone();
        if let Some(error) = error {
            tracing::debug!("DRA driver {driver} reports no health: {error}");
        }
        self.clear_health(&driver, ctx);
        if !error.is_some_and(DriverCallError::is_unimplemented) {
            self.open_health(number, RETRY_PERIOD, ctx);
        }
    }

    /// Forgets what a driver said: nothing is known of its devices.
    pub(super) fn clear_health(&mut self, driver: &DriverName, ctx: &mut Context<Msg>) {
        let changed = self.health.clear(driver);
        self.health_changed(driver, &changed, ctx);
    }

    fn health_changed(
        &mut self,
        driver: &DriverName,
        devices: &BTreeSet<DeviceKey>,
        ctx: &mut Context<Msg>,
    ) {
        if devices.is_empty() {
            return;
        }
        self.publish();
        self.record_health(ctx);
        let pods = self.cache.pods_with(driver, devices);
        if pods.is_empty() {
            return;
        }
        if let Err(full) = self.peers.status.tell(HealthChanged(pods)) {
            tracing::warn!("the health of devices of {driver} shows later: {full}");
        }
    }

    fn record_health(&mut self, ctx: &mut Context<Msg>) {
        let content = encode_health(&self.health);
        if !self.health_file.is_writing() && !self.health_file.is_stored(&content) {
            let write = self.health_file.write(content);
            ctx.run(async move { Msg::HealthRecorded(write.await) });
        }
    }

    /// Writes again what has changed meanwhile.
    pub(super) fn health_recorded(&mut self, write: WriteResult, ctx: &mut Context<Msg>) {
        match self.health_file.written(write) {
            Ok(()) => self.record_health(ctx),
            // The next report is the next attempt.
            Err(error) => tracing::warn!(
                "{} is not written, a restart loses the health of devices: {error}",
                self.health_file.path().display()
            ),
        }
    }
}
