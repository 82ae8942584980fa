//! A pool of blocking threads, each of which can be given up, a lock by key, and removals of trees in the background.
//!
//! A call into the kernel about a volume may never return. Such a thread cannot be ended, only left alone: its
//! caller gets an answer at the deadline, the thread is counted as abandoned for as long as it lasts, and its
//! place is given to the next call. The threads are no runtime's: nothing waits for them at the end of the process.

mod cancel;
mod keyed_lock;
mod removals;
mod threads;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

pub use self::cancel::Cancel;
pub use self::keyed_lock::{KeyedGuard, KeyedLock};
pub use self::removals::{RemovalError, Removals};
use self::threads::Threads;

/// Beyond so many abandoned threads no more work is begun: the process is to be replaced.
const ABANDONED_MAX: usize = 64;
/// No call has more time than this, whatever it asks for.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long before its deadline work is asked to end by itself, at most; a quarter of its time if that is less.
const CANCEL_MARGIN: Duration = Duration::from_secs(1);

/// The metadata key of an answer whose thread was abandoned.
const ABANDONED_HEADER: &str = "oxlet-abandoned";

/// Threads for work that may hang. Clones share them.
#[derive(Clone, Debug)]
pub struct BlockingPool {
    places: Arc<Semaphore>,
    threads: Arc<Threads>,
}

impl BlockingPool {
    /// Makes a pool with so many places; the number of abandoned threads shows in the attribute "abandoned".
    pub fn new(health: sdk::Health, places: usize) -> Self {
        health.attribute(threads::ABANDONED, "0");
        Self {
            places: Arc::new(Semaphore::new(places.max(1))),
            threads: Arc::new(Threads::new(health, places.max(1))),
        }
    }

    /// Does `work` on a thread of its own and returns what it returns, or DEADLINE_EXCEEDED after `within`.
    ///
    /// Waiting for a free place counts. If the caller goes away, work that has begun goes on, and is watched on.
    /// `work` finds out by [`Cancel::current`] that it should end.
    ///
    /// # Errors
    /// What `work` returns, or DEADLINE_EXCEEDED; then the thread may be stuck in the kernel, and counts as
    /// abandoned once it does not end.
    pub async fn run<T: Send + 'static>(
        &self,
        what: &str,
        within: Duration,
        work: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let within = within.min(TIMEOUT_MAX);
        let end = Instant::now() + within;
        let late = format!("{what} did not end within {}", format_duration(within));
        let place = self.place(what, end, &late).await?;
        let task = Arc::new(PoolTask::default());
        let (answer, answered) = oneshot::channel();
        self.threads
            .start(task.job(what, work, answer, &self.threads))?;
        let threads = self.threads.clone();
        let asked = end - CANCEL_MARGIN.min(within / 4);
        // A task of its own, so that the place is given back at the deadline even if the caller is gone by then.
        let watch = tokio::spawn(async move {
            let result = task.watch(asked, end, answered, &threads).await;
            drop(place);
            match result {
                None => Err(abandoned(late)),
                // Work that listened says the same in fewer words.
                Some(Err(status)) if task.cancel.is_set() && is_late(&status) => {
                    Err(Status::deadline_exceeded(late))
                }
                Some(result) => result,
            }
        });
        match watch.await {
            Ok(result) => result,
            Err(gone) => Err(Status::internal(format!("{what} was not watched: {gone}"))),
        }
    }

    async fn place(
        &self,
        what: &str,
        end: Instant,
        late: &str,
    ) -> Result<OwnedSemaphorePermit, Status> {
        let places = self.places.clone().acquire_owned();
        let Ok(place) = timeout_at(end, places).await else {
            return Err(Status::deadline_exceeded(format!(
                "{late}: all threads are busy"
            )));
        };
        if self.abandoned() >= ABANDONED_MAX {
            return Err(Status::unavailable(format!(
                "{what} was not begun: {ABANDONED_MAX} threads are stuck"
            )));
        }
        Ok(place.expect("the semaphore is never closed"))
    }

    /// Returns how many threads are still in work whose deadline has passed.
    pub fn abandoned(&self) -> usize {
        self.threads.abandoned()
    }
}

const RUNNING: u8 = 0;
const DONE: u8 = 1;
const ABANDONED: u8 = 2;

/// One piece of work, as seen from both sides.
#[derive(Debug, Default)]
struct PoolTask {
    state: AtomicU8,
    cancel: Cancel,
}

impl PoolTask {
    fn job<T: Send + 'static>(
        self: &Arc<Self>,
        what: &str,
        work: impl FnOnce() -> Result<T, Status> + Send + 'static,
        answer: oneshot::Sender<Result<T, Status>>,
        threads: &Arc<Threads>,
    ) -> threads::Runnable {
        let (task, threads, what) = (self.clone(), threads.clone(), what.to_owned());
        Box::new(move || {
            let result = task.cancel.scope(|| catch_unwind(AssertUnwindSafe(work)));
            let result = result.unwrap_or_else(|panic| {
                let why = format!("{what} panicked: {}", reason(panic.as_ref()));
                tracing::error!("{why}");
                Err(Status::internal(why))
            });
            // The receiver is gone if the deadline has passed.
            drop(answer.send(result));
            if task.state.swap(DONE, Ordering::AcqRel) == ABANDONED {
                tracing::warn!("{what} ended after its deadline");
                threads.uncount();
            }
        })
    }

    /// Waits for the result; `None` when the thread has been given up.
    async fn watch<T>(
        &self,
        asked: Instant,
        end: Instant,
        mut answered: oneshot::Receiver<Result<T, Status>>,
        threads: &Threads,
    ) -> Option<Result<T, Status>> {
        let died = || Err(Status::internal("the thread ended without a result"));
        if let Ok(result) = timeout_at(asked, &mut answered).await {
            return Some(result.unwrap_or_else(|_| died()));
        }
        self.cancel.set();
        if let Ok(result) = timeout_at(end, &mut answered).await {
            return Some(result.unwrap_or_else(|_| died()));
        }
        threads.abandon(|| self.state.swap(ABANDONED, Ordering::AcqRel) == RUNNING);
        answered.try_recv().ok()
    }
}

fn is_late(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded
}

fn abandoned(late: String) -> Status {
    let mut status = Status::deadline_exceeded(late);
    status
        .metadata_mut()
        .insert(ABANDONED_HEADER, MetadataValue::from_static("1"));
    status
}

/// Returns a panic's message.
fn reason(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "without a word",
    }
}

/// "30s", "2m", "250ms": as Go writes durations of one unit. From a second on in tenths, so that two waits of one kind
/// read the same.
pub fn format_duration(span: Duration) -> String {
    const TENTH: Duration = Duration::from_millis(100);
    let span = match u32::try_from((span + TENTH / 2).as_millis() / TENTH.as_millis()) {
        Ok(tenths) if tenths >= 10 => TENTH * tenths,
        Ok(_) | Err(_) => span,
    };
    let seconds = span.as_secs();
    match (span.subsec_millis(), seconds % 60, seconds / 60) {
        (0, 0, minutes) if minutes > 0 => format!("{minutes}m0s"),
        (0, seconds, 0) => format!("{seconds}s"),
        (0, seconds, minutes) => format!("{minutes}m{seconds}s"),
        (_, _, _) if seconds == 0 => format!("{}ms", span.as_millis()),
        (_, _, _) => format!("{}s", span.as_secs_f64()),
    }
}
