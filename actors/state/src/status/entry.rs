//! One pod's status, and how much of it the API has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api_client::ApiError;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use logic_api::pod::{PodView, is_terminal};
use logic_api::types::PodUid;
use logic_pods::status::finish::closed;
use logic_pods::status::status_patch::{self, PatchUrgency};

use super::known_pods::is_newer;
use super::sync_request::SyncRequest;

/// The wait between the end of one correction and the next: another writer may insist. Upstream's `syncPeriod`.
const CORRECTED_EVERY: Duration = Duration::from_secs(10);
/// The wait after the first refusal; doubled with each further one.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// The longest wait after a refusal: a policy that refused the status may have been changed.
const REFUSED_AT_MOST: Duration = Duration::from_secs(300);

/// How long an update that is not urgent waits for more.
const SETTLED_AFTER: Duration = Duration::from_millis(100);
/// How long the ended containers of a pod that is being deleted wait for its last status: networks and volumes of fifty
/// pods at once are gone within a second of their containers.
const CLOSED_AFTER: Duration = Duration::from_secs(2);

/// Whether a worker still has the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PodOwnership {
    #[default]
    Worker,
    /// None: nothing of the pod is left on the node.
    Over,
    /// None, and the pod was deleted in the API.
    Deleted,
}

/// Whether a status says something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusNews {
    Changed,
    Unchanged,
}

#[derive(Debug, Default)]
pub(super) struct StatusEntry {
    /// None if the worker ended before it reported a status.
    pub(super) status: Option<Arc<PodStatus>>,
    pub(super) life: PodOwnership,
    pub(super) flying: bool,
    /// No attempt is made before this time.
    pub(super) not_before: Option<Instant>,
    version: u64,
    /// The version that the API has, and the UID of the object that shows it.
    sent: Option<(PodUid, u64)>,
    /// When the first change was reported that the API has not.
    since: Option<Instant>,
    /// The object as the API returned it last; none once the watch has shown it.
    answer: Option<Arc<Pod>>,
    answered: Option<Instant>,
    refusals: u32,
}

impl StatusEntry {
    /// Takes a newer status. An equal one is no change.
    pub(super) fn set_status(&mut self, status: Arc<PodStatus>, now: Instant) -> StatusNews {
        let old = self.status.replace(status.clone());
        if old.is_some_and(|old| status_patch::equal(&old, &status)) {
            return StatusNews::Unchanged;
        }
        self.version += 1;
        self.since.get_or_insert(now);
        self.not_before = None;
        StatusNews::Changed
    }

    /// Ends what the API shows as running of a pod that is over: its worker may have died with the agent.
    pub(super) fn close(&mut self, pod: &Arc<Pod>, now: Instant) {
        let pod = self.freshest(pod);
        if self.life != PodOwnership::Over || pod.metadata.deletion_timestamp.is_none() {
            return;
        }
        let known = self.status.as_deref().or(pod.status.as_ref());
        let none = PodStatus::default();
        let known = known.unwrap_or(&none);
        if !is_terminal(known) {
            let closed = Arc::new(closed(pod, known));
            self.set_status(closed, now);
        }
    }

    /// What the object needs, and how urgently; none if nothing.
    pub(super) fn need(&self, pod: &Arc<Pod>) -> Option<PatchUrgency> {
        let pod = self.freshest(pod);
        if self.flying || self.life == PodOwnership::Deleted {
            return None;
        }
        match &self.status {
            Some(ours) if self.is_unsent(pod) => Some(status_patch::urgency(pod, ours)),
            _ if self.life == PodOwnership::Over && status_patch::may_be_deleted(pod) => {
                Some(PatchUrgency::Ending)
            }
            _ => None,
        }
    }

    /// Whether the API lacks the newest status.
    pub(super) fn has_news(&self) -> bool {
        self.since.is_some()
    }

