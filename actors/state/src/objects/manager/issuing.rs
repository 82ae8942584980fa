//! Pods' certificates: generates a key, requests a certificate for it, waits for the signer, and renews it in time.
//!
//! Upstream: pkg/kubelet/podcertificate/podcertificatemanager.go (1.36). Unlike there, a restarted agent uses the
//! keys that the checkpoint sealed, so that no request is made twice.

use std::time::Duration;

use api_client::ApiError;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;
use kernel::Context;
use logic_api::objects::{
    CertificateAge, CertificateEvent, FetchOutcome, IssuanceStep, IssuanceVerdict, ObjectRequest,
    PodCertificateSpec,
};

use super::entry::{ObjectEntry, ResponseState};
use super::fetch_request::{FetchRequest, FetchStream, ResponseContent, fetched, spread};
use super::keys::{self, KeyGenerationError};
use super::progress::RequestState;
use super::requests::{self, CertificateOrder};
use super::{Msg, ObjectManager};
use crate::events::{EventType, InvolvedObject};

/// Upstream's `jitterDuration`, in milliseconds.
const JITTER: f64 = 5.0 * 60.0 * 1000.0;
/// How often is checked whether a certificate has grown old while the next is awaited.
const LOOK: Duration = Duration::from_secs(60);
/// The wait after a key could not be made.
const AGAIN: Duration = Duration::from_secs(60);

impl ObjectEntry {
    /// Takes in the request as the API server has it, or that it has none; returns whether anything changed.
    pub(super) fn hear_request(
        &mut self,
        seen: Option<&PodCertificateRequest>,
    ) -> (FetchOutcome, bool) {
        let course = &mut self.course;
        let Some(request) = seen else {
            course.request = RequestState::Unmade;
            return (FetchOutcome::Absent, false);
        };
        let mut issuance = course.issuance();
        let own = issuance.asked.as_ref().map(|asked| &asked.request);
        if own != Some(&request.spec.stub_pkc_s10_request.0) {
            issuance.asked = None;
            course.keep(issuance);
            return (FetchOutcome::Absent, true);
        }
        course.request = RequestState::Made;
        match issuance.on_request(request, jitter()) {
            Ok(IssuanceVerdict::Pending) => (FetchOutcome::Pending, false),
            Ok(IssuanceVerdict::Issued | IssuanceVerdict::Refused) => {
                let place = format!(
                    "{}/{}",
                    request.metadata.namespace.as_deref().unwrap_or_default(),
                    request.metadata.name.as_deref().unwrap_or_default()
                );
                let refused = issuance.refused.as_ref();
                course
                    .notices
                    .extend(refused.map(|refused| refused.notice(&place)));
                course.told = CertificateAge::Fresh;
                course.keep(issuance);
                (FetchOutcome::Found, true)
            }
            Err(nonsense) => {
                self.trouble = Some(nonsense);
                (FetchOutcome::Failed, false)
            }
        }
    }
}

impl ObjectManager {
    /// Whether there is nothing to request now; where there is, its key is ready.
    pub(super) fn certificate_rests(
        &mut self,
        wanted: &ObjectRequest,
        own: &PodCertificateSpec,
        ctx: &mut Context<Msg>,
    ) -> bool {
        let now = now(ctx);
        let Some(entry) = self.entries.get_mut(wanted) else {
            return false;
        };
        entry.course.grow_old(now);
        if entry.course.is_held() {
            entry.answer = ResponseState::Given;
        }
        let wait = match entry.course.step(now) {
            IssuanceStep::Await => return false,
            IssuanceStep::Rest(wait) => Some(wait),
            IssuanceStep::Over => None,
            IssuanceStep::Ask => match keys::draw(&own.key_type) {
                Ok(asked) => {
                    let mut issuance = entry.course.issuance();
                    issuance.asked = Some(asked);
                    entry.course.keep(issuance);
                    self.announce(wanted, own, ctx);
                    self.publish_soon(ctx);
                    return false;
                }
                Err(error) => entry.lacks_key(&error),
            },
        };
        self.announce(wanted, own, ctx);
        self.rest(wanted, wait, ctx);
        true
    }

    /// How the request is looked up or made: after a start it is not known whether the API server has it.
    pub(super) fn certificate_way(
        &self,
        wanted: &ObjectRequest,
        own: &PodCertificateSpec,
    ) -> FetchRequest {
        let api = self.peers.api.clone();
        let course = self.entries.get(wanted).map(|entry| &entry.course);
        let asked = course.and_then(|course| course.issuance.as_ref()?.asked.clone());
        let Some(asked) = asked else {
            let message = "nothing is asked for".to_owned();
            return fetched(async { Err(ApiError::Nonsense { message }) });
        };
        let node_name = self.node_name.clone();
        if course.is_some_and(|course| course.request == RequestState::Made) {
            return FetchRequest::Follow(requests::follow(api, own, (&asked.name, &node_name)));
        }
        let order = CertificateOrder {
            wanted: own.clone(),
            asked,
            node_name,
            node_uid: self.node_uid.clone(),
        };
        let made = requests::submit(api, order);
        fetched(async { Ok(ResponseContent::Request(Some(Box::new(made.await?)))) })
    }

