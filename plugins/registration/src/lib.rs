//! The plugin watcher: plugins come and go by sockets below a registration folder (upstream's pluginmanager, 1.36).
//!
//! One task scans the folder, when inotify reports a change and at an interval, and asks every new socket in a task of
//! its own: one that hangs delays no other. What a plugin is beyond its name is its [`PluginHandler`]'s. The state is
//! in memory alone; after a restart the first scan finds it again, and calls wait for that.

mod failure;
mod feed;
mod handler;
mod introduction;
pub mod rpc;
mod sockets;
mod table;
#[cfg(test)]
mod testing;
mod watcher;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use feed::Feed;
use futures_util::Stream;
pub use handler::{BlockingCalls, Plugin, PluginHandler, Version};
use introduction::{Inquiry, Introduction};
use table::{PluginTable, RegistrationRequest};
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::{Instant, timeout};
use watcher::Watcher;

/// Events that may wait for a slow subscriber: one that falls further behind gets the whole state anew.
const BACKLOG_MAX: usize = 256;

/// An event for subscribers.
#[derive(Clone, Debug)]
pub enum RegistrationEvent<P> {
    /// A plugin has registered, or what it registered has changed.
    Registered(P),
    /// The plugin of that name has gone.
    Gone(String),
    /// A socket was refused.
    Refused {
        /// The socket's path.
        socket: String,
        /// The name that it gave; "" if it gave none.
        name: String,
        /// Why, as upstream words it.
        why: String,
    },
    /// The sockets of the first scan have all answered, or their timeout has passed.
    Synced,
}

/// The registered plugins of one type. Clones share it; the watcher ends with the last one.
pub struct PluginRegistry<H: PluginHandler> {
    board: Arc<Board<H>>,
    // Dropped with the last clone: then the task ends.
    _alive: Arc<watch::Sender<()>>,
}

impl<H: PluginHandler> Clone for PluginRegistry<H> {
    fn clone(&self) -> Self {
        Self {
            board: self.board.clone(),
            _alive: self._alive.clone(),
        }
    }
}

impl<H: PluginHandler> fmt::Debug for PluginRegistry<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

/// The table, and the subscribers to its changes.
struct Board<H: PluginHandler> {
    table: Mutex<PluginTable<H::Plugin>>,
    events: broadcast::Sender<RegistrationEvent<H::Plugin>>,
    changes: watch::Sender<u64>,
    /// A socket is to be asked again, and it has to be worked out when.
    again: Notify,
    handler: H,
}

impl<H: PluginHandler> PluginRegistry<H> {
    /// Begins to watch `folder`, whose scans run on `threads`.
    pub fn start(folder: PathBuf, threads: impl BlockingCalls, handler: H) -> Self {
        let board = Arc::new(Board::new(handler));
        let (alive, end) = watch::channel(());
        let watcher = Watcher::new(folder, threads, board.clone());
        tokio::spawn(async move { watcher.run(end).await });
        Self {
            board,
            _alive: Arc::new(alive),
        }
    }

    /// Returns the plugin of that name. Just after the start it is waited for, as long as those found first are
    /// still being asked.
    pub async fn plugin(&self, name: &str, within: Duration) -> Option<H::Plugin> {
        let mut changes = self.board.changes.subscribe();
        let found = async {
            loop {
                changes.borrow_and_update();
                let (plugin, settled) = {
                    let table = self.board.table();
                    (table.plugin(name).cloned(), table.is_settled())
                };
                if plugin.is_some() || settled || changes.changed().await.is_err() {
                    return plugin;
                }
            }
        };
        timeout(within, found).await.ok().flatten()
    }

    /// Changes what is kept of a plugin, if it is registered; subscribers get it if `change` returns that it did.
    pub fn update(&self, name: &str, change: impl FnOnce(&mut H::Plugin) -> bool) {
        self.board.change(|table| ((), table.update(name, change)));
    }

    /// Returns the whole state as events, then every change.
    pub fn watch(&self) -> impl Stream<Item = RegistrationEvent<H::Plugin>> + Send + use<H> {
        let feed = Feed::new(self.board.clone());
        futures_util::stream::unfold(feed, |mut feed| async move {
            let event = feed.next().await?;
            Some((event, feed))
        })
    }
}

impl<H: PluginHandler> Board<H> {
    fn new(handler: H) -> Self {
        Self {
            table: Mutex::default(),
            events: broadcast::Sender::new(BACKLOG_MAX),
            changes: watch::Sender::new(0),
            again: Notify::new(),
            handler,
        }
    }

    fn table(&self) -> MutexGuard<'_, PluginTable<H::Plugin>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the table and tells what comes of it, in one step: no reader misses anything in between.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut PluginTable<H::Plugin>) -> (T, Vec<RegistrationEvent<H::Plugin>>),
    ) -> T {
        let mut table = self.table();
        let (result, events) = change(&mut table);
        if events.is_empty() {
            return result;
        }
        let names: Vec<&str> = table.names().collect();
        self.handler.names_changed(&names);
        for event in events {
            self.handler.log(&event);
            if let RegistrationEvent::Gone(name) = &event {
                self.handler.deregister(name);
            }
            // Without a subscriber there is no reader to miss it.
            drop(self.events.send(event));
        }
        self.changes.send_modify(|change| *change += 1);
        result
    }
}

/// Calls GetInfo on a socket, and registers or refuses it.
async fn introduce<H: PluginHandler>(board: Arc<Board<H>>, ask: RegistrationRequest) {
    let introduction = match Introduction::begin(&ask.socket, H::TYPE).await {
        Ok(Inquiry::Handled(introduction)) => introduction,
        Ok(Inquiry::Foreign(r#type)) => {
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

fn refuse<H: PluginHandler>(board: &Board<H>, ask: &RegistrationRequest, name: &str, why: &str) {
    board.change(|table| ((), table.refused(Instant::now(), ask, name, why)));
    board.again.notify_one();
}

async fn register<H: PluginHandler>(
    board: &Board<H>,
    ask: &RegistrationRequest,
    introduction: &Introduction,
) -> Result<(), String> {
    let may_register =
        |name: &str, version: &Version<H>| board.table().may_register(&ask.socket, name, version);
    let info = introduction.info();
    let version = board.handler.validate(info, may_register);
    let version = version.map_err(|why| introduction::invalid(&why))?;
    let plugin = board.handler.register(info, version).await;
    let plugin = plugin.map_err(|why| introduction::failed(&why))?;
    let name = plugin.name().to_owned();
    let taken = board.change(
        |table| match table.registered(Instant::now(), ask, plugin) {
            Some(Ok(events)) => (Ok(()), events),
            Some(Err(why)) => (Err(introduction::failed(&why)), Vec::new()),
            // The socket is gone, or another one is there: that one is asked by a task of its own.
            None => (
                Err("the socket was replaced meanwhile".to_owned()),
                Vec::new(),
            ),
        },
    );
    if taken.is_err() && board.table().plugin(&name).is_none() {
        board.handler.deregister(&name);
    }
    taken
}
