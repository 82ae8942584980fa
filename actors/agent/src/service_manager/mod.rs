//! The service manager (systemd) is told that the agent has started, again and again that it is well, and in words how.
//!
//! - **Owns** the socket to the service manager, and what was said of the agent's state last.
//! - **Hears** its own timer, and what the health checks found.
//! - **Tells** no other actor; it asks through the health checks of `/healthz`.
//! - **Never** notifies for an agent that is not healthy: the service manager then starts another one.
//!
//! A unit of `Type=notify` waits for the first notification, and `WatchdogSec=` for all that follow: it begins to count with
//! the first one, so that no start is too long for it. An agent whose thread stands still sends none. A manager that
//! is degraded, or late with its answer to the supervisor's ping, is named in the words (`STATUS=`) and costs no
//! notification: another start would stop the others too. The configuration is read once, at the start, so `RELOADING=1` is never said.
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
/// Before a notification that could not be sent is sent again, and between two checks before the first one.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// Between two checks where no watchdog waits.
const STATUS_PERIOD: Duration = Duration::from_secs(30);
/// The check that shows in words what costs no notification.
const MANAGERS: &str = "managers";

const READY: &str = "READY=1";
const ALIVE: &str = "WATCHDOG=1";
const STOPPING: &str = "STOPPING=1";
const WELL: &str = "every manager works";

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

    /// Tells that the agent ends on purpose.
    pub fn stopping(&self) {
        let state = format!("{STOPPING}\nSTATUS=ending; pods live on");
        if let Err(error) = notify(&self.socket, &state) {
            tracing::warn!(
                "the service manager is not told of the end: {}",
                error_chain(&error)
            );
        }
    }
}

/// Messages of the notifier.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Runs the health checks.
    Check,
    /// Notifies if the checks found the agent healthy.
    Checked(Result<ManagerStatus, String>),
    /// Sends the notification again that could not be sent.
    Retry,
}

/// What is said of an agent that is healthy, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerStatus(String);

/// How often the service manager was told, and why it is not.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub interval_seconds: Option<f64>,
    pub notifications: u64,
    pub status: String,
    pub last_error: Option<String>,
}

/// Notifies the service manager.
#[derive(Debug)]
pub struct ServiceNotifier<H> {
    manager: ServiceManager,
    checks: H,

    notifications: u64,
    /// Whether the service manager knows that the agent has started.
    is_ready: bool,
    /// As the service manager knows it.
    status: String,
    last_error: Option<String>,
}

impl<H: HealthChecks + Clone> Actor for ServiceNotifier<H> {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        ctx.after(Duration::ZERO, Msg::Check);
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
            status: self.status.clone(),
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
            is_ready: false,
            status: String::new(),
            last_error: None,
        }
    }

    fn check(&mut self, ctx: &mut Context<Msg>) {
        let checks = self.checks.clone();
        ctx.run(async move { Msg::Checked(healthy(&checks).await) });
        let next = match self.is_ready {
            true => self.manager.interval.unwrap_or(STATUS_PERIOD),
            false => RETRY_PERIOD,
        };
        ctx.after(next, Msg::Check);
    }

    fn checked(&mut self, found: Result<ManagerStatus, String>, ctx: &mut Context<Msg>) {
        let (mut states, is_healthy) = (Vec::new(), found.is_ok());
        let status = match found {
            Ok(ManagerStatus(status)) => {
                states.extend((!self.is_ready).then_some(READY));
                states.extend(self.manager.interval.map(|_| ALIVE));
                status
            }
            Err(why) => {
                self.complain(format!("the agent is not healthy: {why}"));
                format!("not healthy: {why}")
            }
        };
        let words = format!("STATUS={status}");
        if self.status != status {
            states.push(&words);
        }
        let sent = match states.is_empty() {
            true => Ok(()),
            false => self.send(&states.join("\n")),
        };
        match sent {
            Ok(()) => {
                if is_healthy {
                    self.is_ready = true;
                    self.last_error = None;
                }
                self.status = status;
            }
            Err(error) => {
                self.complain(error);
                if self.is_ready && is_healthy {
                    ctx.after(RETRY_PERIOD, Msg::Retry);
                }
            }
        }
    }

    fn retry(&mut self) {
        if let Err(error) = self.send(ALIVE) {
            self.complain(error);
        }
    }

    fn send(&mut self, state: &str) -> Result<(), String> {
        notify(&self.manager.socket, state).map_err(|error| error_chain(&error))?;
        self.notifications += 1;
        Ok(())
    }

    /// Logs a trouble once, as long as it lasts.
    fn complain(&mut self, trouble: String) {
        if self.last_error.as_ref() != Some(&trouble) {
            tracing::error!("the service manager is not notified: {trouble}");
        }
        self.last_error = Some(trouble);
    }
}

/// Makes the checks of `/healthz`, in their order; the first one that fails is the error.
async fn healthy(checks: &impl HealthChecks) -> Result<ManagerStatus, String> {
    for name in checks.names() {
        if let Some(Err(why)) = checks.check(name).await {
            return Err(one_line(&format!("{name}: {why}")));
        }
    }
    Ok(ManagerStatus(match checks.check(MANAGERS).await {
        Some(Err(why)) => one_line(&why),
        Some(Ok(())) | None => WELL.to_owned(),
    }))
}

/// A notification is a list of lines, so words have one.
fn one_line(words: &str) -> String {
    words.replace(['\n', '\r'], " ")
}
