//! The state of a PodCertificateRequest: requested, issued or refused for good, renewed in time.
//!
//! Upstream: pkg/kubelet/podcertificate/podcertificatemanager.go (1.36). Unlike there, the request's name is chosen by
//! its content, so a client that asks again, also after a restart, finds the request that it made.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1beta1::{PodCertificateRequest, PodCertificateRequestStatus};

use super::{CertificateCredentials, PodCertificate, PodCertificateSpec, pem};

/// Upstream's `refreshOverdueDuration`.
const OVERDUE_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// Clocks step, and machines sleep: a certificate is looked at this often.
const CHECK_INTERVAL: Duration = Duration::from_mins(5);
/// No certificate is followed by another request sooner, however wrong a clock or a signer is.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_secs(60);
/// The API's `MaxCertificateChainSize`.
const MAX_CHAIN_BYTES: usize = 100 * 1024;

/// Which certificates are asked of the API: the feature gate `PodCertificateRequest`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IssuancePolicy {
    #[default]
    Never,
    Always,
}

/// Why no certificate is requested.
pub const GATE_IS_OFF: &str = "the feature gate PodCertificateRequest is off";

/// A request that is made, or about to be.
#[derive(Clone, PartialEq, Eq)]
pub struct PendingCertificateRequest {
    pub name: String,
    /// The private key, PKCS#8 in PEM.
    pub key_pem: Vec<u8>,
    /// The certificate signing request, PKCS#10 in DER.
    pub request: Vec<u8>,
}

// The key is never shown.
impl fmt::Debug for PendingCertificateRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PendingCertificateRequest({})", self.name)
    }
}

/// How far it is with one source of one pod's volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issuance {
    /// The certificate in use; none before the first.
    pub held: Option<CertificateCredentials>,
    /// The request under way.
    pub asked: Option<PendingCertificateRequest>,
    /// Why there will be none.
    pub refused: Option<IssuanceRefusal>,
}

/// The signer's last word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssuanceRefusal {
    Denied { reason: String, message: String },
    Failed { reason: String, message: String },
}

/// The next step of an issuance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssuanceStep {
    /// A key is made, and a certificate for it asked for.
    Ask,
    /// The request is made, and its answer waited for.
    Await,
    /// It is looked at again after this time.
    Rest(Duration),
    /// Nothing, for as long as the pod lives.
    Over,
}

/// The result of reading a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssuanceVerdict {
    Pending,
    Issued,
    Refused,
}

/// How good a certificate is, by upstream's words for its metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateAge {
    #[default]
    Fresh,
    Overdue,
    Expired,
}

/// An event about the pod; all of them warn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateEvent {
    pub reason: &'static str,
    pub message: String,
}

impl Issuance {
    pub fn step(&self, now: Timestamp) -> IssuanceStep {
        if self.refused.is_some() {
            return IssuanceStep::Over;
        }
        if self.asked.is_some() {
            return IssuanceStep::Await;
        }
        let left = match &self.held {
            Some(held) => Duration::try_from(held.renew_at.duration_since(now)),
            None => return IssuanceStep::Ask,
        };
        match left.unwrap_or_default() {
            Duration::ZERO => IssuanceStep::Ask,
            left => IssuanceStep::Rest(left.min(CHECK_INTERVAL)),
        }
    }

    /// The same for a certificate that has just come: never at once.
    pub fn step_after_issue(&self, now: Timestamp) -> IssuanceStep {
        match self.step(now) {
            IssuanceStep::Ask => IssuanceStep::Rest(MIN_REQUEST_INTERVAL),
            IssuanceStep::Rest(wait) => IssuanceStep::Rest(wait.max(MIN_REQUEST_INTERVAL)),
            other @ (IssuanceStep::Await | IssuanceStep::Over) => other,
        }
    }