    /// When an update of this urgency may be sent, apart from the waits after failures.
    pub(super) fn settles_at(
        &self,
        urgency: PatchUrgency,
        pod: &Arc<Pod>,
        has_spare_rate: bool,
    ) -> Option<Instant> {
        let is_first = !status_patch::is_acknowledged(self.freshest(pod));
        match urgency {
            // Who made the pod waits for the first sign of the node; of many pods at once, for the last one's start.
            PatchUrgency::Cosmetics if is_first && has_spare_rate => None,
            PatchUrgency::Cosmetics => Some(self.since? + SETTLED_AFTER),
            PatchUrgency::Closing => Some(self.since? + CLOSED_AFTER),
            PatchUrgency::Readiness | PatchUrgency::Ending => None,
        }
    }

    pub(super) fn is_unsent(&self, pod: &Pod) -> bool {
        let sent = self.sent.as_ref().filter(|(to, _)| *to == pod.uid());
        self.status.is_some() && sent.is_none_or(|(_, version)| *version < self.version)
    }

    pub(super) fn sync_request(&self, uid: &PodUid, pod: &Arc<Pod>) -> SyncRequest {
        SyncRequest {
            uid: uid.clone(),
            version: self.version,
            pod: self.freshest(pod).clone(),
            ours: self.status.clone(),
            life: self.life,
        }
    }

    /// The watch shows another state of the object: if another writer changed our fields, ours are sent again.
    pub(super) fn set_pod(&mut self, uid: &PodUid, pod: &Arc<Pod>) {
        if !std::ptr::eq(self.freshest(pod), pod) {
            return;
        }
        let echo = self.answer.take().is_some_and(|answer| {
            answer.metadata.resource_version == pod.metadata.resource_version
        });
        let same = || self.sync_request(uid, pod).patch().is_none();
        if echo || self.flying || self.is_unsent(pod) || same() {
            return;
        }
        self.sent = None;
        self.not_before = self.answered.map(|at| at + CORRECTED_EVERY);
    }

    /// The API has this version; the answer is the object after the write. Returns how long the update took.
    pub(super) fn on_synced(
        &mut self,
        sync_request: &SyncRequest,
        wrote: Option<Arc<Pod>>,
        now: Instant,
    ) -> Option<Duration> {
        self.sent = Some((sync_request.pod.uid(), sync_request.version));
        self.refusals = 0;
        if wrote.is_some() {
            self.answered = Some(now);
            self.answer = wrote;
        }
        match self.version == sync_request.version {
            true => self.since.take().map(|since| now.duration_since(since)),
            false => None,
        }
    }

    /// Sets the wait of this pod where the failure is, or may be, its own.
    pub(super) fn fail(&mut self, trouble: &ApiError, now: Instant) {
        let pause = match trouble {
            // The failure holds back all pods, so it is not this one's.
            ApiError::Unreachable { .. }
            | ApiError::Unauthorized { .. }
            | ApiError::Busy { .. } => {
                return;
            }
            trouble if trouble.is_from_proxy() => return,
            trouble if trouble.transient() => REFUSED_FOR,
            ApiError::NotFound { .. }
            | ApiError::Exists { .. }
            | ApiError::Conflict { .. }
            | ApiError::Gone { .. }
            | ApiError::Forbidden { .. }
            | ApiError::NamespaceTerminating { .. }
            | ApiError::Refused { .. }
            | ApiError::Nonsense { .. } => {
                self.refusals += 1;
                REFUSED_FOR * 2_u32.pow(self.refusals.min(8) - 1)
            }
        };
        self.not_before = Some(now + pause.min(REFUSED_AT_MOST));
    }

    /// The object is gone; another one of its name may come.
    pub(super) fn lose(&mut self) {
        self.answer = None;
        self.sent = None;
        self.since = None;
        self.not_before = None;
    }

    fn freshest<'a>(&'a self, pod: &'a Arc<Pod>) -> &'a Arc<Pod> {
        let answer = self
            .answer
            .as_ref()
            .filter(|answer| answer.metadata.uid == pod.metadata.uid && is_newer(answer, pod));
        answer.unwrap_or(pod)
    }
}
