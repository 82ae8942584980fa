//! A value that many follow: tokio's `sync::watch`, but for one thing.
//!
//! Receivers are woken in the order in which they began to wait. tokio's spreads them over eight lists and begins at one
//! by chance, which no seed repeats.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::Notify;

/// Makes a value, with its sender and a first receiver, to which the value is not new.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

struct Shared<T> {
    value: RwLock<T>,
    /// Counts the changes; written under the value's lock.
    version: AtomicU64,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    /// Wakes receivers: the value has changed, or the last sender has gone.
    changed: Notify,
    /// Wakes senders: the last receiver has gone.
    left: Notify,
}

impl<T> Shared<T> {
    fn read(&self) -> Ref<'_, T> {
        Ref(self.value.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn abandoned(&self) -> bool {
        self.senders.load(Ordering::Acquire) == 0
    }
}

/// The value, which cannot change while this is held.
#[derive(Debug)]
pub struct Ref<'a, T>(RwLockReadGuard<'a, T>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Every sender has gone: there will be no other value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value has no sender any more")]
pub struct RecvError;

/// There is no receiver; the value comes back.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value has no receiver any more")]
pub struct SendError<T>(pub T);

/// Changes the value; clones change the same one.
pub struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Makes a value without a receiver.
    pub fn new(value: T) -> Sender<T> {
        Sender(Arc::new(Shared {
            value: RwLock::new(value),
            version: AtomicU64::new(0),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(0),
            changed: Notify::new(),
            left: Notify::new(),
        }))
    }

    /// Makes a receiver to which the present value is not new.
    pub fn subscribe(&self) -> Receiver<T> {
        let shared = Arc::clone(&self.0);
        shared.receivers.fetch_add(1, Ordering::AcqRel);
        let seen = shared.version();
        Receiver { shared, seen }
    }

    /// Replaces the value where there is a receiver.
    ///
    /// # Errors
    /// Without a receiver nothing changes.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.is_closed() {
            return Err(SendError(value));
        }
        drop(self.send_replace(value));
        Ok(())
    }

    /// Replaces the value, and returns the one before.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|old| std::mem::swap(old, &mut value));
        value
    }

    /// Changes the value in place.
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            modify(value);
            true
        });
    }

    /// Changes the value in place; receivers are woken only if the function says that it did.
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let modified = {
            let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
            let modified = modify(&mut value);
            if modified {
                self.0.version.fetch_add(1, Ordering::AcqRel);
            }
            modified
        };
        if modified {
            self.0.changed.notify_waiters();
        }
        modified
    }

    /// Returns the value.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.read()
    }

    /// Tells whether there is no receiver.
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }

    /// Returns the number of receivers.
    pub fn receiver_count(&self) -> usize {
        self.0.receivers.load(Ordering::Acquire)
    }

    /// Waits until there is no receiver.
    pub async fn closed(&self) {
        loop {
            let left = self.0.left.notified();
            if self.is_closed() {
                return;
            }
            left.await;
        }
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Sender<T> {
        Sender::new(T::default())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.senders.fetch_add(1, Ordering::AcqRel);
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&*self.borrow()).finish()
    }
}

/// Follows the value. A clone has seen what its original has.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The version that was seen last.
    seen: u64,
}

