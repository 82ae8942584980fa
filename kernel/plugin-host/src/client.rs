//! The caller's end of a plugin: every call has a deadline, and a connection that breaks is hidden
//! where that is safe, and reported where it is not.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kernel::watch;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::connection::{self, ClientConnection, SocketRoute};
use crate::error::{CallError, ConnectionLoss, chain};
use crate::persistent::{Abandoned, PersistentState};

/// The largest message taken from a plugin, for `max_decoding_message_size` of a client; tonic's own
/// limit of 4 MiB is less than a list of a thousand pods.
pub const MESSAGE_LIMIT: usize = 64 << 20;

/// Between attempts of one call. A successor is there within milliseconds, or after a back-off; what is absent for long is
/// not asked for all the time.
const MIN_RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// The longest pause between two attempts: a successor is found within this time.
const MAX_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The next attempt comes after this part of the time that the call has waited already.
const WAITED_PARTS: u32 = 8;

/// The pause before the next attempt of a call that waits since then.
fn retry_interval(since: Instant) -> Duration {
    (since.elapsed() / WAITED_PARTS).clamp(MIN_RETRY_INTERVAL, MAX_RETRY_INTERVAL)
}

/// Where a plugin stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PluginState {
    /// Not ready yet, for the first time or again: calls wait.
    Starting,
    /// Serves calls.
    Ready,
    /// Serves, but says that its backend does not; or an external endpoint is out of reach.
    Degraded,
    /// Finishes what it has begun, and makes room: new calls wait.
    Draining,
    /// Restarted too often: calls are refused, until it is tried again after a long pause.
    Failed,
    /// Ended on purpose: calls are refused.
    Stopped,
}

impl fmt::Display for PluginState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Draining => "draining",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        })
    }
}

/// Where a plugin stands, and since which process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginStatus {
    /// The plugin's state.
    pub state: PluginState,
    /// Which process callers reach; changes at every restart, swap and reconnection.
    pub generation: u64,
    /// Why it is not ready, in words. Empty when it is.
    pub reason: String,
}

/// The caller's end of a plugin. It follows restart and swap; clones are the same end.
///
/// Made inside the runtime, before the [`PluginHost`](crate::PluginHost) that serves it.
#[derive(Clone)]
pub struct PluginClient {
    pub(super) shared: Arc<ClientShared>,
}

pub(super) struct ClientShared {
    plugin: String,
    view: watch::Sender<PluginStatus>,
    route: watch::Sender<Option<SocketRoute>>,
    wire: watch::Sender<ClientConnection>,
    pub(super) abandoned: watch::Sender<Vec<Abandoned>>,
    persistent: Mutex<PersistentState>,
    spawning: Arc<tokio::sync::Mutex<()>>,
}

impl PluginClient {
    /// Makes the line of a plugin that has yet to be started. Calls wait for it.
    pub fn new(plugin: impl Into<String>) -> Self {
        let route = watch::Sender::new(None);
        let wire = ClientConnection::follow(route.subscribe());
        Self::with(plugin.into(), PluginState::Starting, route, wire)
    }

    /// Makes a line to something that needs no host, such as a server in the test's own process.
    pub fn fixed(plugin: impl Into<String>, channel: Channel) -> Self {
        let route = watch::Sender::new(Some(SocketRoute::Kept(PathBuf::new())));
        Self::with(
            plugin.into(),
            PluginState::Ready,
            route,
            ClientConnection::new(channel),
        )
    }

    /// Makes a line to whoever serves at a socket, beside the plugins.
    pub fn at_socket(plugin: impl Into<String>, path: &Path) -> Self {
        Self::fixed(plugin, connection::direct(path))
    }

    fn with(
        plugin: String,
        state: PluginState,
        route: watch::Sender<Option<SocketRoute>>,
        wire: ClientConnection,
    ) -> Self {
        let view = watch::Sender::new(PluginStatus {
            state,
            generation: 0,
            reason: String::new(),
        });
        Self {
            shared: Arc::new(ClientShared {
                plugin,
                view,
                route,
                wire: watch::Sender::new(wire),
                abandoned: watch::Sender::default(),
                persistent: Mutex::default(),
                spawning: Arc::default(),
            }),
        }
    }

    /// Makes a call that may be repeated. A connection that breaks is not seen: the call is made
    /// again until its time is over. Only a call under which the plugin was abandoned ends as
    /// [`CallError::Interrupted`]: it may be the very one that the process is stuck in.
    ///
    /// # Errors
    /// [`CallError::Refused`] with the plugin's status; [`CallError::Unavailable`] or [`CallError::Deadline`] when
    /// the time is over.
    pub async fn idempotent<T, F, Fut>(&self, within: Duration, call: F) -> Result<T, CallError>
    where
        F: Fn(Channel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut broken = None;
        let attempts = async {
            let began = Instant::now();
            loop {
                let wire = self.open().await?;
                let answer = tokio::select! {
                    biased;
                    () = wire.cut_later() => return Err(self.interrupted()),
                    answer = call(wire.channel.clone()) => answer,
                };
                match answer {
                    Ok(answer) => return Ok(answer.into_inner()),
                    Err(status) if ConnectionLoss::of(&status).is_none() => {
                        return Err(CallError::Refused(status));
                    }
                    Err(status) => broken = Some(chain(&status)),
                }
                sleep(retry_interval(began)).await;
            }
        };
        match timeout(within, attempts).await {
            Ok(outcome) => outcome,
            Err(_) => Err(match broken {
                Some(why) => self.unavailable(why),
                None => CallError::Deadline {
                    plugin: self.name(),
                    after: within,
                },
            }),
        }
    }

