//! Events on their way to the API: one after the other, as upstream's recorder sends them.
//!
//! Mirrors client-go's tools/record/event.go (`recordToSink`, `recordEvent`) at v1.36: its numbers, its choice of
//! what is tried again.

use std::collections::VecDeque;
use std::time::Duration;

use api_client::{ApiClient, ApiError, RequestLane};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kernel::Context;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use logic_api::events::EventSeries;
use serde_json::json;

use super::{Event, Msg};

/// Events that wait; a newer one finds no room then.
const WAITING: usize = 1000;
/// The most attempts to post one event.
const TRIES: u32 = 12;
const BETWEEN_TRIES: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait that a busy server can ask for.
const BUSY_AT_MOST: Duration = Duration::from_secs(60);
/// The reporting component: the same as the kubelet's, because Oxlet is a drop-in.
const COMPONENT: &str = "kubelet";

/// The client for events, and the node that reports them.
#[derive(Clone)]
pub struct EventSink {
    kube: kube::Client,
    node: String,
}

impl EventSink {
    pub fn new(client: &ApiClient, node: impl Into<String>) -> Self {
        EventSink {
            kube: client.kube(RequestLane::Events),
            node: node.into(),
        }
    }

    #[cfg(test)]
    pub(super) fn over(kube: kube::Client, node: &str) -> Self {
        EventSink {
            kube,
            node: node.to_owned(),
        }
    }

    /// The event as the API keeps it.
    fn object(&self, event: &Event, line: EventSeries) -> core::Event {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let about = &event.object;
        let namespace = some(&about.namespace).unwrap_or_else(|| "default".to_owned());
        core::Event {
            metadata: ObjectMeta {
                name: Some(line.name),
                namespace: Some(namespace),
                annotations: (!event.annotations.is_empty()).then(|| event.annotations.clone()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: matches!(about.kind.as_str(), "Pod" | "Node").then(|| "v1".to_owned()),
                kind: some(&about.kind),
                namespace: some(&about.namespace),
                name: some(&about.name),
                uid: some(&about.uid),
                field_path: some(&about.field_path),
                resource_version: None,
            },
            reason: Some(event.reason.clone()),
            message: Some(event.message.clone()),
            first_timestamp: Some(whole(line.first)),
            last_timestamp: Some(whole(event.last_seen)),
            count: Some(i32::try_from(line.count).unwrap_or(i32::MAX)),
            type_: Some(event.r#type.as_str().to_owned()),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: Some(self.node.clone()),
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(self.node.clone()),
            ..core::Event::default()
        }
    }
}

impl std::fmt::Debug for EventSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sending({})", self.node)
    }
}

