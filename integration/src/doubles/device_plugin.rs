//! The example of a device plugin, as a process that a test kills, hangs, and whose devices it has fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::child_process::ChildProcess;
use crate::agent::program;

/// Where the test says which devices are out of order; below the agent's root folder.
const UNHEALTHY: &str = "sample-devices-out-of-order";

/// `sample-device` of one agent: devices of `example.com/sample`. Dropped, it is killed.
#[derive(Debug)]
pub struct SamplePlugin {
    process: ChildProcess,
    root: PathBuf,
}

impl SamplePlugin {
    /// Starts it with devices of these ids, for the agent of this root folder.
    ///
    /// # Errors
    ///
    /// The program is not built.
    pub fn start(root: &Path, ids: &[String]) -> Result<Self> {
        let mut command = Command::new(program("sample-device")?);
        command
            .arg("--folder")
            .arg(root.join("device-plugins"))
            .arg("--unhealthy")
            .arg(root.join(UNHEALTHY))
            .arg("--devices")
            .arg(ids.join(","));
        let process = ChildProcess::start(&mut command)?;
        let root = root.to_owned();
        Ok(SamplePlugin { process, root })
    }

    /// Has these devices be out of order, and all others in order.
    ///
    /// # Errors
    ///
    /// The file that says so cannot be written.
    pub fn set_unhealthy(&self, ids: &[&str]) -> Result<()> {
        Ok(fs::write(self.root.join(UNHEALTHY), ids.join("\n"))?)
    }

    /// Stops the process where it is: it answers nothing, and its connections stay open.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn hang(&self) -> Result<()> {
        self.process.hang()
    }

    /// Has a process that hangs go on.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn resume(&self) -> Result<()> {
        self.process.resume()
    }
}
