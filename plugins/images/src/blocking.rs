//! Work that may wait for the disk, on threads of its own and never on the runtime's.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;
use tokio::time::Instant;

/// Enough for every call into the kernel; walks keep their state on the heap.
const STACK_BYTES: usize = 512 << 10;

/// Does `work` on a thread of its own, which holds `permit` until it ends: who waits may go away before.
pub(crate) async fn run<T: Send + 'static>(
    permit: impl Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("images".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let result = work();
            drop(permit);
            drop(sender.send(result));
        })?;
    receiver
        .await
        .map_err(|_| io::Error::other("the thread that worked on it panicked"))
}

/// When work on a thread ends although it is not done: at a deadline, or when who wanted it is gone.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    deadline: Instant,
    is_given_up: Arc<AtomicBool>,
}

impl Stop {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self {
            deadline,
            is_given_up: Arc::default(),
        }
    }

    /// Returns what gives the work up when it is dropped.
    pub(crate) fn guard(&self) -> StopGuard {
        StopGuard(self.is_given_up.clone())
    }

    /// Tells why to end, if it is time to.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.is_given_up.load(Ordering::Relaxed) {
            return Err("who wanted it is gone");
        }
        match Instant::now() >= self.deadline {
            true => Err("it is not done by its deadline"),
            false => Ok(()),
        }
    }
}

/// Held by who waits for work on threads.
#[derive(Debug)]
pub(crate) struct StopGuard(Arc<AtomicBool>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
