//! The service manager (systemd) is told that the agent has started, and again and again that it is well.
//!
//! - **Owns** the socket to the service manager.
//! - **Hears** its own timer, and what the health checks found.
//! - **Tells** no other actor; it asks through the health checks of `/healthz`.
//! - **Never** notifies for an agent that is not healthy: the service manager then starts another one.
//!
//! A unit of `Type=notify` waits for the first notification, and `WatchdogSec=` for all that follow. An agent whose thread stands
//! still sends none.
//!
//! Upstream: pkg/kubelet/watchdog/watchdog_linux.go, `READY=1` of cmd/kubelet/app/server.go (1.36).

mod notify_socket;
#[cfg(test)]
mod tests;

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use kernel::{Actor, Context, Exit, error_chain};
use logic_node::watchdog::{self, WatchdogEnvironment, WatchdogError};
use serde::Serialize;
use serving::healthz::HealthChecks;

use self::notify_socket::notify;

/// Room for its own timer and its own checks.
pub const MAILBOX: usize = 8;
/// Before a notification that could not be sent is sent again, once.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

const READY: &str = "READY=1";
const ALIVE: &str = "WATCHDOG=1";

/// What the service manager asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceManager {
    /// `NOTIFY_SOCKET`: a path, or an abstract name that begins with `@`.
    pub socket: OsString,
    /// Between two notifications that the agent is well; none where no watchdog waits for them.
    pub interval: Option<Duration>,
}

impl ServiceManager {
    /// Reads the environment; none where no service manager listens. Only called when the agent starts.
    pub fn from_environment() -> Result<Option<ServiceManager>, WatchdogError> {
        let variable = |name| env::var(name).ok();
        let (timeout, pid) = (variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
        let environment = WatchdogEnvironment {
            timeout: timeout.as_deref(),
            pid: pid.as_deref(),
        };
        let interval = watchdog::interval(environment, std::process::id())?;
        let socket = env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty());
        if socket.is_none() && interval.is_some() {
            tracing::warn!("a watchdog waits for notifications, but NOTIFY_SOCKET is not set");
        }
        Ok(socket.map(|socket| ServiceManager { socket, interval }))
    }
}

/// Messages of the notifier.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Runs the health checks.
    Check,
    /// Notifies if the checks found the agent healthy.
    Checked(Result<(), String>),
    /// Sends the notification again that could not be sent.
    Retry,
}

/// How often the service manager was told, and why not the last time.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub interval_seconds: Option<f64>,
    pub notifications: u64,
    pub last_error: Option<String>,
}

/// Notifies the service manager.
#[derive(Debug)]
pub struct ServiceNotifier<H> {
    manager: ServiceManager,
    checks: H,

    notifications: u64,
    last_error: Option<String>,
}

impl<H: HealthChecks + Clone> Actor for ServiceNotifier<H> {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        if let Err(error) = self.send(READY) {
            tracing::warn!("the service manager is not told that the agent has started: {error}");
        }
        if self.manager.interval.is_some() {
            ctx.after(Duration::ZERO, Msg::Check);
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Check => self.check(ctx),
            Msg::Checked(found) => self.checked(found, ctx),
            Msg::Retry => self.retry(),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            interval_seconds: self.manager.interval.map(|interval| interval.as_secs_f64()),
            notifications: self.notifications,
            last_error: self.last_error.clone(),
        }
    }
}

impl<H: HealthChecks + Clone> ServiceNotifier<H> {
    pub fn new(manager: ServiceManager, checks: H) -> Self {
        ServiceNotifier {
            manager,
            checks,
            notifications: 0,
            last_error: None,
        }
    }

    fn check(&mut self, ctx: &mut Context<Msg>) {
        let Some(interval) = self.manager.interval else {
            return;
        };
        let checks = self.checks.clone();
        ctx.run(async move {
            for name in checks.names() {
                if let Some(Err(why)) = checks.check(name).await {
                    return Msg::Checked(Err(format!("{name}: {why}")));
                }
            }
            Msg::Checked(Ok(()))
        });
        ctx.after(interval, Msg::Check);
    }

    fn checked(&mut self, found: Result<(), String>, ctx: &mut Context<Msg>) {
        if let Err(why) = found {
            tracing::error!("the watchdog is not notified: the agent is not healthy: {why}");
            self.last_error = Some(why);
        } else if self.send(ALIVE).is_err() {
            ctx.after(RETRY_PERIOD, Msg::Retry);
        }
    }

    fn retry(&mut self) {
        if let Err(error) = self.send(ALIVE) {
            tracing::error!("the watchdog is not notified: {error}");
        }
    }

    fn send(&mut self, state: &str) -> Result<(), String> {
        let sent = notify(&self.manager.socket, state).map_err(|error| error_chain(&error));
        match &sent {
            Ok(()) => self.notifications += 1,
            Err(error) => self.last_error = Some(error.clone()),
        }
        sent
    }
}
