//! Cancellation of long blocking work.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tonic::Status;

thread_local! {
    static CURRENT: RefCell<Cancel> = RefCell::new(Cancel::default());
}

/// A cancellation flag of blocking work, which checks it and ends by itself. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<(Mutex<bool>, Condvar)>);

impl Cancel {
    /// Returns that of the work that this thread does; elsewhere than on a pool, one that is never set.
    pub fn current() -> Self {
        CURRENT.with_borrow(Self::clone)
    }

    /// Sets the flag, and wakes the work from [`sleep`](Self::sleep).
    pub fn set(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Tells whether the work should end.
    pub fn is_set(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails with DEADLINE_EXCEEDED if the work should end: for the loops of long walks.
    pub fn check(&self) -> Result<(), Status> {
        if self.is_set() {
            return Err(Status::deadline_exceeded("not done in time"));
        }
        Ok(())
    }

    /// Rests for so long, or until the work should end.
    pub fn sleep(&self, span: Duration) -> Result<(), Status> {
        let held = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(held, span, |set| !*set);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.check()
    }

    /// Does `work` on this thread with this one as [`Cancel::current`].
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(self.clone());
        let result = work();
        drop(CURRENT.replace(before));
        result
    }
}
