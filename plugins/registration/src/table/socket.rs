//! The registration state of one socket.

use std::time::Duration;

use tokio::time::Instant;

use crate::sockets::FileIdentity;

/// Upstream's back-off: goroutinemap's.
pub(super) const RETRY_BACKOFF_INITIAL: Duration = Duration::from_millis(500);
pub(super) const RETRY_BACKOFF_MAX: Duration = Duration::from_secs(122);

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) identity: FileIdentity,
    /// The number of the latest registration attempt; results of earlier ones are dropped.
    pub(super) ticket: u64,
    pub(super) phase: Phase,
    /// The last failure that was reported of it, until it is registered.
    pub(super) refusal: Option<SocketRefusal>,
    pub(super) failures: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// It is being asked.
    Registering,
    /// It stands for a registered plugin.
    Registered,
    /// It was refused, and is asked again then; `None` is when its name is free again.
    Refused(Option<Instant>),
    /// It stands for something that is not ours.
    Foreign,
}

/// Why a socket was refused, and which name it gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SocketRefusal {
    pub(super) name: String,
    pub(super) why: String,
}

/// Returns the back-off after so many failures.
pub(super) fn pause(failures: u32) -> Duration {
    let doubled = 1_u32 << failures.saturating_sub(1).min(8);
    (RETRY_BACKOFF_INITIAL * doubled).min(RETRY_BACKOFF_MAX)
}
