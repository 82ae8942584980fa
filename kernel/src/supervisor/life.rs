//! One actor's life: incarnation after incarnation behind one mailbox.
//!
//! [`live`] is the task that owns the actix future. It polls it with panics caught, buries the
//! incarnation when it ends, reports to the group, and begins the next one when the group says so.
//! [`Life`] is what the group, the actor's context and the watchdog hold of it.

use std::any::Any;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use actix::dev::ContextFut;
use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

use crate::actor::{Exit, Message};
use crate::context::now;
use crate::mailbox::{Gauge, Open};
use crate::observe::State;
use crate::shell::{Control, Shell};
use crate::supervisor::group::Group;
use crate::supervisor::{ChildSpec, Fault};
use crate::watchdog;

/// One actor, as its supervisor sees it.
pub(crate) struct Life {
    pub(crate) path: Arc<str>,
    pub(crate) gauge: Arc<Gauge>,
    state: Cell<State>,
    pub(super) answer_within: Duration,
    shutdown: Duration,
    control: Box<dyn Fn(Control)>,
    seat: watchdog::Seat,

    order: Cell<Order>,
    running: Cell<bool>,
    ending: Cell<Option<Ending>>,
    started: Cell<Instant>,
    pulse: Cell<u64>,
    pub(super) ping: Cell<Ping>,

    waker: AtomicWaker,
    changed: Notify,
}

/// What the supervisor wants of the actor.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// Live, from this moment on.
    Go(Instant),
    /// Don't live until told so.
    Halt,
    /// End for good.
    Stop,
}

/// Why an incarnation ended.
enum Ending {
    /// By itself.
    Exit(Exit),
    /// With the siblings whose fate it shares.
    Halted,
}

/// What the sweep remembers of an actor's pulse.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ping {
    pub(super) pulse: u64,
    pub(super) since: Instant,
    pub(super) sent: bool,
}