    /// Makes a call that creates something: it is sent once. It waits until it can be sent; if the
    /// connection breaks after that, it ends as [`CallError::Interrupted`], or as
    /// [`CallError::Unavailable`] when the request certainly did not leave.
    ///
    /// # Errors
    /// [`CallError::Interrupted`] and [`CallError::Deadline`] say nothing of the effect: the caller lists what
    /// exists. After [`CallError::Unavailable`] and [`CallError::Refused`] there is none.
    pub async fn creating<T, F, Fut>(&self, within: Duration, call: F) -> Result<T, CallError>
    where
        F: FnOnce(Channel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut begun = false;
        let attempt = async {
            let wire = self.reach().await?;
            begun = true;
            let answer = tokio::select! {
                biased;
                () = wire.cut_later() => return Err(self.interrupted()),
                answer = call(wire.channel.clone()) => answer,
            };
            let status = match answer {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            Err(match ConnectionLoss::of(&status) {
                None => CallError::Refused(status),
                Some(ConnectionLoss::NotBegun) => self.unavailable(chain(&status)),
                Some(ConnectionLoss::Unknown) => self.interrupted(),
            })
        };
        match timeout(within, attempt).await {
            Ok(outcome) => outcome,
            Err(_) if begun => Err(CallError::Deadline {
                plugin: self.name(),
                after: within,
            }),
            Err(_) => Err(self.unavailable(format!("{} for {within:?}", self.state().state))),
        }
    }

    /// Returns the connection of this moment, for streams. One that breaks is opened again on the
    /// next connection that this returns.
    pub fn channel(&self) -> Channel {
        self.wire().channel
    }

    pub(super) fn wire(&self) -> ClientConnection {
        self.shared.wire.borrow().clone()
    }

    /// Returns where the plugin stands.
    pub fn state(&self) -> PluginStatus {
        self.shared.view.borrow().clone()
    }

    /// Follows where the plugin stands.
    pub fn states(&self) -> watch::Receiver<PluginStatus> {
        self.shared.view.subscribe()
    }

    /// Returns the plugin's name.
    pub fn name(&self) -> String {
        self.shared.plugin.clone()
    }

    /// Shows callers where the plugin stands.
    pub(super) fn show(&self, view: PluginStatus) {
        self.shared.view.send_if_modified(|shown| {
            let changed = *shown != view;
            *shown = view;
            changed
        });
    }

    /// Leads new calls to another socket. Calls in flight end where they began.
    pub(super) fn set_route(&self, route: SocketRoute) {
        if matches!(route, SocketRoute::Foreign(_))
            && self.shared.route.borrow().as_ref() == Some(&route)
        {
            return;
        }
        let before = self.shared.route.send_replace(Some(route));
        // The first connection waits for the route that it now has.
        if before.is_some() {
            self.shared
                .wire
                .send_replace(ClientConnection::follow(self.shared.route.subscribe()));
        }
    }

    pub(super) fn persistent(&self) -> MutexGuard<'_, PersistentState> {
        self.shared
            .persistent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no process is about to be started, and keeps it so for as long as the guard lives.
    pub(super) async fn spawning(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.shared.spawning).lock_owned().await
    }

    /// Waits while the plugin makes room for its successor; refuses when there will be none soon.
    async fn open(&self) -> Result<ClientConnection, CallError> {
        let mut views = self.states();
        let view = views
            .wait_for(|view| view.state != PluginState::Draining)
            .await;
        // The sender lives in `self`: waiting cannot fail.
        let refused = view
            .ok()
            .filter(|view| matches!(view.state, PluginState::Failed | PluginState::Stopped))
            .map(|view| view.clone());
        match refused {
            None => Ok(self.wire()),
            Some(PluginStatus { state, reason, .. }) if reason.is_empty() => {
                Err(self.unavailable(state.to_string()))
            }
            Some(PluginStatus { state, reason, .. }) => {
                Err(self.unavailable(format!("{state}: {reason}")))
            }
        }
    }

    /// As `open`, but waits until the socket has a listener. A managed plugin's socket always has one.
    async fn reach(&self) -> Result<ClientConnection, CallError> {
        let began = Instant::now();
        loop {
            // The sender lives in `self`: waiting cannot fail.
            drop(
                self.shared
                    .route
                    .subscribe()
                    .wait_for(Option::is_some)
                    .await,
            );
            let wire = self.open().await?;
            let route = self.shared.route.borrow().clone();
            match route {
                Some(SocketRoute::Foreign(path)) if UnixStream::connect(&path).await.is_err() => {}
                Some(SocketRoute::Foreign(_) | SocketRoute::Kept(_)) | None => return Ok(wire),
            }
            sleep(retry_interval(began)).await;
        }
    }

    fn interrupted(&self) -> CallError {
        CallError::Interrupted {
            plugin: self.name(),
        }
    }

    fn unavailable(&self, why: impl Into<String>) -> CallError {
        CallError::Unavailable {
            plugin: self.name(),
            why: why.into(),
        }
    }
}

impl fmt::Debug for PluginClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginClient")
            .field("plugin", &self.shared.plugin)
            .field("view", &*self.shared.view.borrow())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use kernel::testing::run_paused;

    use super::*;

    #[test]
    fn a_call_tries_again_less_often_the_longer_its_plugin_is_away() {
        run_paused(|| async {
            for (waited, pause) in [(0, 1), (80, 10), (800, 100), (4_000, 500), (3_600_000, 500)] {
                let began = Instant::now();
                sleep(Duration::from_millis(waited)).await;
                assert_eq!(retry_interval(began), Duration::from_millis(pause));
            }
        });
    }
}
