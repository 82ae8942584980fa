//! The state of one requested object.

use std::collections::BTreeMap;
use std::time::Instant;

use api_client::{ApiError, ObjectEvent};
use kernel::{Context, TaskId, TimerId};
use logic_api::objects::{
    ApiObject, BoundPod, FetchOutcome, ObjectRequest, Objects, StaticObjects, StaticToken, outcome,
};

use super::Msg;
use super::fetching::FetchMode;
use super::progress::CertificateProgress;

/// Whether the API server has answered since the object was requested, or since a pod came that needs a new answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ResponseState {
    #[default]
    Never,
    Given,
}

type CachedObjectKey = (String, String);

/// One requested object.
#[derive(Debug, Default)]
pub(super) struct ObjectEntry {
    pub(super) objects: BTreeMap<CachedObjectKey, ApiObject>,
    pub(super) token: Option<StaticToken>,
    /// Progress of a certificate.
    pub(super) course: CertificateProgress,
    pub(super) answer: ResponseState,
    /// The task under way.
    pub(super) asking: Option<TaskId>,
    pub(super) generation: u64,
    /// How it was requested last.
    pub(super) mode: FetchMode,
    /// The task under way may answer too early for a pod that came meanwhile: ask again after it.
    pub(super) again: bool,
    pub(super) timer: Option<TimerId>,
    /// Why there is no answer that helps, in the server's words where it gave any.
    pub(super) trouble: Option<String>,
    pub(super) last: Option<FetchOutcome>,
    /// How often in a row the outcome was the same.
    pub(super) times: u32,
    /// Until when a refusal may be one that the API server takes back at once: a pod that needs the object came a moment
    /// ago.
    pub(super) lag_until: Option<Instant>,
    /// Only pods need it that the API has removed: it stays as it is, and nothing is requested.
    pub(super) is_frozen: bool,
}

impl ObjectEntry {
    /// Takes what the checkpoint holds.
    pub(super) fn adopt(&mut self, wanted: &ObjectRequest, remembered: &StaticObjects) {
        let found = remembered.at_hand(wanted).into_iter();
        self.objects = found.map(|object| (object.key(), object)).collect();
        if let ObjectRequest::Certificate(wanted) = wanted {
            self.course.issuance = remembered.issuances.get(wanted).cloned();
        }
        if let ObjectRequest::Token(wanted) = wanted {
            self.token = remembered.token(wanted).map(|token| StaticToken {
                audiences: wanted.audiences.clone(),
                bound_to: Some(BoundPod {
                    name: wanted.pod_name.clone(),
                    uid: wanted.pod_uid.clone(),
                }),
                asked: Some(wanted.expiration_seconds),
                token,
            });
        }
    }

    /// Applies an event; returns whether the object changed.
    pub(super) fn take(&mut self, event: ObjectEvent<ApiObject>) -> bool {
        match event {
            ObjectEvent::Listed(objects) => {
                let mut before = std::mem::take(&mut self.objects);
                let mut differs = before.len() != objects.len();
                for object in objects {
                    let key = object.key();
                    // An unchanged object stays the same `Arc`.
                    let kept = before.remove(&key).filter(|old| *old == object);
                    differs |= kept.is_none();
                    self.objects.insert(key, kept.unwrap_or(object));
                }
                differs
            }
            ObjectEvent::Applied(object) => {
                let differs = self.objects.get(&object.key()) != Some(&object);
                if differs {
                    self.objects.insert(object.key(), object);
                }
                differs
            }
            ObjectEvent::Deleted(object) => self.objects.remove(&object.key()).is_some(),
        }
    }

    /// Records the outcome; returns how often in a row it was the same before.
    pub(super) fn went(&mut self, outcome: FetchOutcome) -> u32 {
        self.times = match self.last == Some(outcome) {
            true => self.times.saturating_add(1),
            false => 0,
        };
        self.last = Some(outcome);
        self.times
    }

    /// The outcome, by what the entry holds.
    pub(super) fn outcome(&self) -> FetchOutcome {
        outcome(self.objects.values().next())
    }

