//! When an object that is not watched is asked for again.
//!
//! Upstream: pkg/kubelet/util/manager/cache_based_manager.go, pkg/kubelet/token/token_manager.go,
//! pkg/volume/csi/csi_attacher.go (1.36).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::credentials::ServiceAccountToken;
use super::object::ApiObject;
use crate::objects::ObjectRequest;
use crate::quantity::bytes;

/// client-go's first wait after a request that failed, and its longest.
const FAILED_BACKOFF: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));
/// The API server's authorizer and its admission of nodes' requests follow pods by watches of their own, which are some
/// milliseconds behind the node's.
const LAGGING_BACKOFF: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_millis(400));
/// A refusal lasts until its cause is changed at the API server.
const REFUSED_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));
/// An object that is expected soon: upstream's first and longest wait for an attachment.
const PENDING_BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(7));
/// A claim that asks for more than its volume has: the controller is at work.
const GROWING_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// A ConfigMap or Secret that does not exist (yet).
const ABSENT_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Upstream's `defaultTTL`, for a node that does not say its own.
const DEFAULT_TTL: Duration = Duration::from_secs(60);
/// Clocks step, and machines sleep: a token is looked at this often.
const TOKEN_CHECK_INTERVAL: Duration = Duration::from_mins(5);
/// No token is asked for more often, however wrong a clock is.
const MIN_TOKEN_INTERVAL: Duration = Duration::from_secs(60);

/// How changes of ConfigMaps and Secrets are noticed: `configMapAndSecretChangeDetectionStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeDetection {
    #[default]
    Watch,
    /// Kept for as long as the node's annotation says.
    Cache,
    Get,
}

/// How often is asked.
#[derive(Clone, Copy, Debug)]
pub struct RefetchSchedule {
    /// By watch, by time, or at each use.
    pub detection: ChangeDetection,
    /// How often pods are looked at again: `syncFrequency`.
    pub period: Duration,
    /// The node's annotation `node.alpha.kubernetes.io/ttl`.
    pub ttl: Option<Duration>,
}

/// How the last request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchOutcome {
    Found,
    /// It is there, but not yet as a pod needs it.
    Pending,
    /// A bound claim that asks for more than its volume has.
    Growing,
    Absent,
    /// Refused, because the API server has not seen yet that the pod is this node's.
    Lagging,
    Refused,
    /// No response, or an invalid one.
    Failed,
}

/// The outcome of a fetch, for the back-off. None is [`FetchOutcome::Absent`].
pub fn outcome(found: Option<&ApiObject>) -> FetchOutcome {
    let Some(object) = found else {
        return FetchOutcome::Absent;
    };
    let is_ready = match object {
        ApiObject::Claim(claim) if is_growing(claim) => return FetchOutcome::Growing,
        ApiObject::Claim(claim) => is_bound(claim),
        ApiObject::VolumeAttachment(found) => {
            let status = found.status.as_ref();
            status.is_some_and(|status| status.attached)
        }
        ApiObject::ConfigMap(_)
        | ApiObject::Secret(_)
        | ApiObject::Service(_)
        | ApiObject::PersistentVolume(_)
        | ApiObject::RuntimeClass(_)
        | ApiObject::CsiDriver(_)
        | ApiObject::TrustBundle(_) => true,
    };
    if is_ready {
        FetchOutcome::Found
    } else {
        FetchOutcome::Pending
    }
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let status = claim.status.as_ref();
    status.and_then(|status| status.phase.as_deref()) == Some("Bound")
}

fn is_growing(claim: &PersistentVolumeClaim) -> bool {
    let storage = |amounts: Option<&BTreeMap<String, Quantity>>| {
        amounts.and_then(|amounts| bytes(amounts.get("storage")))
    };
    let spec = claim.spec.as_ref();
    let resources = spec.and_then(|spec| spec.resources.as_ref());
    let asked = storage(resources.and_then(|resources| resources.requests.as_ref()));
    let status = claim.status.as_ref();
    let has = storage(status.and_then(|status| status.capacity.as_ref()));
    let grows = asked.zip(has).is_some_and(|(asked, has)| asked > has);
    is_bound(claim) && grows
}

