//! The threads: kept for the next work when they are done, a few of them, for a while.

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tonic::Status;

/// The health attribute with the number of threads given up.
pub(super) const ABANDONED: &str = "abandoned";

/// Enough for every call into the kernel and for walks, which keep their state on the heap.
const STACK_BYTES: usize = 256 << 10;
/// A thread costs about 20 KiB while it waits: few are kept.
const IDLE_MAX: usize = 4;
/// How long a thread waits for further work before it ends: longer than the pause between two calls of a busy node.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) type Runnable = Box<dyn FnOnce() + Send>;

/// Threads that are idle, and the number of those that were given up.
pub(super) struct Threads {
    health: sdk::Health,
    keep: usize,
    idle: Mutex<Idle>,
    abandoned: Mutex<usize>,
}

#[derive(Default)]
struct Idle {
    next: u64,
    // The one that came last is taken first, so that the others may end.
    waiting: Vec<(u64, SyncSender<Runnable>)>,
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads")
            .field("abandoned", &self.abandoned())
            .finish_non_exhaustive()
    }
}

impl Threads {
    pub(super) fn new(health: sdk::Health, places: usize) -> Self {
        Self {
            health,
            keep: places.min(IDLE_MAX),
            idle: Mutex::default(),
            abandoned: Mutex::new(0),
        }
    }

    /// Hands `job` to a thread that is idle, or to a new one.
    pub(super) fn start(self: &Arc<Self>, mut job: Runnable) -> Result<(), Status> {
        loop {
            let waiting = self.idle().waiting.pop();
            let Some((_, thread)) = waiting else { break };
            match thread.send(job) {
                Ok(()) => return Ok(()),
                Err(back) => job = back.0,
            }
        }
        let threads = self.clone();
        std::thread::Builder::new()
            .name("bench".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || threads.serve(job))
            .map(drop)
            .map_err(|error| Status::resource_exhausted(format!("cannot start a thread: {error}")))
    }

    fn serve(&self, mut job: Runnable) {
        loop {
            job();
            let (sender, receiver) = sync_channel(1);
            let Some(number) = self.register(sender) else {
                return;
            };
            job = match receiver.recv_timeout(IDLE_TIMEOUT) {
                Ok(next) => next,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    self.idle().waiting.retain(|(other, _)| *other != number);
                    // `start` may have taken this thread from the list just before: then its job is on the way.
                    match receiver.recv() {
                        Ok(next) => next,
                        Err(_) => return,
                    }
                }
            };
        }
    }

    fn register(&self, sender: SyncSender<Runnable>) -> Option<u64> {
        let mut idle = self.idle();
        if idle.waiting.len() >= self.keep {
            return None;
        }
        idle.next += 1;
        let number = idle.next;
        idle.waiting.push((number, sender));
        Some(number)
    }

    /// Counts a thread as abandoned if `is_abandoned` says that it is.
    pub(super) fn abandon(&self, is_abandoned: impl FnOnce() -> bool) {
        // Decided under the lock: a thread that comes back at this moment is counted on before it is counted off.
        self.count(|abandoned| match is_abandoned() {
            true => abandoned + 1,
            false => abandoned,
        });
    }

    /// Counts a thread off that was given up and ended nevertheless.
    pub(super) fn uncount(&self) {
        self.count(|abandoned| abandoned.saturating_sub(1));
    }

    pub(super) fn abandoned(&self) -> usize {
        *self
            .abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(usize) -> usize) {
        let mut abandoned = self
            .abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let now = change(*abandoned);
        if now != *abandoned {
            *abandoned = now;
            // Within the lock, so that the last number reported is the last one counted.
            self.health.attribute(ABANDONED, now.to_string());
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
