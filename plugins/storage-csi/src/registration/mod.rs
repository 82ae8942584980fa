//! Drivers come and go by sockets below the registration folder (upstream's pluginmanager and csi_plugin.go, 1.36).
//!
//! One task looks, because inotify says so or because it has been a while, and has every socket that is new asked
//! by a task of its own: one that hangs is waited for by nobody else. What is known is in memory alone; after a
//! restart the first look finds it again, and calls wait for that.

mod feed;
mod introduction;
mod lookout;
mod sockets;
mod table;
mod version;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use mounts::bench::Bench;
use proto::storage::Event;
use proto::storage::event::Event as Told;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::{Instant, timeout};
use tonic::Status;

use crate::driver::Driver;
use feed::Feed;
use introduction::{Greeting, Introduction};
use lookout::Lookout;
use table::{Ask, Table};

/// Events for a reader that is slow: one that falls further behind is told everything anew.
const BEHIND_MOST: usize = 256;

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
    /// Somebody is to be asked again, and it has to be worked out when.
    again: Notify,
    health: sdk::Health,
}

impl Registry {
    /// Begins to look below `folder`.
    pub(crate) fn start(folder: PathBuf, bench: Bench, health: sdk::Health) -> Self {
        let board = Arc::new(Board::new(health));
        board.health.attribute("drivers", "");
        let (alive, end) = watch::channel(());
        let lookout = Lookout::new(folder, bench, board.clone());
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

    /// Takes it that a driver takes so many volumes on this node now, if it is still the one that was asked.
    pub(crate) fn takes(&self, driver: &Arc<Driver>, most: i64) {
        self.board.change(|table| ((), table.takes(driver, most)));
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
    fn new(health: sdk::Health) -> Self {
        Self {
            table: Mutex::default(),
            events: broadcast::Sender::new(BEHIND_MOST),
            changes: watch::Sender::new(0),
            again: Notify::new(),
            health,
        }
    }

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
            return refuse(&board, &ask, "", &why);
        }
    };
    match register(&board, &ask, &introduction).await {
        Ok(()) => introduction.notify(None).await,
        Err(why) => {
            refuse(&board, &ask, introduction.name(), &why);
            introduction.notify(Some(&why)).await;
        }
    }
}

fn refuse(board: &Board, ask: &Ask, name: &str, why: &str) {
    board.change(|table| ((), table.refused(Instant::now(), ask, name, why)));
    board.again.notify_one();
}

async fn register(board: &Board, ask: &Ask, introduction: &Introduction) -> Result<(), String> {
    let check = || {
        introduction.check(|name, version| board.table().may_register(&ask.socket, name, version))
    };
    let version = check().map_err(|why| introduction::invalid(&why))?;
    let held = introduction.examine(version).await;
    let held = held.map_err(|why| introduction::failed(&why))?;
    board.change(|table| match table.registered(Instant::now(), ask, held) {
        Some(Ok(events)) => (Ok(()), events),
        Some(Err(why)) => (Err(introduction::failed(&why)), Vec::new()),
        // The socket is gone, or another one is there: that one is asked by somebody else.
        None => (
            Err("the socket was replaced meanwhile".to_owned()),
            Vec::new(),
        ),
    })
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
