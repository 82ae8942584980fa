//! What an actor is: one owner of some state, one message at a time.
//!
//! An actor is a plain struct. It names its messages (one enum), answers them in
//! [`handle`](Actor::handle) (one `match`, one line an arm), and shows itself in
//! [`snapshot`](Actor::snapshot). It never blocks: slow work goes to
//! [`Context::run`], which reports back with a message.
//!
//! An actor may die at any message: by an error, a panic or a hang. Its supervisor makes a new
//! one from the factory, and the mailbox, which outlives the actor, hands the next message to it.
//! So state is a cache, and `start` rebuilds it from what lives outside the actor.

use std::error::Error;
use std::fmt;

use serde::Serialize;

use crate::context::Context;

/// A message: one enum an actor.
///
/// Every `Debug` enum that derives `strum::IntoStaticStr` is one.
pub trait Message: fmt::Debug + Send + 'static {
    /// Returns the variant's name, which is what a hung actor is reported with.
    fn name(&self) -> &'static str;
}

impl<M> Message for M
where
    M: fmt::Debug + Send + 'static,
    for<'a> &'a M: Into<&'static str>,
{
    fn name(&self) -> &'static str {
        self.into()
    }
}

/// State with one owner, which handles one message at a time.
#[allow(
    async_fn_in_trait,
    reason = "actors stay on their thread, so the futures need no Send"
)]
pub trait Actor: 'static {
    /// Everything that can be said to this actor.
    type Msg: Message;

    /// What `oxctl`, the health endpoints and the tests see of it.
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

/// How an actor's life ended, and so what its supervisor does.
#[derive(Debug)]
pub enum Exit {
    /// Its work is done: a permanent child is restarted, every other one removed.
    Done,
    /// It was asked to stop, or asked for it itself: never restarted.
    Stopped,
    /// It cannot go on: restarted, unless it is temporary.
    Failed(Box<dyn Error + Send + Sync>),
    /// It panicked: restarted, unless it is temporary. The message it panicked on is lost.
    Panicked(String),
    /// It did not answer its ping in time: restarted, unless it is temporary.
    Hung {
        /// The message it was stuck in.
        message: &'static str,
    },
}

impl<E: Error + Send + Sync + 'static> From<E> for Exit {
    fn from(error: E) -> Exit {
        Exit::Failed(Box::new(error))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Done => write!(f, "done"),
            Exit::Stopped => write!(f, "stopped"),
            Exit::Failed(error) => write!(f, "failed: {}", Chain(error.as_ref())),
            Exit::Panicked(text) => write!(f, "panicked: {text}"),
            Exit::Hung { message } => write!(f, "hung in {message}"),
        }
    }
}

/// An error followed by its causes, since no error of ours prints its own.
struct Chain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