impl RefetchSchedule {
    /// How long after this outcome, of `times` in a row, it is asked for again; never is none.
    pub fn wait(
        &self,
        wanted: &ObjectRequest,
        outcome: FetchOutcome,
        times: u32,
    ) -> Option<Duration> {
        match outcome {
            FetchOutcome::Failed => Some(doubled(FAILED_BACKOFF, times)),
            FetchOutcome::Lagging => Some(doubled(LAGGING_BACKOFF, times)),
            FetchOutcome::Refused => Some(doubled(REFUSED_BACKOFF, times)),
            FetchOutcome::Pending => Some(doubled(PENDING_BACKOFF, times)),
            FetchOutcome::Growing => Some(doubled(GROWING_BACKOFF, times)),
            FetchOutcome::Absent => Some(match wanted {
                ObjectRequest::ConfigMap(_) | ObjectRequest::Secret(_) => {
                    doubled(ABSENT_BACKOFF, times)
                }
                ObjectRequest::Claim(_)
                | ObjectRequest::PersistentVolume(_)
                | ObjectRequest::VolumeAttachment(_)
                | ObjectRequest::RuntimeClass(_)
                | ObjectRequest::Service(_)
                | ObjectRequest::Services(_)
                | ObjectRequest::CsiDrivers
                | ObjectRequest::TrustBundles
                | ObjectRequest::Token(_) => doubled(PENDING_BACKOFF, times),
                // The request was deleted.
                ObjectRequest::Certificate(_) => doubled(ABSENT_BACKOFF, times),
            }),
            FetchOutcome::Found => self.found(wanted),
        }
    }

    fn found(&self, wanted: &ObjectRequest) -> Option<Duration> {
        match wanted {
            ObjectRequest::ConfigMap(_) | ObjectRequest::Secret(_) => {
                Some(self.period.max(self.keep()))
            }
            // Fetched only where a watch is refused. An expansion begins with the claim, so the claim is fetched oftener.
            ObjectRequest::Claim(_) => Some(self.period / 2),
            ObjectRequest::PersistentVolume(_) => Some(self.period * 3 / 2),
            // Attached: the next pod that needs it asks again.
            ObjectRequest::VolumeAttachment(_)
            | ObjectRequest::RuntimeClass(_)
            | ObjectRequest::Service(_)
            | ObjectRequest::Services(_)
            | ObjectRequest::CsiDrivers
            | ObjectRequest::TrustBundles
            | ObjectRequest::Token(_)
            | ObjectRequest::Certificate(_) => None,
        }
    }

    fn keep(&self) -> Duration {
        match self.detection {
            ChangeDetection::Cache => self.ttl.unwrap_or(DEFAULT_TTL),
            ChangeDetection::Watch | ChangeDetection::Get => Duration::ZERO,
        }
    }
}

fn doubled((first, longest): (Duration, Duration), times: u32) -> Duration {
    let factor = 1_u32.checked_shl(times.min(16)).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(longest)
}

/// How long until a token is checked again; zero when a new one is due.
pub fn token_wait(
    token: &ServiceAccountToken,
    asked_seconds: i64,
    now: Timestamp,
    jitter: SignedDuration,
) -> Duration {
    let left = token.renew_at(asked_seconds, jitter).duration_since(now);
    let left = Duration::try_from(left).unwrap_or_default();
    left.min(TOKEN_CHECK_INTERVAL)
}

