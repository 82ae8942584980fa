//! When the status is sent though nothing changed.
//!
//! Upstream: `tryUpdateNodeStatus`, `calculateDelay` of kubelet_node_status.go (1.36).

use std::time::{Duration, Instant};

/// The last report, and when the next is due.
#[derive(Clone, Copy, Debug)]
pub struct ReportSchedule {
    /// `nodeStatusReportFrequency`
    every: Duration,
    due: Option<Instant>,
}

/// Why the status was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportCause {
    Change,
    Heartbeat,
}

impl ReportSchedule {
    pub fn new(every: Duration) -> Self {
        ReportSchedule { every, due: None }
    }

    /// Nothing was sent yet, or the last was long ago.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| now >= due)
    }

    /// The status was sent. After a change, and after the first report of a process, the next heartbeat comes between
    /// half and one and a half times later, so that the nodes of a cluster do not report at once; `chance` is from 0
    /// to 1.
    pub fn sent(&mut self, cause: ReportCause, now: Instant, chance: f64) {
        let share = match (cause, self.due) {
            (ReportCause::Change, _) | (ReportCause::Heartbeat, None) => {
                0.5 + chance.clamp(0.0, 1.0)
            }
            (ReportCause::Heartbeat, Some(_)) => 1.0,
        };
        self.due = Some(now + self.every.mul_f64(share));
    }
}
