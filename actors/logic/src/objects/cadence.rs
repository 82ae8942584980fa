//! When an object that is not watched is asked for again.
//!
//! Upstream: pkg/kubelet/util/manager/cache_based_manager.go, pkg/kubelet/token/token_manager.go,
//! pkg/volume/csi/csi_attacher.go (1.36).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::credentials::ServiceAccountToken;
use super::object::Object;
use crate::objects::Wanted;

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
                // Somebody took the request away.
                Wanted::Certificate(_) => doubled(ABSENT, times),
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
            | Wanted::Token(_)
            | Wanted::Certificate(_) => None,
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

/// How long until a token is looked at again; nought when a new one is due.
pub fn token_wait(
    token: &ServiceAccountToken,
    asked_seconds: i64,
    now: Timestamp,
    jitter: SignedDuration,
) -> Duration {
    let left = token.renew_at(asked_seconds, jitter).duration_since(now);
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

#[cfg(test)]
mod tests {
    use super::super::{TokenWanted, parse};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    fn cadence(detection: Detection, ttl: Option<u64>) -> Cadence {
        Cadence {
            detection,
            period: MINUTE,
            ttl: ttl.map(Duration::from_secs),
        }
    }

    fn map() -> Wanted {
        Wanted::ConfigMap(("a".into(), "b".into()))
    }

    fn every_kind() -> Vec<Wanted> {
        let key = || ("a".to_owned(), "b".to_owned());
        let token = TokenWanted {
            namespace: "a".into(),
            service_account: "b".into(),
            audiences: Vec::new(),
            expiration_seconds: 3600,
            pod_name: "p".into(),
            pod_uid: "u".into(),
        };
        vec![
            map(),
            Wanted::Secret(key()),
            Wanted::Claim(key()),
            Wanted::PersistentVolume("b".into()),
            Wanted::VolumeAttachment("b".into()),
            Wanted::Token(token),
        ]
    }

    /// Upstream's `defaultTTL`, and what TestParseNodeAnnotation reads.
    #[test]
    fn a_cached_object_is_kept_for_as_long_as_the_node_says() {
        let wait = |detection, ttl| cadence(detection, ttl).wait(&map(), Outcome::Found, 0);
        assert_eq!(wait(Detection::Cache, None), Some(MINUTE));
        assert_eq!(wait(Detection::Cache, Some(300)), Some(5 * MINUTE));
        // Nobody looks at a pod more often than this.
        assert_eq!(wait(Detection::Cache, Some(0)), Some(MINUTE));
        assert_eq!(wait(Detection::Get, Some(300)), Some(MINUTE));
    }

    #[test]
    fn no_failure_is_followed_by_another_request_at_once() {
        let cadence = cadence(Detection::Get, None);
        let bad = [
            Outcome::Failed,
            Outcome::Refused,
            Outcome::Absent,
            Outcome::Pending,
        ];
        for wanted in every_kind() {
            for outcome in bad {
                let waits: Vec<Duration> = (0..40)
                    .map(|times| cadence.wait(&wanted, outcome, times).unwrap())
                    .collect();
                assert!(
                    waits[0] >= Duration::from_millis(500),
                    "{wanted} {outcome:?}"
                );
                assert!(waits.is_sorted(), "{wanted} {outcome:?}");
                assert!(waits[39] <= MINUTE, "{wanted} {outcome:?}");
            }
        }
        let failed = |times| cadence.wait(&map(), Outcome::Failed, times);
        assert_eq!(failed(0), Some(Duration::from_millis(800)));
        assert_eq!(failed(39), Some(30 * SECOND));
    }

    #[test]
    fn a_claim_is_looked_at_again_and_an_attachment_that_stands_is_not() {
        let cadence = cadence(Detection::Watch, None);
        let found = |wanted: &Wanted| cadence.wait(wanted, Outcome::Found, 9);
        assert_eq!(found(&every_kind()[2]), Some(90 * SECOND));
        assert_eq!(found(&every_kind()[4]), None);
    }

    #[test]
    fn a_claim_that_is_not_bound_and_a_volume_that_is_not_attached_are_pending() {
        let claim = |phase: &str| {
            let text = format!(
                "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: a}}, spec: {{}}, status: {{phase: {phase}}}}}"
            );
            let found = parse(text.as_bytes()).objects.claims.into_values().next();
            outcome(found.map(Object::Claim).as_ref())
        };
        assert_eq!(claim("Pending"), Outcome::Pending);
        assert_eq!(claim("Bound"), Outcome::Found);
        let attachment = |attached: bool| {
            let text = format!(
                "{{apiVersion: storage.k8s.io/v1, kind: VolumeAttachment, metadata: {{name: a}}, \
                 spec: {{attacher: x, nodeName: worker-1, source: {{}}}}, status: {{attached: {attached}}}}}"
            );
            let found = parse(text.as_bytes()).objects.volume_attachments;
            outcome(
                found
                    .into_values()
                    .next()
                    .map(Object::VolumeAttachment)
                    .as_ref(),
            )
        };
        assert_eq!(attachment(false), Outcome::Pending);
        assert_eq!(attachment(true), Outcome::Found);
        assert_eq!(outcome(None), Outcome::Absent);
    }

    fn token(issued: i64, life: i64) -> ServiceAccountToken {
        let at = |second| Timestamp::from_second(second).unwrap();
        ServiceAccountToken {
            token: "t".into(),
            expires: at(issued + life),
            issued: Some(at(issued)),
        }
    }

    /// Upstream's TestRequiresRefresh.
    #[test]
    fn a_token_is_renewed_after_four_fifths_of_its_life_or_a_day() {
        let is_due = |token: &ServiceAccountToken, now, jitter| {
            let now = Timestamp::from_second(now).unwrap();
            token_wait(token, 0, now, SignedDuration::from_secs(jitter)).is_zero()
        };
        let hour = token(0, 3600);
        for (now, jitter, expected) in [
            (0, 0, false),
            (2879, 0, false),
            (2880, 0, true),
            (2870, 10, true),
            (2869, 10, false),
            (4000, 0, true),
        ] {
            assert_eq!(is_due(&hour, now, jitter), expected, "{now} {jitter}");
        }
        let week = token(0, 7 * 86_400);
        assert!(!is_due(&week, 86_399, 0));
        assert!(is_due(&week, 86_400, 0));
    }

    #[test]
    fn a_wrong_clock_makes_no_flood_of_requests_for_tokens() {
        let (hour, none) = (token(0, 3600), SignedDuration::ZERO);
        let late = Timestamp::from_second(1_000_000).unwrap();
        assert_eq!(new_token_wait(&hour, 0, late, none), MINUTE);
        let early = Timestamp::from_second(-1_000_000).unwrap();
        assert_eq!(new_token_wait(&hour, 0, early, none), 5 * MINUTE);
    }
}
