//! Drivers come and go by sockets below the registration folder (upstream's pluginmanager and csi_plugin.go, 1.36).
//!
//! One task looks, because inotify says so or because it has been a while, and has every socket that is new asked
//! by a task of its own: one that hangs is waited for by nobody else. What is known is in memory alone; after a
//! restart the first look finds it again, and calls wait for that.

mod feed;
mod introduction;
mod sockets;
mod table;
mod version;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use inotify::{EventStream, Inotify, Watches};
use mounts::bench::Bench;
use proto::storage::Event;
use proto::storage::event::Event as Told;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::Status;

use crate::driver::Driver;
use feed::Feed;
use introduction::{Greeting, Introduction};
use table::{Ask, Table};

/// What inotify should have reported is found after that long; without inotify it is the only way.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_EVERY_ALONE: Duration = Duration::from_secs(1);
/// Between two looks: a folder that changes all the time costs a look so often.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// How long those found first are waited for before it is said that all is told.
const SETTLE_WITHIN: Duration = Duration::from_secs(2);
/// Events for a reader that is slow: one that falls further behind is told everything anew.
const BEHIND_MOST: usize = 256;
const INOTIFY_BUFFER: usize = 16 * 1024;

/// The drivers of this node. Clones share it; the work ends when all are gone.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    board: Arc<Board>,
    // Dropped with the last clone: then the task ends.
    _alive: Arc<watch::Sender<()>>,
}

/// What is known, and who is told of it.
#[derive(Debug)]
struct Board {
    table: Mutex<Table>,
    events: broadcast::Sender<Event>,
    changes: watch::Sender<u64>,
    health: sdk::Health,
}

impl Registry {
    /// Begins to look below `folder`.
    pub(crate) fn start(folder: PathBuf, bench: Bench, health: sdk::Health) -> Self {
        let board = Arc::new(Board {
            table: Mutex::default(),
            events: broadcast::Sender::new(BEHIND_MOST),
            changes: watch::Sender::new(0),
            health,
        });
        board.health.attribute("drivers", "");
        let (alive, end) = watch::channel(());
        let lookout = Lookout {
            folder,
            bench,
            board: board.clone(),
            watches: None,
        };
        tokio::spawn(async move { lookout.run(end).await });
        Self {
            board,
            _alive: Arc::new(alive),
        }
    }

    /// Returns the driver of that name. Just after the start it is waited for, as long as those found first are
    /// still being asked.
    pub(crate) async fn driver(&self, name: &str, within: Duration) -> Option<Arc<Driver>> {
        let mut changes = self.board.changes.subscribe();
        let found = async {
            loop {
                changes.borrow_and_update();
                let (driver, settled) = {
                    let table = self.board.table();
                    (table.driver(name), table.is_settled())
                };
                if driver.is_some() || settled || changes.changed().await.is_err() {
                    return driver;
                }
            }
        };
        timeout(within, found).await.ok().flatten()
    }

    /// Tells everything as it is, then every change.
    pub(crate) fn watch(&self) -> impl Stream<Item = Result<Event, Status>> + Send + use<> {
        let feed = Feed::new(self.board.clone());
        futures_util::stream::unfold(feed, |mut feed| async move {
            let event = feed.next().await?;
            Some((Ok(event), feed))
        })
    }
}

impl Board {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the table and tells what comes of it, in one step: no reader misses anything in between.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> (T, Vec<Event>)) -> T {
        let mut table = self.table();
        let (result, events) = change(&mut table);
        if events.is_empty() {
            return result;
        }
        let names: Vec<&str> = table.names().collect();
        self.health.attribute("drivers", names.join(" "));
        for event in events {
            log(&event);
            // Nobody may be listening: then nobody misses it.
            drop(self.events.send(event));
        }
        self.changes.send_modify(|change| *change += 1);
        result
    }
}

/// Who looks.
struct Lookout {
    folder: PathBuf,
    bench: Bench,
    board: Arc<Board>,
    watches: Option<Watches>,
}

impl Lookout {
    async fn run(mut self, mut end: watch::Receiver<()>) {
        let mut reports = self.reports();
        let settle = Instant::now() + SETTLE_WITHIN;
        loop {
            self.look().await;
            let now = Instant::now();
            if now >= settle {
                self.board.change(|table| ((), table.settle()));
            }
            let every = if reports.is_some() {
                LOOK_EVERY
            } else {
                LOOK_EVERY_ALONE
            };
            let (again, settled) = {
                let table = self.board.table();
                (table.next(), table.is_settled())
            };
            let unsettled = (!settled).then_some(settle);
            let next = [again, unsettled]
                .into_iter()
                .flatten()
                .fold(now + every, Instant::min);
            // Nothing is lost when another arm wins: a look finds everything, whoever asked for it.
            tokio::select! {
                _ = end.changed() => return,
                () = sleep_until(next) => {}
                () = reported(&mut reports) => {}
            }
            sleep(LOOK_PAUSE).await;
        }
    }

