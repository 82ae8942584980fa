//! Processes as /proc shows them: memory, processor time, children.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Clock ticks a second in /proc: the same on every Linux that this runs on.
const TICKS: u64 = 100;

/// Returns the memory of these processes, each page shared out among those that map it, in MiB.
pub(super) fn memory(pids: &[u32]) -> Result<f64> {
    let mut kibibytes = 0_u32;
    for pid in pids {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let number = line.with_context(|| format!("no Pss in {path}"))?;
        kibibytes += number.trim().trim_end_matches(" kB").parse::<u32>()?;
    }
    Ok(f64::from(kibibytes) / 1024.0)
}

/// Returns the processor time that these processes have used, their ended threads' included.
pub(super) fn processor_time(pids: &[u32]) -> Result<Duration> {
    // utime and stime, fields 14 and 15 of the whole line.
    sum(pids, &[11, 12])
}

/// The same, with that of the children that they have waited for: programs that they have started.
pub(super) fn processor_time_of_all(pids: &[u32]) -> Result<Duration> {
    // cutime and cstime, fields 16 and 17.
    sum(pids, &[11, 12, 13, 14])
}

fn sum(pids: &[u32], fields_at: &[usize]) -> Result<Duration> {
    let mut ticks = 0;
    for pid in pids {
        let fields = stat(*pid)?;
        for &at in fields_at {
            ticks += fields
                .get(at)
                .context("a short stat line")?
                .parse::<u64>()?;
        }
    }
    Ok(Duration::from_millis(ticks * 1_000 / TICKS))
}

/// Returns the processes that this one has started, with their programs' names.
pub(super) fn children(parent: u32) -> Result<Vec<(u32, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A process that ended meanwhile does not count.
        let Ok(fields) = stat(pid) else { continue };
        if fields.get(1).and_then(|field| field.parse().ok()) == Some(parent) {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            found.push((pid, name.trim().to_owned()));
        }
    }
    Ok(found)
}

/// The fields of a stat line behind the name, which may hold anything: state, parent and so on.
fn stat(pid: u32) -> Result<Vec<String>> {
    let path = format!("/proc/{pid}/stat");
    let line = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let (_, rest) = line
        .rsplit_once(')')
        .with_context(|| format!("{path} has no name"))?;
    Ok(rest.split_whitespace().map(str::to_owned).collect())
}
