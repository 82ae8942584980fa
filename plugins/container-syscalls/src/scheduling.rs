//! When a process gets the processor and the disk.

use std::io;

use crate::checked;

/// Classes of ioprio_set(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoClass {
    RealTime,
    BestEffort,
    Idle,
}

/// Sets this process's I/O priority; `level` is 0 to 7, and 0 is the highest.
///
/// # Errors
/// The kernel's, ioprio_set(2); `InvalidInput` for a level that is none.
pub fn set_io_priority(class: IoClass, level: i64) -> io::Result<()> {
    let level = u16::try_from(level)
        .ok()
        .filter(|level| *level < 8)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let class = match class {
        IoClass::RealTime => 1,
        IoClass::BestEffort => 2,
        IoClass::Idle => 3,
    };
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_SHIFT: u32 = 13;
    let priority = (class << CLASS_SHIFT) | libc::c_int::from(level);
    // SAFETY: numbers alone.
    checked(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, priority) }).map(drop)
}

/// `struct sched_attr` of linux/sched/types.h, in the version of Linux 3.14.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Scheduling {
    /// Of the structure; set by [`set_scheduling`].
    pub size: u32,
    /// `SCHED_*`.
    pub policy: u32,
    /// `SCHED_FLAG_*`.
    pub flags: u64,
    /// For `SCHED_OTHER` and `SCHED_BATCH`.
    pub nice: i32,
    /// For `SCHED_FIFO` and `SCHED_RR`.
    pub priority: u32,
    /// For `SCHED_DEADLINE`, in nanoseconds, as the two below.
    pub runtime: u64,
    pub deadline: u64,
    pub period: u64,
}

/// Sets how this process is scheduled.
///
/// # Errors
/// The kernel's, sched_setattr(2).
pub fn set_scheduling(scheduling: Scheduling) -> io::Result<()> {
    let mut argument = scheduling;
    argument.size = u32::try_from(size_of::<Scheduling>()).map_err(io::Error::other)?;
    // SAFETY: the structure is the kernel's, with its size in it, and lives over the call, which reads it.
    checked(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const argument, 0) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_none_is_refused_and_a_lower_one_is_taken() {
        for wrong in [-1, 8, i64::MAX] {
            let error = set_io_priority(IoClass::BestEffort, wrong).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        std::thread::spawn(|| {
            set_io_priority(IoClass::BestEffort, 7).unwrap();
            let batch = Scheduling {
                policy: 3,
                nice: 1,
                ..Scheduling::default()
            };
            set_scheduling(batch).unwrap();
        })
        .join()
        .unwrap();
    }
}
