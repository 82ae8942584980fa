//! Signals by their numbers, where libraries have no safe form: real-time ones, and what becomes of one.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Has SIGPIPE end this process again, as it does where nobody has said otherwise: a Rust program's start ignores it, and what
/// is ignored stays so for the program that the process becomes.
pub fn restore_sigpipe() -> io::Result<()> {
    // SAFETY: the default action is no handler of ours, so nothing of this process is called by it.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    match before {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Sends a signal to the process that a descriptor stands for, as a caller of `kill` would. One that is gone is done.
pub fn send_signal(process: impl AsFd, number: i32) -> io::Result<()> {
    // SAFETY: the descriptor lives over the call; without a siginfo the kernel reads no memory of ours, and changes none.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_fd().as_raw_fd(),
            number,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    match (sent, io::Error::last_os_error()) {
        (0, _) => Ok(()),
        (_, error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        (_, error) => Err(error),
    }
}
