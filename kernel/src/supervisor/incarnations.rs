//! The task behind one actor: incarnation after incarnation behind one mailbox.
//!
//! [`live`] owns the actix future. It polls it with panics caught, drops the incarnation when it ends,
//! reports to the group, and begins the next one when the group says so.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll};

use actix::dev::ContextFut;

use crate::mailbox::gauge::MailboxCloser;
use crate::mailbox::message::Message;
use crate::supervisor::cell::{ActorCell, IncarnationEnd, caught};
use crate::supervisor::exit::Exit;
use crate::supervisor::group::ChildGroup;
use crate::supervisor::shell::Shell;

/// An actor's actix future, whatever its messages are: what follows is there once, not once for each kind of actor.
pub(super) trait Engine: Future<Output = ()> + Unpin {
    /// Drops the incarnation, and is ready for the next.
    fn renew(&mut self);
}

impl<M: Message> Engine for ContextFut<Shell<M>, actix::Context<Shell<M>>> {
    fn renew(&mut self) {
        // Says whether the actor goes on, which it always does.
        let _goes_on: bool = self.restart();
    }
}

/// Runs one actor, incarnation after incarnation, to its final end. The mailbox closes with it.
pub(super) async fn live(
    mut engine: Box<dyn Engine>,
    cell: Rc<ActorCell>,
    open: MailboxCloser,
    group: Rc<ChildGroup>,
    seq: u64,
) {
    while cell.may_live().await {
        cell.begin();
        let ending = poll_fn(|cx| poll(&cell, engine.as_mut(), cx)).await;
        let busy_with = cell.gauge.busy();
        bury(&cell, engine.as_mut());
        match ending {
            IncarnationEnd::Exit(exit) if !cell.stopping() => group.exited(seq, exit, busy_with),
            IncarnationEnd::Exit(Exit::Stopped) | IncarnationEnd::Halted => {}
            IncarnationEnd::Exit(exit) => {
                tracing::warn!(actor = %cell.path, %exit, "actor failed while stopping");
            }
        }
    }
    drop(open);
    drop(engine);
    cell.over();
    group.forget(seq);
}

/// Drops what is left of an incarnation and makes the engine ready for the next; the mail stays.
fn bury(cell: &ActorCell, engine: &mut dyn Engine) {
    // A destructor may panic as well; the second attempt then finds it gone.
    for _ in 0..2 {
        let renewed = || {
            engine.renew();
            Poll::Ready(())
        };
        match caught(cell, renewed) {
            Poll::Ready(Ok(())) | Poll::Pending => break,
            Poll::Ready(Err(exit)) => {
                tracing::error!(actor = %cell.path, %exit, "actor failed while it was dropped");
            }
        }
    }
    cell.buried();
}

/// Polls the actor, unless something else has ended the incarnation.
fn poll(
    cell: &ActorCell,
    engine: &mut dyn Engine,
    cx: &mut task::Context<'_>,
) -> Poll<IncarnationEnd> {
    cell.register(cx.waker());
    if let Some(end) = cell.take_end() {
        return Poll::Ready(end);
    }
    match caught(cell, || Pin::new(&mut *engine).poll(cx)) {
        Poll::Ready(Err(exit)) => Poll::Ready(IncarnationEnd::Exit(exit)),
        Poll::Ready(Ok(())) => Poll::Ready(IncarnationEnd::Exit(Exit::Done)),
        Poll::Pending => cell.take_end().map_or(Poll::Pending, Poll::Ready),
    }
}
