//! Signals by name and number, as Linux has them.

const NAMES: [(&str, u8); 29] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("SYS", 31),
];

pub(crate) const KILL: u8 = 9;
pub(crate) const TERM: u8 = 15;

/// Returns the number of a signal written as `TERM`, `SIGTERM` or `15`.
pub(crate) fn number(text: &str) -> Option<u8> {
    if let Ok(number) = text.parse::<u8>() {
        return (number <= 64).then_some(number);
    }
    let name = text.strip_prefix("SIG").unwrap_or(text);
    NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
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
    use super::*;
    use proto::cri::Signal;

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