/// The same for one that has just come: never at once, however wrong a clock is.
pub fn new_token_wait(
    token: &ServiceAccountToken,
    asked_seconds: i64,
    now: Timestamp,
    jitter: SignedDuration,
) -> Duration {
    token_wait(token, asked_seconds, now, jitter).max(MIN_TOKEN_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::super::{TokenSpec, parse};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    fn cadence(detection: ChangeDetection, ttl: Option<u64>) -> RefetchSchedule {
        RefetchSchedule {
            detection,
            period: MINUTE,
            ttl: ttl.map(Duration::from_secs),
        }
    }

    fn map() -> ObjectRequest {
        ObjectRequest::ConfigMap(("a".into(), "b".into()))
    }

    fn every_kind() -> Vec<ObjectRequest> {
        let key = || ("a".to_owned(), "b".to_owned());
        let token = TokenSpec {
            namespace: "a".into(),
            service_account: "b".into(),
            audiences: Vec::new(),
            expiration_seconds: 3600,
            pod_name: "p".into(),
            pod_uid: "u".into(),
        };
        vec![
            map(),
            ObjectRequest::Secret(key()),
            ObjectRequest::Claim(key()),
            ObjectRequest::PersistentVolume("b".into()),
            ObjectRequest::VolumeAttachment("b".into()),
            ObjectRequest::Token(token),
        ]
    }

    /// Upstream's `defaultTTL`, and what TestParseNodeAnnotation reads.
    #[test]
    fn a_cached_object_is_kept_for_as_long_as_the_node_says() {
        let wait = |detection, ttl| cadence(detection, ttl).wait(&map(), FetchOutcome::Found, 0);
        assert_eq!(wait(ChangeDetection::Cache, None), Some(MINUTE));
        assert_eq!(wait(ChangeDetection::Cache, Some(300)), Some(5 * MINUTE));
        // No pod is synced more often than this.
        assert_eq!(wait(ChangeDetection::Cache, Some(0)), Some(MINUTE));
        assert_eq!(wait(ChangeDetection::Get, Some(300)), Some(MINUTE));
    }

    #[test]
    fn no_failure_is_followed_by_another_request_at_once() {
        let cadence = cadence(ChangeDetection::Get, None);
        let bad = [
            FetchOutcome::Failed,
            FetchOutcome::Refused,
            FetchOutcome::Absent,
            FetchOutcome::Pending,
            FetchOutcome::Growing,
        ];
        for wanted in every_kind() {
            for outcome in bad {
                let waits: Vec<Duration> = (0..40)
                    .map(|times| cadence.wait(&wanted, outcome, times).unwrap())
                    .collect();
                let least = match outcome == FetchOutcome::Refused {
                    true => 50,
                    false => 500,
                };
                let first = waits[0].as_millis();
                assert!(first >= least, "{wanted} {outcome:?}");
                assert!(waits.is_sorted(), "{wanted} {outcome:?}");
                assert!(waits[39] <= MINUTE, "{wanted} {outcome:?}");
            }
        }
        let failed = |times| cadence.wait(&map(), FetchOutcome::Failed, times);
        assert_eq!(failed(0), Some(Duration::from_millis(800)));
        assert_eq!(failed(39), Some(30 * SECOND));
    }

    #[test]
    fn a_refusal_is_doubted_at_once_and_a_lasting_one_costs_few_requests() {
        let cadence = cadence(ChangeDetection::Watch, None);
        let waits = (0..).map(|times| cadence.wait(&map(), FetchOutcome::Refused, times));
        let times = waits.scan(Duration::ZERO, |at, wait| {
            *at += wait?;
            Some(*at)
        });
        let times: Vec<Duration> = times.take_while(|at| *at < MINUTE).collect();
        assert!(times[0] < SECOND / 10);
        assert!(times.len() <= 10, "{times:?}");
        let waits = (0..7).map(|times| cadence.wait(&map(), FetchOutcome::Lagging, times).unwrap());
        let waits: Vec<Duration> = waits.collect();
        assert_eq!(waits[0], Duration::from_millis(50));
        let sum: Duration = waits.iter().sum();
        assert!(sum < 2 * SECOND && waits[6] < SECOND / 2, "{waits:?}");
    }

    #[test]
    fn a_claim_is_looked_at_again_and_an_attachment_that_stands_is_not() {
        let cadence = cadence(ChangeDetection::Watch, None);
        let found = |wanted: &ObjectRequest| cadence.wait(wanted, FetchOutcome::Found, 9);
        assert_eq!(found(&every_kind()[2]), Some(30 * SECOND));
        assert_eq!(found(&every_kind()[3]), Some(90 * SECOND));
        assert_eq!(found(&every_kind()[4]), None);
    }

    #[test]
    fn a_claim_that_asks_for_more_than_its_volume_has_is_growing() {
        let claim = |phase: &str, has: &str| {
            let text = format!(
                "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: a}}, \
                 spec: {{resources: {{requests: {{storage: 2Gi}}}}}}, \
                 status: {{phase: {phase}, capacity: {{storage: {has}}}}}}}"
            );
            let found = parse(text.as_bytes()).objects.claims.into_values().next();
            outcome(found.map(ApiObject::Claim).as_ref())
        };
        assert_eq!(claim("Bound", "1Gi"), FetchOutcome::Growing);
        assert_eq!(claim("Bound", "2048Mi"), FetchOutcome::Found);
        assert_eq!(claim("Bound", "3Gi"), FetchOutcome::Found);
        assert_eq!(claim("Lost", "1Gi"), FetchOutcome::Pending);
    }

    #[test]
    fn a_claim_that_is_not_bound_and_a_volume_that_is_not_attached_are_pending() {
        let claim = |phase: &str| {
            let text = format!(
                "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: a}}, spec: {{}}, status: {{phase: {phase}}}}}"
            );
            let found = parse(text.as_bytes()).objects.claims.into_values().next();
            outcome(found.map(ApiObject::Claim).as_ref())
        };
        assert_eq!(claim("Pending"), FetchOutcome::Pending);
        assert_eq!(claim("Bound"), FetchOutcome::Found);
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
                    .map(ApiObject::VolumeAttachment)
                    .as_ref(),
            )
        };
        assert_eq!(attachment(false), FetchOutcome::Pending);
        assert_eq!(attachment(true), FetchOutcome::Found);
        assert_eq!(outcome(None), FetchOutcome::Absent);
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
