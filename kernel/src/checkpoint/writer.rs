//! Checkpoints of a living actor: coalesced, and written beside it.
//!
//! The actor [`mark`](Writer::mark)s that something changed, asks [`due`](Writer::due) when to set
//! its timer, and at the timer hands its state to [`begin`](Writer::begin). What that returns runs
//! in [`Context::run`](crate::Context::run) and comes home as a message, for
//! [`finish`](Writer::finish). At most one write is under way, and at most one begins an interval.

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::checkpoint::draft::Draft;
use crate::checkpoint::{CheckpointError, Saved, Stats, Store};

/// Decides when a store is written, so that many changes make one write.
#[derive(Debug)]
pub struct Writer {
    store: Store,
    interval: Duration,
    changed: bool,
    writing: bool,
    earliest: Option<Instant>,
}

/// A write that has not begun: run it beside the actor.
#[derive(Debug)]
#[must_use = "nothing is written until it runs"]
pub struct Writing(Draft);

/// A write that has come to its end, well or not.
#[derive(Debug)]
pub struct Written {
    draft: Draft,
    result: io::Result<()>,
}

impl Writer {
    /// Writes `store` at most once every `interval`.
    pub fn new(store: Store, interval: Duration) -> Writer {
        Writer {
            store,
            interval,
            changed: false,
            writing: false,
            earliest: None,
        }
    }

    /// Returns the store, to load from.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns what the store cost its disk so far.
    pub fn stats(&self) -> Stats {
        self.store.stats()
    }

    /// Notes that the state differs from what was written.
    pub fn mark(&mut self) {
        self.changed = true;
    }

    /// Returns how long to wait with the next write, or `None` when there is nothing to write, or a
    /// write is still under way.
    pub fn due(&self, now: Instant) -> Option<Duration> {
        (self.changed && !self.writing).then(|| match self.earliest {
            Some(earliest) => earliest.saturating_duration_since(now),
            None => Duration::ZERO,
        })
    }

    /// Takes the state of this moment. `None` means that the file holds it already.
    pub fn begin<T: Serialize>(
        &mut self,
        now: Instant,
        value: &T,
    ) -> Result<Option<Writing>, CheckpointError> {
        self.earliest = Some(now + self.interval);
        self.changed = false;
        let draft = self.store.draft(value)?;
        self.writing = draft.is_some();
        Ok(draft.map(Writing))
    }

    /// Takes note of a write's end. One that failed is due again after the interval.
    pub fn finish(&mut self, written: Written) -> Result<Saved, CheckpointError> {
        self.writing = false;
        let saved = self.store.settle(&written.draft, written.result);
        self.changed |= saved.is_err();
        saved
    }

    /// Writes at once and waits for it: for [`stop`](crate::Actor::stop), where nothing waits behind.
    pub fn flush<T: Serialize>(&mut self, value: &T) -> Result<Saved, CheckpointError> {
        self.changed = false;
        self.store.save(value)
    }
}

impl Writing {
    /// Writes, in the pool for blocking work.
    pub async fn run(self) -> Written {
        let Writing(draft) = self;
        let written = tokio::task::spawn_blocking(move || {
            let result = draft.write();
            Written { draft, result }
        });
        match written.await {
            Ok(written) => written,
            // Writing has no panic of its own; one that comes all the same is the actor's.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => std::future::pending().await,
            },
        }
    }
}
