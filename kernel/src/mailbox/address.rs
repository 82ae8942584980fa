//! Addresses: how actors talk to each other, and what can go wrong.
//!
//! An address outlives the actor behind it: what others queued before a restart is handled after it, and
//! every clone of the address stays good. The bound is real, and full is a value that the sender sees
//! ([`Overloaded`]). Room is counted in credits by the mailbox's gauge, because actix counts none: there
//! every clone of an address brings a free slot, and sending never waits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::mailbox::ask_order;
use crate::mailbox::gauge::Gauge;
use crate::mailbox::mail::{Control, Mail};
use crate::mailbox::message::Message;

/// Where to send messages of type `M`. Cloned freely; good for as long as the actor has a successor.
pub struct Addr<M: Message>(Arc<MailboxHandle<M>>);

struct MailboxHandle<M: Message> {
    recipient: actix::Recipient<Mail<M>>,
    gauge: Arc<Gauge>,
}

impl<M: Message> Addr<M> {
    pub(crate) fn new(recipient: actix::Recipient<Mail<M>>, capacity: usize) -> Addr<M> {
        let gauge = Arc::new(Gauge::new(capacity));
        Addr(Arc::new(MailboxHandle { recipient, gauge }))
    }

    /// Leaves a message and goes on. Never waits: a full or closed mailbox hands the message back.
    ///
    /// # Errors
    /// [`Overloaded`] holds the message: the mailbox is full, or its actor has gone for good.
    pub fn tell(&self, msg: M) -> Result<(), Overloaded<M>> {
        match self.0.gauge.credits.try_acquire() {
            Ok(credit) => {
                credit.forget();
                self.0.recipient.do_send(Mail::User(msg));
                Ok(())
            }
            Err(_) => self.refuse(msg),
        }
    }

    /// Leaves a message, waiting for room at most `within`.
    ///
    /// For child tasks and the threads of others; a handler tells, because a handler never waits.
    ///
    /// # Errors
    /// [`Overloaded`] holds the message: there was no room within the time, or the actor has gone for good.
    pub async fn send(&self, msg: M, within: Duration) -> Result<(), Overloaded<M>> {
        match tokio::time::timeout(within, self.0.gauge.credits.acquire()).await {
            Ok(Ok(credit)) => {
                credit.forget();
                self.0.recipient.do_send(Mail::User(msg));
                Ok(())
            }
            Ok(Err(_)) | Err(_) => self.refuse(msg),
        }
    }

    /// Asks a question and waits for its answer at most `within`. An actor asks only those that are started before it;
    /// the log names one that does not.
    ///
    /// # Errors
    /// [`AskError::Overloaded`] where the question was not left; [`AskError::Deadline`] where it may still be
    /// handled; [`AskError::Gone`] where no answer will come.
    pub async fn ask<T: Send + 'static>(
        &self,
        within: Duration,
        msg: impl FnOnce(Reply<T>) -> M,
    ) -> Result<T, AskError> {
        ask_order::check(&self.0.gauge);
        let (reply, answer) = oneshot::channel();
        if self.tell(msg(Reply(reply))).is_err() {
            return Err(match self.0.gauge.credits.is_closed() {
                true => AskError::Gone,
                false => AskError::Overloaded,
            });
        }
        match tokio::time::timeout(within, answer).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => Err(AskError::Gone),
            Err(_) => Err(AskError::Deadline),
        }
    }

    /// Leaves the report of a task that the actor oversees.
    ///
    /// It waits for room without a deadline, because the task belongs to the actor and ends with it. A
    /// closed mailbox drops the message.
    pub async fn deliver(&self, msg: M) {
        self.leave(Mail::User(msg)).await;
    }

    /// As [`Addr::deliver`], the result of a child task or timer of one incarnation.
    pub(crate) async fn deliver_own(&self, incarnation: u64, msg: M) {
        self.leave(Mail::Own { incarnation, msg }).await;
    }

    async fn leave(&self, mail: Mail<M>) {
        if let Ok(credit) = self.0.gauge.credits.acquire().await {
            credit.forget();
            self.0.recipient.do_send(mail);
        }
    }

    /// Leaves the kernel's own mail, which needs no credit.
    pub(crate) fn control(&self, control: Control) {
        self.0.recipient.do_send(Mail::Control(control));
    }

    pub(crate) fn gauge(&self) -> &Arc<Gauge> {
        &self.0.gauge
    }

    fn refuse(&self, msg: M) -> Result<(), Overloaded<M>> {
        self.0.gauge.overloaded.fetch_add(1, Ordering::Relaxed);
        Err(Overloaded(msg))
    }
}

