//! Checkpoints of a living actor: coalesced, and written beside it.
//!
//! The actor [`mark`](CheckpointWriter::mark)s that something changed, asks [`due`](CheckpointWriter::due) when to set
//! its timer, and at the timer hands its state to [`begin`](CheckpointWriter::begin). What that returns runs
//! in [`Context::run`](crate::Context::run) and comes home as a message, for
//! [`finish`](CheckpointWriter::finish). At most one write is under way, and at most one begins an interval.

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::checkpoint::pending_write::PendingWrite;
use crate::checkpoint::{CheckpointError, CheckpointFile, Saved, Stats};
use crate::system::blocking::spawn_blocking;

/// Decides when a store is written, so that many changes make one write.
#[derive(Debug)]
pub struct CheckpointWriter {
    store: CheckpointFile,
    interval: Duration,
    changed: bool,
    writing: bool,
    earliest: Option<Instant>,
}

/// Where the last change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteProgress {
    /// No write holds it yet.
    Due,
    /// In the write under way.
    UnderWay,
    /// On the disk.
    Done,
}

/// A write that has not begun: run it beside the actor.
#[derive(Debug)]
#[must_use = "nothing is written until it runs"]
pub struct WriteTask(PendingWrite);

/// A write that has come to its end, well or not.
#[derive(Debug)]
pub struct WriteResult {
    pending: PendingWrite,
    result: io::Result<()>,
}

impl CheckpointWriter {
    /// Writes `store` at most once every `interval`.
    pub fn new(store: CheckpointFile, interval: Duration) -> CheckpointWriter {
        CheckpointWriter {
            store,
            interval,
            changed: false,
            writing: false,
            earliest: None,
        }
    }

    /// Returns the store, to load from.
    pub fn store(&self) -> &CheckpointFile {
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

    /// How far what is marked is on its way to the disk.
    pub fn progress(&self) -> WriteProgress {
        match (self.changed, self.writing) {
            (true, _) => WriteProgress::Due,
            (false, true) => WriteProgress::UnderWay,
            (false, false) => WriteProgress::Done,
        }
    }

    /// Takes the state of this moment. `None` means that the file holds it already.
    pub fn begin<T: Serialize>(
        &mut self,
        now: Instant,
        value: &T,
    ) -> Result<Option<WriteTask>, CheckpointError> {
        self.earliest = Some(now + self.interval);
        self.changed = false;
        let pending = self.store.pending(value)?;
        self.writing = pending.is_some();
        Ok(pending.map(WriteTask))
    }

    /// Takes note of a write's end. One that failed is due again after the interval.
    pub fn finish(&mut self, written: WriteResult) -> Result<Saved, CheckpointError> {
        self.writing = false;
        let saved = self.store.settle(&written.pending, written.result);
        self.changed |= saved.is_err();
        saved
    }

    /// Writes at once and waits for it: for [`stop`](crate::Actor::stop), where nothing waits behind.
    pub fn flush<T: Serialize>(&mut self, value: &T) -> Result<Saved, CheckpointError> {
        self.changed = false;
        self.store.save(value)
    }
}

impl WriteTask {
    /// Writes, in the pool for blocking work.
    pub async fn run(self) -> WriteResult {
        let WriteTask(pending) = self;
        let written = spawn_blocking(move || {
            let result = pending.write();
            WriteResult { pending, result }
        });
        match written.await {
            Ok(written) => written,
            // A write has no panic of its own; one that comes all the same is the actor's.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => std::future::pending().await,
            },
        }
    }
}