/// The API keeps whole seconds.
fn whole(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// An event that waits to be posted.
#[derive(Debug)]
pub struct QueuedEvent {
    event: core::Event,
    tries: u32,
}

/// The outcome of an attempt to post an event.
#[derive(Debug)]
pub enum PostOutcome {
    /// The API has it, or refused it for good.
    Done,
    /// It is tried again after this time.
    Again {
        letter: Box<QueuedEvent>,
        after: Duration,
    },
}

/// Queued events in order; one is under way.
#[derive(Debug, Default)]
pub(super) struct PostQueue {
    sending: Option<EventSink>,
    waiting: VecDeque<QueuedEvent>,
    busy: bool,
    pub(super) refused: u64,
}

impl PostQueue {
    pub(super) fn new(sending: Option<EventSink>) -> Self {
        PostQueue {
            sending,
            ..PostQueue::default()
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.sending.is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn post(&mut self, event: &Event, line: EventSeries, ctx: &mut Context<Msg>) {
        let Some(sending) = &self.sending else { return };
        if self.waiting.len() >= WAITING {
            self.refused += 1;
            return;
        }
        let event = sending.object(event, line);
        self.waiting.push_back(QueuedEvent { event, tries: 0 });
        self.next(ctx);
    }

    pub(super) fn on_posted(&mut self, posting: PostOutcome, ctx: &mut Context<Msg>) {
        match posting {
            PostOutcome::Done => {
                self.busy = false;
                self.next(ctx);
            }
            // The later events wait too: their requests would fail as well.
            PostOutcome::Again { letter, after } => {
                ctx.after(after, Msg::Retry(letter));
            }
        }
    }

    pub(super) fn retry(&mut self, letter: QueuedEvent, ctx: &mut Context<Msg>) {
        self.waiting.push_front(letter);
        self.busy = false;
        self.next(ctx);
    }

    fn next(&mut self, ctx: &mut Context<Msg>) {
        let Some(sending) = &self.sending else { return };
        if self.busy {
            return;
        }
        if let Some(letter) = self.waiting.pop_front() {
            self.busy = true;
            let kube = sending.kube.clone();
            ctx.run(async move { Msg::Posted(letter.deliver(kube).await) });
        }
    }
}

impl QueuedEvent {
    async fn deliver(mut self, kube: kube::Client) -> PostOutcome {
        let namespace = self.event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<core::Event> = Api::namespaced(kube, &namespace);
        let Err(trouble) = self.attempt(&api).await else {
            return PostOutcome::Done;
        };
        self.tries += 1;
        let reason = self.event.reason.as_deref().unwrap_or_default();
        match self.pause(&trouble) {
            Some(after) if self.tries < TRIES => PostOutcome::Again {
                letter: Box::new(self),
                after,
            },
            // The namespace goes, and its events with it.
            _ if matches!(trouble, ApiError::NamespaceTerminating { .. }) => {
                tracing::debug!(reason, "event not told: {trouble}");
                PostOutcome::Done
            }
            _ => {
                tracing::warn!(reason, "event not told: {trouble}");
                PostOutcome::Done
            }
        }
    }

    async fn attempt(&self, api: &Api<core::Event>) -> Result<(), ApiError> {
        if self.event.count > Some(1) {
            match within(self.patch(api)).await {
                Err(ApiError::NotFound { .. }) => {}
                answer => return answer.map(drop),
            }
        }
        let params = PostParams::default();
        match within(api.create(&params, &self.event)).await {
            // An attempt whose answer was lost made it, or an earlier life told it.
            Err(ApiError::Exists { .. }) => within(self.patch(api)).await.map(drop),
            answer => answer.map(drop),
        }
    }

    async fn patch(&self, api: &Api<core::Event>) -> kube::Result<core::Event> {
        let name = self.event.metadata.name.as_deref().unwrap_or_default();
        let patch = json!({
            "count": self.event.count,
            "lastTimestamp": self.event.last_timestamp,
            "message": self.event.message,
        });
        api.patch(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
    }

    /// How long to wait before the next attempt; none if the server refused the event.
    fn pause(&self, trouble: &ApiError) -> Option<Duration> {
        match trouble {
            ApiError::Unreachable { .. } | ApiError::Nonsense { .. } if self.tries == 1 => {
                Some(self.first_pause())
            }
            ApiError::Unreachable { .. } | ApiError::Nonsense { .. } => Some(BETWEEN_TRIES),
            ApiError::Busy { after, .. } => Some(after.unwrap_or(BETWEEN_TRIES).min(BUSY_AT_MOST)),
            ApiError::NotFound { .. }
            | ApiError::Exists { .. }
            | ApiError::Conflict { .. }
            | ApiError::Gone { .. }
            | ApiError::Unauthorized { .. }
            | ApiError::Forbidden { .. }
            | ApiError::NamespaceTerminating { .. }
            | ApiError::Refused { .. } => None,
        }
    }

    /// Spread by the event's time, so that not all nodes come back in the same moment.
    fn first_pause(&self) -> Duration {
        let name = self.event.metadata.name.as_deref().unwrap_or_default();
        let mix = |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte));
        BETWEEN_TRIES / 1000 * (name.bytes().fold(0, mix) % 1000)
    }
}

async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ApiError::Unreachable {
            message: format!("no answer within {TIMEOUT:?}"),
        }),
    }
}
