//! The agent's process, read from `/proc` when it is asked for: the names are those of every program with Go's
//! collector.

use std::fs;
use std::path::Path;

use crate::exposition::{Exposition, Kind};

/// Clock ticks a second and bytes a page, as the kernel gives them to every program of this architecture.
const TICKS: f64 = 100.0;
const PAGE: f64 = 4096.0;

/// What `/proc` says.
#[derive(Debug, Default, PartialEq)]
struct Process {
    cpu_seconds: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
    /// Since the epoch.
    started: Option<f64>,
    open_files: Option<f64>,
    most_files: Option<f64>,
}

pub(crate) fn text() -> String {
    match read(Path::new("/proc")) {
        Some(process) => write(&process),
        None => String::new(),
    }
}

/// When this process began, as it stands beside the metrics of probes.
pub(crate) fn start() -> String {
    let mut text = Exposition::default();
    text.family(
        Kind::Gauge,
        "process_start_time_seconds",
        "[ALPHA] Start time of the process since unix epoch in seconds.",
    );
    let (_, started) = beginnings();
    if let Some(started) = started {
        text.sample(&[], started);
    }
    text.into_text()
}

/// When the machine and this process began, in seconds since the epoch.
pub(crate) fn beginnings() -> (Option<f64>, Option<f64>) {
    let proc = Path::new("/proc");
    (booted(proc), read(proc).and_then(|process| process.started))
}

fn booted(proc: &Path) -> Option<f64> {
    let stat = fs::read_to_string(proc.join("stat")).unwrap_or_default();
    let booted = stat.lines().find_map(|line| line.strip_prefix("btime "));
    booted.and_then(|seconds| seconds.trim().parse().ok())
}

fn read(proc: &Path) -> Option<Process> {
    let own = proc.join("self");
    let stat = fs::read_to_string(own.join("stat")).ok()?;
    // The name of the program stands in brackets and may hold anything.
    let (_, after) = stat.rsplit_once(") ")?;
    let words: Vec<&str> = after.split(' ').collect();
    let number = |index: usize| words.get(index)?.trim().parse::<f64>().ok();
    let (user, system, began) = (number(11)?, number(12)?, number(19)?);
    let limits = fs::read_to_string(own.join("limits")).unwrap_or_default();
    Some(Process {
        cpu_seconds: (user + system) / TICKS,
        virtual_bytes: number(20)?,
        resident_bytes: number(21)? * PAGE,
        started: booted(proc).map(|booted| booted + began / TICKS),
        open_files: fs::read_dir(own.join("fd"))
            .ok()
            .map(|files| files.count() as f64),
        most_files: most_files(&limits),
    })
}

fn most_files(limits: &str) -> Option<f64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn write(process: &Process) -> String {
    let mut text = Exposition::default();
    let mut add = |kind, name, help: &str, value: Option<f64>| {
        text.family(kind, name, help);
        if let Some(value) = value {
            text.sample(&[], value);
        }
    };
    add(
        Kind::Counter,
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        Some(process.cpu_seconds),
    );
    add(
        Kind::Gauge,
        "process_max_fds",
        "Maximum number of open file descriptors.",
        process.most_files,
    );
    add(
        Kind::Gauge,
        "process_open_fds",
        "Number of open file descriptors.",
        process.open_files,
    );
    add(
        Kind::Gauge,
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
        Some(process.resident_bytes),
    );
    add(
        Kind::Gauge,
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        process.started,
    );
    add(
        Kind::Gauge,
        "process_virtual_memory_bytes",
        "Virtual memory size in bytes.",
        Some(process.virtual_bytes),
    );
    text.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_from_what_the_kernel_shows() {
        let process = read(Path::new("/proc")).unwrap();
        assert!(process.resident_bytes > 0.0 && process.virtual_bytes > process.resident_bytes);
        assert!(process.open_files > Some(0.0) && process.most_files > Some(0.0));
        assert!(process.started > Some(1.0e9));
        assert_eq!(read(Path::new("/nonexistent")), None);
    }

    #[test]
    fn it_is_told_in_the_words_of_every_other_program() {
        let process = Process {
            cpu_seconds: 1.5,
            virtual_bytes: 8192.0,
            resident_bytes: 4096.0,
            started: Some(1e9),
            open_files: None,
            most_files: Some(1024.0),
        };
        let text = write(&process);
        assert!(text.starts_with(
            "# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.\n# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n"
        ));
        assert!(text.contains("\nprocess_start_time_seconds 1000000000\n"));
        assert!(!text.contains("process_open_fds"));
    }
}
