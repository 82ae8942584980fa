//! logind over D-Bus: inhibitor locks delay the shutdown, a signal announces it.
//!
//! Upstream: pkg/kubelet/nodeshutdown/systemd/inhibit_linux.go (1.36).

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use futures_util::{Stream, StreamExt};

/// The timeout for an answer of the bus.
const BUS_TIMEOUT: Duration = Duration::from_secs(10);
/// The drop-in file that extends logind's `InhibitDelayMaxSec`.
const OVERRIDE: &str = "99-kubelet.conf";

#[zbus::proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1"
)]
trait Login {
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> zbus::Result<zbus::OwnedFd>;

    #[zbus(property(emits_changed_signal = "false"), name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max(&self) -> zbus::Result<u64>;

    #[zbus(signal)]
    fn prepare_for_shutdown(&self, start: bool) -> zbus::Result<()>;
}

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait Systemd {
    fn kill_unit(&self, name: &str, whom: &str, signal: i32) -> zbus::Result<()>;
}

/// Why logind cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogindError {
    #[error("no answer on the system's D-Bus")]
    Bus(#[source] zbus::Error),
    #[error("no answer on the system's D-Bus within {} s", BUS_TIMEOUT.as_secs())]
    Late,
    #[error("cannot write {}", path.display())]
    Override { path: PathBuf, source: io::Error },
    #[error(
        "logind waits {} s at most (InhibitDelayMaxSec), expected the {} s of shutdownGracePeriod",
        allowed.as_secs(), wanted.as_secs()
    )]
    TooShort { allowed: Duration, wanted: Duration },
}

/// Delays the shutdown while it is held; dropping it releases the delay.
#[derive(Debug)]
pub struct InhibitorLock(
    #[expect(dead_code, reason = "held, and closed when dropped")] zbus::OwnedFd,
);

/// A connection to logind.
#[derive(Debug, Clone)]
pub struct LogindConnection {
    login: LoginProxy<'static>,
}

impl LogindConnection {
    /// Connects, and has logind allow delays as long as pods may take (`wanted`). `folder` is logind's folder for
    /// drop-in files.
    pub async fn connect(wanted: Duration, folder: &Path) -> Result<LogindConnection, LogindError> {
        let bus = soon(zbus::Connection::system()).await?;
        let login = soon(LoginProxy::new(&bus)).await?;
        let logind = LogindConnection { login };
        if logind.delay().await? >= wanted {
            return Ok(logind);
        }
        override_max_delay(folder, wanted)?;
        let systemd = soon(SystemdProxy::new(&bus)).await?;
        const HANG_UP: i32 = 1;
        soon(systemd.kill_unit("systemd-logind.service", "all", HANG_UP)).await?;
        let allowed = logind.delay().await?;
        match allowed >= wanted {
            true => Ok(logind),
            false => Err(LogindError::TooShort { allowed, wanted }),
        }
    }

    /// Delays a shutdown from now on.
    pub async fn lock(&self) -> Result<InhibitorLock, LogindError> {
        let why = "Kubelet needs time to handle node shutdown";
        let inhibited = self.login.inhibit("shutdown", "kubelet", why, "delay");
        soon(inhibited).await.map(InhibitorLock)
    }

    /// A stream of `PrepareForShutdown`: true when the machine is going down, false when that is cancelled.
    pub async fn shutdown_signals(&self) -> Result<impl Stream<Item = bool> + use<>, LogindError> {
        let signals = soon(self.login.receive_prepare_for_shutdown()).await?;
        Ok(signals.filter_map(|signal| async move {
            let read = signal.args().map(|args| args.start);
            read.inspect_err(|error| tracing::warn!("logind said something unknown: {error}"))
                .ok()
        }))
    }

    async fn delay(&self) -> Result<Duration, LogindError> {
        soon(self.login.inhibit_delay_max())
            .await
            .map(Duration::from_micros)
    }
}

async fn soon<T>(answer: impl Future<Output = zbus::Result<T>>) -> Result<T, LogindError> {
    let answer = tokio::time::timeout(BUS_TIMEOUT, answer).await;
    answer
        .map_err(|_| LogindError::Late)?
        .map_err(LogindError::Bus)
}

fn override_max_delay(folder: &Path, wanted: Duration) -> Result<(), LogindError> {
    let path = folder.join(OVERRIDE);
    let text = format!(
        "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={}\n",
        wanted.as_secs()
    );
    let write = || {
        fs::create_dir_all(folder)?;
        fs::write(&path, text)
    };
    write().map_err(|source| LogindError::Override {
        path: path.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestOverrideSystemdInhibitDelay...
    #[test]
    fn logind_is_told_to_wait_by_a_file_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("logind.conf.d");
        override_max_delay(&below, Duration::from_secs(300)).unwrap();
        let text = fs::read_to_string(below.join("99-kubelet.conf")).unwrap();
        assert!(
            text.ends_with("[Login]\nInhibitDelayMaxSec=300\n"),
            "{text}"
        );
    }
}