impl<T> Receiver<T> {
    /// Returns the value, and leaves it as new as it is.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.read()
    }

    /// Returns the value, which is not new any more.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.read();
        self.seen = self.shared.version();
        value
    }

    /// Tells whether there is a value that was not seen.
    ///
    /// # Errors
    /// Every sender has gone.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        match self.shared.abandoned() {
            true => Err(RecvError),
            false => Ok(self.shared.version() != self.seen),
        }
    }

    /// Takes the present value for a new one.
    pub fn mark_changed(&mut self) {
        self.seen = self.shared.version().wrapping_sub(1);
    }

    /// Takes the present value for one that was seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.version();
    }

    /// Waits for a value that was not seen, and takes it as seen. Nothing is lost if it is dropped before.
    ///
    /// # Errors
    /// Every sender has gone, and their last value was seen.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        loop {
            let changed = self.shared.changed.notified();
            // Read before the version: the last sender's value is seen before its end is.
            let abandoned = self.shared.abandoned();
            let version = self.shared.version();
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if abandoned {
                return Err(RecvError);
            }
            changed.await;
        }
    }

    /// Waits for a value that is as wanted, the present one included.
    ///
    /// # Errors
    /// Every sender has gone, and their last value is not as wanted.
    pub async fn wait_for(
        &mut self,
        mut wanted: impl FnMut(&T) -> bool,
    ) -> Result<Ref<'_, T>, RecvError> {
        loop {
            let changed = self.shared.changed.notified();
            let abandoned = self.shared.abandoned();
            {
                let value = self.shared.read();
                self.seen = self.shared.version();
                if wanted(&value) {
                    return Ok(value);
                }
            }
            if abandoned {
                return Err(RecvError);
            }
            changed.await;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.receivers.fetch_add(1, Ordering::AcqRel);
        Receiver {
            shared: Arc::clone(&self.shared),
            seen: self.seen,
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if self.shared.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.left.notify_waiters();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&*self.borrow()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::testing::{pass, run_paused};

    #[test]
    fn receivers_are_woken_in_the_order_in_which_they_began_to_wait() {
        run_paused(|| async {
            let sender = Sender::new(0);
            let woken = Rc::new(RefCell::new(Vec::new()));
            for number in 0..40 {
                let (mut receiver, woken) = (sender.subscribe(), Rc::clone(&woken));
                tokio::task::spawn_local(async move {
                    receiver.changed().await.unwrap();
                    woken.borrow_mut().push(number);
                });
            }
            pass(std::time::Duration::from_millis(1)).await;
            sender.send(1).unwrap();
            pass(std::time::Duration::from_millis(1)).await;
            assert_eq!(*woken.borrow(), (0..40).collect::<Vec<_>>());
        });
    }

    #[test]
    fn the_last_value_is_seen_before_the_end_of_its_sender() {
        run_paused(|| async {
            let (sender, mut receiver) = channel("a");
            assert_eq!(receiver.has_changed(), Ok(false));
            let mut other = receiver.clone();
            assert_eq!(sender.send_replace("b"), "a");
            drop(sender);
            assert_eq!(receiver.has_changed(), Err(RecvError));
            assert_eq!(receiver.changed().await, Ok(()));
            assert_eq!(*receiver.borrow(), "b");
            assert_eq!(receiver.changed().await, Err(RecvError));
            assert_eq!(*other.wait_for(|value| *value == "b").await.unwrap(), "b");
            assert_eq!(
                other.wait_for(|value| *value == "c").await.err(),
                Some(RecvError)
            );
        });
    }

    #[test]
    fn waiting_ends_when_the_other_side_goes() {
        run_paused(|| async {
            let (sender, mut receiver) = channel(0);
            let clone = sender.clone();
            let waiting = tokio::task::spawn_local(async move { receiver.changed().await });
            pass(std::time::Duration::from_millis(1)).await;
            drop(sender);
            assert!(!waiting.is_finished());
            drop(clone);
            assert_eq!(waiting.await.unwrap(), Err(RecvError));

            let (sender, receiver) = channel(0);
            let waiting = tokio::task::spawn_local({
                let sender = sender.clone();
                async move { sender.closed().await }
            });
            pass(std::time::Duration::from_millis(1)).await;
            assert!(!waiting.is_finished());
            drop(receiver);
            waiting.await.unwrap();
            assert_eq!(sender.send(1), Err(SendError(1)));
            assert_eq!(*sender.borrow(), 0);
        });
    }

    #[test]
    fn only_a_change_is_new() {
        let (sender, mut receiver) = channel(0);
        assert!(!sender.send_if_modified(|_| false));
        assert_eq!(receiver.has_changed(), Ok(false));
        sender.send_modify(|value| *value += 1);
        assert_eq!(receiver.has_changed(), Ok(true));
        assert_eq!(*receiver.borrow_and_update(), 1);
        assert_eq!(receiver.has_changed(), Ok(false));
        receiver.mark_changed();
        assert_eq!(receiver.has_changed(), Ok(true));
        receiver.mark_unchanged();
        assert_eq!(receiver.has_changed(), Ok(false));
        assert_eq!(sender.receiver_count(), 1);
    }
}
