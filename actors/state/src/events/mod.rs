//! Events for the operator: the last ones of this node, in a bounded ring.
//!
//! - **Owns** the newest [`RING`] events, equal ones counted instead of repeated.
//! - **Hears** `Record` from every actor that has something to tell a person.
//! - **Tells** the followers (`oxctl events -f`), which lose events if they lag, and the API server.
//! - **Never** waits for a receiver, and never grows: the oldest event goes first.
//!
//! A node without an API server keeps its events here all the same.
//!
//! Reasons and wording are upstream's: pkg/kubelet/events/event.go (1.36).

mod posting;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kernel::{Actor, Addr, Context, Exit, Reply};
use logic_api::events::{CorrelateResult, Correlator, PostedEvents};
use logic_api::pod::PodView;
use logic_api::types::{ContainerKind, EventLevel};
use logic_pods::probes::messages;
use posting::PostQueue;
pub use posting::{EventSink, PostOutcome, QueuedEvent};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

/// Events kept: a few hours of a busy node, under 300 KiB.
const RING: usize = 1024;
/// Bytes of a message that are kept: many have texts of pods in them, and a command of a hook may have a megabyte.
const MAX_MESSAGE_BYTES: usize = 8 << 10;
/// Events a slow follower may lag before it loses some: a burst of one pod start each for 110 pods.
const FOLLOWERS_LAG: usize = 512;
/// Room for one event from each of 1,000 pods starting at once, twice.
pub const MAILBOX: usize = 2048;

/// The reason of the event about a field of a manifest or the configuration that is passed over. Upstream only logs it.
pub const UNKNOWN_FIELDS: &str = "UnknownFields";

const NODE_KIND: &str = "Node";

/// The recorder answers from memory.
const LIST_TIMEOUT: Duration = Duration::from_secs(1);

/// Messages of the event recorder.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Keeps the event, or counts it if an equal one is among the newest.
    Record(Box<Event>),
    /// Takes in what became of an event on its way to the API.
    Posted(PostOutcome),
    /// Sends an event again.
    Retry(Box<QueuedEvent>),
    /// Answers with every kept event, oldest first.
    List { reply: Reply<Vec<Event>> },
    /// Answers with a stream of the events to come.
    Follow {
        reply: Reply<broadcast::Receiver<Event>>,
    },
}

/// The type of an event, in the words of the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

impl From<EventLevel> for EventType {
    /// A note that is sent as an event after all is a normal one.
    fn from(level: EventLevel) -> Self {
        match level {
            EventLevel::Note | EventLevel::Normal => EventType::Normal,
            EventLevel::Warning => EventType::Warning,
        }
    }
}

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InvolvedObject {
    /// The object's kind: `Pod`, `Node` or `Plugin`.
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The part of the object, e.g. `spec.containers{web}`; empty for the object as a whole.
    pub field_path: String,
}

impl InvolvedObject {
    /// This node. Its name is also its UID, so that every `kubectl describe node` finds the event; one without a UID,
    /// as upstream's of 1.36 are, is found by none.
    pub fn node(name: &str) -> Self {
        InvolvedObject {
            kind: NODE_KIND.to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            ..InvolvedObject::default()
        }
    }

    /// A pod, or one of its containers.
    pub fn pod(pod: &Pod, container: Option<&str>) -> Self {
        let field_path = container.map(|name| {
            let list = match pod.container(name) {
                Some((ContainerKind::Init, _)) => "initContainers",
                Some((ContainerKind::Ephemeral, _)) => "ephemeralContainers",
                Some((ContainerKind::App, _)) | None => "containers",
            };
            format!("spec.{list}{{{name}}}")
        });
        InvolvedObject {
            kind: "Pod".to_owned(),
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid: pod.uid().to_string(),
            field_path: field_path.unwrap_or_default(),
        }
    }

    /// The object as a whole: the rate limit counts all its parts together.
    fn key(&self) -> String {
        format!(
            "{}/{}/{}/{}",
            self.kind, self.namespace, self.name, self.uid
        )
    }
}

/// One event, as `kubectl describe` shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub count: u32,
    pub r#type: EventType,
    pub reason: String,
    pub message: String,
    pub object: InvolvedObject,
    /// Of the API's object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Snapshot: numbers of events.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub kept: usize,
    pub recorded: u64,
    /// Dropped by the rate limit of their object.
    pub dropped: u64,
    pub followers: usize,
    /// Queued for the API.
    pub unsent: usize,
    /// Dropped because that queue was full.
    pub unsendable: u64,
}

/// Keeps the newest events, counts equal ones, and posts them to the API.
#[derive(Debug)]
pub struct EventBroadcaster {
    followers: broadcast::Sender<Event>,

    ring: VecDeque<Event>,
    correlator: Correlator,
    posted: PostedEvents,
    desk: PostQueue,
    recorded: u64,
    dropped: u64,
}

impl Default for EventBroadcaster {
    /// A recorder without an API server.
    fn default() -> Self {
        EventBroadcaster::new(None)
    }
}

impl Actor for EventBroadcaster {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Record(event) => self.record(*event, ctx),
            Msg::Posted(posting) => self.desk.on_posted(posting, ctx),
            Msg::Retry(letter) => self.desk.retry(*letter, ctx),
            Msg::List { reply } => reply.send(self.ring.iter().cloned().collect()),
            Msg::Follow { reply } => reply.send(self.followers.subscribe()),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            kept: self.ring.len(),
            recorded: self.recorded,
            dropped: self.dropped,
            followers: self.followers.receiver_count(),
            unsent: self.desk.len(),
            unsendable: self.desk.refused,
        }
    }
}

