//! When something that grows old is looked at again.

use jiff::{SignedDuration, Timestamp};

use super::Draft;
use crate::hash::fnv32a;
use crate::objects::ServiceAccountToken;
use crate::pod::PodView;

/// Upstream's `maxTTL`: no token is kept longer.
const LONGEST_LIFE: SignedDuration = SignedDuration::from_hours(24);
/// What should have come and did not is asked for again so soon.
const AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// When a token is to be renewed: after four fifths of its life, or after a day (upstream's `requiresRefresh`).
pub(in crate::volumes) fn renew_at(
    token: &ServiceAccountToken,
    asked_seconds: i64,
    jitter: SignedDuration,
) -> Timestamp {
    let expires = token.expires;
    let life = match token.issued {
        Some(issued) => expires.duration_since(issued),
        None => SignedDuration::from_secs(asked_seconds),
    };
    let before = |early: SignedDuration| expires.checked_sub(early).unwrap_or(Timestamp::MIN);
    let fifth = SignedDuration::from_secs(life.as_secs() / 5);
    let late = before(fifth.saturating_add(jitter));
    let a_day = before(life.saturating_sub(LONGEST_LIFE).saturating_add(jitter));
    late.min(a_day)
}

/// When to look again at what is to be renewed then: what is overdue is looked at soon, and when it ends.
pub(in crate::volumes) fn look_at(
    now: Timestamp,
    renew_at: Timestamp,
    expires: Timestamp,
) -> Timestamp {
    if renew_at > now {
        return renew_at;
    }
    now.checked_add(AGAIN).unwrap_or(expires).min(expires)
}

impl Draft<'_> {
    /// Less than `most`, and for this file of this pod always the same: not all pods come at once.
    pub(super) fn jitter(&self, path: &str, most: SignedDuration) -> SignedDuration {
        let place = format!("{}/{}/{path}", self.pod.uid(), self.volume.name);
        let most = i64::try_from(most.as_millis()).unwrap_or(i64::MAX).max(1);
        SignedDuration::from_millis(i64::from(fnv32a(place.as_bytes())) % most)
    }
}
