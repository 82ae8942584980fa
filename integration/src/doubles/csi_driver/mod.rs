//! A small real CSI driver as a separate process, which complains of callers that break the protocol, and fails on
//! demand. Its volumes are folders and files below its own folder.
//!
//! Whatever a test does, panics included, [`Drop`] ends the driver's process, and takes away its mounts and devices.

mod faults;
mod journal;
pub mod mount_table;
mod options;
mod process;

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::net::UnixStream;
use tonic::transport::Channel;

pub use self::faults::{DriverFault, DriverFaultAction, FaultPoint};
pub use self::journal::{ContractViolation, RecordedCall};
pub use self::options::{DriverCapability, DriverOptions, RegistrationMode};
pub use self::process::run;
use crate::agent::program;
use crate::containerd::connect;
use crate::wait_until;

/// A debug build on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A driver's process and everything that it owns.
#[derive(Debug)]
pub struct CsiDriver {
    name: String,
    dir: PathBuf,
    root: PathBuf,
    flags: Vec<String>,
    turn: AtomicU64,
    process: Option<Child>,
}

impl CsiDriver {
    /// Starts a driver of this name, with a folder of its own, for the agent with this root folder; see
    /// [`DriverOptions`] for the flags.
    pub async fn start(name: &str, dir: &Path, root: &Path, flags: &[&str]) -> Result<Self> {
        let mut driver = Self::prepare(name, dir, root, flags)?;
        driver.begin().await?;
        Ok(driver)
    }

