//! Has the kernel tell when a cgroup's memory runs short.
//!
//! Version 1: an eventfd that is readable when the usage crosses a limit. Version 2 has no such limits: a pressure
//! trigger, which fires when tasks wait for memory. Upstream has the first alone (eviction/threshold_notifier_linux.go
//! at v1.36).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use logic_resources::cgroups::Hierarchy;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use thiserror::Error;

/// Tasks that wait 100 ms of a second, or for those who may not ask so often 150 ms of two: in microseconds.
const TRIGGERS: [&str; 2] = ["some 100000 1000000\0", "some 150000 2000000\0"];

/// Why the kernel does not tell.
#[derive(Debug, Error)]
pub enum MemoryEventError {
    #[error("no memory controller is mounted")]
    NoController,
    #[error("no eventfd")]
    EventFd(#[source] io::Error),
    #[error("cannot watch {}", path.display())]
    Watch {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A descriptor that wakes its reader when memory runs short; dropped, the kernel forgets it.
#[derive(Debug)]
pub struct MemoryWatch {
    pub descriptor: OwnedFd,
    pub wakes: Wakes,
}

/// How a descriptor wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakes {
    /// It becomes readable.
    Readable,
    /// It has an exceptional condition (POLLPRI).
    Priority,
}

/// Watches a cgroup; the empty name is the whole machine. `usage` in bytes, where the kernel knows limits.
///
/// # Errors
/// Where the kernel does not offer this, or refuses it.
pub fn watch(
    hierarchy: &Hierarchy,
    group: &str,
    usage: u64,
) -> Result<MemoryWatch, MemoryEventError> {
    let top = hierarchy
        .top("memory")
        .ok_or(MemoryEventError::NoController)?;
    let group = group.trim_matches('/');
    match hierarchy {
        Hierarchy::V1(_) => by_usage(&top.join(group), usage),
        Hierarchy::V2(_) if group.is_empty() => by_pressure(Path::new("/proc/pressure/memory")),
        Hierarchy::V2(_) => by_pressure(&top.join(group).join("memory.pressure")),
    }
}

fn by_usage(group: &Path, usage: u64) -> Result<MemoryWatch, MemoryEventError> {
    let refused = |path: &Path| {
        let path = path.to_owned();
        |source| MemoryEventError::Watch { path, source }
    };
    let (figure, control) = (
        group.join("memory.usage_in_bytes"),
        group.join("cgroup.event_control"),
    );
    let watched = File::open(&figure).map_err(refused(&figure))?;
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let event = event.map_err(|error| MemoryEventError::EventFd(error.into()))?;
    // The kernel's numbers are signed, and a limit beyond them is never reached.
    let usage = usage.min(i64::MAX.unsigned_abs());
    let (event_number, figure_number) = (event.as_raw_fd(), watched.as_raw_fd());
    let line = format!("{event_number} {figure_number} {usage}");
    let mut asked = OpenOptions::new()
        .write(true)
        .open(&control)
        .map_err(refused(&control))?;
    asked
        .write_all(line.as_bytes())
        .map_err(refused(&control))?;
    Ok(MemoryWatch {
        descriptor: event,
        wakes: Wakes::Readable,
    })
}

fn by_pressure(file: &Path) -> Result<MemoryWatch, MemoryEventError> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let ask = |trigger: &str| -> io::Result<OwnedFd> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(nonblocking)
            .open(file)?;
        file.write_all(trigger.as_bytes())?;
        Ok(file.into())
    };
    let [often, rarely] = TRIGGERS;
    let descriptor = ask(often).or_else(|_| ask(rarely));
    let descriptor = descriptor.map_err(|source| MemoryEventError::Watch {
        path: file.to_owned(),
        source,
    })?;
    Ok(MemoryWatch {
        descriptor,
        wakes: Wakes::Priority,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn version_1(top: &Path) -> Hierarchy {
        Hierarchy::V1(BTreeMap::from([("memory".to_owned(), top.to_owned())]))
    }

    /// The line that the kernel gets names the eventfd, the figure and the limit.
    #[test]
    fn a_limit_of_usage_is_asked_for_as_the_kernel_takes_it() {
        let top = tempfile::tempdir().unwrap();
        let group = top.path().join("pods");
        std::fs::create_dir(&group).unwrap();
        for file in ["memory.usage_in_bytes", "cgroup.event_control"] {
            std::fs::write(group.join(file), "").unwrap();
        }
        for (usage, written) in [(4096, "4096"), (u64::MAX, "9223372036854775807")] {
            let watch = watch(&version_1(top.path()), "/pods", usage).unwrap();
            assert_eq!(watch.wakes, Wakes::Readable);
            let line = std::fs::read_to_string(group.join("cgroup.event_control")).unwrap();
            let mut words = line.split(' ');
            let event: i32 = words.next().unwrap().parse().unwrap();
            assert_eq!(event, watch.descriptor.as_raw_fd());
            assert_eq!(words.nth(1), Some(written));
            std::fs::write(group.join("cgroup.event_control"), "").unwrap();
        }
    }

    #[test]
    fn pressure_is_asked_for_with_the_end_that_the_kernel_wants() {
        let top = tempfile::tempdir().unwrap();
        let group = top.path().join("pods");
        std::fs::create_dir(&group).unwrap();
        let file = group.join("memory.pressure");
        std::fs::write(&file, "").unwrap();
        let hierarchy = Hierarchy::V2(top.path().to_owned());
        let watch = watch(&hierarchy, "pods", 1).unwrap();
        assert_eq!(watch.wakes, Wakes::Priority);
        assert_eq!(std::fs::read_to_string(file).unwrap(), TRIGGERS[0]);
    }

    #[test]
    fn what_is_not_there_is_an_error_that_names_it() {
        let top = tempfile::tempdir().unwrap();
        let error = watch(&version_1(top.path()), "gone", 1).unwrap_err();
        let file = top.path().join("gone/memory.usage_in_bytes");
        assert_eq!(
            error.to_string(),
            format!("cannot watch {}", file.display())
        );
        let none = Hierarchy::V1(BTreeMap::new());
        let error = watch(&none, "", 1).unwrap_err();
        assert!(matches!(error, MemoryEventError::NoController), "{error}");
        let error = watch(&Hierarchy::V2(top.path().to_owned()), "gone", 1).unwrap_err();
        assert!(
            error.to_string().ends_with("gone/memory.pressure"),
            "{error}"
        );
    }
}
