//! `oxlet-oci`: an OCI runtime by the OCI command line.
//!
//! One thread, one command, no daemon: it makes what a bundle says, or refuses and names the field. The process that becomes
//! a container's program is in `init/`, the container's root and all that is done in it in `rootfs/`, limits in `cgroup/`.
//! Its own program is one that nobody can write while it enters containers (`sealed.rs`).

mod arguments;
mod bundle;
mod caller;
mod cgroup;
mod commands;
mod document;
mod error;
mod hooks;
mod init;
mod mount_table;
mod program;
mod record;
mod rootfs;
mod sealed;

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use arguments::Arguments;

/// In place of musl's, which gives memory back with every other call, and the program lives for milliseconds.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    sealed::close_inherited();
    let arguments = match Arguments::read(std::env::args_os().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => return fail(&error, None),
    };
    let done = caller::die_with()
        .map_err(error::AnyError::from)
        .and_then(|()| commands::run(&arguments));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, arguments.log.as_deref()),
    }
}

/// The version of the OCI runtime specification that is followed.
const OCI_VERSION: &str = "1.2.0";

/// Says why, with its causes, on standard error and in the log that the caller asked for.
fn fail(error: &dyn Error, log: Option<&Path>) -> ExitCode {
    let text = error::with_causes(error);
    // Nobody is there to be told that telling failed.
    drop(writeln!(std::io::stderr(), "oxlet-oci: {text}"));
    if let Some(log) = log {
        let line = serde_json::json!({"level": "error", "msg": text});
        drop(
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(log)
                .and_then(|mut file| writeln!(file, "{line}")),
        );
    }
    ExitCode::FAILURE
}