    /// Makes the driver's folder without starting it.
    pub fn prepare(name: &str, dir: &Path, root: &Path, flags: &[&str]) -> Result<Self> {
        for folder in ["backing", "blocks"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        fs::create_dir_all(root)?;
        Ok(Self {
            name: name.to_owned(),
            dir: dir.canonicalize()?,
            root: root.canonicalize()?,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            turn: AtomicU64::new(0),
            process: None,
        })
    }

    /// Starts the process and waits until it serves.
    pub async fn begin(&mut self) -> Result<()> {
        self.spawn()?;
        let endpoint = self.endpoint();
        wait_until(TIMEOUT, "the driver serves", async || {
            UnixStream::connect(&endpoint).await.is_ok()
        })
        .await
    }

    /// Starts the process; its sockets come a moment later.
    pub fn spawn(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "the driver runs already");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("driver.log"))?;
        // One that answers is a living one's.
        drop(fs::remove_file(self.endpoint()));
        let process = Command::new(program("csi-driver")?)
            .arg(format!("--name={}", self.name))
            .arg(format!("--dir={}", self.dir.display()))
            .arg(format!("--root={}", self.root.display()))
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.process = Some(process);
        Ok(())
    }

    /// Starts the process again if it has crashed; returns whether it had.
    pub fn revive(&mut self) -> Result<bool> {
        let Some(process) = &mut self.process else {
            return Ok(false);
        };
        let Some(status) = process.try_wait()? else {
            return Ok(false);
        };
        ensure!(
            status.signal() == Some(Signal::SIGKILL as i32),
            "the driver ended by itself: {status}; {}",
            self.log()
        );
        self.process = None;
        self.spawn()?;
        Ok(true)
    }

    /// Starts it with these flags from the next start on.
    pub fn set_flags(&mut self, flags: &[&str]) {
        self.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    }

    /// Ends the process with SIGKILL: its sockets stay.
    pub fn kill9(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Ends the process with SIGTERM: it takes its registration away.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        let mut process = self.process.take().context("no process")?;
        let mut status = None;
        let waited = wait_until(TIMEOUT, "the driver ends", async || {
            status = process.try_wait().ok().flatten();
            status.is_some()
        });
        if waited.await.is_err() {
            self.process = Some(process);
        }
        status.context("the driver does not end")
    }

    /// Stops the process where it is: it answers nothing, and its connections stay.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let process = self.process.as_ref().context("the driver does not run")?;
        kill(Pid::from_raw(i32::try_from(process.id())?), signal)?;
        Ok(())
    }

    /// Returns the process id; none while it does not run.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Returns the name under which it registers.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the driver's own folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the socket of its services.
    pub fn endpoint(&self) -> PathBuf {
        self.root.join("plugins").join(&self.name).join("csi.sock")
    }

    /// Returns a channel to its services; it connects at its first call.
    pub fn channel(&self) -> Channel {
        connect(&self.endpoint())
    }

    /// Returns the socket by which it registers.
    pub fn registration_socket(&self) -> PathBuf {
        let socket = format!("{}-reg.sock", self.name);
        self.root.join("plugins_registry").join(socket)
    }

    /// Makes a volume, and returns the folder of its files.
    pub fn create_volume(&self, handle: &str) -> Result<PathBuf> {
        let folder = self.data(handle);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Returns the folder of a volume's files.
    pub fn data(&self, handle: &str) -> PathBuf {
        process::record::folder(&self.dir, handle)
    }

    /// Makes a block volume of so many bytes, and returns the file behind it.
    pub fn create_block(&self, handle: &str, bytes: u64) -> Result<PathBuf> {
        let file = process::record::block_file(&self.dir, handle);
        File::create(&file)?.set_len(bytes)?;
        Ok(file)
    }

    /// Orders these faults and no others.
    pub fn set_faults(&self, faults: &[DriverFault]) -> Result<()> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        faults::order(&self.dir, turn, faults)
    }

    /// Sets the volume condition that the driver reports from now on; none is healthy.
    pub fn set_abnormal(&self, handle: &str, message: Option<&str>) -> Result<()> {
        let mut all = process::usage::read_health(&self.dir);
        match message {
            None => all.remove(handle),
            Some(message) => {
                let health = process::usage::DriverHealth {
                    abnormal: true,
                    message: message.to_owned(),
                };
                all.insert(handle.to_owned(), health)
            }
        };
        let file = process::usage::health_file(&self.dir);
        faults::replace(&file, &serde_json::to_vec(&all)?)
    }

    /// Sets the `max_volumes_per_node` that the driver reports from now on.
    pub fn set_max_volumes(&self, most: i64) -> Result<()> {
        let file = self.dir.join(DriverOptions::MAX_VOLUMES);
        faults::replace(&file, most.to_string().as_bytes())
    }

    /// Returns every call so far, in the order in which they came.
    pub fn journal(&self) -> Result<Vec<RecordedCall>> {
        journal::calls(&self.dir)
    }

    /// Returns the requests of the calls of this name that went well.
    pub fn done(&self, name: &str) -> Result<Vec<Value>> {
        let calls = self.journal()?.into_iter();
        let fitting = calls.filter(|call| call.name == name && call.went_well());
        Ok(fitting.map(|call| call.request).collect())
    }

    /// Returns the caller's breaches of the protocol, as the driver recorded them.
    pub fn complaints(&self) -> Result<Vec<ContractViolation>> {
        journal::complaints(&self.dir)
    }

    /// Returns the staging and target paths that the driver has on record.
    pub fn in_use(&self) -> Result<Vec<PathBuf>> {
        process::record::places_in_use(&self.dir)
    }

    /// Returns the log of the process.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("driver.log")).unwrap_or_default()
    }

    /// Returns the mounts of its volumes, wherever they are.
    pub fn mounts(&self) -> Vec<mount_table::MountEntry> {
        let mut all = mount_table::mounts();
        let ours = self.recognise();
        all.retain(|mount| ours(mount));
        all
    }

    /// Mounts of its folders, and of its devices below the agent's root.
    fn recognise(&self) -> impl Fn(&mount_table::MountEntry) -> bool + use<> {
        let within = mount_table::within_its_file_system(&self.dir);
        let root = self.root.clone();
        let devices = self.devices();
        move |mount| {
            let ours = within.as_ref().is_some_and(|(device, dir)| {
                mount.device == *device && mount.root.starts_with(dir)
            });
            let device = mount.root.strip_prefix("/").unwrap_or(&mount.root);
            let shown = devices.iter().any(|path| path.ends_with(device));
            ours || shown && mount.point.starts_with(&root)
        }
    }

    fn block_files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.dir.join("blocks")).into_iter().flatten();
        files.flatten().map(|file| file.path()).collect()
    }

    fn devices(&self) -> Vec<PathBuf> {
        mount_table::loops_below(&self.dir.join("blocks"))
    }

    fn detach(&self) -> Result<()> {
        let mut failed = mount_table::unmount_all(self.recognise());
        // Devices that others made of the driver's own go first.
        for file in self.devices().into_iter().chain(self.block_files()) {
            if let Err(error) = mount_table::detach_loops(&file) {
                failed.push(format!("{}: {error:#}", file.display()));
            }
        }
        if !failed.is_empty() {
            bail!("{}", failed.join("; "));
        }
        Ok(())
    }
}

impl Drop for CsiDriver {
    fn drop(&mut self) {
        if let Err(error) = self.kill9().and_then(|()| self.detach()) {
            eprintln!("csi driver rig: {}: {error:#}", self.name);
        }
    }
}
