//! `exec`: a process is run in a container, detached.

use std::fs;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;

use crate::arguments::Arguments;
use crate::commands::Paths;
use crate::error::{AnyError, CommandError};
use crate::{bundle, causes, sealed};

pub(crate) fn exec(arguments: &Arguments, paths: &Paths) -> Result<(), AnyError> {
    let record = paths.record()?;
    if !record.is_alive() {
        return Err(CommandError::NotRunning(arguments.id.clone()).into());
    }
    sealed::become_sealed(&paths.bundle)?;
    causes::listen()?;
    if !arguments.detach {
        return Err(CommandError::Missing("exec", "--detach").into());
    }
    let asked = arguments
        .process
        .as_ref()
        .ok_or(CommandError::Missing("exec", "--process"))?;
    let process = paths
        .state
        .join(format!("process-{}.json", std::process::id()));
    let run = run(arguments, paths, asked, &process);
    // It goes with the container at the latest.
    drop(fs::remove_file(&process));
    run
}

fn run(
    arguments: &Arguments,
    paths: &Paths,
    asked: &std::path::Path,
    process: &std::path::Path,
) -> Result<(), AnyError> {
    let payload = bundle::prepare_process(asked, &paths.bundle, process)?;
    ContainerBuilder::new(arguments.id.clone(), SyscallType::default())
        .with_executor(payload)
        .with_root_path(&paths.root)?
        .with_pid_file(arguments.pid_file.clone())?
        .with_console_socket(arguments.console_socket.clone())
        .validate_id()?
        .as_tenant()
        .with_process(Some(process))
        .with_detach(true)
        .build()?;
    Ok(())
}
