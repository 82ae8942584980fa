//! This process as the kernel shows it, and what others use.

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

/// What one process uses, from `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUsage {
    /// User and system time since it began, in nanoseconds.
    pub cpu_nanoseconds: u64,
    /// In memory, by the machine's page size.
    pub resident_bytes: u64,
    pub threads: u64,
    /// When it began, in clock ticks after boot: the identity of a process is this and its pid.
    pub began: u64,
}

/// What a process uses, by its folder below `proc`, which is `/proc`; none where there is no such process.
pub fn usage(proc: &Path, pid: u32) -> Option<ProcessUsage> {
    let stat = fs::read_to_string(proc.join(format!("{pid}/stat"))).ok()?;
    let words = words_of(&stat)?;
    let number = |index: usize| words.get(index)?.trim().parse::<u64>().ok();
    let ticks = number(11)?.checked_add(number(12)?)?;
    let page = u64::try_from(units::page_size()).ok()?;
    Some(ProcessUsage {
        cpu_nanoseconds: ticks.checked_mul(1_000_000_000 / units::clock_ticks())?,
        resident_bytes: number(21)?.checked_mul(page)?,
        threads: number(17)?,
        began: number(19)?,
    })
}

/// The CPUs that `stat` below `proc` counts; none where it does not say.
pub fn cpus(proc: &Path) -> Option<u64> {
    let stat = fs::read_to_string(proc.join("stat")).ok()?;
    let numbered = |line: &&str| {
        let rest = line.strip_prefix("cpu");
        rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    let count = stat.lines().filter(numbered).count();
    u64::try_from(count).ok().filter(|count| *count > 0)
}

/// The words of a `stat` behind the program's name, which is in brackets and may contain anything.
fn words_of(stat: &str) -> Option<Vec<&str>> {
    let (_, after) = stat.rsplit_once(") ")?;
    Some(after.split(' ').collect())
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
    let words = words_of(&stat)?;
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

    #[test]
    fn a_process_is_known_by_what_it_uses_and_when_it_began() {
        let proc = Path::new("/proc");
        let own = usage(proc, std::process::id()).unwrap();
        assert!(own.resident_bytes > 0 && own.threads > 0 && own.began > 0);
        assert_eq!(
            own.began,
            usage(proc, std::process::id()).unwrap().began,
            "it stays"
        );
        assert_eq!(usage(proc, u32::MAX), None);
        assert!(cpus(proc) > Some(0));
        assert_eq!(cpus(Path::new("/nonexistent")), None);
    }

    #[test]
    fn a_programs_name_may_look_like_the_end_of_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("7")).unwrap();
        let mut words = vec!["0".to_owned(); 30];
        for (index, value) in [(11, "2"), (12, "3"), (17, "4"), (19, "55"), (21, "6")] {
            words[index] = value.to_owned();
        }
        let stat = format!("7 (a) S 1 ) {}\n", words.join(" "));
        fs::write(folder.path().join("7/stat"), stat).unwrap();
        let usage = usage(folder.path(), 7).unwrap();
        let tick = 1_000_000_000 / units::clock_ticks();
        assert_eq!((usage.cpu_nanoseconds, usage.threads), (5 * tick, 4));
        assert_eq!(
            (usage.began, usage.resident_bytes),
            (55, 6 * units::page_size() as u64)
        );
    }
}
