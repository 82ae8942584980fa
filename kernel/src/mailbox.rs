//! Addresses and bounded mailboxes.
//!
//! A mailbox outlives the actor behind it: what was queued before a restart is handled after it,
//! and every clone of the address stays good. Its bound is real, and full is a value that the
//! sender sees ([`Overloaded`]). Room is counted here, in credits, because actix counts none:
//! there every clone of an address brings a free slot, and sending never waits.

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, oneshot};

use crate::actor::Message;
use crate::shell::{Control, Mail, Shell};

/// Makes a mailbox with room for `capacity` messages (at least one).
///
/// The address works at once: what is told before the actor is spawned waits in the mailbox.
pub fn mailbox<M: Message>(capacity: usize) -> (Addr<M>, Port<M>) {
    // Zero is actix's word for unbounded: the credits below are the bound.
    let (sender, receiver) = actix::dev::channel::channel::<Shell<M>>(0);
    let addr = Addr::new(actix::Addr::new(sender).recipient(), capacity);
    let port = Port {
        context: actix::Context::with_receiver(receiver),
        open: Open(Arc::clone(addr.gauge())),
        addr: addr.clone(),
    };
    (addr, port)
}

/// Where to send messages of type `M`. Cloned freely; good for as long as the actor has a successor.
pub struct Addr<M: Message>(Arc<Post<M>>);

struct Post<M: Message> {
    recipient: actix::Recipient<Mail<M>>,
    gauge: Arc<Gauge>,
}

impl<M: Message> Addr<M> {
    pub(crate) fn new(recipient: actix::Recipient<Mail<M>>, capacity: usize) -> Addr<M> {
        let gauge = Arc::new(Gauge::new(capacity));
        Addr(Arc::new(Post { recipient, gauge }))
    }

    /// Leaves a message and goes on. Never waits: a full or closed mailbox hands the message back.
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

    /// Asks a question and waits for its answer at most `within`.
    pub async fn ask<T: Send + 'static>(
        &self,
        within: Duration,
        msg: impl FnOnce(Reply<T>) -> M,
    ) -> Result<T, AskError> {
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

    /// Leaves what a child task brings home. It waits as long as it must: the task is the actor's
    /// own and ends with it.
    pub(crate) async fn deliver(&self, msg: M) {
        if let Ok(credit) = self.0.gauge.credits.acquire().await {
            credit.forget();
            self.0.recipient.do_send(Mail::User(msg));
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

/// Whoever hears `T`, whatever else it hears: an address for those who may not know its messages.
pub struct Recipient<T>(Arc<dyn Fn(T) -> Result<(), Full> + Send + Sync>);

impl<T> Recipient<T> {
    /// Returns the way to tell `addr` a `T`, wrapped as the message that it hears.
    pub fn new<M: Message>(
        addr: Addr<M>,
        wrap: impl Fn(T) -> M + Send + Sync + 'static,
    ) -> Recipient<T> {
        Recipient(Arc::new(move |told| {
            addr.tell(wrap(told)).map_err(|Overloaded(_)| Full)
        }))
    }

    /// Leaves what is told and goes on, as [`Addr::tell`] does.
    pub fn tell(&self, told: T) -> Result<(), Full> {
        (self.0)(told)
    }
}

impl<T> Clone for Recipient<T> {
    fn clone(&self) -> Recipient<T> {
        Recipient(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Recipient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recipient")
    }
}

/// What a [`Recipient`] was told found no room, and is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the mailbox is full or closed")]
pub struct Full;

/// The receiving end, given to [`Supervisor::spawn`](crate::Supervisor::spawn) with the actor.
pub struct Port<M: Message> {
    pub(crate) context: actix::Context<Shell<M>>,
    pub(crate) open: Open,
    pub(crate) addr: Addr<M>,
}

impl<M: Message> fmt::Debug for Port<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({:?})", self.addr.gauge().view())
    }
}

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
    /// Nobody will answer: the actor ended, or died of this question.
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

/// The counters of one mailbox, shared by its addresses, its actor and the observers.
#[derive(Debug)]
pub(crate) struct Gauge {
    capacity: usize,
    credits: Semaphore,
    overloaded: AtomicU64,
    handled: AtomicU64,
    busy: Mutex<Option<&'static str>>,
}

impl Gauge {
    fn new(capacity: usize) -> Gauge {
        let capacity = capacity.clamp(1, Semaphore::MAX_PERMITS);
        Gauge {
            capacity,
            credits: Semaphore::new(capacity),
            overloaded: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            busy: Mutex::new(None),
        }
    }

    /// Counts a message taken out of the mailbox, and gives its room to the next.
    pub(crate) fn taken(&self) {
        self.handled.fetch_add(1, Ordering::Relaxed);
        self.credits.add_permits(1);
    }

    pub(crate) fn close(&self) {
        self.credits.close();
    }

    pub(crate) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// Returns the message being handled, readable from the watchdog's thread as well.
    pub(crate) fn busy(&self) -> Option<&'static str> {
        *self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_busy(&self, message: Option<&'static str>) {
        *self.busy.lock().unwrap_or_else(PoisonError::into_inner) = message;
    }

    pub(crate) fn view(&self) -> MailboxView {
        MailboxView {
            len: self.capacity - self.credits.available_permits().min(self.capacity),
            capacity: self.capacity,
            overloaded: self.overloaded.load(Ordering::Relaxed),
        }
    }
}

/// How full a mailbox is, and how often it was too full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MailboxView {
    /// Messages waiting.
    pub len: usize,
    /// Messages that fit.
    pub capacity: usize,
    /// Messages handed back to their senders since the start.
    pub overloaded: u64,
}

/// A mailbox that will be read. Dropped, it closes the mailbox, however its reader came to end.
#[derive(Debug)]
pub(crate) struct Open(pub(crate) Arc<Gauge>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close();
    }
}
