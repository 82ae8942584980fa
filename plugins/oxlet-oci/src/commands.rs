//! The commands.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use libcgroups::common::{
    AnyCgroupManager, CgroupConfig, CgroupManager, DEFAULT_CGROUP_ROOT, create_cgroup_manager,
};
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::container::{CheckpointOptions, Container, ContainerStatus};
use libcontainer::oci_spec::runtime::LinuxResources;
use libcontainer::signal::Signal;
use libcontainer::syscall::syscall::SyscallType;
use rust_criu::CgMode;
use serde_json::json;

use crate::arguments::{Arguments, FEATURES};
use crate::bundle::{self, fields};
use crate::cgroup::{self, removal};
use crate::error::{AnyError, CommandError};
use crate::hooks::Last;
use crate::mounts::propagation;
use crate::record::{Record, start_time};
use crate::{causes, exec, sealed};

/// The signal that cannot be caught.
const KILL: i32 = 9;
/// The first and the last real-time signal, as C libraries count them.
const RTMIN: i32 = 34;
const RTMAX: i32 = 64;

/// Carries out a command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), AnyError> {
    let paths = Paths::of(arguments);
    match arguments.command.as_str() {
        "create" => create(arguments, &paths),
        "exec" => exec::exec(arguments, &paths),
        "start" => start(&paths),
        "state" => state(&paths),
        "kill" => kill(arguments, &paths),
        "delete" => delete(arguments, &paths),
        "update" => update(arguments, &paths),
        "checkpoint" => checkpoint(arguments, &paths),
        "ps" => processes(&paths),
        FEATURES => features(),
        other => Err(CommandError::Unknown(other.to_owned()).into()),
    }
}

/// Where a container's things are.
#[derive(Debug)]
pub(crate) struct Paths {
    id: String,
    pub(crate) root: PathBuf,
    /// libcontainer's state and our record.
    pub(crate) state: PathBuf,
    /// The spec as libcontainer reads it; it outlives the caller's bundle.
    pub(crate) bundle: PathBuf,
}

impl Paths {
    fn of(arguments: &Arguments) -> Paths {
        Paths {
            id: arguments.id.clone(),
            root: arguments.root.clone(),
            state: arguments.root.join(&arguments.id),
            bundle: arguments.root.join(".bundles").join(&arguments.id),
        }
    }

