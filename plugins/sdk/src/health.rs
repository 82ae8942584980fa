//! A plugin's health: set by the plugin, streamed to the agent.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::Stream;
use proto::plugin::HealthReport;
use proto::plugin::health_report::Status as Wire;
use tokio::sync::watch;

/// Whether calls of the plugin's kind can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Calls can succeed.
    Healthy,
    /// Serves, but its backend does not: calls fail until it is back.
    Degraded,
}

/// A plugin's handle for reporting its health. Clones share one report.
///
/// A plugin that has been built without a report of its own counts as healthy.
#[derive(Clone, Debug)]
pub struct Health {
    report: watch::Sender<HealthReport>,
}

impl Health {
    pub(crate) fn unconfigured() -> Self {
        let report = HealthReport {
            status: Wire::Degraded.into(),
            reason: NOT_CONFIGURED.to_owned(),
            attributes: BTreeMap::new(),
        };
        Self {
            report: watch::Sender::new(report),
        }
    }

    /// Replaces the whole report; `reason` is a sentence for the operator.
    pub fn set(
        &self,
        status: Status,
        reason: impl Into<String>,
        attributes: BTreeMap<String, String>,
    ) {
        let wire = match status {
            Status::Healthy => Wire::Healthy,
            Status::Degraded => Wire::Degraded,
        };
        let reason = reason.into();
        self.change(|report| {
            *report = HealthReport {
                status: wire.into(),
                reason,
                attributes,
            }
        });
    }

    /// Reports that calls are served. Attributes stay.
    pub fn healthy(&self) {
        self.change(|report| {
            report.set_status(Wire::Healthy);
            report.reason.clear();
        });
    }

    /// Reports that calls fail, and why. Attributes stay.
    pub fn degraded(&self, reason: impl Into<String>) {
        let reason = reason.into();
        self.change(|report| {
            report.set_status(Wire::Degraded);
            report.reason = reason;
        });
    }

    /// Adds or replaces one fact worth showing.
    pub fn attribute(&self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        self.change(|report| {
            report.attributes.insert(name, value);
        });
    }

    /// Makes the report healthy if the plugin set none while it was built.
    pub(crate) fn built(&self) {
        if self.report.borrow().reason == NOT_CONFIGURED {
            self.healthy();
        }
    }

    /// Yields the report at once, at every change, and at least each `interval`; ends when `ending`
    /// turns true.
    pub(crate) fn stream(
        &self,
        interval: Duration,
        ending: watch::Receiver<bool>,
    ) -> impl Stream<Item = Result<HealthReport, tonic::Status>> + Send + use<> {
        let mut report = self.report.subscribe();
        report.mark_changed();
        futures_util::stream::unfold(
            (report, ending),
            move |(mut report, mut ending)| async move {
                // Both arms only wait on watches: nothing is lost when the other one wins.
                tokio::select! {
                    biased;
                    _ = ending.wait_for(|ending| *ending) => return None,
                    _ = tokio::time::timeout(interval, report.changed()) => {}
                }
                let now = report.borrow_and_update().clone();
                Some((Ok(now), (report, ending)))
            },
        )
    }

    // An equal report is no change: a plugin may set its health as often as it likes.
    fn change(&self, edit: impl FnOnce(&mut HealthReport)) {
        self.report.send_if_modified(|report| {
            let before = report.clone();
            edit(report);
            *report != before
        });
    }
}

const NOT_CONFIGURED: &str = "not configured yet";
