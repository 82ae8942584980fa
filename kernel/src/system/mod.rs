//! The actors' thread: one actix system on one single-threaded runtime.
//!
//! Actors that talk to each other share a thread, because a message between idle threads costs
//! seventy times as much as one within. Blocking file work has a small pool beside it.
//!
//! Here is also what the thread offers to them: its clock, its randomness, its pool and its watchdog.

pub mod blocking;
pub mod clock;
pub mod compute;
pub mod random;
pub mod watchdog;

use std::future::Future;
use std::io;

use tokio::runtime::Builder;

use crate::system::watchdog::Watchdog;

/// Threads for blocking file work; they exist only while they work.
const BLOCKING_THREADS: usize = 4;

/// Runs `main`, and every actor it spawns, on this thread until `main` is done.
pub fn run<F: Future>(main: F) -> io::Result<F::Output> {
    run_watched(Watchdog::default(), main)
}

/// As [`run`], with a watchdog of the caller's choice.
pub fn run_watched<F: Future>(watchdog: Watchdog, main: F) -> io::Result<F::Output> {
    heap::set_up();
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let system = actix::System::with_tokio_rt(|| runtime);
    let beat = watchdog.beat();
    let _listener = watchdog.listen()?;
    Ok(system.block_on(async move {
        let beat = tokio::task::spawn_local(beat);
        let returns = tokio::task::spawn_local(heap::keep_small());
        let output = main.await;
        beat.abort();
        returns.abort();
        output
    }))
}
