//! For tests of actors: a neighbour that only listens, and a clock that jumps ahead.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, SystemTime};

use actix::dev::ContextFut;
use futures_util::task::noop_waker_ref;
use tokio::runtime::Builder;

use crate::mailbox::address::Addr;
use crate::mailbox::ask_order;
use crate::mailbox::gauge::Gauge;
use crate::mailbox::mail::Mail;
use crate::mailbox::message::Message;
use crate::system::{blocking, clock, random};

/// Where the wall clock of a paused test starts: 2026-01-01T00:00:00Z.
pub const SIMULATED_START: Duration = Duration::from_secs(1_767_225_600);

/// Where the generator of [`chance`](crate::chance) starts in a paused test.
pub const SEED: u64 = 0;

/// Begins this thread's sequence of [`chance`](crate::chance) anew, at `seed`.
pub fn seed(seed: u64) {
    random::seed(seed);
}

/// Checks that a file of the repository is what the code makes of it; `path` counts from the workspace's root.
///
/// With `OXLET_GENERATE=1` the file is written instead.
///
/// # Panics
/// Where the file differs, with the command that writes it.
pub fn assert_generated(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os("OXLET_GENERATE").is_some() {
        fs::create_dir_all(file.parent().expect("a file has a folder"))
            .and_then(|()| fs::write(&file, text))
            .expect("the repository can be written");
    }
    let there = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        there == text,
        "{path} is not what the code makes of it: run the test with OXLET_GENERATE=1"
    );
}

/// Hears of a message: the path of its actor in the tree, and its name.
pub type Observer = Box<dyn FnMut(&str, &'static str)>;

thread_local! {
    static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
}

/// Has `observer` hear of each message that an actor of this thread is about to handle, until there is another one or none.
pub fn observe(observer: Option<Observer>) {
    OBSERVER.set(observer);
}

/// Tells the observer, if there is one.
pub(crate) fn handled(actor: &str, message: &'static str) {
    OBSERVER.with_borrow_mut(|observer| {
        if let Some(observer) = observer {
            observer(actor, message);
        }
    });
}

/// Makes an address whose messages the test reads itself. The mailbox is as bounded as a real
/// one: what the test does not read stays in it.
pub fn inbox<M: Message>(capacity: usize) -> (Addr<M>, Inbox<M>) {
    let (sender, receiver) = actix::dev::channel::channel::<Collector<M>>(0);
    let addr = Addr::new(actix::Addr::new(sender).recipient(), capacity);
    let queue = Rc::new(RefCell::new(VecDeque::new()));
    let collector = Collector {
        queue: Rc::clone(&queue),
    };
    let inbox = Inbox {
        engine: actix::Context::with_receiver(receiver).into_future(collector),
        queue,
        gauge: Arc::clone(addr.gauge()),
    };
    (addr, inbox)
}

/// Stands in for another actor: the messages it received, in order.
pub struct Inbox<M: Message> {
    engine: ContextFut<Collector<M>, actix::Context<Collector<M>>>,
    queue: Rc<RefCell<VecDeque<M>>>,
    gauge: Arc<Gauge>,
}

impl<M: Message> Inbox<M> {
    /// Takes the next message, or `None` when there is none `within` that time.
    pub async fn next(&mut self, within: Duration) -> Option<M> {
        let next = poll_fn(|cx| match self.take(cx) {
            Some(msg) => Poll::Ready(msg),
            None => Poll::Pending,
        });
        tokio::time::timeout(within, next).await.ok()
    }

    /// Takes every message that is there.
    pub fn drain(&mut self) -> Vec<M> {
        let mut cx = task::Context::from_waker(noop_waker_ref());
        std::iter::from_fn(|| self.take(&mut cx)).collect()
    }

    fn take(&mut self, cx: &mut task::Context<'_>) -> Option<M> {
        // Ready only means that every address is gone; earlier messages are still in the queue.
        let _: Poll<()> = Pin::new(&mut self.engine).poll(cx);
        let msg = self.queue.borrow_mut().pop_front()?;
        self.gauge.taken();
        Some(msg)
    }
}

impl<M: Message> Drop for Inbox<M> {
    fn drop(&mut self) {
        self.gauge.close();
    }
}

impl<M: Message> fmt::Debug for Inbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox({:?})", self.gauge.view())
    }
}

struct Collector<M> {
    queue: Rc<RefCell<VecDeque<M>>>,
}

impl<M: Message> actix::Actor for Collector<M> {
    type Context = actix::Context<Collector<M>>;
}

impl<M: Message> actix::Handler<Mail<M>> for Collector<M> {
    type Result = ();

    fn handle(&mut self, mail: Mail<M>, _ctx: &mut actix::Context<Collector<M>>) {
        match mail {
            Mail::User(msg) | Mail::Own { msg, .. } => self.queue.borrow_mut().push_back(msg),
            Mail::Control(_) => {}
        }
    }
}

/// Runs `test` as [`system::run`](crate::system::run) would, on a clock that jumps ahead whenever
/// every task waits: a day takes no time. The wall clock goes along, from [`SIMULATED_START`], and
/// [`chance`](crate::chance) starts at [`SEED`].
///
/// # Panics
///
/// When an actor asked one that is started after it.
pub fn run_paused<F: Future>(test: impl FnOnce() -> F) -> F::Output {
    run_simulated(SEED, test)
}

/// As [`run_paused`], with [`chance`](crate::chance) from `seed` on, and with blocking work done in turn on this
/// thread: everything that happens follows from the seed. Work that blocks for ever blocks the test.
///
/// # Panics
///
/// When an actor asked one that is started after it.
pub fn run_seeded<F: Future>(seed: u64, test: impl FnOnce() -> F) -> F::Output {
    blocking::in_turn(true);
    let output = run_simulated(seed, test);
    blocking::in_turn(false);
    output
}

fn run_simulated<F: Future>(seed: u64, test: impl FnOnce() -> F) -> F::Output {
    let system = actix::System::with_tokio_rt(|| {
        Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a test can have a runtime")
    });
    system.block_on(async {
        let start = SystemTime::UNIX_EPOCH + SIMULATED_START;
        clock::simulate_wall(Some(start));
        random::seed(seed);
        drop(ask_order::take_broken());
        let output = test().await;
        clock::simulate_wall(None);
        let broken = ask_order::take_broken();
        assert!(
            broken.is_empty(),
            "an actor asks one that is started after it: {broken:?}"
        );
        output
    })
}

/// Lets the clock run for this long, and every task do what is due meanwhile.
pub async fn pass(duration: Duration) {
    tokio::time::sleep(duration).await;
}
