//! Processes: a child in namespaces of its own, its keyring, its descriptors, its signals.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::checked;

/// As in linux/sched.h; libc has it for some C libraries only, and with 32 bits.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What a child has of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChildFlags<'a> {
    /// The child is the first process of a new PID namespace.
    pub new_pid_namespace: bool,
    /// The child's parent is the caller's parent.
    pub is_sibling: bool,
    /// The folder of a cgroup of version 2 that the child is made in.
    pub cgroup: Option<BorrowedFd<'a>>,
}

/// Which process a fork returns to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    Child,
    /// With the child's process id, as the caller's PID namespace has it.
    Parent(i32),
}

/// Forks this process.
///
/// # Errors
/// The kernel's, clone3(2): for example EBUSY or EACCES for a cgroup that takes no process. ENOSYS where there is no
/// clone3 and a cgroup is named; without one clone(2) is used then. `InvalidInput` if this process has more threads
/// than one, which would be missing in the child with their locks held.
pub fn fork(flags: ChildFlags<'_>) -> io::Result<Forked> {
    one_thread()?;
    let mut bits = 0;
    if flags.new_pid_namespace {
        bits |= libc::CLONE_NEWPID.cast_unsigned();
    }
    if flags.is_sibling {
        bits |= libc::CLONE_PARENT.cast_unsigned();
    }
    // A child of a sibling must not name a signal: it has its parent's.
    let exit_signal = if flags.is_sibling {
        0
    } else {
        libc::SIGCHLD.cast_unsigned()
    };
    let pid = match clone3(bits, exit_signal, flags.cgroup) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) && flags.cgroup.is_none() => {
            clone(bits | exit_signal)?
        }
        cloned => cloned?,
    };
    if pid == 0 {
        return Ok(Forked::Child);
    }
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    Ok(Forked::Parent(pid))
}

/// Fails in a process with several threads. It asks the kernel and no procfs, which may be a container's by then.
fn one_thread() -> io::Result<()> {
    // SAFETY: unshare(2): CLONE_THREAD changes nothing; with more than one thread it fails with EINVAL.
    match checked(libc::c_long::from(unsafe {
        libc::unshare(libc::CLONE_THREAD)
    })) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let text = "a process with several threads cannot be forked";
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        unshared => unshared.map(drop),
    }
}

fn clone3(bits: u32, exit_signal: u32, cgroup: Option<BorrowedFd<'_>>) -> io::Result<libc::c_long> {
    let arguments = libc::clone_args {
        flags: u64::from(bits) | cgroup.map_or(0, |_| CLONE_INTO_CGROUP),
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: u64::from(exit_signal),
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup.map_or(Ok(0), |folder| {
            u64::try_from(folder.as_raw_fd()).map_err(io::Error::other)
        })?,
    };
    // SAFETY: without CLONE_VM and CLONE_FILES the child is a copy of this process, which has one thread only, so
    // everything in the copy is as whole as it is here. The kernel reads the structure, whose size is passed, and
    // writes nowhere: no pointer in it is set.
    checked(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const arguments,
            size_of::<libc::clone_args>(),
        )
    })
}

fn clone(bits: u32) -> io::Result<libc::c_long> {
    // SAFETY: as for clone3: a copy of a process of one thread. A stack of 0 is the caller's own, copied; the other
    // pointers are not read without their flags.
    checked(unsafe { libc::syscall(libc::SYS_clone, libc::c_ulong::from(bits), 0, 0, 0, 0) })
}

/// Joins the session keyring of this name, or makes it, and returns its number. The keyring of before is left.
///
/// # Errors
/// The kernel's, keyctl(2): ENOSYS without keyrings, EDQUOT if the user may have no more.
pub fn join_session_keyring(name: &CStr) -> io::Result<i32> {
    // SAFETY: the name lives over the call and ends with a zero byte; the kernel copies it.
    let number = checked(unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            libc::KEYCTL_JOIN_SESSION_KEYRING,
            name.as_ptr(),
        )
    })?;
    i32::try_from(number).map_err(io::Error::other)
}

/// Longest description of a key that is read, in bytes.
const MAX_DESCRIPTION: usize = 1024;

/// Returns a keyring's permissions (keyrings(7)).
///
/// # Errors
/// The kernel's, keyctl(2); `InvalidData` for a description without permissions.
pub fn session_keyring_permissions(keyring: i32) -> io::Result<u32> {
    let mut buffer = [0_u8; MAX_DESCRIPTION];
    // SAFETY: the kernel writes at most as many bytes as the buffer has, which lives over the call.
    let length = checked(unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            libc::KEYCTL_DESCRIBE,
            keyring,
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    })?;
    let length = usize::try_from(length).map_err(io::Error::other)?;
    // `type;uid;gid;permissions in hexadecimal;name`
    let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or(&buffer)).into_owned();
    text.split(';')
        .nth(3)
        .and_then(|field| u32::from_str_radix(field, 16).ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
}

/// Sets a keyring's permissions.
///
/// # Errors
/// The kernel's, keyctl(2).
pub fn set_keyring_permissions(keyring: i32, permissions: u32) -> io::Result<()> {
    // SAFETY: numbers alone.
    checked(unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_SETPERM, keyring, permissions) })
        .map(drop)
}

/// Has every descriptor from `first` on closed by the next `exec`. Linux 5.11 and later.
///
/// # Errors
/// The kernel's, close_range(2): ENOSYS or EINVAL before Linux 5.11.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: no descriptor is closed by this call, and no memory is touched.
    checked(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    })
    .map(drop)
}

/// The last signal, as the kernel counts them.
const LAST_SIGNAL: i32 = 64;

/// Gives every signal its default action: what is ignored (SIGPIPE by a Rust program's start) stays so for the program that
/// a process becomes. Also those that a C library keeps for itself, which a caller may have ignored.
pub fn reset_signals() {
    // `struct sigaction` of the kernel, at most four words everywhere: no handler (SIG_DFL), no flags, no mask.
    let default_action = [0_u64; 4];
    // SIGKILL and SIGSTOP are refused, which always have it.
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: the default action is no handler of ours, so nothing of this process is called by it; the kernel
        // reads the structure, which lives over the call, and writes nowhere.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default_action.as_ptr(),
                std::ptr::null_mut::<libc::c_void>(),
                size_of::<u64>(),
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test's harness has more threads than one.
    #[test]
    fn a_process_with_threads_is_not_forked() {
        let error = fork(ChildFlags::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_keyring_has_the_permissions_that_it_is_given() {
        // On a thread of its own, since a session keyring is the thread's.
        let joined = std::thread::spawn(|| {
            let keyring = join_session_keyring(c"_ses.container-syscalls-test")?;
            let before = session_keyring_permissions(keyring)?;
            set_keyring_permissions(keyring, before | 0x8)?;
            Ok::<_, io::Error>((before, session_keyring_permissions(keyring)?))
        });
        match joined.join().unwrap() {
            Ok((before, after)) => assert_eq!(after, before | 0x8),
            // No keyrings here, or none to be had.
            Err(error) => assert!(
                matches!(
                    error.raw_os_error(),
                    Some(libc::ENOSYS | libc::EPERM | libc::EDQUOT)
                ),
                "{error}"
            ),
        }
    }

    #[test]
    fn descriptors_are_closed_by_exec_from_a_number_on() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let own = rustix::io::fcntl_dupfd_cloexec(&file, 900).unwrap();
        rustix::io::fcntl_setfd(&own, rustix::io::FdFlags::empty()).unwrap();
        close_on_exec_from(900).unwrap();
        let flags = rustix::io::fcntl_getfd(&own).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
