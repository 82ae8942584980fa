//! `oxlet-oci`: an OCI runtime by the OCI command line, on libcontainer.
//!
//! One thread, one command, no daemon: it makes what a bundle says, or refuses and names the field. What
//! libcontainer would drop is refused in `bundle.rs`; what it lacks is added: the program is a sealed copy of itself
//! while it enters containers (`sealed.rs`), seccomp without a C library and capabilities after it (`payload.rs`),
//! signals that cannot reach another process (`record.rs`), device rules of cgroup v2 (`cgroup.rs`).

mod arguments;
mod bundle;
mod cgroup;
mod commands;
mod error;
mod exec;
mod fields;
mod payload;
mod propagation;
mod record;
mod sealed;
mod users;

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use arguments::Arguments;

fn main() -> ExitCode {
    sealed::close_inherited();
    let arguments = match Arguments::read(std::env::args_os().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => return fail(&error, None),
    };
    match commands::run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, arguments.log.as_deref()),
    }
}

/// Says why, with its causes, on standard error and in the log that the caller asked for.
fn fail(error: &dyn Error, log: Option<&Path>) -> ExitCode {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let one = error.to_string();
        if !text.contains(&one) {
            text = format!("{text}: {one}");
        }
        cause = error.source();
    }
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