impl EventBroadcaster {
    pub fn new(api: Option<EventSink>) -> Self {
        EventBroadcaster {
            followers: broadcast::Sender::new(FOLLOWERS_LAG),
            ring: VecDeque::new(),
            correlator: Correlator::default(),
            posted: PostedEvents::default(),
            desk: PostQueue::new(api),
            recorded: 0,
            dropped: 0,
        }
    }

    fn record(&mut self, event: Event, ctx: &mut Context<Msg>) {
        self.recorded += 1;
        let about = format!("{}/{}", event.object.key(), event.r#type.as_str());
        // Upstream counts all of an object's events together. For the node, one reason that comes again and again would
        // keep it from reporting any other; it has some dozens.
        let budget = if event.object.kind == NODE_KIND {
            format!("{about}/{}", event.reason)
        } else {
            about.clone()
        };
        let fate = self
            .correlator
            .admit(event.last_seen, &budget, &event.reason, &event.message);
        // A dropped event is counted all the same, and shows with the next one that is kept.
        let line = self.desk.is_open().then(|| {
            let key = log_line(&event, &about, &fate);
            let name = &event.object.name;
            self.posted.observe(event.last_seen, &key, name)
        });
        let event = match fate {
            CorrelateResult::Keep => event,
            CorrelateResult::Combine(message) => Event {
                message,
                annotations: BTreeMap::new(),
                ..event
            },
            CorrelateResult::Drop => {
                self.dropped += 1;
                return;
            }
        };
        if let Some(line) = line {
            self.desk.post(&event, line, ctx);
        }
        let kept = match self.take_equal(&event) {
            Some(earlier) => Event {
                first_seen: earlier.first_seen,
                count: earlier.count + 1,
                ..event
            },
            None => event,
        };
        // No follower is the usual case, and not an error.
        drop(self.followers.send(kept.clone()));
        if self.ring.len() == RING {
            self.ring.pop_front();
        }
        self.ring.push_back(kept);
    }

    /// Takes out the equal event, if it is among the newest few dozen.
    fn take_equal(&mut self, event: &Event) -> Option<Event> {
        const LOOKED_AT: usize = 64;
        let from = self.ring.len().saturating_sub(LOOKED_AT);
        let at = (from..self.ring.len()).rev().find(|&at| {
            let other = &self.ring[at];
            other.object == event.object
                && other.reason == event.reason
                && other.message == event.message
        })?;
        self.ring.remove(at)
    }
}

/// The text by which events count as one object of the API.
fn log_line(event: &Event, about: &str, fate: &CorrelateResult) -> String {
    let Event {
        reason,
        message,
        object,
        ..
    } = event;
    match fate {
        CorrelateResult::Keep | CorrelateResult::Drop => {
            format!("{about}/{reason}/{}/{message}", object.field_path)
        }
        CorrelateResult::Combine(_) => format!("{about}/{reason}"),
    }
}

/// The sending end of the recorder: never waits; a lost event is counted by the mailbox.
#[derive(Debug, Clone)]
pub struct Recorder {
    events: Addr<Msg>,
    /// Of every event that this one records.
    annotations: BTreeMap<String, String>,
}

impl Recorder {
    pub fn new(events: Addr<Msg>) -> Self {
        Recorder {
            events,
            annotations: BTreeMap::new(),
        }
    }

    /// The same recorder, whose events have these annotations.
    #[must_use]
    pub fn annotated(&self, annotations: &BTreeMap<String, String>) -> Recorder {
        Recorder {
            events: self.events.clone(),
            annotations: annotations.clone(),
        }
    }

    /// Records that the node's agent starts: once in its life, whatever restarts within it.
    ///
    /// Upstream: `BirthCry` of pkg/kubelet/kubelet.go (1.36).
    pub fn begin(&self, now: Timestamp, node: &str) {
        let message = "Starting kubelet.".to_owned();
        self.record(
            now,
            EventType::Normal,
            InvolvedObject::node(node),
            "Starting",
            message,
        );
    }

    /// Records a field of the configuration that is passed over.
    pub fn unknown_field(&self, now: Timestamp, node: &str, text: &str) {
        let node = InvolvedObject::node(node);
        self.record(
            now,
            EventType::Warning,
            node,
            UNKNOWN_FIELDS,
            text.to_owned(),
        );
    }

    /// The kept events about one object, oldest first; none if the recorder does not answer.
    pub async fn about(&self, uid: &str) -> Vec<Event> {
        let list = self.events.ask(LIST_TIMEOUT, |reply| Msg::List { reply });
        let mut events = list.await.unwrap_or_default();
        events.retain(|event| event.object.uid == uid);
        events
    }

    /// Records an event with the current time.
    pub fn record(
        &self,
        now: Timestamp,
        r#type: EventType,
        object: InvolvedObject,
        reason: &str,
        message: String,
    ) {
        tracing::info!(kind = %object.kind, namespace = %object.namespace, name = %object.name, reason, "{message}");
        let event = Event {
            first_seen: now,
            last_seen: now,
            count: 1,
            r#type,
            reason: reason.to_owned(),
            message: messages::truncate(message, MAX_MESSAGE_BYTES),
            object,
            annotations: self.annotations.clone(),
        };
        if let Err(full) = self.events.tell(Msg::Record(Box::new(event))) {
            tracing::warn!("event lost: {full}");
        }
    }
}
