//! What travels through a mailbox: the actor's own messages, and the kernel's mail beside them.

use serde_json::Value;
use tokio::sync::oneshot;

use crate::mailbox::message::Message;
use crate::supervisor::fault::InjectedFault;

/// The messages that pass through actix.
pub(crate) enum Mail<M> {
    /// For whichever incarnation comes to it.
    User(M),
    /// The result of a child task or timer: for the incarnation that began it alone.
    Own {
        incarnation: u64,
        msg: M,
    },
    Control(Control),
}

/// The kernel's own mail, beside the credits.
pub(crate) enum Control {
    /// Proves that the mailbox moves.
    Ping,
    /// Answers with the actor's snapshot.
    Snapshot(oneshot::Sender<Value>),
    /// Lets the actor say goodbye and ends it.
    Stop,
    /// Breaks the actor, for fault injection.
    Fault(InjectedFault),
}

impl<M: Message> actix::Message for Mail<M> {
    type Result = ();
}
