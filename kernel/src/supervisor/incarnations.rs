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

/// Boxed, because an async function keeps its arguments twice.
type Engine<M> = Box<ContextFut<Shell<M>, actix::Context<Shell<M>>>>;

/// Runs one actor, incarnation after incarnation, to its final end. The mailbox closes with it.
pub(super) async fn live<M: Message>(
    mut engine: Engine<M>,
    cell: Rc<ActorCell>,
    open: MailboxCloser,
    group: Rc<ChildGroup>,
    seq: u64,
) {
    while cell.may_live().await {
        cell.begin();
        let ending = poll_fn(|cx| poll(&cell, &mut engine, cx)).await;
        let busy_with = cell.gauge.busy();
        bury(&cell, &mut engine);
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
fn bury<M: Message>(cell: &ActorCell, engine: &mut Engine<M>) {
    // A destructor may panic as well; the second attempt then finds it gone.
    for _ in 0..2 {
        let restart = || Poll::Ready(engine.restart());
        match caught(cell, restart) {
            Poll::Ready(Ok(_)) | Poll::Pending => break,
            Poll::Ready(Err(exit)) => {
                tracing::error!(actor = %cell.path, %exit, "actor failed while it was dropped");
            }
        }
    }
    cell.buried();
}

/// Polls the actor, unless something else has ended the incarnation.
fn poll<M: Message>(
    cell: &ActorCell,
    engine: &mut Engine<M>,
    cx: &mut task::Context<'_>,
) -> Poll<IncarnationEnd> {
    cell.register(cx.waker());
    if let Some(end) = cell.take_end() {
        return Poll::Ready(end);
    }
    match caught(cell, || Pin::new(engine.as_mut()).poll(cx)) {
        Poll::Ready(Err(exit)) => Poll::Ready(IncarnationEnd::Exit(exit)),
        Poll::Ready(Ok(())) => Poll::Ready(IncarnationEnd::Exit(Exit::Done)),
        Poll::Pending => cell.take_end().map_or(Poll::Pending, Poll::Ready),
    }
}