    /// Takes in the request as the API shows it. `jitter` puts off the renewal.
    pub fn on_request(
        &mut self,
        request: &PodCertificateRequest,
        jitter: SignedDuration,
    ) -> Result<IssuanceVerdict, String> {
        let status = request.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref());
        for condition in conditions.unwrap_or_default() {
            let (reason, message) = (condition.reason.clone(), condition.message.clone());
            let refusal = match condition.type_.as_str() {
                "Denied" => IssuanceRefusal::Denied { reason, message },
                "Failed" => IssuanceRefusal::Failed { reason, message },
                "Issued" => return self.issued(request, status, jitter),
                _ => continue,
            };
            *self = Issuance {
                refused: Some(refusal),
                ..Issuance::default()
            };
            return Ok(IssuanceVerdict::Refused);
        }
        Ok(IssuanceVerdict::Pending)
    }

    fn issued(
        &mut self,
        request: &PodCertificateRequest,
        status: Option<&PodCertificateRequestStatus>,
        jitter: SignedDuration,
    ) -> Result<IssuanceVerdict, String> {
        let lacking = |what: &str| {
            let name = request.metadata.name.as_deref().unwrap_or_default();
            format!("PodCertificateRequest {name} is issued {what}")
        };
        let empty = PodCertificateRequestStatus::default();
        let status = status.unwrap_or(&empty);
        let chain = status.certificate_chain.as_deref().unwrap_or_default();
        if chain.len() > MAX_CHAIN_BYTES {
            return Err(lacking("with too long a certificateChain"));
        }
        let blocks = pem::blocks(chain);
        if blocks.is_empty() {
            return Err(lacking("without a certificate"));
        }
        let begin = status.begin_refresh_at.as_ref();
        let begin = begin.ok_or_else(|| lacking("without beginRefreshAt"))?.0;
        let expires = status.not_after.as_ref();
        let expires = expires.ok_or_else(|| lacking("without notAfter"))?.0;
        let Some(asked) = self.asked.take() else {
            return Ok(IssuanceVerdict::Pending);
        };
        self.held = Some(CertificateCredentials {
            key_pem: asked.key_pem,
            chain_pem: pem::certificates(blocks.iter().map(|block| &*block.bytes)).into_bytes(),
            renew_at: begin.checked_add(jitter).unwrap_or(expires),
            expires,
        });
        Ok(IssuanceVerdict::Issued)
    }

    /// The certificate for the pod's volume, or why there is none yet.
    pub fn outcome(&self, wanted: &PodCertificateSpec) -> PodCertificate {
        let refused = self.refused.clone().map(|refused| match refused {
            IssuanceRefusal::Denied { reason, message } => {
                PodCertificate::Denied { reason, message }
            }
            IssuanceRefusal::Failed { reason, message } => {
                PodCertificate::Failed { reason, message }
            }
        });
        if let Some(refused) = refused {
            return refused;
        }
        match (&self.held, &self.asked) {
            (Some(held), _) => PodCertificate::Issued(held.clone()),
            (None, None) => PodCertificate::missing(wanted),
            (None, Some(asked)) => {
                let (namespace, name) = (&wanted.namespace, &asked.name);
                let missing = format!("PodCertificateRequest {namespace}/{name} is not answered");
                PodCertificate::NotYet { missing }
            }
        }
    }

    pub fn age(&self, now: Timestamp) -> CertificateAge {
        let Some(held) = &self.held else {
            return CertificateAge::Fresh;
        };
        let overdue = held.renew_at.checked_add(OVERDUE_AFTER);
        if now > held.expires {
            CertificateAge::Expired
        } else if overdue.is_ok_and(|overdue| now > overdue) {
            CertificateAge::Overdue
        } else {
            CertificateAge::Fresh
        }
    }

    /// Upstream's `metricsState`.
    pub fn state(&self, now: Timestamp) -> &'static str {
        match (&self.refused, &self.held) {
            (Some(IssuanceRefusal::Denied { .. }), _) => "denied",
            (Some(IssuanceRefusal::Failed { .. }), _) => "failed",
            (None, None) => "not_yet_issued",
            (None, Some(_)) => match self.age(now) {
                CertificateAge::Fresh => "fresh",
                CertificateAge::Overdue => "overdue_for_refresh",
                CertificateAge::Expired => "expired",
            },
        }
    }
}

impl IssuanceRefusal {
    /// The event of a refusal; `request` is the request's namespace and name.
    pub fn notice(&self, request: &str) -> CertificateEvent {
        let (reason, what, why, message) = match self {
            IssuanceRefusal::Denied { reason, message } => {
                ("Denied", "was denied", reason, message)
            }
            IssuanceRefusal::Failed { reason, message } => ("Failed", "failed", reason, message),
        };
        CertificateEvent {
            reason,
            message: format!(
                "PodCertificateRequest {request} {what}, reason={why:?}, message={message:?}"
            ),
        }
    }
}

