//! What is known of one thing that is wanted.

use std::collections::BTreeMap;

use kernel::{Context, TaskId, TimerId};
use logic_api::objects::{
    ApiObject, BoundPod, FetchOutcome, ObjectRequest, Objects, StaticObjects, StaticToken, outcome,
};

use super::Msg;
use super::issuing::CertificateProgress;
use crate::client::{ApiError, ObjectEvent};

/// Whether the API server has spoken of it since it was wanted, or since somebody came who must not have an old answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ResponseState {
    #[default]
    Never,
    Given,
}

type CachedObjectKey = (String, String);

/// One thing that is wanted.
#[derive(Debug, Default)]
pub(super) struct ObjectEntry {
    pub(super) objects: BTreeMap<CachedObjectKey, ApiObject>,
    pub(super) token: Option<StaticToken>,
    /// Of a certificate.
    pub(super) course: CertificateProgress,
    pub(super) answer: ResponseState,
    /// What is under way, and which.
    pub(super) asking: Option<TaskId>,
    pub(super) generation: u64,
    /// What is under way may be too old for somebody who came meanwhile.
    pub(super) again: bool,
    pub(super) timer: Option<TimerId>,
    /// Why there is no good answer, in the server's words where it has said any.
    pub(super) trouble: Option<String>,
    pub(super) last: Option<FetchOutcome>,
    /// How often in a row the same came of it.
    pub(super) times: u32,
}

impl ObjectEntry {
    /// Takes what an earlier life left.
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
                token,
            });
        }
    }

    /// Whether what it holds now is another thing than before.
    pub(super) fn take(&mut self, event: ObjectEvent<ApiObject>) -> bool {
        match event {
            ObjectEvent::Listed(objects) => {
                let mut before = std::mem::take(&mut self.objects);
                let mut differs = before.len() != objects.len();
                for object in objects {
                    let key = object.key();
                    // What did not change is the very same object.
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

    /// Takes note of how it went, and answers how often it went so before.
    pub(super) fn went(&mut self, outcome: FetchOutcome) -> u32 {
        self.times = match self.last == Some(outcome) {
            true => self.times.saturating_add(1),
            false => 0,
        };
        self.last = Some(outcome);
        self.times
    }

    /// How it went, by what it holds.
    pub(super) fn outcome(&self) -> FetchOutcome {
        outcome(self.objects.values().next())
    }

    pub(super) fn is_immutable(&self) -> bool {
        let mut objects = self.objects.values();
        objects.next().is_some_and(ApiObject::is_immutable)
    }

    /// Whether it can be nothing else for who comes now.
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

    /// Keeps why there is no answer, or none that helps, and tells which of the two.
    pub(super) fn troubled(&mut self, trouble: &ApiError) -> FetchOutcome {
        self.trouble = Some(trouble.to_string());
        match trouble {
            ApiError::NotFound { .. } | ApiError::Forbidden { .. } => FetchOutcome::Refused,
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

    pub(super) fn end(self, ctx: &mut Context<Msg>) {
        if let Some(task) = self.asking {
            ctx.abort(task);
        }
        if let Some(timer) = self.timer {
            ctx.cancel(timer);
        }
    }
}
