//! The actix actor around an actor of ours: the only place where both frameworks meet.
//!
//! There is one shell type a message type, not one an actor, because an address is typed by what it
//! carries. The shell holds the living incarnation, hands it one message at a time, and makes a new
//! one when actix starts it again. It never spawns into actix's context: `ContextFut::restart`
//! forgets its handle numbers but not its pending cancellations, so a cancelled item and a panic in
//! one poll would kill an innocent successor.

use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll, ready};

use actix::{AsyncContext, WrapFuture};
use serde_json::Value;

use crate::actor::Actor;
use crate::context::Context;
use crate::mailbox::address::Addr;
use crate::mailbox::mail::{Control, Mail};
use crate::mailbox::message::Message;
use crate::supervisor::cell::ActorCell;
use crate::supervisor::exit::Exit;
use crate::supervisor::fault::InjectedFault;

/// Messages handled before the others on this thread get their turn: actix itself never yields while a mailbox has
/// mail, and a flooded actor would starve the others and their timers.
const BURST: u8 = 32;

/// One step of an incarnation, which owns it for as long as the step takes.
type StepFuture<M> = Pin<Box<dyn Future<Output = (Box<dyn Incarnation<M>>, Result<(), Exit>)>>>;

/// An actor and its context with the actor's type forgotten.
trait Incarnation<M: Message> {
    fn start(self: Box<Self>) -> StepFuture<M>;
    fn handle(self: Box<Self>, msg: M) -> StepFuture<M>;
    fn stop(self: Box<Self>) -> StepFuture<M>;
    fn snapshot(&self) -> Value;
}

struct ActorInstance<A: Actor> {
    actor: A,
    ctx: Context<A::Msg>,
}

impl<A: Actor> Incarnation<A::Msg> for ActorInstance<A> {
    fn start(mut self: Box<Self>) -> StepFuture<A::Msg> {
        Box::pin(async move {
            let result = self.actor.start(&mut self.ctx).await;
            (self as Box<dyn Incarnation<A::Msg>>, result)
        })
    }

    fn handle(mut self: Box<Self>, msg: A::Msg) -> StepFuture<A::Msg> {
        Box::pin(async move {
            let result = self.actor.handle(msg, &mut self.ctx).await;
            (self as Box<dyn Incarnation<A::Msg>>, result)
        })
    }

    fn stop(mut self: Box<Self>) -> StepFuture<A::Msg> {
        Box::pin(async move {
            self.actor.stop(&mut self.ctx).await;
            (self as Box<dyn Incarnation<A::Msg>>, Err(Exit::Stopped))
        })
    }

    fn snapshot(&self) -> Value {
        serde_json::to_value(self.actor.snapshot())
            .unwrap_or_else(|error| Value::String(format!("no snapshot: {error}")))
    }
}

/// The actix actor that runs one [`Actor`](crate::Actor).
pub(crate) struct Shell<M: Message> {
    make: Box<dyn FnMut(Context<M>) -> Box<dyn Incarnation<M>>>,
    addr: Addr<M>,
    cell: Rc<ActorCell>,
    incarnation: Option<Box<dyn Incarnation<M>>>,
    burst: u8,
}

type ShellContext<M> = actix::Context<Shell<M>>;

impl<M: Message> Shell<M> {
    pub(crate) fn new<A: Actor<Msg = M>>(
        addr: Addr<M>,
        cell: Rc<ActorCell>,
        mut make: impl FnMut() -> A + 'static,
    ) -> Shell<M> {
        Shell {
            make: Box::new(move |ctx| Box::new(ActorInstance { actor: make(), ctx })),
            addr,
            cell,
            incarnation: None,
            burst: 0,
        }
    }

    fn handle_user(&mut self, msg: M, ctx: &mut ShellContext<M>) {
        self.cell.gauge.taken();
        if self.cell.stopping() {
            return;
        }
        self.burst += 1;
        if self.burst == BURST {
            self.burst = 0;
            // Waits are last in, first out: this one follows the message's own.
            ctx.wait(tokio::task::yield_now().into_actor(self));
        }
        let name = msg.name();
        #[cfg(feature = "testing")]
        crate::testing::handled(&self.cell.path, name);
        let step = self.take().handle(msg);
        self.begin(name, step, ctx);
    }

    fn obey(&mut self, control: Control, ctx: &mut ShellContext<M>) {
        self.cell.moved();
        match control {
            Control::Ping => {}
            Control::Snapshot(answer) => {
                if let (false, Some(incarnation)) = (answer.is_closed(), &self.incarnation) {
                    drop(answer.send(incarnation.snapshot()));
                }
            }
            Control::Stop => {
                let step = self.take().stop();
                self.begin("stop", step, ctx);
            }
            Control::Fault(InjectedFault::Panic) => panic!("injected fault"),
            Control::Fault(InjectedFault::Hang) => {
                let stuck = self.take();
                let step = async move {
                    pending::<()>().await;
                    (stuck, Ok(()))
                };
                self.begin("injected fault", Box::pin(step), ctx);
            }
        }
    }

    fn take(&mut self) -> Box<dyn Incarnation<M>> {
        self.incarnation
            .take()
            .expect("the mailbox is read only while the actor is idle")
    }

    /// Stops reading the mailbox until the step is done.
    fn begin(&mut self, name: &'static str, step: StepFuture<M>, ctx: &mut ShellContext<M>) {
        self.cell.gauge.set_busy(Some(name));
        ctx.wait(RunningStep(step));
    }
}

impl<M: Message> actix::Actor for Shell<M> {
    type Context = ShellContext<M>;

    fn started(&mut self, ctx: &mut ShellContext<M>) {
        // actix also starts an actor that it drops before its first poll.
        if self.cell.running() {
            let own = Context::new(self.addr.clone(), Rc::clone(&self.cell));
            let step = (self.make)(own).start();
            self.begin("start", step, ctx);
        }
    }
}

impl<M: Message> actix::Supervised for Shell<M> {
    fn restarting(&mut self, _ctx: &mut ShellContext<M>) {
        self.incarnation = None;
        self.burst = 0;
    }
}

impl<M: Message> actix::Handler<Mail<M>> for Shell<M> {
    type Result = ();

    fn handle(&mut self, mail: Mail<M>, ctx: &mut ShellContext<M>) {
        match mail {
            Mail::User(msg) => self.handle_user(msg, ctx),
            Mail::Own { incarnation, msg } if incarnation == self.cell.incarnation() => {
                self.handle_user(msg, ctx);
            }
            Mail::Own { .. } => self.cell.gauge.taken(),
            Mail::Control(control) => self.obey(control, ctx),
        }
    }
}

/// A step under way.
struct RunningStep<M: Message>(StepFuture<M>);

impl<M: Message> actix::ActorFuture<Shell<M>> for RunningStep<M> {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        shell: &mut Shell<M>,
        _ctx: &mut ShellContext<M>,
        task: &mut task::Context<'_>,
    ) -> Poll<()> {
        let (incarnation, result) = ready!(self.0.as_mut().poll(task));
        shell.cell.gauge.set_busy(None);
        shell.cell.moved();
        match result {
            Ok(()) => {
                shell.cell.ready();
                shell.incarnation = Some(incarnation);
                Poll::Ready(())
            }
            Err(exit) => {
                drop(incarnation);
                shell.cell.end(exit);
                // The wait stays, so that no more mail is read; the next restart clears it.
                Poll::Pending
            }
        }
    }
}
