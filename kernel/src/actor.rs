//! The actor: one owner of some state, one message at a time.
//!
//! An actor is a plain struct. It names its messages (one enum), answers them in
//! [`handle`](Actor::handle) (one `match`, one line an arm), and shows itself in
//! [`snapshot`](Actor::snapshot). It never blocks: slow work goes to
//! [`Context::run`], which reports back with a message.
//!
//! An actor may die at any message: by an error, a panic or a hang. Its supervisor makes a new
//! one from the factory, and the mailbox, which outlives the actor, hands the next message to it.
//! So state is a cache, and `start` rebuilds it from what lives outside the actor.

use serde::Serialize;

use crate::context::Context;
use crate::mailbox::message::Message;
use crate::supervisor::exit::Exit;

/// State with one owner, which handles one message at a time.
#[allow(
    async_fn_in_trait,
    reason = "actors stay on their thread, so the futures need no Send"
)]
pub trait Actor: 'static {
    /// The actor's messages.
    type Msg: Message;

    /// The actor's state as `oxctl`, the health endpoints and the tests see it.
    type Snapshot: Serialize;

    /// Rebuilds the state before the first message, at every restart again.
    async fn start(&mut self, _ctx: &mut Context<Self::Msg>) -> Result<(), Exit> {
        Ok(())
    }

    /// Handles one message; the next one waits until this returns.
    async fn handle(&mut self, msg: Self::Msg, ctx: &mut Context<Self::Msg>) -> Result<(), Exit>;

    /// Says goodbye, at an orderly shutdown only: never count on it.
    async fn stop(&mut self, _ctx: &mut Context<Self::Msg>) {}

    /// Returns the view of this moment.
    fn snapshot(&self) -> Self::Snapshot;
}
