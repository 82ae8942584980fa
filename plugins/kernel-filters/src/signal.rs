//! A signal for a process, by the signal's number: libraries have no safe form for real-time ones.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

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
