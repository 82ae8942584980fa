//! The counters of a mailbox: its room, its traffic, and what its actor is busy with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::mailbox::ask_order::TreePosition;

/// The counters of one mailbox, shared by its addresses, its actor and the observers.
#[derive(Debug)]
pub(crate) struct Gauge {
    capacity: usize,
    pub(crate) credits: Semaphore,
    pub(crate) overloaded: AtomicU64,
    handled: AtomicU64,
    busy: Mutex<Option<&'static str>>,
    /// Set when the actor is spawned.
    position: OnceLock<TreePosition>,
}

impl Gauge {
    pub(crate) fn new(capacity: usize) -> Gauge {
        let capacity = capacity.clamp(1, Semaphore::MAX_PERMITS);
        Gauge {
            capacity,
            credits: Semaphore::new(capacity),
            overloaded: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            busy: Mutex::new(None),
            position: OnceLock::new(),
        }
    }

    /// Counts a message taken out of the mailbox, and gives its room to the next.
    pub(crate) fn taken(&self) {
        self.handled.fetch_add(1, Ordering::Relaxed);
        self.credits.add_permits(1);
    }

    pub(crate) fn close(&self) {
        self.credits.close();
    }

    pub(crate) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// Returns the message being handled, readable from the watchdog's thread as well.
    pub(crate) fn busy(&self) -> Option<&'static str> {
        *self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_busy(&self, message: Option<&'static str>) {
        *self.busy.lock().unwrap_or_else(PoisonError::into_inner) = message;
    }

    /// Notes where in the tree the mailbox's actor is spawned; a mailbox is spawned once.
    pub(crate) fn place(&self, position: TreePosition) {
        drop(self.position.set(position));
    }

    pub(crate) fn position(&self) -> Option<&TreePosition> {
        self.position.get()
    }

    pub(crate) fn view(&self) -> MailboxView {
        MailboxView {
            len: self.capacity - self.credits.available_permits().min(self.capacity),
            capacity: self.capacity,
            overloaded: self.overloaded.load(Ordering::Relaxed),
        }
    }
}

/// How full a mailbox is, and how often it was too full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MailboxView {
    /// Messages in the mailbox.
    pub len: usize,
    /// Messages that fit into the mailbox.
    pub capacity: usize,
    /// Messages handed back to their senders since the start.
    pub overloaded: u64,
}

/// A mailbox that will be read. Dropped, it closes the mailbox, however its reader came to end.
#[derive(Debug)]
pub(crate) struct MailboxCloser(pub(crate) Arc<Gauge>);

impl Drop for MailboxCloser {
    fn drop(&mut self) {
        self.0.close();
    }
}
