//! This process as the kernel shows it.

use std::fs;
use std::path::Path;

use crate::units;

/// Usage of this process, from `/proc`.
#[derive(Debug, Default, PartialEq)]
pub struct Process {
    /// User and system time, in seconds.
    pub cpu_seconds: f64,
    /// Address space.
    pub virtual_bytes: f64,
    /// In memory, by the machine's page size.
    pub resident_bytes: f64,
    /// Start time, in seconds since the epoch.
    pub started: Option<f64>,
    /// Open file descriptors.
    pub open_files: Option<f64>,
    /// The soft limit of file descriptors.
    pub max_files: Option<f64>,
}

/// When the machine booted, in seconds since the epoch; none where `stat` below `proc` does not say.
pub fn booted(proc: &Path) -> Option<f64> {
    let stat = fs::read_to_string(proc.join("stat")).unwrap_or_default();
    let booted = stat.lines().find_map(|line| line.strip_prefix("btime "));
    booted.and_then(|seconds| seconds.trim().parse().ok())
}

/// This process, by `self` below `proc`, which is `/proc`; none where the kernel does not show it.
pub fn read(proc: &Path) -> Option<Process> {
    let own = proc.join("self");
    let (ticks, page) = (units::clock_ticks() as f64, units::page_size() as f64);
    let stat = fs::read_to_string(own.join("stat")).ok()?;
    // The program's name is in brackets and may contain anything.
    let (_, after) = stat.rsplit_once(") ")?;
    let words: Vec<&str> = after.split(' ').collect();
    let number = |index: usize| words.get(index)?.trim().parse::<f64>().ok();
    let (user, system, began) = (number(11)?, number(12)?, number(19)?);
    let limits = fs::read_to_string(own.join("limits")).unwrap_or_default();
    Some(Process {
        cpu_seconds: (user + system) / ticks,
        virtual_bytes: number(20)?,
        resident_bytes: number(21)? * page,
        started: booted(proc).map(|booted| booted + began / ticks),
        open_files: fs::read_dir(own.join("fd"))
            .ok()
            .map(|files| files.count() as f64),
        max_files: max_files(&limits),
    })
}

fn max_files(limits: &str) -> Option<f64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_from_what_the_kernel_shows() {
        let process = read(Path::new("/proc")).unwrap();
        assert!(process.resident_bytes > 0.0 && process.virtual_bytes > process.resident_bytes);
        assert!(process.open_files > Some(0.0) && process.max_files > Some(0.0));
        assert!(process.started > Some(1.0e9));
        assert_eq!(read(Path::new("/nonexistent")), None);
    }
}
