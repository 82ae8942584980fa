//! What a worker does not try again before its time, and why it failed.

use std::fmt;

/// What is retried on its own, each after a back-off of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RetryKey {
    /// Creating the pod's sandbox, or learning its addresses.
    Sandbox,
    /// Kills, stops and removals.
    Teardown,
    /// Removing dead instances.
    Garbage,
    /// Resizing the container of this name.
    Resize(String),
    /// Starting the container of this name.
    Container(String),
}

/// As snapshots show it: a container by its name, all else by what no name can be.
impl fmt::Display for RetryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sandbox => Ok(()),
            Self::Teardown => f.write_str("\u{0}ending"),
            Self::Garbage => f.write_str("\u{0}garbage"),
            Self::Resize(name) => write!(f, "\u{0}resize {name}"),
            Self::Container(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_show_a_key_as_ever_and_in_the_same_order() {
        let keys = [
            (RetryKey::Sandbox, ""),
            (RetryKey::Teardown, "\u{0}ending"),
            (RetryKey::Garbage, "\u{0}garbage"),
            (RetryKey::Resize("app".to_owned()), "\u{0}resize app"),
            (RetryKey::Container("app".to_owned()), "app"),
        ];
        assert!(keys.is_sorted());
        for (key, text) in keys {
            assert_eq!(key.to_string(), text);
        }
    }
}
