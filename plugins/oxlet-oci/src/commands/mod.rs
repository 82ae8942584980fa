//! The commands.

mod checkpoint;
mod create;
mod exec;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use nix::libc;
use oci_spec::runtime::{LinuxResources, Spec};
use serde_json::json;

use crate::OCI_VERSION;
use crate::arguments::{Arguments, FEATURES};
use crate::bundle::{self, fields};
use crate::cgroup::{self, Group};
use crate::error::{AnyError, CommandError};
use crate::hooks::{HookState, Last, run_all};
use crate::init::base;
use crate::record::Record;

/// The signal that cannot be caught.
const KILL: i32 = 9;
/// What an init waits at for its start, in the container's state.
const START_FIFO: &str = "exec.fifo";

/// Carries out a command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), AnyError> {
    let paths = Paths::of(arguments);
    match arguments.command.as_str() {
        "create" => create::create(arguments, &paths),
        "exec" => exec::exec(arguments, &paths),
        "start" => start(&paths),
        "state" => state(&paths),
        "kill" => kill(arguments, &paths),
        "delete" => delete(arguments, &paths),
        "update" => update(arguments, &paths),
        "checkpoint" => checkpoint::checkpoint(arguments, &paths),
        "ps" => processes(arguments, &paths),
        FEATURES => features(),
        other => Err(CommandError::Unknown(other.to_owned()).into()),
    }
}

/// A container's state (the OCI runtime specification, "State").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Its init waits for the start.
    Created,
    Running,
    Stopped,
}

impl Status {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Status::Created => "created",
            Status::Running => "running",
            Status::Stopped => "stopped",
        }
    }
}

/// Where a container's things are.
#[derive(Debug)]
pub(crate) struct Paths {
    id: String,
    /// Our record, and what the start is waited for at.
    pub(crate) state: PathBuf,
    /// The spec as it was prepared; it outlives the caller's bundle.
    pub(crate) bundle: PathBuf,
}

impl Paths {
    fn of(arguments: &Arguments) -> Paths {
        Paths {
            id: arguments.id.clone(),
            state: arguments.root.join(&arguments.id),
            bundle: arguments.root.join(".bundles").join(&arguments.id),
        }
    }

