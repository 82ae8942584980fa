//! Signals by name and number, as Linux has them.

const NAMES: [(&str, libc::c_int); 29] = [
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
    ("SYS", libc::SIGSYS),
];

pub(crate) const KILL: u8 = byte(libc::SIGKILL);
pub(crate) const INT: u8 = byte(libc::SIGINT);
pub(crate) const TERM: u8 = byte(libc::SIGTERM);

/// A signal's number as the exit codes above 128 carry it: there are 64.
const fn byte(signal: libc::c_int) -> u8 {
    signal.to_le_bytes()[0]
}

/// Returns the number of a signal written as `TERM`, `SIGTERM` or `15`.
pub(crate) fn number(text: &str) -> Option<u8> {
    if let Ok(number) = text.parse::<u8>() {
        return (number <= 64).then_some(number);
    }
    let name = text.strip_prefix("SIG").unwrap_or(text);
    NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| byte(*number))
}

/// Returns the signal that CRI's stop signal stands for; SIGTERM where it names none that we know.
pub(crate) fn of_cri(stop_signal: proto::cri::Signal) -> u8 {
    stop_signal
        .as_str_name()
        .strip_prefix("SIGNAL_")
        .and_then(number)
        .unwrap_or(TERM)
}

/// Tells whether a process that says nothing about it dies of the signal.
pub(crate) fn deadly(signal: u8) -> bool {
    !matches!(signal, 0 | 17..=23 | 28)
}

#[cfg(test)]
mod tests {
    use proto::cri::Signal;

    use super::*;

    #[test]
    fn a_signal_has_a_name_and_a_number() {
        assert_eq!(number("SIGKILL"), Some(KILL));
        assert_eq!(number("TERM"), Some(TERM));
        assert_eq!(number("9"), Some(9));
        assert_eq!(number("300"), None);
        assert_eq!(of_cri(Signal::Sigquit), 3);
        assert_eq!(of_cri(Signal::RuntimeDefault), TERM);
        assert!(!deadly(28));
    }
}
