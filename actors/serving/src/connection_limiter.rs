//! A limit on a listener's connections: at the limit, the one that has been idle for the longest is closed.
//!
//! A client that opens connections without requests, or without permission, keeps no other client out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// A connection: how many requests of it are being answered, and since when none is.
#[derive(Debug)]
pub(crate) struct TrackedConnection {
    answering: AtomicUsize,
    since: Mutex<Instant>,
    freed: Arc<Notify>,
}

/// A request that is being answered, until this is dropped.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<TrackedConnection>);

impl TrackedConnection {
    /// Takes note of a request.
    pub(crate) fn begin(self: &Arc<Self>) -> RequestGuard {
        self.answering.fetch_add(1, Ordering::Relaxed);
        RequestGuard(Arc::clone(self))
    }

    fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.answering.load(Ordering::Relaxed) == 0;
        is_idle.then(|| *self.since.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let guest = &self.0;
        *guest.since.lock().unwrap_or_else(PoisonError::into_inner) = kernel::now();
        guest.answering.fetch_sub(1, Ordering::Relaxed);
        guest.freed.notify_one();
    }
}

/// All connections of a listener, up to a limit.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    most: usize,
    all: Vec<(AbortHandle, Arc<TrackedConnection>)>,
    freed: Arc<Notify>,
}

impl ConnectionLimiter {
    pub(crate) fn new(most: usize) -> ConnectionLimiter {
        ConnectionLimiter {
            most,
            all: Vec::new(),
            freed: Arc::default(),
        }
    }

    /// Whether another connection may come: the limit is not reached, or one of them is idle.
    pub(crate) fn has_room(&mut self) -> bool {
        self.all.retain(|(task, _)| !task.is_finished());
        let mut guests = self.all.iter();
        self.all.len() < self.most || guests.any(|(_, guest)| guest.idle_since().is_some())
    }

    /// Ends when a connection may have become idle.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Returns a new connection; at the limit it replaces the longest idle one.
    pub(crate) fn welcome(&mut self) -> Arc<TrackedConnection> {
        if self.all.len() >= self.most {
            let idle = self.all.iter().enumerate();
            let idle = idle.filter_map(|(at, (_, guest))| Some((guest.idle_since()?, at)));
            if let Some((_, at)) = idle.min() {
                self.all.swap_remove(at).0.abort();
            }
        }
        Arc::new(TrackedConnection {
            answering: AtomicUsize::new(0),
            since: Mutex::new(kernel::now()),
            freed: Arc::clone(&self.freed),
        })
    }

    pub(crate) fn seat(&mut self, guest: Arc<TrackedConnection>, task: AbortHandle) {
        self.all.push((task, guest));
    }
}
