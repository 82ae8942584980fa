//! Signals by their numbers and names, real-time ones among them, and what becomes of one.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The first and the last real-time signal, as C libraries count them.
pub const RTMIN: i32 = 34;
pub const RTMAX: i32 = 64;

/// The kernel's other signals by their names without `SIG`.
const NAMES: [(&str, i32); 31] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];

/// Returns the number of a signal by its number or its name: `15`, `SIGTERM`, `term`, `SIGRTMIN+3`, `RTMAX-1`.
pub fn signal_number(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse() {
        return (1..=RTMAX).contains(&number).then_some(number);
    }
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    for (base, from) in [("RTMIN", RTMIN), ("RTMAX", RTMAX)] {
        if let Some(offset) = short.strip_prefix(base) {
            let offset = match offset {
                "" => 0,
                offset => offset.parse().ok()?,
            };
            return from
                .checked_add(offset)
                .filter(|number| (RTMIN..=RTMAX).contains(number));
        }
    }
    NAMES
        .iter()
        .find(|(own, _)| *own == short)
        .map(|(_, number)| *number)
}

/// Returns the name of a signal that is not a real-time one, without `SIG`.
pub fn signal_name(number: i32) -> Option<&'static str> {
    NAMES
        .iter()
        .find(|(_, own)| *own == number)
        .map(|(name, _)| *name)
}

/// Makes SIGPIPE end this process again, as is the default: a Rust program's start ignores it, and a program that the process
/// becomes inherits that.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_known_by_its_number_and_its_name() {
        for (name, number) in [
            ("9", 9),
            ("37", 37),
            ("SIGTERM", 15),
            ("term", 15),
            ("SIGRTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
            ("64", 64),
        ] {
            assert_eq!(signal_number(name), Some(number), "{name}");
        }
        for wrong in [
            "",
            "0",
            "65",
            "-1",
            "SIGRTMIN+31",
            "RTMIN+99",
            "RTMAX+1",
            "SIGNAL",
        ] {
            assert_eq!(signal_number(wrong), None, "{wrong}");
        }
        for number in 1..=31 {
            let name = signal_name(number).unwrap();
            assert_eq!(signal_number(name), Some(number));
        }
        assert_eq!(signal_name(32), None);
    }
}