impl CertificateAge {
    /// The pod's events when its certificate reaches this age; `told` is the age last reported.
    pub fn notices(self, told: CertificateAge) -> Vec<CertificateEvent> {
        let overdue = CertificateEvent {
            reason: "CertificateOverdueForRefresh",
            message: "PodCertificate refresh overdue".to_owned(),
        };
        let expired = CertificateEvent {
            reason: "CertificateExpired",
            message: "PodCertificate expired".to_owned(),
        };
        let all = [
            (CertificateAge::Overdue, overdue),
            (CertificateAge::Expired, expired),
        ];
        let new = all
            .into_iter()
            .filter(|(age, _)| told < *age && *age <= self);
        new.map(|(_, notice)| notice).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const KEY: &str = "the key";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn asked() -> Issuance {
        Issuance {
            asked: Some(PendingCertificateRequest {
                name: "req-1".into(),
                key_pem: KEY.into(),
                request: b"csr".to_vec(),
            }),
            ..Issuance::default()
        }
    }

    fn chain() -> String {
        pem::certificates([&b"leaf"[..]])
    }

    fn request(conditions: &[&str], change: impl FnOnce(&mut Value)) -> PodCertificateRequest {
        let conditions = conditions.iter();
        let conditions: Vec<Value> = conditions
            .map(|kind| {
                json!({"type": kind, "status": "True", "reason": "R", "message": "M \"m\"",
                       "lastTransitionTime": at(0).to_string()})
            })
            .collect();
        let mut request = json!({
            "metadata": {"name": "req-1", "namespace": "apps"},
            "spec": {"signerName": "a.io/b", "podName": "p", "podUID": "u", "serviceAccountName": "s",
                     "serviceAccountUID": "su", "nodeName": "n", "nodeUID": "nu", "stubPKCS10Request": ""},
            "status": {"conditions": conditions},
        });
        change(&mut request);
        serde_json::from_value(request).unwrap()
    }

    fn issued(begin: i64, end: i64) -> PodCertificateRequest {
        request(&["Other", "Issued"], |request| {
            request["status"]["certificateChain"] = json!(format!("comment\n{}", chain()));
            request["status"]["beginRefreshAt"] = json!(at(begin).to_string());
            request["status"]["notAfter"] = json!(at(end).to_string());
        })
    }

    fn held(begin: i64, end: i64) -> Issuance {
        let mut issuance = asked();
        let verdict = issuance.on_request(&issued(begin, end), SignedDuration::ZERO);
        assert_eq!(verdict, Ok(IssuanceVerdict::Issued));
        issuance
    }

    fn wanted() -> PodCertificateSpec {
        PodCertificateSpec {
            namespace: "apps".into(),
            pod_name: "p".into(),
            pod_uid: "u".into(),
            service_account: "s".into(),
            signer_name: "a.io/b".into(),
            key_type: "ED25519".into(),
            max_expiration_seconds: None,
            user_annotations: Vec::new(),
            volume: "v".into(),
            source: 0,
        }
    }

    /// Upstream's TestTransitionInitialToWait.
    #[test]
    fn a_certificate_is_asked_for_then_awaited_then_kept_until_it_is_renewed() {
        let new = Issuance::default();
        assert_eq!(new.step(at(0)), IssuanceStep::Ask);
        let mut issuance = asked();
        assert_eq!(issuance.step(at(0)), IssuanceStep::Await);
        let unanswered = issuance.on_request(&request(&["Other"], |_| {}), SignedDuration::ZERO);
        assert_eq!(unanswered, Ok(IssuanceVerdict::Pending));
        assert_eq!(issuance, asked());

        let jitter = SignedDuration::from_secs(30);
        let verdict = issuance.on_request(&issued(7200, 10_800), jitter);
        assert_eq!(verdict, Ok(IssuanceVerdict::Issued));
        let PodCertificate::Issued(found) = issuance.outcome(&wanted()) else {
            panic!("{issuance:?}");
        };
        assert_eq!(found.key_pem, KEY.as_bytes());
        assert_eq!(found.chain_pem, chain().as_bytes());
        assert_eq!((found.renew_at, found.expires), (at(7230), at(10_800)));
        assert_eq!(issuance.step(at(0)), IssuanceStep::Rest(CHECK_INTERVAL));
        assert_eq!(issuance.step(at(7170)), IssuanceStep::Rest(MINUTE));
        assert_eq!(issuance.step(at(7230)), IssuanceStep::Ask);
    }

    #[test]
    fn a_certificate_is_kept_while_the_next_is_awaited() {
        let mut issuance = held(7200, 10_800);
        issuance.asked = asked().asked;
        assert_eq!(issuance.step(at(7200)), IssuanceStep::Await);
        let kept = issuance.outcome(&wanted());
        assert!(matches!(kept, PodCertificate::Issued(_)), "{kept:?}");
        issuance
            .on_request(&issued(9000, 20_000), SignedDuration::ZERO)
            .unwrap();
        assert_eq!(issuance.held.unwrap().expires, at(20_000));
    }

    #[test]
    fn a_refusal_is_the_last_word_and_takes_the_old_certificate_with_it() {
        let cases = [
            (
                "Denied",
                "denied",
                "PodCertificateRequest apps/req-1 was denied, reason=\"R\", message=\"M \\\"m\\\"\"",
            ),
            (
                "Failed",
                "failed",
                "PodCertificateRequest apps/req-1 failed, reason=\"R\", message=\"M \\\"m\\\"\"",
            ),
        ];
        for (kind, state, message) in cases {
            let mut issuance = held(7200, 10_800);
            issuance.asked = asked().asked;
            let verdict = issuance.on_request(&request(&[kind], |_| {}), SignedDuration::ZERO);
            assert_eq!(verdict, Ok(IssuanceVerdict::Refused));
            assert_eq!(issuance.step(at(99_999)), IssuanceStep::Over);
            assert_eq!(issuance.state(at(0)), state);
            let notice = issuance.refused.clone().unwrap().notice("apps/req-1");
            assert_eq!((notice.reason, notice.message.as_str()), (kind, message));
            let outcome = issuance.outcome(&wanted());
            assert!(!matches!(outcome, PodCertificate::Issued(_)), "{outcome:?}");
        }
    }

    #[test]
    fn what_is_issued_without_what_it_takes_is_told_and_changes_nothing() {
        let without = |field: &'static str| {
            let mut request = serde_json::to_value(issued(7200, 10_800)).unwrap();
            request["status"][field] = Value::Null;
            serde_json::from_value::<PodCertificateRequest>(request).unwrap()
        };
        let long = request(&["Issued"], |request| {
            request["status"]["certificateChain"] = json!("x".repeat(MAX_CHAIN_BYTES + 1));
        });
        let cases = [
            (without("certificateChain"), "without a certificate"),
            (without("beginRefreshAt"), "without beginRefreshAt"),
            (without("notAfter"), "without notAfter"),
            (long, "with too long a certificateChain"),
            (request(&["Issued"], |_| {}), "without a certificate"),
        ];
        for (request, lack) in cases {
            let mut issuance = asked();
            let told = issuance
                .on_request(&request, SignedDuration::ZERO)
                .unwrap_err();
            assert_eq!(
                told,
                format!("PodCertificateRequest req-1 is issued {lack}")
            );
            assert_eq!(issuance, asked());
        }
    }