    /// The record, which is written last: a container without one was never created.
    pub(crate) fn record(&self) -> Result<Record, AnyError> {
        match Record::read(&self.state) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(CommandError::Absent(self.id.clone()).into())
            }
            read => Ok(read?),
        }
    }

    /// The prepared spec.
    pub(crate) fn spec(&self) -> Result<Spec, AnyError> {
        let document = bundle::read(&self.bundle.join(bundle::FILE))?;
        Ok(serde_json::from_value(document)?)
    }

    pub(crate) fn fifo(&self) -> PathBuf {
        self.state.join(START_FIFO)
    }

    /// Opens the way to an init that waits for its start; `None` if it doesn't wait, or not any more.
    fn open_start(&self) -> io::Result<Option<File>> {
        let opened = File::options()
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
            .open(self.fifo());
        match opened {
            Ok(fifo) => Ok(Some(fifo)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // Nobody reads it.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn status(&self, record: &Record) -> Result<Status, AnyError> {
        if !record.is_alive() {
            return Ok(Status::Stopped);
        }
        Ok(match self.open_start()? {
            Some(_) => Status::Created,
            None => Status::Running,
        })
    }

    pub(crate) fn group(&self, spec: &Spec, systemd: bool) -> Result<Group, AnyError> {
        Group::new(&group_path(spec), &self.id, systemd)
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        for folder in [&self.state, &self.bundle] {
            files::remove_tree(folder)?;
        }
        let (Some(states), Some(bundles)) = (self.state.parent(), self.bundle.parent()) else {
            return Ok(());
        };
        match fs::remove_dir(bundles) {
            // Other containers are left.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            // A deletion that was killed after this step has removed it already, but not the base.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => base::remove(states),
        }
    }
}

/// Where a prepared spec's cgroup is.
fn group_path(spec: &Spec) -> PathBuf {
    spec.linux()
        .as_ref()
        .and_then(|linux| linux.cgroups_path().clone())
        .unwrap_or_default()
}

/// What a spec's hooks are told.
pub(crate) fn hook_state(spec: &Spec, id: &str, bundle: &str) -> HookState {
    HookState {
        id: id.to_owned(),
        bundle: bundle.to_owned(),
        annotations: spec.annotations().clone().unwrap_or_default(),
    }
}

/// Starts a container. A hook that fails after the start ends it, as runc does it.
fn start(paths: &Paths) -> Result<(), AnyError> {
    let record = paths.record()?;
    let fifo = paths.open_start()?.filter(|_| record.is_alive());
    let Some(mut fifo) = fifo else {
        let status = paths.status(&record)?.word();
        return Err(CommandError::NotCreated(status).into());
    };
    fifo.write_all(b"0")?;
    fs::remove_file(paths.fifo())?;
    let spec = paths.spec()?;
    let hooks = bundle::hooks_of(&spec, |hooks| hooks.poststart());
    let state = hook_state(&spec, &paths.id, &record.bundle).told("running", record.pid);
    let ran = run_all("poststart", &hooks, &state, None);
    if ran.is_err() {
        end(&record)?;
    }
    Ok(ran?)
}

/// Kills a container's init. Not waited for: an init of PIDs is not dead before whoever has run processes in the container has
/// reaped them, and it leaves its cgroup before that.
fn end(record: &Record) -> Result<(), AnyError> {
    if let Some(process) = record.open() {
        kernel_filters::send_signal(&process, KILL)?;
    }
    Ok(())
}

fn state(paths: &Paths) -> Result<(), AnyError> {
    let record = paths.record()?;
    let status = paths.status(&record)?;
    let state = json!({
        "ociVersion": OCI_VERSION,
        "id": paths.id,
        "status": status.word(),
        "pid": if status == Status::Stopped { 0 } else { record.pid },
        "bundle": record.bundle,
    });
    Ok(writeln!(io::stdout(), "{state}")?)
}

fn kill(arguments: &Arguments, paths: &Paths) -> Result<(), AnyError> {
    let name = arguments.rest.first().map_or("SIGTERM", String::as_str);
    let signal =
        kernel_filters::signal_number(name).ok_or_else(|| CommandError::Signal(name.to_owned()))?;
    let Some(process) = paths.record()?.open() else {
        return Err(CommandError::NotRunning(arguments.id.clone()).into());
    };
    kernel_filters::send_signal(&process, signal)?;
    // Without its spec the cgroup is not known; the signal has been sent.
    if signal == libc::SIGKILL
        && let Ok(spec) = paths.spec()
    {
        cgroup::thaw(&group_path(&spec))?;
    }
    Ok(())
}

fn delete(arguments: &Arguments, paths: &Paths) -> Result<(), AnyError> {
    if !paths.state.exists() {
        paths.remove()?;
        let absent = CommandError::Absent(arguments.id.clone());
        return if arguments.force {
            Ok(())
        } else {
            Err(absent.into())
        };
    }
    // A creation that was cut off has no record, and may have no spec.
    let record = Record::read(&paths.state);
    let spec = paths.spec();
    if !arguments.force {
        let record = paths.record()?;
        let status = paths.status(&record)?;
        if status == Status::Running {
            let id = arguments.id.clone();
            return Err(CommandError::NotStopped(id, status.word()).into());
        }
        spec.as_ref().map_err(ToString::to_string)?;
    }
    if let Ok(record) = &record {
        // One that has left its cgroup is found by this alone.
        end(record)?;
    }
    if let Ok(spec) = &spec {
        let known = record
            .as_ref()
            .ok()
            .and_then(|record| record.cgroup.as_deref());
        let systemd = arguments.systemd_cgroup;
        cgroup::remove(&group_path(spec), &paths.id, systemd, known)?;
        let bundle = record.map_or_else(|_| String::new(), |record| record.bundle);
        let state = hook_state(spec, &paths.id, &bundle).told("stopped", 0);
        Last::read(&paths.bundle)?.run(&state);
    }
    Ok(paths.remove()?)
}

fn update(arguments: &Arguments, paths: &Paths) -> Result<(), AnyError> {
    let (record, spec) = (paths.record()?, paths.spec()?);
    let file = arguments
        .resources
        .as_ref()
        .ok_or(CommandError::Missing("update", "--resources"))?;
    let mut resources = bundle::read(file)?;
    fields::check_resources(&resources, cgroup::is_unified())?;
    let systemd = arguments.systemd_cgroup;
    let devices = cgroup::device_filter(&resources["devices"])?;
    if cgroup::is_unified() {
        cgroup::complete(&mut resources);
    }
    if systemd {
        cgroup::keep_quota(&record, &mut resources);
    }
    let files = cgroup::take_files(&mut resources, systemd)?;
    let resources: LinuxResources = serde_json::from_value(resources)?;
    paths.group(&spec, systemd)?.limit(&resources)?;
    cgroup::finish(&record, devices.as_ref(), files.as_ref())
}

fn processes(arguments: &Arguments, paths: &Paths) -> Result<(), AnyError> {
    let record = paths.record()?;
    let group = paths.group(&paths.spec()?, arguments.systemd_cgroup)?;
    Ok(writeln!(
        io::stdout(),
        "{}",
        json!(group.processes(&record)?)
    )?)
}

/// Tells what there is, in the document of the OCI specification.
fn features() -> Result<(), AnyError> {
    let document = json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": OCI_VERSION,
        "mountOptions": fields::BIND_OPTIONS,
        "linux": { "namespaces": fields::NAMESPACES },
    });
    Ok(writeln!(io::stdout(), "{document}")?)
}
