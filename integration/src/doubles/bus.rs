//! A D-Bus of a test's own, for doubles of system services.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A D-Bus daemon; it ends with this.
#[derive(Debug)]
pub struct PrivateBus {
    daemon: Child,
    address: String,
}

impl PrivateBus {
    /// Starts the daemon.
    pub fn start() -> Result<PrivateBus> {
        let mut daemon = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--nopidfile", "--print-address=1"])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start dbus-daemon (package dbus)")?;
        let said = daemon.stdout.take().context("dbus-daemon says nothing")?;
        let mut address = String::new();
        BufReader::new(said).read_line(&mut address)?;
        let address = address.trim().to_owned();
        Ok(PrivateBus { daemon, address })
    }

    /// Returns where the bus listens, as `DBUS_SYSTEM_BUS_ADDRESS` has it.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for PrivateBus {
    fn drop(&mut self) {
        drop(self.daemon.kill());
        drop(self.daemon.wait());
    }
}
