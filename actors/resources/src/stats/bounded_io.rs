//! Blocking reads of files that may hang: one at a time, each with a timeout.
//!
//! A thread that hangs in the kernel cannot be cancelled. So each [`BoundedIo`] has at most one: while it
//! hangs, no other read begins, and callers get an error at once.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Reading all pods of a full node takes some ten milliseconds.
pub(crate) const IO_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a read gave no result.
#[derive(Debug, Error)]
pub enum BoundedIoError {
    #[error("the disk or the kernel has not answered for {} s", .0.as_secs())]
    Timeout(Duration),
    #[error(transparent)]
    Broke(#[from] tokio::task::JoinError),
}

impl BoundedIoError {
    pub fn transient(&self) -> bool {
        match self {
            BoundedIoError::Timeout(_) | BoundedIoError::Broke(_) => true,
        }
    }
}

/// Runs one blocking read at a time, in the blocking pool.
#[derive(Debug)]
pub(crate) struct BoundedIo {
    /// Held by the reading thread, however long it hangs.
    turn: Arc<Semaphore>,
    /// When the last read began; none before the first.
    began: Cell<Option<Instant>>,
}

impl Default for BoundedIo {
    fn default() -> Self {
        BoundedIo {
            turn: Arc::new(Semaphore::new(1)),
            began: Cell::new(None),
        }
    }
}

impl BoundedIo {
    /// Runs a blocking read after the one that is running; fails if either exceeds the timeout.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BoundedIoError> {
        if let Some(late) = self.timeout_error() {
            return Err(BoundedIoError::Timeout(late));
        }
        let seen = timeout(IO_TIMEOUT, self.run_in_turn(work)).await;
        seen.unwrap_or(Err(BoundedIoError::Timeout(IO_TIMEOUT)))
    }

    /// Whether nothing is being read.
    pub(crate) fn is_idle(&self) -> bool {
        self.turn.available_permits() > 0
    }

    /// For how long the current read has exceeded the timeout; none if it has not.
    fn timeout_error(&self) -> Option<Duration> {
        let began = self.began.get().filter(|_| !self.is_idle())?;
        let lasts = kernel::now().saturating_duration_since(began);
        (lasts >= IO_TIMEOUT).then_some(lasts)
    }

    async fn run_in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BoundedIoError> {
        let turn = self.turn.clone().acquire_owned().await;
        let turn = turn.expect("nobody closes it");
        self.began.set(Some(kernel::now()));
        let look = kernel::spawn_blocking(move || {
            let seen = work();
            drop(turn);
            seen
        });
        Ok(look.await?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt;
    use kernel::testing::run_paused;
    use tokio::time::{Instant, advance};

    use super::*;

    /// A read that hangs until the other end is dropped.
    fn hanging() -> (impl FnOnce() + Send, mpsc::Sender<()>) {
        let (held, released) = mpsc::channel::<()>();
        (move || released.recv().unwrap_or_default(), held)
    }

    #[test]
    fn a_look_that_hangs_is_waited_for_no_longer_than_its_time_and_nobody_begins_another() {
        run_paused(|| async {
            let (eye, (hang, held)) = (BoundedIo::default(), hanging());
            let began = Instant::now();
            let mut first = Box::pin(eye.run(hang));
            assert!(first.as_mut().now_or_never().is_none());
            advance(IO_TIMEOUT).await;
            assert!(matches!(first.await, Err(BoundedIoError::Timeout(_))));
            for late in [1, 100] {
                advance(Duration::from_secs(late)).await;
                let second = eye.run(|| -> u8 { unreachable!("the first still hangs") });
                let told = second.now_or_never().expect("it is told at once");
                assert!(matches!(told, Err(BoundedIoError::Timeout(_))));
            }
            assert_eq!(began.elapsed(), IO_TIMEOUT + Duration::from_secs(101));

            drop(held);
            let free = eye.turn.acquire().await.unwrap();
            drop(free);
            assert_eq!(eye.run(|| 7).await.unwrap(), 7);
        });
    }

    #[test]
    fn looks_that_come_together_are_made_one_after_the_other() {
        run_paused(|| async {
            let (eye, (hang, held)) = (BoundedIo::default(), hanging());
            let mut first = Box::pin(eye.run(hang));
            assert!(first.as_mut().now_or_never().is_none());
            let mut second = Box::pin(eye.run(|| 7));
            assert!(second.as_mut().now_or_never().is_none());
            drop(held);
            let (first, second) = futures_util::future::join(first, second).await;
            assert!(first.is_ok());
            assert_eq!(second.unwrap(), 7);
        });
    }

    #[test]
    fn a_look_that_nobody_waits_for_any_more_holds_its_turn_until_it_ends() {
        run_paused(|| async {
            let (eye, (hang, held)) = (BoundedIo::default(), hanging());
            assert!(eye.run(hang).now_or_never().is_none());
            assert_eq!(eye.turn.available_permits(), 0);
            drop(held);
            drop(eye.turn.acquire().await.unwrap());
        });
    }
}
