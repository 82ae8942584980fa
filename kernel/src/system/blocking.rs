//! Blocking work: the only file that hands it to the pool of threads.
//!
//! Threads finish in an order of their own. A seeded test has none: there the work is a task of the actors' thread, so that
//! what was handed in first is done first, each time.

#[cfg(feature = "testing")]
use std::cell::Cell;

use tokio::task::JoinHandle;

/// Runs `work`, which may block, beside the actors' thread, as tokio's `spawn_blocking` does.
#[allow(
    clippy::disallowed_methods,
    reason = "the one place where the pool gets its work"
)]
pub fn spawn_blocking<F, R>(work: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    #[cfg(feature = "testing")]
    if IN_TURN.get() {
        return tokio::spawn(async move { work() });
    }
    // Boxed: the pool's code is there once for each kind of result, not for each kind of work.
    let work: Box<dyn FnOnce() -> R + Send> = Box::new(work);
    tokio::task::spawn_blocking(work)
}

#[cfg(feature = "testing")]
thread_local! {
    static IN_TURN: Cell<bool> = const { Cell::new(false) };
}

/// Has this thread do its blocking work itself, in turn, or hands it to the pool again.
#[cfg(feature = "testing")]
pub(crate) fn in_turn(in_turn: bool) {
    IN_TURN.set(in_turn);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_seeded_run_does_blocking_work_in_the_order_in_which_it_was_handed_in() {
        let done = crate::testing::run_seeded(7, || async {
            let done = Arc::new(Mutex::new(Vec::new()));
            let work = |number: u32| {
                let done = Arc::clone(&done);
                move || {
                    done.lock()
                        .unwrap()
                        .push((number, std::thread::current().id()))
                }
            };
            let handed_in: Vec<_> = (0..64).map(|number| spawn_blocking(work(number))).collect();
            for work in handed_in {
                work.await.unwrap();
            }
            Arc::into_inner(done).unwrap().into_inner().unwrap()
        });
        let here = std::thread::current().id();
        assert_eq!(
            done,
            (0..64).map(|number| (number, here)).collect::<Vec<_>>()
        );
    }
}
