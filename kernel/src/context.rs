//! What an actor is given while it runs: its address, time, timers and child tasks.
//!
//! Timers and tasks belong to one incarnation of the actor: what has not reported when it ends never
//! will, and a report that is still queued then is dropped. A successor would take it for that of its own work.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::LocalBoxFuture;
use jiff::Timestamp;
use tokio::task::AbortHandle;

use crate::mailbox::address::Addr;
use crate::mailbox::message::Message;
use crate::supervisor::cell::{ActorCell, caught};
use crate::system::clock::{now, timestamp, wall};
use crate::system::random;

/// An actor's access to its address, clock, timers and tasks while it handles a message.
pub struct Context<M: Message> {
    addr: Addr<M>,
    cell: Rc<ActorCell>,
    /// The number of the incarnation that this context belongs to.
    incarnation: u64,
    tasks: Rc<Tasks>,
    next: u64,
}

/// The children of one incarnation that have not finished.
#[derive(Default)]
struct Tasks(RefCell<BTreeMap<u64, AbortHandle>>);

/// Names a timer, so that it can be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerId(u64);

/// Names a child task, so that it can be aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(u64);

impl<M: Message> Context<M> {
    pub(crate) fn new(addr: Addr<M>, cell: Rc<ActorCell>) -> Context<M> {
        Context {
            addr,
            incarnation: cell.incarnation(),
            cell,
            tasks: Rc::default(),
            next: 0,
        }
    }

    /// Returns the actor's own address.
    pub fn addr(&self) -> &Addr<M> {
        &self.addr
    }

    /// Returns this moment on the clock that durations are measured with.
    pub fn now(&self) -> Instant {
        now()
    }

    /// Returns this moment on the calendar's clock, which may step.
    pub fn wall(&self) -> SystemTime {
        wall()
    }

    /// Returns this moment on the calendar's clock, as the API's types write it.
    pub fn timestamp(&self) -> Timestamp {
        timestamp()
    }

    /// Returns a number from 0 up to, and not including, 1 of the thread's seeded generator, as
    /// [`chance`](crate::chance) does.
    pub fn chance(&self) -> f64 {
        random::chance()
    }

    /// Sends `msg` to the actor itself after `delay`, unless it restarts before.
    pub fn after(&mut self, delay: Duration, msg: M) -> TimerId {
        let (addr, incarnation) = (self.addr.clone(), self.incarnation);
        TimerId(self.spawn(async move {
            tokio::time::sleep(delay).await;
            addr.deliver_own(incarnation, msg).await;
        }))
    }

    /// Cancels a timer; one that fired already is left alone.
    pub fn cancel(&mut self, timer: TimerId) {
        self.tasks.abort(timer.0);
    }

    /// Runs slow work beside the actor, and hands its result to the actor as a message.
    ///
    /// Work that panics is the actor's panic: nothing is lost silently.
    pub fn run(&mut self, work: impl Future<Output = M> + 'static) -> TaskId {
        let (addr, incarnation) = (self.addr.clone(), self.incarnation);
        TaskId(self.spawn(async move { addr.deliver_own(incarnation, work.await).await }))
    }

    /// Aborts a child task; one that finished already is left alone.
    pub fn abort(&mut self, task: TaskId) {
        self.tasks.abort(task.0);
    }

    /// Spawns a child task. Boxed, so that the agent has one copy of what follows, and of tokio's code for a task, not one for
    /// each kind of work: a tenth of its program.
    fn spawn(&mut self, work: impl Future<Output = ()> + 'static) -> u64 {
        let mut work: LocalBoxFuture<'static, ()> = Box::pin(work);
        let id = self.next;
        self.next += 1;
        let (cell, tasks) = (Rc::clone(&self.cell), Rc::clone(&self.tasks));
        let task = tokio::task::spawn_local(async move {
            let polled = poll_fn(|cx| caught(&cell, || work.as_mut().poll(cx)));
            if let Err(exit) = polled.await {
                cell.end(exit);
            }
            tasks.0.borrow_mut().remove(&id);
        });
        self.tasks.0.borrow_mut().insert(id, task.abort_handle());
        id
    }
}

impl Tasks {
    fn abort(&self, id: u64) {
        if let Some(task) = self.0.borrow_mut().remove(&id) {
            task.abort();
        }
    }
}

impl<M: Message> Drop for Context<M> {
    fn drop(&mut self) {
        for task in self.tasks.0.borrow().values() {
            task.abort();
        }
    }
}

impl<M: Message> fmt::Debug for Context<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}
