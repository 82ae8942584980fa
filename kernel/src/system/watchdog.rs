//! Names the actor that blocks: a thread of its own sees that the actors' thread stands still.
//!
//! A handler that waits for ever is found by its ping. One that *blocks* stops the pinging timer as well, so no actor
//! on that thread can notice. Here the actors' thread keeps a beat, a second thread checks it, and when the beat stops
//! it names the actor and the message that were being polled. If the beat stays away, the process is ended: its
//! service manager starts it again, and it adopts what it finds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};

use crate::mailbox::gauge::Gauge;

/// When the watchdog raises alarms about an actors' thread that stands still.
pub struct Watchdog {
    /// The alarm is raised when the beat was away for this long.
    pub warn_after: Duration,
    /// It is raised again, as [`WatchdogAlarm::Lost`], when the beat was away for this long.
    pub give_up_after: Duration,
    /// Called on the watchdog's thread.
    pub alarm: AlarmHandler,
}

/// The action of an alarm; called on the watchdog's thread.
pub type AlarmHandler = Box<dyn Fn(WatchdogAlarm, &ThreadStall) + Send>;

/// Which of the watchdog's two limits has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchdogAlarm {
    /// For [`Watchdog::warn_after`]: the operator should be warned.
    Late,
    /// The thread is not expected to come back.
    Lost,
}

/// The actor and message that block the actors' thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadStall {
    /// The path of the actor that was being polled, if one was.
    pub actor: Option<String>,
    /// The message it was handling, if it was not one of its child tasks.
    pub message: Option<&'static str>,
    /// How long the thread has stood still, at least.
    pub lasting: Duration,
}

impl Default for Watchdog {
    /// Logs after five seconds, and ends the process after a minute.
    fn default() -> Watchdog {
        Watchdog {
            warn_after: Duration::from_secs(5),
            give_up_after: Duration::from_secs(60),
            alarm: Box::new(|alarm, stuck| {
                tracing::error!(
                    actor = stuck.actor,
                    message = stuck.message,
                    lasting = ?stuck.lasting,
                    "the actors' thread is blocked"
                );
                if alarm == WatchdogAlarm::Lost {
                    tracing::error!("the actors' thread does not come back: ending the process");
                    std::process::abort();
                }
            }),
        }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog")
            .field("warn_after", &self.warn_after)
            .field("give_up_after", &self.give_up_after)
            .finish_non_exhaustive()
    }
}

/// The state that the two threads share.
#[derive(Default)]
struct Thread {
    beat: AtomicU64,
    /// The seat of the actor being polled, or zero.
    held_by: AtomicU64,
    last_seat: AtomicU64,
    seats: Mutex<Seats>,
}

/// Every actor's path and gauge, by its seat's number.
type Seats = BTreeMap<u64, (Arc<str>, Arc<Gauge>)>;

thread_local! {
    static THREAD: Arc<Thread> = Arc::default();
}

impl Thread {
    fn current() -> Arc<Thread> {
        THREAD.with(Arc::clone)
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stuck(&self, lasting: Duration) -> ThreadStall {
        let seat = self.held_by.load(Ordering::Relaxed);
        let holder = self.seats().get(&seat).cloned();
        ThreadStall {
            actor: holder.as_ref().map(|(path, _)| path.to_string()),
            message: holder.and_then(|(_, gauge)| gauge.busy()),
            lasting,
        }
    }
}

/// The gauge of the actor that this thread polls, if it polls one.
pub(crate) fn polled_actor() -> Option<Arc<Gauge>> {
    THREAD.with(|thread| {
        let seat = thread.held_by.load(Ordering::Relaxed);
        let (_, gauge) = thread.seats().get(&seat)?.clone();
        Some(gauge)
    })
}

/// An actor's place in the list of those that may hold the thread.
pub(crate) struct Seat {
    number: u64,
    thread: Arc<Thread>,
}

impl Seat {
    pub(crate) fn take(path: Arc<str>, gauge: Arc<Gauge>) -> Seat {
        let thread = Thread::current();
        let number = thread.last_seat.fetch_add(1, Ordering::Relaxed) + 1;
        thread.seats().insert(number, (path, gauge));
        Seat { number, thread }
    }

    /// Marks the actor as the one being polled, until the mark is dropped.
    pub(crate) fn hold(&self) -> SeatGuard<'_> {
        let before = self.thread.held_by.swap(self.number, Ordering::Relaxed);
        SeatGuard {
            thread: &self.thread,
            before,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.thread.seats().remove(&self.number);
    }
}

pub(crate) struct SeatGuard<'a> {
    thread: &'a Thread,
    before: u64,
}

impl Drop for SeatGuard<'_> {
    fn drop(&mut self) {
        self.thread.held_by.store(self.before, Ordering::Relaxed);
    }
}

/// The listening thread; it ends when this is dropped.
pub(crate) struct WatchdogThread {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    fn period(&self) -> Duration {
        self.warn_after / 4
    }

    /// Starts to listen to the calling thread.
    pub(crate) fn listen(self) -> io::Result<WatchdogThread> {
        let watched = Thread::current();
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || self.watch(&watched, &stopped))?;
        Ok(WatchdogThread {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// A stall is counted in checks, not in clock time: a process that was suspended or starved as a whole is not
    /// taken for one whose thread is blocked.
    fn watch(&self, watched: &Thread, stopped: &mpsc::Receiver<()>) {
        let (mut beat, mut lasting) = (0, Duration::ZERO);
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(self.period()) {
            let heard = watched.beat.load(Ordering::Relaxed);
            if heard != beat {
                (beat, lasting) = (heard, Duration::ZERO);
                continue;
            }
            let before = lasting;
            lasting += self.period();
            for (alarm, after) in [
                (WatchdogAlarm::Late, self.warn_after),
                (WatchdogAlarm::Lost, self.give_up_after),
            ] {
                if before < after && lasting >= after {
                    (self.alarm)(alarm, &watched.stuck(lasting));
                }
            }
        }
    }

    /// Keeps the beat of the calling thread, for ever.
    pub(crate) fn beat(&self) -> impl Future<Output = ()> + use<> {
        let (thread, period) = (Thread::current(), self.period());
        async move {
            loop {
                thread.beat.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(period).await;
            }
        }
    }
}

impl Drop for WatchdogThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
