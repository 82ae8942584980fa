//! A double of logind for shutdowns: a D-Bus of its own, with a service that answers as logind does.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use tokio::net::unix::pipe;
use zbus::connection::{Builder, Connection};
use zbus::object_server::SignalEmitter;

use super::bus::PrivateBus;

const PATH: &str = "/org/freedesktop/login1";

/// A D-Bus daemon, and the double of logind on it.
#[derive(Debug)]
pub struct LogindDouble {
    bus: PrivateBus,
    connection: Connection,
    locks: InhibitorLocks,
}

/// The reading ends of the locks that were given out: one is released when its other end is closed.
type InhibitorLocks = Arc<Mutex<Vec<pipe::Receiver>>>;

struct LoginManager {
    locks: InhibitorLocks,
}

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl LoginManager {
    fn inhibit(
        &self,
        what: &str,
        who: &str,
        _why: &str,
        mode: &str,
    ) -> zbus::fdo::Result<zbus::OwnedFd> {
        if (what, who, mode) != ("shutdown", "kubelet", "delay") {
            return Err(zbus::fdo::Error::InvalidArgs(format!(
                "{what} {who} {mode}"
            )));
        }
        let failed = |error: std::io::Error| zbus::fdo::Error::Failed(error.to_string());
        let (writing, reading) = pipe::pipe().map_err(failed)?;
        self.locks.lock().expect("no holder panics").push(reading);
        let held = writing.into_blocking_fd().map_err(failed)?;
        Ok(held.into())
    }

    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max(&self) -> u64 {
        600_000_000
    }

    #[zbus(signal)]
    async fn prepare_for_shutdown(emitter: &SignalEmitter<'_>, start: bool) -> zbus::Result<()>;
}

impl LogindDouble {
    /// Starts a bus, and a logind on it.
    pub async fn start() -> Result<LogindDouble> {
        let bus = PrivateBus::start()?;
        let locks = InhibitorLocks::default();
        let manager = LoginManager {
            locks: locks.clone(),
        };
        let connection = Builder::address(bus.address())
            .name("org.freedesktop.login1")
            .serve_at(PATH, manager)
            .build()
            .await?;
        Ok(LogindDouble {
            bus,
            connection,
            locks,
        })
    }

    /// Returns where the bus listens, as `DBUS_SYSTEM_BUS_ADDRESS` has it.
    pub fn address(&self) -> &str {
        self.bus.address()
    }

    /// Returns how many locks are held.
    pub fn held(&self) -> usize {
        let mut locks = self.locks.lock().expect("no holder panics");
        let mut byte = [0];
        // Nothing is ever written: the end of it is the end of the lock.
        locks.retain(|lock| lock.try_read(&mut byte).is_err());
        locks.len()
    }

    /// Tells that the machine goes down, or that it does not after all.
    pub async fn prepare_for_shutdown(&self, start: bool) -> Result<()> {
        let emitter = SignalEmitter::new(&self.connection, PATH)?;
        Ok(LoginManager::prepare_for_shutdown(&emitter, start).await?)
    }
}
