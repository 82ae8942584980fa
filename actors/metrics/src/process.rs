//! The agent's process, read from `/proc` at each scrape: the names are those of every program with Go's
//! collector.

use std::path::Path;

use host::process::{Process, booted, read};

use crate::exposition::{Exposition, MetricKind};

pub(crate) fn text() -> String {
    match read(Path::new("/proc")) {
        Some(process) => write(&process),
        None => String::new(),
    }
}

/// The start time of this process, for the metrics of probes.
pub(crate) fn start() -> String {
    let mut text = Exposition::default();
    text.family(
        MetricKind::Gauge,
        "process_start_time_seconds",
        "[ALPHA] Start time of the process since unix epoch in seconds.",
    );
    let (_, started) = beginnings();
    if let Some(started) = started {
        text.sample(&[], started);
    }
    text.into_text()
}

/// When the machine and this process started, in seconds since the epoch; none where `/proc` does not say.
pub(crate) fn beginnings() -> (Option<f64>, Option<f64>) {
    let proc = Path::new("/proc");
    (booted(proc), read(proc).and_then(|process| process.started))
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
        MetricKind::Counter,
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        Some(process.cpu_seconds),
    );
    add(
        MetricKind::Gauge,
        "process_max_fds",
        "Maximum number of open file descriptors.",
        process.max_files,
    );
    add(
        MetricKind::Gauge,
        "process_open_fds",
        "Number of open file descriptors.",
        process.open_files,
    );
    add(
        MetricKind::Gauge,
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
        Some(process.resident_bytes),
    );
    add(
        MetricKind::Gauge,
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        process.started,
    );
    add(
        MetricKind::Gauge,
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
    fn it_is_told_in_the_words_of_every_other_program() {
        let process = Process {
            cpu_seconds: 1.5,
            virtual_bytes: 8192.0,
            resident_bytes: 4096.0,
            started: Some(1e9),
            open_files: None,
            max_files: Some(1024.0),
        };
        let text = write(&process);
        assert!(text.starts_with(
            "# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.\n# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n"
        ));
        assert!(text.contains("\nprocess_start_time_seconds 1000000000\n"));
        assert!(!text.contains("process_open_fds"));
    }
}