impl Life {
    pub(super) fn new(
        spec: &ChildSpec,
        path: Arc<str>,
        gauge: Arc<Gauge>,
        control: Box<dyn Fn(Control)>,
    ) -> Life {
        let now = now();
        Life {
            seat: watchdog::Seat::take(Arc::clone(&path), Arc::clone(&gauge)),
            path,
            gauge,
            state: Cell::new(State::Starting),
            answer_within: spec.answer_within,
            shutdown: spec.shutdown,
            control,
            order: Cell::new(Order::Go(now)),
            running: Cell::new(false),
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
            self.ending.set(earlier.or(Some(Ending::Exit(exit))));
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

    pub(crate) fn running(&self) -> bool {
        self.running.get()
    }

    pub(crate) fn stopping(&self) -> bool {
        self.order.get() == Order::Stop
    }

    /// Notes that the actor is ready for the next message.
    pub(crate) fn ready(&self) {
        self.state.set(State::Running);
    }

    pub(super) fn state(&self) -> State {
        match self.stopping() {
            true => State::Stopped,
            false => self.state.get(),
        }
    }

    pub(super) fn started(&self) -> Instant {
        self.started.get()
    }

    pub(super) fn control(&self, control: Control) {
        (self.control)(control);
    }

    pub(super) fn inject(&self, fault: Fault) {
        self.control(Control::Fault(fault));
    }

    /// Lets the actor live from `at` on.
    pub(super) fn go(&self, at: Instant) {
        self.set_order(Order::Go(at));
    }

    /// Drops the present incarnation, without a goodbye: its siblings' fate is its own.
    pub(super) fn halt(&self) {
        self.set_order(Order::Halt);
        if self.running.get() && !self.stopping() {
            self.ending.set(Some(Ending::Halted));
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
        self.set_order(Order::Stop);
        self.gauge.close();
        if !self.running.get() {
            return;
        }
        self.control(Control::Stop);
        let life = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if tokio::time::timeout(life.shutdown, life.halted())
                .await
                .is_err()
            {
                let busy_with = life.gauge.busy();
                tracing::warn!(actor = %life.path, busy_with, "actor did not stop in time and is dropped");
                life.end(Exit::Stopped);
            }
        });
    }

    /// Waits until the actor has ended for good.
    pub(super) async fn stopped(&self) {
        while self.state.get() != State::Stopped {
            self.changed.notified().await;
        }
    }

    /// A stopped actor stays stopped, whatever its group wants of its siblings.
    fn set_order(&self, order: Order) {
        if !self.stopping() {
            self.order.set(order);
            self.changed.notify_waiters();
        }
    }

    /// Waits for the order to live; false means never again.
    async fn may_live(&self) -> bool {
        loop {
            match self.order.get() {
                Order::Stop => return false,
                Order::Go(at) if at <= now() => return true,
                Order::Go(at) => {
                    // Boxed, so that the pause costs memory only while it lasts.
                    let pause = tokio::time::timeout_at(at.into(), self.changed.notified());
                    drop(Box::pin(pause).await);
                }
                Order::Halt => Box::pin(self.changed.notified()).await,
            }
        }
    }

    fn begin(&self) {
        let now = now();
        self.started.set(now);
        self.ping.set(Ping {
            pulse: self.pulse.get(),
            since: now,
            sent: false,
        });
        self.state.set(State::Starting);
        self.running.set(true);
    }

    fn buried(&self) {
        self.gauge.set_busy(None);
        self.ending.take();
        self.state.set(State::BackingOff);
        self.running.set(false);
        self.changed.notify_waiters();
    }

    fn over(&self) {
        self.state.set(State::Stopped);
        self.changed.notify_waiters();
    }

    fn poll<M: Message>(&self, engine: &mut Engine<M>, cx: &mut task::Context<'_>) -> Poll<Ending> {
        self.waker.register(cx.waker());
        if let Some(ending) = self.ending.take() {
            return Poll::Ready(ending);
        }
        match caught(self, || Pin::new(engine.as_mut()).poll(cx)) {
            Poll::Ready(Err(exit)) => Poll::Ready(Ending::Exit(exit)),
            Poll::Ready(Ok(())) => Poll::Ready(Ending::Exit(Exit::Done)),
            Poll::Pending => self.ending.take().map_or(Poll::Pending, Poll::Ready),
        }
    }
}

/// Boxed, because an async function keeps its arguments twice.
type Engine<M> = Box<ContextFut<Shell<M>, actix::Context<Shell<M>>>>;

/// Lives one life to its end. The mailbox closes with it.
pub(super) async fn live<M: Message>(
    mut engine: Engine<M>,
    life: Rc<Life>,
    open: Open,
    group: Rc<Group>,
    seq: u64,
) {
    while life.may_live().await {
        life.begin();
        let ending = poll_fn(|cx| life.poll(&mut engine, cx)).await;
        let busy_with = life.gauge.busy();
        bury(&life, &mut engine);
        match ending {
            Ending::Exit(exit) if !life.stopping() => group.exited(seq, exit, busy_with),
            Ending::Exit(Exit::Stopped) | Ending::Halted => {}
            Ending::Exit(exit) => {
                tracing::warn!(actor = %life.path, %exit, "actor failed while stopping");
            }
        }
    }
    drop(open);
    drop(engine);
    life.over();
    group.forget(seq);
}

/// Drops what is left of an incarnation and makes the engine ready for the next; the mail stays.
fn bury<M: Message>(life: &Life, engine: &mut Engine<M>) {
    // A destructor may panic as well; the second attempt then finds it gone.
    for _ in 0..2 {
        let restart = || Poll::Ready(engine.restart());
        match caught(life, restart) {
            Poll::Ready(Ok(_)) | Poll::Pending => break,
            Poll::Ready(Err(exit)) => {
                tracing::error!(actor = %life.path, %exit, "actor failed while it was dropped");
            }
        }
    }
    life.buried();
}

/// Polls something of an actor's: a panic is its exit, and the watchdog knows who holds the thread.
pub(crate) fn caught<T>(life: &Life, poll: impl FnOnce() -> Poll<T>) -> Poll<Result<T, Exit>> {
    let _held = life.seat.hold();
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