    pub(super) fn is_immutable(&self) -> bool {
        let mut objects = self.objects.values();
        objects.next().is_some_and(ApiObject::is_immutable)
    }

    /// Whether a pod that comes now can use it as it is.
    pub(super) fn is_good_for_newcomers(&self, wanted: &ObjectRequest, is_followed: bool) -> bool {
        match wanted {
            ObjectRequest::Services(_)
            | ObjectRequest::CsiDrivers
            | ObjectRequest::TrustBundles
            | ObjectRequest::Token(_)
            | ObjectRequest::Certificate(_) => true,
            ObjectRequest::ConfigMap(_)
            | ObjectRequest::Secret(_)
            | ObjectRequest::Claim(_)
            | ObjectRequest::PersistentVolume(_)
            | ObjectRequest::VolumeAttachment(_)
            | ObjectRequest::RuntimeClass(_)
            | ObjectRequest::Service(_) => {
                self.answer == ResponseState::Given
                    && !self.objects.is_empty()
                    && (is_followed || self.is_immutable())
            }
        }
    }

    /// Records the error, and returns its outcome.
    pub(super) fn troubled(&mut self, trouble: &ApiError, now: Instant) -> FetchOutcome {
        let is_early = self.lag_until.is_some_and(|until| now < until);
        if is_early && self.objects.is_empty() && self.token.is_none() && is_lag(trouble) {
            return FetchOutcome::Lagging;
        }
        self.trouble = Some(trouble.to_string());
        match trouble {
            ApiError::NotFound { .. }
            | ApiError::Forbidden { .. }
            | ApiError::NamespaceTerminating { .. } => FetchOutcome::Refused,
            ApiError::Refused { .. } if !trouble.transient() => FetchOutcome::Refused,
            ApiError::Refused { .. }
            | ApiError::Exists { .. }
            | ApiError::Conflict { .. }
            | ApiError::Gone { .. }
            | ApiError::Unauthorized { .. }
            | ApiError::Busy { .. }
            | ApiError::Unreachable { .. }
            | ApiError::Nonsense { .. } => FetchOutcome::Failed,
        }
    }

    pub(super) fn end(mut self, ctx: &mut Context<Msg>) {
        self.stop(ctx);
    }

    /// Ends the request under way, and makes no more.
    pub(super) fn freeze(&mut self, ctx: &mut Context<Msg>) {
        if !std::mem::replace(&mut self.is_frozen, true) {
            self.stop(ctx);
            // An answer that is on its way already is of no request.
            self.generation = 0;
        }
    }

    /// Returns whether it was frozen; what it holds may be old then.
    pub(super) fn thaw(&mut self) -> bool {
        let was_frozen = std::mem::take(&mut self.is_frozen);
        if was_frozen {
            self.answer = ResponseState::Never;
        }
        was_frozen
    }

    fn stop(&mut self, ctx: &mut Context<Msg>) {
        if let Some(task) = self.asking.take() {
            ctx.abort(task);
        }
        if let Some(timer) = self.timer.take() {
            ctx.cancel(timer);
        }
    }
}

/// Whether the API server may only not have seen yet that a pod is this node's: its authorizer and its admission of
/// nodes' requests follow pods by watches of their own.
///
/// Upstream: plugin/pkg/auth/authorizer/node/node_authorizer.go, plugin/pkg/admission/noderestriction/admission.go (1.36).
fn is_lag(trouble: &ApiError) -> bool {
    const TEXTS: [&str; 3] = [
        "no relationship found between node",
        "node requested token bound to a pod scheduled on a different node",
        "does not match the UID in record",
    ];
    match trouble {
        ApiError::Forbidden { message } | ApiError::Conflict { message } => {
            TEXTS.iter().any(|text| message.contains(text))
        }
        ApiError::NotFound { message } => message.starts_with("pods \""),
        ApiError::Exists { .. }
        | ApiError::Gone { .. }
        | ApiError::Unauthorized { .. }
        | ApiError::NamespaceTerminating { .. }
        | ApiError::Busy { .. }
        | ApiError::Refused { .. }
        | ApiError::Unreachable { .. }
        | ApiError::Nonsense { .. } => false,
    }
}
