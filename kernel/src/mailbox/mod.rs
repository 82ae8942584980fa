//! Mailboxes: an address and the receiving end that belongs to it.
//!
//! A mailbox outlives the actor behind it and is handed from one incarnation to the next.

pub mod address;
pub(crate) mod ask_order;
pub(crate) mod gauge;
pub(crate) mod mail;
pub mod message;

use std::fmt;
use std::sync::Arc;

use crate::mailbox::address::Addr;
use crate::mailbox::gauge::MailboxCloser;
use crate::mailbox::message::Message;
use crate::supervisor::shell::Shell;

/// Makes a mailbox with room for `capacity` messages (at least one).
///
/// The address works at once: messages sent before the actor is spawned wait in the mailbox.
pub fn mailbox<M: Message>(capacity: usize) -> (Addr<M>, Port<M>) {
    // To actix zero means unbounded: the credits below are the bound.
    let (sender, receiver) = actix::dev::channel::channel::<Shell<M>>(0);
    let addr = Addr::new(actix::Addr::new(sender).recipient(), capacity);
    let port = Port {
        context: actix::Context::with_receiver(receiver),
        open: MailboxCloser(Arc::clone(addr.gauge())),
        addr: addr.clone(),
    };
    (addr, port)
}

/// The receiving end, given to [`Supervisor::spawn`](crate::Supervisor::spawn) with the actor.
pub struct Port<M: Message> {
    pub(crate) context: actix::Context<Shell<M>>,
    pub(crate) open: MailboxCloser,
    pub(crate) addr: Addr<M>,
}

impl<M: Message> fmt::Debug for Port<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({:?})", self.addr.gauge().view())
    }
}
