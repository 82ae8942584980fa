//! When a token or certificate is checked again.

use jiff::{SignedDuration, Timestamp};
use logic_api::pod::PodView;
use logic_api::pod::hash::fnv32a;

use super::FilesBuilder;

/// How soon an overdue credential is requested again.
const RETRY_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// When to check again what is to be renewed then: if it is overdue, soon, and when it expires.
pub(crate) fn look_at(now: Timestamp, renew_at: Timestamp, expires: Timestamp) -> Timestamp {
    if renew_at > now {
        return renew_at;
    }
    now.checked_add(RETRY_INTERVAL)
        .unwrap_or(expires)
        .min(expires)
}

impl FilesBuilder<'_> {
    /// Less than `most`, and for this file of this pod always the same: not all pods come at once.
    pub(super) fn jitter(&self, path: &str, most: SignedDuration) -> SignedDuration {
        let place = format!("{}/{}/{path}", self.pod.uid(), self.volume.name);
        let most = i64::try_from(most.as_millis()).unwrap_or(i64::MAX).max(1);
        SignedDuration::from_millis(i64::from(fnv32a(place.as_bytes())) % most)
    }
}
