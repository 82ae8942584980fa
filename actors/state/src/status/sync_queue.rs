//! The order of requests: readiness before other changes, the newest first, a few at a time, one a pod.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use api_client::{ApiClient, ApiError, RequestLane};
use kernel::{Context, Recipient, TimerId};
use logic_api::types::PodUid;
use logic_pods::status::status_patch::PatchUrgency;

use super::sync_request::{SyncOutcome, SyncReport, SyncRequest};
use super::{Msg, PodResync};

/// Requests at once: enough to hide a round trip, few enough to leave room in the rate limit.
const AT_ONCE: usize = 8;
/// The wait after the first request without an answer; doubled with each further one.
const AWAY_FOR: Duration = Duration::from_millis(200);
/// The longest such wait, as upstream's `syncPeriod`.
const AWAY_AT_MOST: Duration = Duration::from_secs(10);
/// The longest wait that a busy server can ask for.
const BUSY_AT_MOST: Duration = Duration::from_secs(60);
const BUSY_FOR: Duration = Duration::from_secs(1);

/// The client for pods' statuses.
#[derive(Clone)]
pub struct StatusClient {
    client: ApiClient,
    /// Has the API's pods sent again.
    pods: Recipient<PodResync>,
}

impl StatusClient {
    pub fn new(client: &ApiClient, pods: Recipient<PodResync>) -> Self {
        StatusClient {
            client: client.clone(),
            pods,
        }
    }

    /// Whether a request that need not be sent now may be.
    pub(super) fn has_spare_rate(&self) -> bool {
        self.client.has_spare_rate()
    }

    pub(super) fn ask_for_pods(&self) {
        if let Err(full) = self.pods.tell(PodResync) {
            tracing::warn!("the API's pods come back as they change: {full}");
        }
    }

    pub(super) fn send(&self, sync_request: SyncRequest, ctx: &mut Context<Msg>) {
        let kube = self.client.kube(RequestLane::Work);
        ctx.run(async move { Msg::Came(Box::new(sync_request.run(kube).await)) });
    }
}

impl std::fmt::Debug for StatusClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sending")
    }
}

type QueuedSync = (PatchUrgency, Reverse<u64>, PodUid);

/// Pods that wait for a request, and how many requests are under way.
#[derive(Debug, Default)]
pub(super) struct SyncQueue {
    turns: BTreeSet<QueuedSync>,
    next: u64,
    pub(super) flying: usize,
    /// No request is sent before this time: the server is away or busy.
    held: Option<Instant>,
    /// Requests without an answer, in a row.
    unanswered: u32,
    alarm: Option<(Instant, TimerId)>,
}

impl SyncQueue {
    pub(super) fn join(&mut self, uid: &PodUid, urgency: PatchUrgency) {
        self.leave(uid);
        self.next += 1;
        self.turns
            .insert((urgency, Reverse(self.next), uid.clone()));
    }

    pub(super) fn leave(&mut self, uid: &PodUid) {
        self.turns.retain(|(_, _, other)| other != uid);
    }

    /// Takes out the next pod.
    pub(super) fn call(&mut self, ctx: &mut Context<Msg>) -> Option<PodUid> {
        let now = ctx.now();
        if let Some(until) = self.held.filter(|until| now < *until) {
            self.wake(until, ctx);
            return None;
        }
        match self.flying < AT_ONCE {
            true => self.turns.pop_first().map(|(_, _, uid)| uid),
            false => None,
        }
    }

    /// Takes note of whether the server answers.
    pub(super) fn learn(&mut self, report: &SyncReport, now: Instant) {
        match &report.result {
            // Perhaps no request was sent.
            Ok(SyncOutcome::Told(None)) => {}
            Err(ApiError::Busy { after, .. }) => {
                let pause = after.unwrap_or(BUSY_FOR).clamp(BUSY_FOR, BUSY_AT_MOST);
                self.held = Some(now + pause);
            }
            Err(trouble) if trouble.is_from_proxy() => self.miss(now),
            // The server answered, if only that it failed: the failure may be this pod's own and holds back no other.
            Err(ApiError::Refused { code: 1.., .. } | ApiError::Nonsense { .. }) => {
                self.unanswered = 0;
            }
            Err(trouble) if trouble.transient() => self.miss(now),
            Ok(_) | Err(_) => self.unanswered = 0,
        }
    }

    /// Requests that were under way together count once.
    fn miss(&mut self, now: Instant) {
        if self.held.is_none_or(|until| until <= now) {
            let pause = AWAY_FOR * 2_u32.pow(self.unanswered.min(8));
            self.unanswered += 1;
            self.held = Some(now + pause.min(AWAY_AT_MOST));
        }
    }

    /// The server has answered: the wait is over.
    pub(super) fn resume(&mut self) {
        if self.unanswered > 0 {
            (self.unanswered, self.held) = (0, None);
        }
    }

    /// Schedules a tick at this time at the latest.
    pub(super) fn wake(&mut self, at: Instant, ctx: &mut Context<Msg>) {
        match self.alarm.take() {
            Some((earlier, timer)) if earlier <= at => self.alarm = Some((earlier, timer)),
            other => {
                if let Some((_, timer)) = other {
                    ctx.cancel(timer);
                }
                let timer = ctx.after(at.saturating_duration_since(ctx.now()), Msg::Tick);
                self.alarm = Some((at, timer));
            }
        }
    }

    pub(super) fn woken(&mut self) {
        self.alarm = None;
    }

    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }
}
