//! One actor's cell: what its group, its context and the watchdog hold of it, over all incarnations.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

use crate::mailbox::gauge::Gauge;
use crate::mailbox::mail::Control;
use crate::observe::TreeNodeState;
use crate::supervisor::exit::Exit;
use crate::supervisor::fault::InjectedFault;
use crate::supervisor::spec::ChildSpec;
use crate::system::clock::now;
use crate::system::watchdog;

/// The longest pause between two rounds of the sweep.
pub(super) const SLOWEST: Duration = Duration::from_secs(1);

/// The shortest, whatever deadline an actor has.
const FASTEST: Duration = Duration::from_millis(5);

/// Returns how often an actor with this deadline must be looked at.
pub(super) fn pace(answer_within: Duration) -> Duration {
    (answer_within / 4).clamp(FASTEST, SLOWEST)
}

/// One actor, as its supervisor sees it.
pub(crate) struct ActorCell {
    pub(crate) path: Arc<str>,
    pub(crate) gauge: Arc<Gauge>,
    state: Cell<TreeNodeState>,
    pub(super) answer_within: Duration,
    shutdown: Duration,
    control: Box<dyn Fn(Control)>,
    seat: watchdog::Seat,

    order: Cell<CellCommand>,
    running: Cell<bool>,
    /// Counts the incarnations.
    incarnation: Cell<u64>,
    ending: Cell<Option<IncarnationEnd>>,
    started: Cell<Instant>,
    pulse: Cell<u64>,
    pub(super) ping: Cell<Ping>,

    waker: AtomicWaker,
    changed: Notify,
}

/// The supervisor's command to an actor.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CellCommand {
    /// Live, from this moment on.
    Go(Instant),
    /// Don't live until the next command.
    Halt,
    /// End for good.
    Stop,
}

/// Why an incarnation ended.
pub(super) enum IncarnationEnd {
    /// By itself, or by a panic.
    Exit(Exit),
    /// With the siblings that are restarted together.
    Halted,
}

/// The sweep's last observation of an actor's pulse.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ping {
    pub(super) pulse: u64,
    pub(super) since: Instant,
    pub(super) sent: bool,
}

impl ActorCell {
    pub(super) fn new(
        spec: &ChildSpec,
        path: Arc<str>,
        gauge: Arc<Gauge>,
        control: Box<dyn Fn(Control)>,
    ) -> ActorCell {
        let now = now();
        ActorCell {
            seat: watchdog::Seat::take(Arc::clone(&path), Arc::clone(&gauge)),
            path,
            gauge,
            state: Cell::new(TreeNodeState::Starting),
            answer_within: spec.answer_within,
            shutdown: spec.shutdown,
            control,
            order: Cell::new(CellCommand::Go(now)),
            running: Cell::new(false),
            incarnation: Cell::new(0),
            ending: Cell::new(None),
            started: Cell::new(now),
            pulse: Cell::new(0),
            ping: Cell::new(Ping {
                pulse: 0,
                since: now,
                sent: false,
            }),
            waker: AtomicWaker::new(),
            changed: Notify::new(),
        }
    }

    /// Ends the present incarnation; of two reasons the first one counts.
    pub(crate) fn end(&self, exit: Exit) {
        if self.running.get() {
            let earlier = self.ending.take();
            self.ending
                .set(earlier.or(Some(IncarnationEnd::Exit(exit))));
            self.waker.wake();
        }
    }

    /// Notes that the actor did something.
    pub(crate) fn moved(&self) {
        self.pulse.set(self.pulse.get().wrapping_add(1));
    }

    pub(super) fn pulse(&self) -> u64 {
        self.pulse.get()
    }

    /// Takes time in which the actor could not answer off its account.
    pub(super) fn forgive(&self, stalled: Duration) {
        let mut ping = self.ping.get();
        ping.since += stalled;
        self.ping.set(ping);
    }

