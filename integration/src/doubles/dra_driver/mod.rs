//! A small DRA driver as a separate process, which a test kills and hangs. What it has prepared is in files, so that a
//! driver that comes back knows it, and the test sees it.
//!
//! A device that it would prepare for two claims at once it refuses, and complains of.

mod options;
mod process;
mod records;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::Result;

pub use self::options::{DraOptions, DraVersion};
pub use self::process::run;
use self::records::Records;
use super::child_process::ChildProcess;
use crate::agent::program;

/// The pool of all its devices.
pub const POOL: &str = "pool";

/// A driver, whatever has become of its process.
#[derive(Debug)]
pub struct DraDriver {
    options: DraOptions,
    records: Records,
    process: Option<ChildProcess>,
}

impl DraDriver {
    /// Starts a driver, which has a folder of its own.
    ///
    /// # Errors
    ///
    /// The program is not built, or the folder cannot be made.
    pub fn start(options: DraOptions) -> Result<Self> {
        fs::create_dir_all(&options.root)?;
        let mut driver = DraDriver {
            records: Records::open(&options.dir)?,
            process: None,
            options,
        };
        driver.replace(driver.options.version)?;
        Ok(driver)
    }

    /// Kills the process with SIGKILL, whatever it does, and starts one that speaks this version.
    ///
    /// # Errors
    ///
    /// The program is not built.
    pub fn replace(&mut self, version: DraVersion) -> Result<()> {
        // No two at once write the records.
        self.process = None;
        self.options.version = version;
        let mut command = Command::new(program("dra-driver")?);
        command.args(self.options.arguments());
        self.process = Some(ChildProcess::start(&mut command)?);
        Ok(())
    }

    /// Returns whether the agent has taken in the process that runs now.
    ///
    /// # Errors
    ///
    /// The record cannot be read.
    pub fn is_registered(&self) -> Result<bool> {
        let id = self.process.as_ref().map(ChildProcess::id);
        id.map_or(Ok(false), |id| self.records.is_registered(id))
    }

    /// Stops the process where it is: it answers nothing, and its connections stay open.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn hang(&self) -> Result<()> {
        self.process.as_ref().map_or(Ok(()), ChildProcess::hang)
    }

    /// Has a process that hangs go on.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn resume(&self) -> Result<()> {
        self.process.as_ref().map_or(Ok(()), ChildProcess::resume)
    }

    /// Has the driver know which devices the claim of this UID is allocated, as a real one reads it from the API server.
    ///
    /// # Errors
    ///
    /// The record cannot be written.
    pub fn allocate(&self, claim: &str, devices: &[String]) -> Result<()> {
        self.records.allocate(claim, devices)
    }

    /// Has the driver know that the claim of this UID is no more.
    ///
    /// # Errors
    ///
    /// There was none.
    pub fn deallocate(&self, claim: &str) -> Result<()> {
        self.records.deallocate(claim)
    }

    /// Returns the devices that are prepared now, by the claims' UIDs.
    ///
    /// # Errors
    ///
    /// The records cannot be read.
    pub fn prepared(&self) -> Result<BTreeMap<String, Vec<String>>> {
        self.records.prepared()
    }

    /// Returns the calls so far about one claim each, in words: `prepare UID`.
    ///
    /// # Errors
    ///
    /// The record cannot be read.
    pub fn calls(&self) -> Result<Vec<String>> {
        self.records.calls()
    }

    /// Returns the devices that were asked for while another claim had them, in words.
    ///
    /// # Errors
    ///
    /// The record cannot be read.
    pub fn complaints(&self) -> Result<Vec<String>> {
        self.records.complaints()
    }
}

/// The CDI name of a device.
pub fn cdi_name(device: &str) -> String {
    format!("vendor.com/{POOL}={device}")
}
