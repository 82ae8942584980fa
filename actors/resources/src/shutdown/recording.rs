//! Records when a shutdown begins and when the pods have ended; the lock is held until that is written.

use std::io;

use kernel::Context;

use super::record::{self, ShutdownRecord};
use super::{Msg, RecordEvent, ShutdownManager};

/// Whether a record is being written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum RecordState {
    #[default]
    No,
    /// The record being written.
    Now(ShutdownRecord),
}

/// Whether the lock is released as soon as the record is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LockState {
    #[default]
    No,
    Yes,
}

impl ShutdownManager {
    pub(super) fn record_loaded(&mut self, record: io::Result<ShutdownRecord>) {
        match record {
            // A shutdown that began meanwhile is newer.
            Ok(record) if self.record == ShutdownRecord::default() => {
                self.record = record;
                record.show();
            }
            Ok(_) => {}
            Err(error) => tracing::error!("it is not known when the node went down last: {error}"),
        }
    }

    /// Writes a record; its metrics are set even if that fails.
    pub(super) fn note(&mut self, record: ShutdownRecord, ctx: &mut Context<Msg>) {
        let Some(path) = self.policy.record.clone() else {
            return;
        };
        self.record = record;
        record.show();
        if self.record_state == RecordState::No {
            self.record_state = RecordState::Now(record);
            ctx.run(
                async move { Msg::Record(RecordEvent::Written(record::write(path, record).await)) },
            );
        }
    }

    pub(super) fn end(&mut self, ctx: &mut Context<Msg>) {
        if self.record.began.is_some() && self.record.ended.is_none() {
            let ended = Some(ctx.timestamp());
            let record = self.record;
            self.note(ShutdownRecord { ended, ..record }, ctx);
        }
    }

    pub(super) fn release(&mut self, ctx: &mut Context<Msg>) {
        if !self.going_down {
            return;
        }
        self.end(ctx);
        match self.record_state {
            RecordState::No => self.lock = None,
            RecordState::Now(_) => self.lock_state = LockState::Yes,
        }
    }

    pub(super) fn record_written(&mut self, outcome: io::Result<()>, ctx: &mut Context<Msg>) {
        if let Err(error) = outcome {
            tracing::error!("it is not written down when the node goes down: {error}");
        }
        let record_written = std::mem::take(&mut self.record_state);
        if record_written != RecordState::Now(self.record) {
            return self.note(self.record, ctx);
        }
        if std::mem::take(&mut self.lock_state) == LockState::Yes {
            self.lock = None;
        }
    }
}