    pub(crate) fn load(&self) -> Result<Container, AnyError> {
        self.record()?;
        Ok(Container::load(self.state.clone())?)
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

    fn cgroup(&self, container: &Container) -> Result<AnyCgroupManager, AnyError> {
        Ok(create_cgroup_manager(CgroupConfig {
            cgroup_path: container.spec()?.cgroup_path,
            systemd_cgroup: container.systemd(),
            container_name: self.id.clone(),
        })?)
    }

    fn remove(&self) -> io::Result<()> {
        for folder in [&self.state, &self.bundle] {
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        // It goes with the last container; until then it isn't empty.
        drop(self.bundle.parent().map(fs::remove_dir));
        Ok(())
    }
}

fn create(arguments: &Arguments, paths: &Paths) -> Result<(), AnyError> {
    if paths.state.exists() {
        return Err(CommandError::Exists(arguments.id.clone()).into());
    }
    sealed::become_sealed(&paths.bundle)?;
    causes::listen()?;
    let bundle = arguments
        .bundle
        .as_ref()
        .ok_or(CommandError::Missing("create", "--bundle"))?;
    let bundle = bundle.canonicalize()?;
    fs::create_dir_all(&paths.root)?;
    let created = build(arguments, paths, &bundle);
    if created.is_err() {
        clean(paths);
    }
    created
}

fn build(arguments: &Arguments, paths: &Paths, bundle: &Path) -> Result<(), AnyError> {
    let prepared = bundle::prepare(bundle, &paths.bundle, arguments.systemd_cgroup)?;
    let container = ContainerBuilder::new(arguments.id.clone(), SyscallType::default())
        .with_executor(prepared.payload)
        .with_root_path(&paths.root)?
        .with_pid_file(arguments.pid_file.clone())?
        .with_console_socket(arguments.console_socket.clone())
        .validate_id()?
        .as_init(&paths.bundle)
        .with_systemd(arguments.systemd_cgroup)
        .with_detach(true)
        .build()?;
    let pid = container.pid().map_or(0, |pid| pid.as_raw());
    let record = Record {
        bundle: bundle.to_string_lossy().into_owned(),
        pid,
        start_time: start_time(pid).ok_or(CommandError::Ended(pid))?,
        cgroup: cgroup::of_process(pid),
    };
    // Its init waits for `start`: nothing of the container's own has run.
    propagation::set(pid, prepared.propagation)?;
    cgroup::finish(&record, prepared.devices.as_ref(), prepared.files.as_ref())?;
    Ok(record.write(&paths.state)?)
}

/// Starts a container. A hook that fails after the start ends it, as runc does it.
fn start(paths: &Paths) -> Result<(), AnyError> {
    let mut container = paths.load()?;
    let started = container.start();
    if started.is_err() && container.status() == ContainerStatus::Running {
        kill_all(&mut container)?;
    }
    Ok(started?)
}

/// Removes what a failed creation may have left; why it failed is what is told.
fn clean(paths: &Paths) {
    if let Ok(mut container) = Container::load(paths.state.clone()) {
        drop(kill_all(&mut container));
        let last = Last::read(&paths.bundle);
        drop(container.delete(true));
        last.unwrap_or_default().run(&container.state);
    }
    drop(paths.remove());
}

/// Kills every process in a container's cgroup.
fn kill_all(container: &mut Container) -> Result<(), AnyError> {
    let signal = Signal::try_from(KILL).map_err(|_| CommandError::Signal(KILL.to_string()))?;
    Ok(container.kill(signal, true)?)
}

fn state(paths: &Paths) -> Result<(), AnyError> {
    let (container, record) = (paths.load()?, paths.record()?);
    let status = if record.is_alive() {
        container.status()
    } else {
        ContainerStatus::Stopped
    };
    let state = json!({
        "ociVersion": "1.2.0",
        "id": paths.id,
        "status": status,
        "pid": if status == ContainerStatus::Stopped { 0 } else { record.pid },
        "bundle": record.bundle,
    });
    Ok(writeln!(io::stdout(), "{state}")?)
}

fn kill(arguments: &Arguments, paths: &Paths) -> Result<(), AnyError> {
    let name = arguments.rest.first().map_or("SIGTERM", String::as_str);
    let signal = parse(name).ok_or_else(|| CommandError::Signal(name.to_owned()))?;
    let (container, record) = (paths.load()?, paths.record()?);
    // Not by libcontainer: it has no real-time signals, and writes that the container is stopped, which the signal may
    // be far from.
    let Some(process) = record.open().filter(|_| container.can_kill()) else {
        return Err(CommandError::NotRunning(arguments.id.clone()).into());
    };
    Ok(kernel_filters::send_signal(&process, signal)?)
}

/// A signal by its number or its name, real-time ones by theirs: `SIGRTMIN+3`, `RTMAX`.
fn parse(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse::<i32>() {
        return (1..=RTMAX).contains(&number).then_some(number);
    }
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    for (base, from) in [("RTMIN", RTMIN), ("RTMAX", RTMAX)] {
        if let Some(offset) = short.strip_prefix(base) {
            let offset = match offset {
                "" => 0,
                offset => offset.parse::<i32>().ok()?,
            };
            return from
                .checked_add(offset)
                .filter(|number| (RTMIN..=RTMAX).contains(number));
        }
    }
    let signal: nix::sys::signal::Signal = format!("SIG{short}").parse().ok()?;
    Some(signal as i32)
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
    let loaded = Container::load(paths.state.clone());
    if let Ok(mut container) = loaded {
        let last = Last::read(&paths.bundle)?;
        let config = container.spec().ok().filter(|_| arguments.force);
        match config.map(|config| config.cgroup_path) {
            // Also what an init left behind that is over, or a creation that was cut off.
            Some(group) if group.is_absolute() && !container.systemd() => {
                removal::remove(Path::new(DEFAULT_CGROUP_ROOT), &group)?;
            }
            known => {
                if known.is_some() && !cgroup::is_gone(&paths.cgroup(&container)?) {
                    kill_all(&mut container)?;
                }
                container.delete(arguments.force)?;
            }
        }
        last.run(&container.state);
    } else if !arguments.force {
        loaded?;
    }
    Ok(paths.remove()?)
}

fn update(arguments: &Arguments, paths: &Paths) -> Result<(), AnyError> {
    let container = paths.load()?;
    let file = arguments
        .resources
        .as_ref()
        .ok_or(CommandError::Missing("update", "--resources"))?;
    let mut resources = bundle::read(file)?;
    fields::check_resources(&resources, cgroup::is_unified())?;
    let (record, systemd) = (paths.record()?, container.systemd());
    let devices = cgroup::device_filter(&resources["devices"])?;
    if cgroup::is_unified() {
        cgroup::complete(&mut resources);
    }
    if systemd {
        cgroup::keep_quota(&record, &mut resources);
    }
    let files = cgroup::take_files(&mut resources, systemd)?;
    let resources: LinuxResources = serde_json::from_value(resources)?;
    paths
        .cgroup(&container)?
        .apply(&cgroup::options(&resources))?;
    cgroup::finish(&record, devices.as_ref(), files.as_ref())
}

/// Writes a running container's state by CRIU.
fn checkpoint(arguments: &Arguments, paths: &Paths) -> Result<(), AnyError> {
    let image_path = arguments
        .image_path
        .clone()
        .ok_or(CommandError::Missing("checkpoint", "--image-path"))?;
    if !arguments.leave_running {
        return Err(CommandError::Missing("checkpoint", "--leave-running").into());
    }
    let (mut container, record) = (paths.load()?, paths.record()?);
    if !record.is_alive() {
        return Err(CommandError::NotRunning(arguments.id.clone()).into());
    }
    Ok(container.checkpoint(&CheckpointOptions {
        image_path,
        work_path: arguments.work_path.clone(),
        leave_running: true,
        ext_unix_sk: false,
        file_locks: false,
        shell_job: false,
        tcp_established: false,
        link_remap: false,
        manage_cgroups_mode: CgMode::DEFAULT,
    })?)
}

fn processes(paths: &Paths) -> Result<(), AnyError> {
    let container = paths.load()?;
    let pids = paths.cgroup(&container)?.get_all_pids()?;
    let pids: Vec<i32> = pids.into_iter().map(|pid| pid.as_raw()).collect();
    Ok(writeln!(io::stdout(), "{}", json!(pids))?)
}

/// Tells what there is, in the document of the OCI specification.
fn features() -> Result<(), AnyError> {
    let document = json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": "1.2.0",
        "mountOptions": fields::BIND_OPTIONS,
        "linux": { "namespaces": fields::NAMESPACES },
    });
    Ok(writeln!(io::stdout(), "{document}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_known_by_its_number_and_its_name() {
        for (name, number) in [
            ("9", 9),
            ("37", 37),
            ("SIGTERM", 15),
            ("term", 15),
            ("SIGRTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
            ("64", 64),
        ] {
            assert_eq!(parse(name), Some(number), "{name}");
        }
        for wrong in ["", "0", "65", "-1", "SIGRTMIN+31", "RTMAX+1", "SIGNAL"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
