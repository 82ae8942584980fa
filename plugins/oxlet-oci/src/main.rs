//! `oxlet-oci`: an OCI runtime by the OCI command line, on libcontainer.
//!
//! One thread, one command, no daemon: it makes what a bundle says, or refuses and names the field. What
//! libcontainer would drop is refused in `bundle.rs`; what it lacks is added: the program is one that nobody can write
//! while it enters containers (`sealed.rs`), seccomp without a C library and capabilities after it (`payload.rs`),
//! signals that cannot reach another process (`record.rs`), device rules of cgroup v2 (`cgroup.rs`), hooks after a
//! container's end (`hooks.rs`), the causes of errors (`causes.rs`, `program.rs`).

mod arguments;
mod bundle;
mod causes;
mod cgroup;
mod commands;
mod error;
mod exec;
mod hooks;
mod mounts;
mod payload;
mod program;
mod record;
mod sealed;
mod users;

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
    match commands::run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, arguments.log.as_deref()),
    }
}

/// What libcontainer says before the words of the process that was to become the container's.
const FROM_INIT: &str = "error in executing process : ";
/// What runc says in that place.
const NOT_STARTED: &str = "unable to start container process: ";

/// Says why, with its causes, on standard error and in the log that the caller asked for.
fn fail(error: &dyn Error, log: Option<&Path>) -> ExitCode {
    let text = told(error, causes::heard());
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

/// Returns an error in full: its words and its causes', then what libcontainer's other processes had to say.
fn told(error: &dyn Error, heard: Vec<String>) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    let mut add = |one: &str| {
        if !text.contains(one) {
            text = format!("{text}: {one}");
        }
    };
    while let Some(error) = cause {
        add(&error.to_string());
        cause = error.source();
    }
    heard.iter().for_each(|one| add(one));
    // The words before it are libcontainer's way to us, and nothing of the container.
    let Some((_, why)) = text.split_once(FROM_INIT) else {
        return text;
    };
    // Whether there is a program was our own question, and the answer says all.
    let why = match why.starts_with(program::PREFIX) {
        true => why.split(". error during").next().unwrap_or(why),
        false => why,
    };
    format!("{NOT_STARTED}{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Outer(&'static str, #[source] std::io::Error);

    fn outer(words: &'static str) -> Outer {
        Outer(words, std::io::Error::other("the cause"))
    }

    #[test]
    fn an_error_is_told_with_all_its_causes() {
        let heard = || vec!["outer".to_owned(), "deep".to_owned()];
        assert_eq!(told(&outer("outer"), heard()), "outer: the cause: deep");
        let once = told(&outer("outer: the cause"), Vec::new());
        assert_eq!(once, "outer: the cause");
        let init = told(
            &outer("failed: error in executing process : mount"),
            heard(),
        );
        let expected = "unable to start container process: mount: the cause: outer: deep";
        assert_eq!(init, expected);
        let absent = "failed: error in executing process : exec: \"x\": executable file not found in $PATH. error during cleanup: y";
        assert_eq!(
            told(&outer(absent), Vec::new()),
            "unable to start container process: exec: \"x\": executable file not found in $PATH"
        );
    }
}
