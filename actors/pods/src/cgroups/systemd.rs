//! systemd over D-Bus: slices made, limited and stopped.
//!
//! Follows what runc does for its scopes (opencontainers/cgroups, systemd/common.go) and org.freedesktop.systemd1(5).

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use logic_resources::cgroups::{PropertyValue, SliceProperties};
use thiserror::Error;
use tokio::sync::Mutex;
use zbus::{DBusError, OwnedObjectPath, Variant};

/// The timeout for an answer of the bus.
const BUS_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for a job, as runc's.
const JOB_TIMEOUT: Duration = Duration::from_secs(30);
/// A unit of that name is there already.
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
/// There is no unit of that name.
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait Manager {
    fn start_transient_unit(
        &self,
        name: &str,
        mode: &str,
        properties: &[(&str, Variant<'_>)],
        aux: &[(&str, Vec<(&str, Variant<'_>)>)],
    ) -> zbus::Result<OwnedObjectPath>;

    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;

    fn reset_failed_unit(&self, name: &str) -> zbus::Result<()>;

    fn set_unit_properties(
        &self,
        name: &str,
        runtime: bool,
        properties: &[(&str, Variant<'_>)],
    ) -> zbus::Result<()>;

    #[zbus(property(emits_changed_signal = "false"))]
    fn version(&self) -> zbus::Result<String>;

    #[zbus(signal)]
    fn job_removed(
        &self,
        id: u32,
        job: OwnedObjectPath,
        unit: String,
        result: String,
    ) -> zbus::Result<()>;
}

/// Why systemd did not do what it was asked for.
#[derive(Debug, Error)]
pub enum SystemdError {
    #[error("no systemd on the system's D-Bus: {0}")]
    Absent(zbus::Error),
    #[error("systemd refuses, or the system's D-Bus broke: {0}")]
    Bus(#[from] zbus::Error),
    #[error("no answer of systemd within {} s", BUS_TIMEOUT.as_secs())]
    Late,
    #[error("systemd has not finished its job for {unit} within {} s", JOB_TIMEOUT.as_secs())]
    JobLate { unit: String },
    #[error("systemd's job for {unit} ended with {result:?}, expected \"done\"")]
    Job { unit: String, result: String },
}

impl SystemdError {
    /// Whether there is no systemd on this machine to be asked.
    pub fn is_absent(&self) -> bool {
        match self {
            Self::Absent(_) => true,
            Self::Bus(_) | Self::Late | Self::JobLate { .. } | Self::Job { .. } => false,
        }
    }
}

/// The connection, made when it is needed first, and again after it broke. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SystemdConnection {
    /// Where the bus listens; none for the system's.
    address: Option<String>,
    manager: Arc<Mutex<Option<SystemdManager>>>,
}

#[derive(Debug, Clone)]
struct SystemdManager {
    proxy: ManagerProxy<'static>,
    /// systemd's version; 0 where it has another form than `252.38-1`.
    version: u32,
}

impl SystemdConnection {
    /// A connection to the bus at this address.
    pub fn at(address: &str) -> SystemdConnection {
        SystemdConnection {
            address: Some(address.to_owned()),
            manager: Arc::default(),
        }
    }

    /// systemd's version.
    pub async fn version(&self) -> Result<u32, SystemdError> {
        Ok(self.manager().await?.version)
    }

    /// Makes a slice; one that is there stays as it is.
    pub async fn start_slice(
        &self,
        unit: &str,
        properties: &SliceProperties,
    ) -> Result<(), SystemdError> {
        let manager = self.manager().await?;
        let properties = values(properties);
        let start = async |proxy: &ManagerProxy<'static>| {
            proxy
                .start_transient_unit(unit, "replace", &properties, &[])
                .await
        };
        match job(&manager.proxy, unit, start).await {
            Err(error) if is_named(&error, UNIT_EXISTS) => Ok(()),
            Ok(result) if result == "done" => Ok(()),
            Ok(result) => {
                let unit = unit.to_owned();
                Err(SystemdError::Job { unit, result })
            }
            Err(error) => Err(self.failed(error).await),
        }
    }

    /// Stops a slice, which removes its group; one that is not there is stopped.
    pub async fn stop_slice(&self, unit: &str) -> Result<(), SystemdError> {
        let manager = self.manager().await?;
        let stop = async |proxy: &ManagerProxy<'static>| proxy.stop_unit(unit, "replace").await;
        match job(&manager.proxy, unit, stop).await {
            Err(error) if is_named(&error, NO_SUCH_UNIT) => return Ok(()),
            Ok(result) if result == "done" => {}
            // The folder tells whether it is gone.
            Ok(result) => tracing::warn!(unit, "systemd's stop ended with {result:?}"),
            Err(error) => return Err(self.failed(error).await),
        }
        // systemd forgets a unit that has failed only when it is told to.
        if let Err(error) = soon(manager.proxy.reset_failed_unit(unit)).await {
            tracing::debug!(unit, "not reset: {error}");
        }
        Ok(())
    }

    /// Sets properties of a slice until the machine restarts.
    pub async fn set(&self, unit: &str, properties: &SliceProperties) -> Result<(), SystemdError> {
        if properties.is_empty() {
            return Ok(());
        }
        let manager = self.manager().await?;
        let properties = values(properties);
        let set = manager.proxy.set_unit_properties(unit, true, &properties);
        match soon(set).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(error).await),
        }
    }

    async fn manager(&self) -> Result<SystemdManager, SystemdError> {
        let mut known = self.manager.lock().await;
        if let Some(manager) = known.as_ref() {
            return Ok(manager.clone());
        }
        let connected = match &self.address {
            None => soon(zbus::Connection::system()).await,
            Some(address) => soon(connect(address)).await,
        };
        let bus = match connected {
            Err(SystemdError::Bus(error)) => return Err(SystemdError::Absent(error)),
            bus => bus?,
        };
        let proxy = soon(ManagerProxy::new(&bus)).await?;
        let version = match soon(proxy.version()).await {
            Err(SystemdError::Bus(error)) if has_no_owner(&error) => {
                return Err(SystemdError::Absent(error));
            }
            version => major(&version?),
        };
        let manager = SystemdManager { proxy, version };
        *known = Some(manager.clone());
        Ok(manager)
    }

    /// After an error that is not systemd's own answer the next call connects anew.
    async fn failed(&self, error: SystemdError) -> SystemdError {
        if !matches!(&error, SystemdError::Bus(zbus::Error::MethodError(..))) {
            *self.manager.lock().await = None;
        }
        error
    }
}

async fn connect(address: &str) -> zbus::Result<zbus::Connection> {
    zbus::connection::Builder::address(address).build().await
}

/// Starts a job and waits for its result.
async fn job(
    proxy: &ManagerProxy<'static>,
    unit: &str,
    start: impl AsyncFnOnce(&ManagerProxy<'static>) -> zbus::Result<OwnedObjectPath>,
) -> Result<String, SystemdError> {
    let mut removed = soon(proxy.receive_job_removed()).await?;
    let own = soon(start(proxy)).await?;
    let end = async {
        while let Some(signal) = removed.next().await {
            let told = signal.args()?;
            if told.job == own {
                return Ok(told.result);
            }
        }
        Err(zbus::Error::Failure("the bus is closed".to_owned()))
    };
    match tokio::time::timeout(JOB_TIMEOUT, end).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(SystemdError::JobLate {
            unit: unit.to_owned(),
        }),
    }
}

async fn soon<T>(call: impl Future<Output = zbus::Result<T>>) -> Result<T, SystemdError> {
    match tokio::time::timeout(BUS_TIMEOUT, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(SystemdError::Late),
    }
}

fn is_named(error: &SystemdError, name: &str) -> bool {
    match error {
        SystemdError::Bus(zbus::Error::MethodError(found, ..)) => found.as_str() == name,
        SystemdError::Absent(_)
        | SystemdError::Bus(_)
        | SystemdError::Late
        | SystemdError::JobLate { .. }
        | SystemdError::Job { .. } => false,
    }
}

/// Whether the bus is there, but no systemd on it: the bus then tries to start one.
fn has_no_owner(error: &zbus::Error) -> bool {
    const NO_OWNER: [&str; 2] = [
        "org.freedesktop.DBus.Error.ServiceUnknown",
        "org.freedesktop.DBus.Error.NameHasNoOwner",
    ];
    const NOT_STARTED: &str = "org.freedesktop.DBus.Error.Spawn.";
    let tells = |name: &str| NO_OWNER.contains(&name) || name.starts_with(NOT_STARTED);
    matches!(error, zbus::Error::MethodError(name, ..) if tells(name))
        || matches!(error, zbus::Error::FDO(error) if tells(&error.name()))
}

fn values(properties: &SliceProperties) -> Vec<(&'static str, Variant<'static>)> {
    let value = |value: &PropertyValue| match value {
        PropertyValue::Flag(flag) => Variant::from(*flag),
        PropertyValue::Number(number) => Variant::from(*number),
        PropertyValue::Text(text) => Variant::from(text.clone()),
        PropertyValue::Names(names) => Variant::from(names.clone()),
        PropertyValue::Bits(bits) => Variant::from(bits.clone()),
    };
    properties
        .iter()
        .map(|(name, property)| (*name, value(property)))
        .collect()
}

/// The number at the beginning: 252 of `252.38-1~deb12u1`, of `v255` too.
fn major(version: &str) -> u32 {
    let digits = version.trim_start_matches(['v', '"']);
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's runc has the same cases (TestSystemdVersion).
    #[test]
    fn a_version_is_its_first_number() {
        let cases = [
            ("\"219\"", 219),
            ("\"v245.4-1.fc32\"", 245),
            ("\"241.1\"", 241),
            ("252.38-1~deb12u1", 252),
            ("\"NaN\"", 0),
            ("", 0),
        ];
        for (text, expected) in cases {
            assert_eq!(major(text), expected, "{text}");
        }
    }
}
