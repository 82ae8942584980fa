//! A lock by key: one call about a volume at a time, in the order of arrival; different volumes are independent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tonic::Status;

use crate::format_duration;

/// Locks by volume id. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct KeyedLock {
    mutexes: Arc<Mutex<HashMap<String, Arc<AsyncMutex<()>>>>>,
}

/// A held lock, released when it is dropped.
///
/// Move it into the work that is done on the pool: work that is stuck then keeps it, and no other call works on
/// that volume beside it.
#[derive(Debug)]
pub struct KeyedGuard {
    held: Option<OwnedMutexGuard<()>>,
    waiter: Waiter,
}

/// A holder of a mutex or a waiter for it; the mutex is forgotten with the last one.
#[derive(Debug)]
struct Waiter {
    locks: KeyedLock,
    id: String,
    mutex: Option<Arc<AsyncMutex<()>>>,
}

impl KeyedLock {
    /// Makes an empty set of locks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for the lock of `id`, in the order of arrival: DEADLINE_EXCEEDED after `within`.
    pub async fn lock(&self, id: &str, within: Duration) -> Result<KeyedGuard, Status> {
        let waiter = self.waiter(id);
        let mutex = waiter.mutex.clone().expect("only taken when it is dropped");
        match tokio::time::timeout(within, mutex.lock_owned()).await {
            Ok(held) => Ok(KeyedGuard {
                held: Some(held),
                waiter,
            }),
            Err(_) => Err(Status::deadline_exceeded(format!(
                "another call about volume {id} did not end within {}",
                format_duration(within)
            ))),
        }
    }

    /// Returns how many ids are locked or waited for.
    pub fn locked(&self) -> usize {
        self.mutexes().len()
    }

    fn waiter(&self, id: &str) -> Waiter {
        let mutex = self.mutexes().entry(id.to_owned()).or_default().clone();
        Waiter {
            locks: self.clone(),
            id: id.to_owned(),
            mutex: Some(mutex),
        }
    }

    fn mutexes(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<AsyncMutex<()>>>> {
        self.mutexes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyedGuard {
    /// Returns the id of the volume that it locks.
    pub fn id(&self) -> &str {
        &self.waiter.id
    }
}

impl Drop for KeyedGuard {
    fn drop(&mut self) {
        // Before the waiter, which checks for other holders of the mutex.
        drop(self.held.take());
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut mutexes = self.locks.mutexes();
        drop(self.mutex.take());
        // Clones are made under this lock only, or of a clone that is counted: one left means ours alone.
        if mutexes
            .get(&self.id)
            .is_some_and(|mutex| Arc::strong_count(mutex) == 1)
        {
            mutexes.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test(start_paused = true)]
    async fn calls_about_one_volume_follow_each_other_in_order() {
        let locks = KeyedLock::new();
        let first = locks.lock("a", LONG).await.unwrap();
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..10 {
            let (locks, sender) = (locks.clone(), sender.clone());
            tokio::spawn(async move {
                let guard = locks.lock("a", LONG).await.unwrap();
                sender.send(number).unwrap();
                drop(guard);
            });
            tokio::task::yield_now().await;
        }
        assert!(order.try_recv().is_err());
        drop((first, sender));
        let mut seen = Vec::new();
        while let Some(number) = order.recv().await {
            seen.push(number);
        }
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        assert_eq!(locks.locked(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn different_volumes_know_nothing_of_each_other() {
        let locks = KeyedLock::new();
        let held: Vec<_> = ["a", "b", "c"].map(|id| locks.lock(id, LONG)).into();
        let held = futures_util::future::join_all(held).await;
        assert_eq!(locks.locked(), 3);
        drop(held);
        assert_eq!(locks.locked(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_told_and_forgotten() {
        let locks = KeyedLock::new();
        let held = locks.lock("kubernetes.io/nfs/x", LONG).await.unwrap();
        let refusal = locks
            .lock("kubernetes.io/nfs/x", Duration::from_secs(5))
            .await;
        let refusal = refusal.unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::DeadlineExceeded);
        assert_eq!(
            refusal.message(),
            "another call about volume kubernetes.io/nfs/x did not end within 5s"
        );
        assert_eq!((locks.locked(), held.id()), (1, "kubernetes.io/nfs/x"));
        drop(held);
        assert_eq!(locks.locked(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_while_waiting_is_forgotten() {
        let locks = KeyedLock::new();
        let held = locks.lock("a", LONG).await.unwrap();
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { drop(locks.lock("a", LONG).await) }
        });
        tokio::task::yield_now().await;
        waiting.abort();
        drop(waiting.await);
        drop(held);
        assert_eq!(locks.locked(), 0);
        drop(locks.lock("a", LONG).await.unwrap());
    }

    #[tokio::test]
    async fn a_turn_moved_into_work_lasts_as_long_as_the_work() {
        let locks = KeyedLock::new();
        let guard = locks.lock("a", LONG).await.unwrap();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let work = std::thread::spawn(move || {
            wait.recv().unwrap_err();
            drop(guard);
        });
        locks
            .lock("a", Duration::from_millis(20))
            .await
            .unwrap_err();
        drop(go);
        locks.lock("a", LONG).await.unwrap();
        work.join().unwrap();
        assert_eq!(locks.locked(), 0);
    }
}
