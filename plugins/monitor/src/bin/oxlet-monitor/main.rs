//! `oxlet-monitor`: the parent of one pod's containers.
//!
//! One thread and one `poll` over everything that it has: clients, streams of containers, calls of OCI runtimes,
//! children. Nothing in it waits for one of these alone. What it is asked stands in the library's `protocol`.
//!
//! Two words as its first argument make it something else for a moment: `call`, the process before an OCI runtime, and
//! `namespaces`, which holds new namespaces until they are pinned.

mod call;
mod cgroup;
mod client;
mod clock;
mod container;
mod direct;
mod log;
mod namespaces;
mod owner;
mod pod;
mod process;
mod record;
mod setup;
mod stdio;
mod streams;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let word = match args.nth(1) {
        Some(first) if first == "call" => call::become_runtime(args),
        Some(first) if first == monitor::NAMESPACES => match namespaces::hold(args) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(word) => word,
        },
        first => match setup::Arguments::read(first.into_iter().chain(args)).and_then(setup::run) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(word) => word,
        },
    };
    // The starter reads standard output, the runtime's caller standard error.
    let written = writeln!(std::io::stdout(), "{word}")
        .and_then(|()| writeln!(std::io::stderr(), "oxlet-monitor: {word}"));
    drop(written);
    ExitCode::FAILURE
}