    fn reports(&mut self) -> Option<EventStream<Vec<u8>>> {
        let begun = Inotify::init().and_then(|inotify| {
            let watches = inotify.watches();
            Ok((inotify.into_event_stream(vec![0; INOTIFY_BUFFER])?, watches))
        });
        match begun {
            Ok((reports, watches)) => {
                self.watches = Some(watches);
                Some(reports)
            }
            Err(error) => {
                tracing::warn!(
                    "{} is looked at every so often: {error}",
                    self.folder.display()
                );
                None
            }
        }
    }

    async fn look(&mut self) {
        let (folder, mut watches) = (self.folder.clone(), self.watches.clone());
        let what = format!("looking for drivers below {}", folder.display());
        let looked = self.bench.run(&what, LOOK_WITHIN, move || {
            sockets::look(&folder, watches.as_mut()).map_err(|error| {
                mounts::answer::failed(format!("cannot look below {}", folder.display()), error)
            })
        });
        let looked = match looked.await {
            Ok(looked) => looked,
            Err(status) => {
                tracing::warn!("{}", status.message());
                return;
            }
        };
        if looked.more {
            tracing::warn!("{} holds more than is looked at", self.folder.display());
        }
        for ask in self
            .board
            .change(|table| table.found(Instant::now(), looked))
        {
            tokio::spawn(introduce(self.board.clone(), ask));
        }
    }
}

/// Waits until something is reported, and takes all that is.
async fn reported(reports: &mut Option<EventStream<Vec<u8>>>) {
    let Some(stream) = reports else {
        return std::future::pending().await;
    };
    let mut next = Some(stream.next().await);
    while let Some(report) = next {
        if let Some(Ok(_)) = report {
            next = stream.next().now_or_never();
            continue;
        }
        let error = report.and_then(Result::err).map(|error| error.to_string());
        tracing::warn!(
            "inotify does not report any more: {}",
            error.unwrap_or_default()
        );
        *reports = None;
        return;
    }
}

/// Asks a socket who it is, and takes it or refuses it.
async fn introduce(board: Arc<Board>, ask: Ask) {
    let introduction = match Introduction::begin(&ask.socket).await {
        Ok(Greeting::Driver(introduction)) => introduction,
        Ok(Greeting::Foreign(r#type)) => {
            tracing::debug!(
                "{} is for plugins of type {:?}",
                ask.socket.display(),
                r#type
            );
            return board.change(|table| ((), table.foreign(Instant::now(), &ask)));
        }
        Err(why) => {
            return board.change(|table| ((), table.refused(Instant::now(), &ask, "", &why)));
        }
    };
    match register(&board, &ask, &introduction).await {
        Ok(()) => introduction.notify(None).await,
        Err(why) => {
            let name = introduction.name();
            board.change(|table| ((), table.refused(Instant::now(), &ask, name, &why)));
            introduction.notify(Some(&why)).await;
        }
    }
}

async fn register(board: &Board, ask: &Ask, introduction: &Introduction) -> Result<(), String> {
    let check = || {
        introduction.check(|name, version| board.table().may_register(&ask.socket, name, version))
    };
    let version = check().map_err(|why| introduction::invalid(&why))?;
    let held = introduction.examine(version).await;
    let held = held.map_err(|why| introduction::failed(&why))?;
    let taken = board.change(|table| match table.registered(Instant::now(), ask, held) {
        Some(Ok(events)) => (Ok(()), events),
        Some(Err(why)) => (Err(introduction::failed(&why)), Vec::new()),
        // The socket is gone, or another one is there: that one is asked by somebody else.
        None => (
            Err("the socket was replaced meanwhile".to_owned()),
            Vec::new(),
        ),
    });
    taken
}

fn log(event: &Event) {
    match &event.event {
        Some(Told::Backend(backend)) => {
            tracing::info!(
                driver = backend.name,
                endpoint = backend.endpoint,
                "registered"
            );
        }
        Some(Told::Gone(gone)) => tracing::info!(driver = gone.name, "gone"),
        Some(Told::Refused(refused)) => {
            tracing::warn!(
                socket = refused.endpoint,
                driver = refused.name,
                "{}",
                refused.why
            );
        }
        Some(Told::Synced(_)) | None => {}
    }
}
