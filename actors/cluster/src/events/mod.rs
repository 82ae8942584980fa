//! What happened, for the operator: the last events of this node, in a bounded ring.
//!
//! - **Owns** the newest [`RING`] events, equal ones counted instead of repeated.
//! - **Hears** `Record` from every actor that has something to tell a person.
//! - **Tells** the followers (`oxctl events -f`), who lag or leave at their own cost.
//! - **Never** waits for anyone, and never grows: the oldest event goes first.
//!
//! Reasons and wording are upstream's: pkg/kubelet/events/event.go (1.36).

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use kernel::{Actor, Addr, Context, Exit, Reply};
use logic::events::{Correlator, Fate};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

/// Events kept: a few hours of a busy node, under 300 KiB.
const RING: usize = 1024;
/// Events a slow follower may lag before it loses some: a burst of one pod start each for 110 pods.
const FOLLOWERS_LAG: usize = 512;
/// Room for one event from each of 1,000 pods starting at once, twice.
pub const MAILBOX: usize = 2048;

/// The recorder answers from memory.
const LIST_WITHIN: Duration = Duration::from_secs(1);

/// What the recorder is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Keeps the event, or counts it if the newest one about this object says the same.
    Record(Box<Event>),
    /// Answers with every kept event, oldest first.
    List { reply: Reply<Vec<Event>> },
    /// Answers with a stream of the events to come.
    Follow {
        reply: Reply<broadcast::Receiver<Event>>,
    },
}

/// How much it matters; the words of the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Type {
    Normal,
    Warning,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Object {
    /// `Pod`, `Node` or `Plugin`.
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// E.g. `spec.containers{web}`; empty for the object as a whole.
    pub field_path: String,
}

impl Object {
    /// This node; as upstream, its name stands for its UID.
    pub fn node(name: &str) -> Self {
        Object {
            kind: "Node".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            ..Object::default()
        }
    }

    /// The object as a whole: what it may tell is counted for all its parts.
    fn key(&self) -> String {
        format!(
            "{}/{}/{}/{}",
            self.kind, self.namespace, self.name, self.uid
        )
    }
}

/// One thing that happened, as `kubectl describe` would show it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub count: u32,
    pub r#type: Type,
    pub reason: String,
    pub message: String,
    pub object: Object,
}

/// Kept and counted.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub kept: usize,
    pub recorded: u64,
    /// Of objects that told too much.
    pub dropped: u64,
    pub followers: usize,
}

/// The recorder.
#[derive(Debug)]
pub struct Events {
    followers: broadcast::Sender<Event>,

    ring: VecDeque<Event>,
    correlator: Correlator,
    recorded: u64,
    dropped: u64,
}

impl Default for Events {
    fn default() -> Self {
        Events {
            followers: broadcast::Sender::new(FOLLOWERS_LAG),
            ring: VecDeque::new(),
            correlator: Correlator::default(),
            recorded: 0,
            dropped: 0,
        }
    }
}

impl Actor for Events {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn handle(&mut self, msg: Msg, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Record(event) => self.record(*event),
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
        }
    }
}

impl Events {
    fn record(&mut self, event: Event) {
        self.recorded += 1;
        let about = event.object.key();
        let fate = self
            .correlator
            .admit(event.last_seen, &about, &event.reason, &event.message);
        let event = match fate {
            Fate::Keep => event,
            Fate::Combine(message) => Event { message, ..event },
            Fate::Drop => {
                self.dropped += 1;
                return;
            }
        };
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

    /// Takes out the event that says the same, if it is among the newest few dozen.
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

/// The way to tell an event: never waits; a lost event is counted by the mailbox.
#[derive(Debug, Clone)]
pub struct Recorder {
    events: Addr<Msg>,
}

impl Recorder {
    pub fn new(events: Addr<Msg>) -> Self {
        Recorder { events }
    }

    /// The kept events about one object, oldest first; none if the recorder does not answer.
    pub async fn about(&self, uid: &str) -> Vec<Event> {
        let list = self.events.ask(LIST_WITHIN, |reply| Msg::List { reply });
        let mut events = list.await.unwrap_or_default();
        events.retain(|event| event.object.uid == uid);
        events
    }

    /// Records that this happened now.
    pub fn record(
        &self,
        now: Timestamp,
        r#type: Type,
        object: Object,
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
            message,
            object,
        };
        if let Err(full) = self.events.tell(Msg::Record(Box::new(event))) {
            tracing::warn!("event lost: {full}");
        }
    }
}

#[cfg(test)]
mod tests {
    use kernel::{ChildSpec, Intensity, Supervisor, testing};

    use super::*;

    fn event(message: &str) -> Box<Event> {
        Box::new(Event {
            first_seen: Timestamp::UNIX_EPOCH,
            last_seen: Timestamp::UNIX_EPOCH,
            count: 1,
            r#type: Type::Normal,
            reason: "Started".into(),
            message: message.into(),
            object: Object::default(),
        })
    }

    async fn listed(messages: &[String]) -> Vec<Event> {
        kept(messages.iter().map(|message| event(message))).await
    }

    async fn kept(told: impl Iterator<Item = Box<Event>>) -> Vec<Event> {
        let (events, port) = kernel::mailbox(MAILBOX);
        Supervisor::root("test", Intensity::UNLIMITED).spawn(
            ChildSpec::permanent("events"),
            port,
            Events::default,
        );
        for event in told {
            events.tell(Msg::Record(event)).unwrap();
        }
        events
            .ask(Duration::from_secs(1), |reply| Msg::List { reply })
            .await
            .unwrap()
    }

    #[test]
    fn equal_events_are_counted_not_repeated() {
        let kept =
            testing::run_paused(|| async { listed(&["a".into(), "b".into(), "a".into()]).await });
        let counts: Vec<_> = kept.iter().map(|e| (e.message.as_str(), e.count)).collect();
        assert_eq!(counts, [("b", 1), ("a", 2)]);
    }

    #[test]
    fn the_ring_keeps_only_the_newest() {
        let about = |n: usize| {
            let mut event = event(&n.to_string());
            event.object.name = n.to_string();
            event
        };
        let kept = testing::run_paused(|| async move { kept((0..RING + 10).map(about)).await });
        assert_eq!(kept.len(), RING);
        assert_eq!(kept[0].message, "10");
    }

    #[test]
    fn one_noisy_object_does_not_push_out_the_others() {
        let noise = (0..RING).map(|n| event(&n.to_string()));
        let mut other = event("other");
        other.object.name = "other".into();
        let all = std::iter::once(other).chain(noise);
        let kept = testing::run_paused(|| async move { kept(all).await });
        assert_eq!(kept[0].message, "other");
        assert!(kept.len() < 30, "{}", kept.len());
    }
}