impl<M: Message> Clone for Addr<M> {
    fn clone(&self) -> Addr<M> {
        Addr(Arc::clone(&self.0))
    }
}

impl<M: Message> fmt::Debug for Addr<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Addr({:?})", self.0.gauge.view())
    }
}

/// An address that takes `T` only: for senders that may not know the actor's messages.
pub struct Recipient<T> {
    send: Arc<dyn Fn(T) -> Result<(), Full> + Send + Sync>,
    gauge: Arc<Gauge>,
}

impl<T> Recipient<T> {
    /// Returns a recipient that sends `T` to `addr`, wrapped as its message type.
    pub fn new<M: Message>(
        addr: Addr<M>,
        wrap: impl Fn(T) -> M + Send + Sync + 'static,
    ) -> Recipient<T> {
        let gauge = addr.gauge().clone();
        let send = Arc::new(move |told| addr.tell(wrap(told)).map_err(|Overloaded(_)| Full));
        Recipient { send, gauge }
    }

    /// Sends without waiting, as [`Addr::tell`] does.
    pub fn tell(&self, told: T) -> Result<(), Full> {
        (self.send)(told)
    }

    /// Asks a question and waits for its answer at most `within`, as [`Addr::ask`] does.
    ///
    /// # Errors
    /// Those of [`Addr::ask`]; [`AskError::Overloaded`] also where the mailbox is closed.
    pub async fn ask<A: Send + 'static>(
        &self,
        within: Duration,
        question: impl FnOnce(Reply<A>) -> T,
    ) -> Result<A, AskError> {
        ask_order::check(&self.gauge);
        let (reply, answer) = oneshot::channel();
        if self.tell(question(Reply(reply))).is_err() {
            return Err(AskError::Overloaded);
        }
        match tokio::time::timeout(within, answer).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => Err(AskError::Gone),
            Err(_) => Err(AskError::Deadline),
        }
    }
}

impl<T> Clone for Recipient<T> {
    fn clone(&self) -> Recipient<T> {
        Recipient {
            send: Arc::clone(&self.send),
            gauge: Arc::clone(&self.gauge),
        }
    }
}

impl<T> fmt::Debug for Recipient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recipient")
    }
}

/// A message to a [`Recipient`] was dropped, since its mailbox is full or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the mailbox is full or closed")]
pub struct Full;

/// The right to answer one question. Dropped unused, it tells the asker [`AskError::Gone`].
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<T>);

impl<T> Reply<T> {
    /// Answers. An asker that no longer waits is no concern of the answerer.
    pub fn send(self, value: T) {
        drop(self.0.send(value));
    }
}

/// Why a question has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The mailbox is full.
    #[error("the mailbox is full")]
    Overloaded,
    /// No answer came in time; the question may still be handled.
    #[error("no answer in time")]
    Deadline,
    /// No answer will come: the actor ended, or died of this question.
    #[error("nobody is there to answer")]
    Gone,
}

impl AskError {
    /// Returns whether the same question may succeed later.
    pub fn transient(&self) -> bool {
        match self {
            AskError::Overloaded | AskError::Deadline => true,
            AskError::Gone => false,
        }
    }
}

/// The message that found no room, handed back to its sender.
#[derive(Debug, thiserror::Error)]
#[error("the mailbox is full or closed")]
pub struct Overloaded<M>(pub M);
