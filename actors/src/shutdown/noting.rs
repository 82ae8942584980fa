//! It is noted when the node goes down and when its pods have ended; the machine waits for that.

use std::io;

use kernel::Context;

use super::record::{self, Record};
use super::{Msg, Shutdown, timestamp};

/// Whether the record is being written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Noting {
    #[default]
    No,
    /// As it was then.
    Now(Record),
}

/// Whether the machine goes on as soon as the record is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Releasing {
    #[default]
    No,
    Yes,
}

impl Shutdown {
    pub(super) fn remembered(&mut self, record: io::Result<Record>) {
        match record {
            // What has happened meanwhile is newer.
            Ok(record) if self.record == Record::default() => {
                self.record = record;
                record.show();
            }
            Ok(_) => {}
            Err(error) => tracing::error!("it is not known when the node went down last: {error}"),
        }
    }

    /// Takes down when it goes down; what cannot be written is shown all the same.
    pub(super) fn note(&mut self, record: Record, ctx: &mut Context<Msg>) {
        let Some(path) = self.policy.record.clone() else {
            return;
        };
        self.record = record;
        record.show();
        if self.noting == Noting::No {
            self.noting = Noting::Now(record);
            ctx.run(async move { Msg::Noted(record::write(path, record).await) });
        }
    }

    pub(super) fn end(&mut self, ctx: &mut Context<Msg>) {
        if self.record.began.is_some() && self.record.ended.is_none() {
            let ended = Some(timestamp(ctx));
            let record = self.record;
            self.note(Record { ended, ..record }, ctx);
        }
    }

    pub(super) fn release(&mut self, ctx: &mut Context<Msg>) {
        if !self.going_down {
            return;
        }
        self.end(ctx);
        match self.noting {
            Noting::No => self.lock = None,
            Noting::Now(_) => self.releasing = Releasing::Yes,
        }
    }

    pub(super) fn noted(&mut self, outcome: io::Result<()>, ctx: &mut Context<Msg>) {
        if let Err(error) = outcome {
            tracing::error!("it is not written down when the node goes down: {error}");
        }
        let noted = std::mem::take(&mut self.noting);
        if noted != Noting::Now(self.record) {
            return self.note(self.record, ctx);
        }
        if std::mem::take(&mut self.releasing) == Releasing::Yes {
            self.lock = None;
        }
    }
}