    /// Goes on with the watch, schedules the next request, or rests.
    pub(super) fn certificate_goes_on(
        &mut self,
        wanted: &ObjectRequest,
        (outcome, times): (FetchOutcome, u32),
        rest: Option<FetchStream>,
        ctx: &mut Context<Msg>,
    ) {
        let ObjectRequest::Certificate(own) = wanted else {
            return;
        };
        let now = now(ctx);
        let wait = self.cadence.wait(wanted, outcome, times).unwrap_or(AGAIN);
        let Some(entry) = self.entries.get_mut(wanted) else {
            return;
        };
        entry.course.grow_old(now);
        let step = match &entry.course.issuance {
            Some(issuance) if outcome == FetchOutcome::Found => issuance.step_after_issue(now),
            Some(_) | None => IssuanceStep::Await,
        };
        self.announce(wanted, own, ctx);
        match (step, outcome, rest) {
            (IssuanceStep::Rest(wait), _, _) => self.rest(wanted, Some(wait), ctx),
            (IssuanceStep::Over, _, _) => self.rest(wanted, None, ctx),
            (IssuanceStep::Ask | IssuanceStep::Await, FetchOutcome::Pending, None) => {
                self.ask(wanted, ctx)
            }
            (
                IssuanceStep::Ask | IssuanceStep::Await,
                FetchOutcome::Pending | FetchOutcome::Failed,
                Some(rest),
            ) => {
                self.listen(wanted, rest, ctx);
                self.look_later(wanted, ctx);
            }
            (IssuanceStep::Ask | IssuanceStep::Await, _, _) => {
                self.ask_after(wanted, wait + spread(wait), ctx)
            }
        }
    }

    /// Checks how old a certificate is while the next is awaited.
    pub(super) fn look_at_certificate(&mut self, wanted: &ObjectRequest, ctx: &mut Context<Msg>) {
        let now = now(ctx);
        let (Some(entry), ObjectRequest::Certificate(own)) = (self.entries.get_mut(wanted), wanted)
        else {
            return;
        };
        entry.course.grow_old(now);
        self.announce(wanted, own, ctx);
        self.count_certificates(ctx);
        self.look_later(wanted, ctx);
    }

    fn look_later(&mut self, wanted: &ObjectRequest, ctx: &mut Context<Msg>) {
        if self
            .entries
            .get(wanted)
            .is_some_and(|entry| entry.course.is_held())
        {
            self.ask_after(wanted, LOOK, ctx);
        }
    }

    /// Records the pod's events that are not recorded yet.
    fn announce(&mut self, wanted: &ObjectRequest, own: &PodCertificateSpec, ctx: &Context<Msg>) {
        let Some(entry) = self.entries.get_mut(wanted) else {
            return;
        };
        let notices = std::mem::take(&mut entry.course.notices);
        let Some(recorder) = &self.peers.recorder else {
            return;
        };
        for notice in notices {
            let pod = InvolvedObject {
                kind: "Pod".to_owned(),
                namespace: own.namespace.clone(),
                name: own.pod_name.clone(),
                uid: own.pod_uid.clone(),
                ..InvolvedObject::default()
            };
            recorder.record(
                now(ctx),
                EventType::Warning,
                pod,
                notice.reason,
                notice.message,
            );
        }
    }

    /// Sets the metrics: certificates of each signer, by state.
    pub(super) fn count_certificates(&self, ctx: &Context<Msg>) {
        let now = now(ctx);
        let states = self.entries.iter().filter_map(|(wanted, entry)| {
            let ObjectRequest::Certificate(own) = wanted else {
                return None;
            };
            let issuance = entry.course.issuance.as_ref();
            let state = issuance.map_or("not_yet_issued", |issuance| issuance.state(now));
            Some((own.signer_name.as_str(), state))
        });
        metrics::api::certificates::of_pods(states);
    }
}

impl ObjectEntry {
    /// How long until a key is tried again; none where another attempt is no use.
    fn lacks_key(&mut self, error: &KeyGenerationError) -> Option<Duration> {
        let text = error.to_string();
        tracing::warn!("no key for a pod's certificate: {error:?}");
        let is_new = self.trouble.as_ref() != Some(&text);
        self.answer = ResponseState::Given;
        self.trouble = Some(text.clone());
        if is_new {
            self.course.notices.push(CertificateEvent {
                reason: "UnsupportedKeyType",
                message: format!("cannot ask for a certificate of the pod: {text}"),
            });
        }
        if error.transient() {
            return Some(AGAIN);
        }
        self.course.request = RequestState::Impossible;
        None
    }
}

fn now(ctx: &Context<Msg>) -> Timestamp {
    ctx.timestamp()
}

#[allow(clippy::cast_possible_truncation, reason = "at most five minutes")]
fn jitter() -> SignedDuration {
    SignedDuration::from_millis((kernel::chance() * JITTER) as i64)
}
