//! The probe: the program of every image of the campaign. It prints, as one line of JSON, what a program sees of its container.
//!
//! It is this folder alone, compiled as a static program by `build.rs`, so it has no dependencies; as a module of the
//! library it is linted with the rest. Keys are paths (`mounts./proc.options`), values are texts, so that two reports
//! are compared line by line. Rust's runtime has already ignored SIGPIPE when `main` begins: the entrypoint that is a
//! shell reports the signals of a process that is not Rust's.

mod actions;
mod files;
mod mounts;
mod process;
mod report;

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use report::Report;

/// Prints the report, then ends as the arguments say: `--exit=N` with that status, `--hold` never, otherwise with 0.
pub fn main() {
    let mut report = Report::default();
    // First: nothing else is open yet.
    files::descriptors(&mut report);
    process::report(&mut report);
    mounts::report(&mut report);
    files::report(&mut report);
    actions::report(&mut report);
    let mut line = report.json();
    line.push('\n');
    // A container without a usable standard output has no other way to say so than its status.
    if std::io::stdout()
        .write_all(line.as_bytes())
        .and_then(|()| std::io::stdout().flush())
        .is_err()
    {
        std::process::exit(99);
    }
    for argument in std::env::args_os().skip(1) {
        if argument == "--hold" {
            loop {
                std::thread::park();
            }
        }
        let status = argument.as_bytes().strip_prefix(b"--exit=");
        if let Some(status) = status.and_then(|digits| str::from_utf8(digits).ok()) {
            std::process::exit(status.parse().unwrap_or(98));
        }
    }
}