    /// Returns the number of the present incarnation, which no other one of this actor has.
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation.get()
    }

    pub(crate) fn running(&self) -> bool {
        self.running.get()
    }

    pub(crate) fn stopping(&self) -> bool {
        self.order.get() == CellCommand::Stop
    }

    /// Notes that the actor is ready for the next message.
    pub(crate) fn ready(&self) {
        self.state.set(TreeNodeState::Running);
    }

    pub(super) fn state(&self) -> TreeNodeState {
        match self.stopping() {
            true => TreeNodeState::Stopped,
            false => self.state.get(),
        }
    }

    pub(super) fn started(&self) -> Instant {
        self.started.get()
    }

    pub(super) fn control(&self, control: Control) {
        (self.control)(control);
    }

    pub(super) fn inject(&self, fault: InjectedFault) {
        self.control(Control::Fault(fault));
    }

    /// Lets the actor live from `at` on.
    pub(super) fn go(&self, at: Instant) {
        self.set_order(CellCommand::Go(at));
    }

    /// Drops the present incarnation without notice: it is restarted with its siblings.
    pub(super) fn halt(&self) {
        self.set_order(CellCommand::Halt);
        if self.running.get() && !self.stopping() {
            self.ending.set(Some(IncarnationEnd::Halted));
            self.waker.wake();
        }
    }

    /// Waits until no incarnation lives.
    pub(super) async fn halted(&self) {
        while self.running.get() {
            self.changed.notified().await;
        }
    }

    /// Ends the actor for good: at once when idle, within `shutdown` in any case.
    pub(super) fn stop(self: &Rc<Self>) {
        if self.stopping() {
            return;
        }
        self.set_order(CellCommand::Stop);
        self.gauge.close();
        if !self.running.get() {
            return;
        }
        self.control(Control::Stop);
        let cell = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if tokio::time::timeout(cell.shutdown, cell.halted())
                .await
                .is_err()
            {
                let busy_with = cell.gauge.busy();
                tracing::warn!(actor = %cell.path, busy_with, "actor did not stop in time and is dropped");
                cell.end(Exit::Stopped);
            }
        });
    }

    /// Waits until the actor has ended for good.
    pub(super) async fn stopped(&self) {
        while self.state.get() != TreeNodeState::Stopped {
            self.changed.notified().await;
        }
    }

    /// A stopped actor stays stopped, whatever its group wants of its siblings.
    fn set_order(&self, order: CellCommand) {
        if !self.stopping() {
            self.order.set(order);
            self.changed.notify_waiters();
        }
    }

    /// Waits for the order to live; false means never again.
    pub(super) async fn may_live(&self) -> bool {
        loop {
            match self.order.get() {
                CellCommand::Stop => return false,
                CellCommand::Go(at) if at <= now() => return true,
                CellCommand::Go(at) => {
                    // Boxed, so that the pause costs memory only while it lasts.
                    let pause = tokio::time::timeout_at(at.into(), self.changed.notified());
                    drop(Box::pin(pause).await);
                }
                CellCommand::Halt => Box::pin(self.changed.notified()).await,
            }
        }
    }

    pub(super) fn begin(&self) {
        let now = now();
        self.started.set(now);
        self.ping.set(Ping {
            pulse: self.pulse.get(),
            since: now,
            sent: false,
        });
        self.state.set(TreeNodeState::Starting);
        self.incarnation.set(self.incarnation.get().wrapping_add(1));
        self.running.set(true);
    }

    pub(super) fn buried(&self) {
        self.gauge.set_busy(None);
        self.ending.take();
        self.state.set(TreeNodeState::BackingOff);
        self.running.set(false);
        self.changed.notify_waiters();
    }

    /// Registers the task to wake when the incarnation is to end.
    pub(super) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Returns why the incarnation is to end, if it is.
    pub(super) fn take_end(&self) -> Option<IncarnationEnd> {
        self.ending.take()
    }

    pub(super) fn over(&self) {
        self.state.set(TreeNodeState::Stopped);
        self.changed.notify_waiters();
    }
}

/// Polls a future of an actor: a panic is its exit, and the watchdog knows which actor blocks the thread.
pub(crate) fn caught<T>(cell: &ActorCell, poll: impl FnOnce() -> Poll<T>) -> Poll<Result<T, Exit>> {
    let _held = cell.seat.hold();
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(panic) => Poll::Ready(Err(Exit::Panicked(text(panic.as_ref())))),
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "with a value that is no text".to_owned()
    }
}
