//! When an object that is not watched is asked for again.
//!
//! Upstream: pkg/kubelet/util/manager/cache_based_manager.go, pkg/kubelet/token/token_manager.go,
//! pkg/volume/csi/csi_attacher.go (1.36).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::credentials::ServiceAccountToken;
use super::needed::Wanted;
use super::object::Object;

/// client-go's first wait after a request that failed, and its longest.
const FAILED: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));
/// A refusal lasts until somebody changes something.
const REFUSED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// What is about to come: upstream's first wait for an attachment, and its longest.
const PENDING: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(7));
/// A ConfigMap or Secret that somebody forgot to make.
const ABSENT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Upstream's `defaultTTL`, for a node that does not say its own.
const TTL: Duration = Duration::from_secs(60);
/// Clocks step, and machines sleep: a token is looked at this often.
const TOKEN_LOOK: Duration = Duration::from_mins(5);
/// No token is asked for more often, however wrong a clock is.
const TOKEN_AT_MOST: Duration = Duration::from_secs(60);

/// How changes of ConfigMaps and Secrets are noticed: `configMapAndSecretChangeDetectionStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detection {
    #[default]
    Watch,
    /// Kept for as long as the node's annotation says.
    Cache,
    Get,
}

/// How often is asked.
#[derive(Clone, Copy, Debug)]
pub struct Cadence {
    pub detection: Detection,
    /// How often pods are looked at again: `syncFrequency`.
    pub period: Duration,
    /// The node's annotation `node.alpha.kubernetes.io/ttl`.
    pub ttl: Option<Duration>,
}

/// How the last request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Found,
    /// It is there, but not yet as a pod needs it.
    Pending,
    Absent,
    Refused,
    /// No answer, or none that counts.
    Failed,
}

/// What was found, as the pod needs it. Nothing found is absent.
pub fn outcome(found: Option<&Object>) -> Outcome {
    let Some(object) = found else {
        return Outcome::Absent;
    };
    let is_ready = match object {
        Object::Claim(claim) => {
            let status = claim.status.as_ref();
            status.and_then(|status| status.phase.as_deref()) == Some("Bound")
        }
        Object::VolumeAttachment(found) => {
            let status = found.status.as_ref();
            status.is_some_and(|status| status.attached)
        }
        Object::ConfigMap(_)
        | Object::Secret(_)
        | Object::Service(_)
        | Object::PersistentVolume(_)
        | Object::RuntimeClass(_)
        | Object::CsiDriver(_)
        | Object::TrustBundle(_) => true,
    };
    if is_ready {
        Outcome::Found
    } else {
        Outcome::Pending
    }
}

impl Cadence {
    /// How long after this outcome, of `times` in a row, it is asked for again; never is none.
    pub fn wait(&self, wanted: &Wanted, outcome: Outcome, times: u32) -> Option<Duration> {
        match outcome {
            Outcome::Failed => Some(doubled(FAILED, times)),
            Outcome::Refused => Some(doubled(REFUSED, times)),
            Outcome::Pending => Some(doubled(PENDING, times)),
            Outcome::Absent => Some(match wanted {
                Wanted::ConfigMap(_) | Wanted::Secret(_) => doubled(ABSENT, times),
                Wanted::Claim(_)
                | Wanted::PersistentVolume(_)
                | Wanted::VolumeAttachment(_)
                | Wanted::RuntimeClass(_)
                | Wanted::Service(_)
                | Wanted::Services(_)
                | Wanted::CsiDrivers
                | Wanted::TrustBundles
                | Wanted::Token(_) => doubled(PENDING, times),
            }),
            Outcome::Found => self.found(wanted),
        }
    }

    fn found(&self, wanted: &Wanted) -> Option<Duration> {
        match wanted {
            Wanted::ConfigMap(_) | Wanted::Secret(_) => Some(self.period.max(self.keep())),
            // It may have grown.
            Wanted::Claim(_) | Wanted::PersistentVolume(_) => Some(self.period * 3 / 2),
            // Attached: whoever comes next asks again.
            Wanted::VolumeAttachment(_)
            | Wanted::RuntimeClass(_)
            | Wanted::Service(_)
            | Wanted::Services(_)
            | Wanted::CsiDrivers
            | Wanted::TrustBundles
            | Wanted::Token(_) => None,
        }
    }

    fn keep(&self) -> Duration {
        match self.detection {
            Detection::Cache => self.ttl.unwrap_or(TTL),
            Detection::Watch | Detection::Get => Duration::ZERO,
        }
    }
}

fn doubled((first, longest): (Duration, Duration), times: u32) -> Duration {
    let factor = 1_u32.checked_shl(times.min(16)).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(longest)
}

/// How long until a token is looked at again; nought when a new one is due. `since` is how long ago it was asked for.
pub fn token_wait(
    token: &ServiceAccountToken,
    asked_seconds: i64,
    now: Timestamp,
    jitter: SignedDuration,
) -> Duration {
    let left = token
        .renew_at(asked_seconds, jitter)
        .duration_since(now);
    let left = Duration::try_from(left).unwrap_or_default();
    left.min(TOKEN_LOOK)
}

/// The same for one that has just come: never at once, however wrong a clock is.
pub fn new_token_wait(
    token: &ServiceAccountToken,
    asked_seconds: i64,
    now: Timestamp,
    jitter: SignedDuration,
) -> Duration {
    token_wait(token, asked_seconds, now, jitter).max(TOKEN_AT_MOST)
}