    #[test]
    fn a_signer_in_the_past_makes_no_flood_of_requests() {
        let old = held(-7200, -3600);
        assert_eq!(old.step(at(0)), IssuanceStep::Ask);
        assert_eq!(old.step_after_issue(at(0)), IssuanceStep::Rest(MINUTE));
        assert_eq!(
            held(10, 7200).step_after_issue(at(0)),
            IssuanceStep::Rest(MINUTE)
        );
        assert_eq!(
            held(99_999, 999_999).step_after_issue(at(0)),
            IssuanceStep::Rest(CHECK_INTERVAL)
        );
    }

    /// The states of upstream's TestPodCertificateCollector.
    #[test]
    fn a_certificate_grows_old_by_upstreams_words_and_each_is_told_once() {
        let issuance = held(7200, 10_800);
        let states = [
            (7800, "fresh"),
            (7801, "overdue_for_refresh"),
            (10_800, "overdue_for_refresh"),
            (10_801, "expired"),
        ];
        for (now, state) in states {
            assert_eq!(issuance.state(at(now)), state, "{now}");
        }
        assert_eq!(asked().state(at(0)), "not_yet_issued");
        let reasons = |now: CertificateAge, told| -> Vec<&str> {
            now.notices(told)
                .iter()
                .map(|notice| notice.reason)
                .collect()
        };
        let (overdue, expired) = ("CertificateOverdueForRefresh", "CertificateExpired");
        assert_eq!(
            reasons(CertificateAge::Overdue, CertificateAge::Fresh),
            [overdue]
        );
        assert_eq!(
            reasons(CertificateAge::Expired, CertificateAge::Fresh),
            [overdue, expired]
        );
        assert_eq!(
            reasons(CertificateAge::Expired, CertificateAge::Overdue),
            [expired]
        );
        assert_eq!(
            reasons(CertificateAge::Expired, CertificateAge::Expired),
            [""; 0]
        );
        assert_eq!(
            reasons(CertificateAge::Fresh, CertificateAge::Expired),
            [""; 0]
        );
    }

    #[test]
    fn what_is_not_issued_says_what_is_waited_for() {
        let missing = |issuance: Issuance| {
            let outcome = issuance.outcome(&wanted());
            let PodCertificate::NotYet { missing } = outcome else {
                panic!("{outcome:?}");
            };
            missing
        };
        assert_eq!(
            missing(asked()),
            "PodCertificateRequest apps/req-1 is not answered"
        );
        assert_eq!(
            missing(Issuance::default()),
            "there is no PodCertificateRequest of pod apps/p for signer \"a.io/b\""
        );
    }

    #[test]
    fn no_key_is_shown() {
        for issuance in [asked(), held(7200, 10_800)] {
            let shown = format!("{issuance:?}");
            let numbers = format!("{:?}", KEY.as_bytes());
            assert!(!shown.contains(KEY) && !shown.contains(&numbers), "{shown}");
        }
    }
}
