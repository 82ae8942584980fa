//! Translates containerd's event stream into CRI's: each event is held until CRI shows it, then sent with its pod.
//!
//! The end of a container is sent at once, as containerd reports it, and again when CRI shows it otherwise.
//!
//! Events of a container keep their order: the next one is looked at when the one before has been sent. The pods'
//! states are read one at a time for each pod, as far as they may have changed since the last event of it, and a
//! container that was sent as ended stays so, so that a later event never carries an older state. All queues are
//! bounded: what does not fit ends the stream, and the agent relists and opens it again, as it does after every
//! interruption.

use futures_util::stream::{BoxStream, StreamExt};
use proto::containerd::Envelope;
use proto::cri::{ContainerEventResponse, ContainerEventType, ContainerState};
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::containerd_event::{self, ContainerExit, ContainerdEvent, ContainerdEventKind};
use super::keyed_queues::KeyedQueues;
use super::lookup::{Lookup, QuickStatus, Shown};
use super::pending_exits::{PendingExit, PendingExits};
use super::pod::{self, PodStatuses};
use super::pod_cache::{Extent, PodCache};
use super::poll::PollPace;
use super::subscription;
use crate::connection::RuntimeConnection;

/// Events in translation: every container of a full node started and ended at once.
pub(crate) const MAX_QUEUED_EVENTS: usize = 4096;
/// Translated events that wait for the agent to read them; one more ends the stream.
pub(crate) const MAX_UNREAD_EVENTS: usize = 4096;

/// An item of the stream that the agent reads.
pub(crate) type EventResult = Result<ContainerEventResponse, Status>;
/// containerd's event stream.
pub(crate) type EnvelopeStream = BoxStream<'static, Result<Envelope, Status>>;

pub(crate) fn too_many() -> String {
    format!("more than {MAX_QUEUED_EVENTS} events at once")
}

/// When an event is sent once CRI shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendRule {
    Always,
    /// It was sent already: only if the pod differs from what was sent of it.
    News,
}

/// An event that CRI shows by now, the sandbox it happened in, and what CRI shows of what it is about.
#[derive(Debug)]
struct ResolvedEvent {
    event: ContainerdEvent,
    sandbox: String,
    rule: SendRule,
    shown: Shown,
}

/// The result of one call about a container's event.
enum LookupResult {
    Glanced(
        ContainerdEvent,
        ContainerExit,
        Result<Option<Box<QuickStatus>>, Status>,
    ),
    Settled(
        ContainerdEvent,
        SendRule,
        Result<Option<(String, Shown)>, Status>,
    ),
}

/// The state of one translated event stream.
pub(crate) struct Translator {
    lookup: Lookup,
    /// With a limit of its own: a first lookup does not queue behind events that wait for CRI.
    quick_lookup: Lookup,
    cache: PodCache,
    unsettled: PendingExits,
    /// By container: each event from its envelope until it has been sent.
    containers: KeyedQueues<ContainerdEvent, LookupResult>,
    /// By sandbox: the pod's state being read.
    pods: KeyedQueues<ResolvedEvent, (ResolvedEvent, Result<PodStatuses, Status>)>,
    events: mpsc::Sender<EventResult>,
}

impl Translator {
    pub(crate) fn new(
        connection: RuntimeConnection,
        lookup: Lookup,
        cache: PodCache,
        unsettled: PendingExits,
        events: mpsc::Sender<EventResult>,
    ) -> Self {
        Self {
            quick_lookup: lookup.beside(connection),
            lookup,
            cache,
            unsettled,
            containers: KeyedQueues::new(),
            pods: KeyedQueues::new(),
            events,
        }
    }

    /// Translates until it cannot go on; returns why.
    pub(crate) async fn run(mut self, mut envelopes: EnvelopeStream, namespace: &str) -> String {
        loop {
            // Every arm is cancel-safe: a result or an envelope is taken or stays where it is.
            let outcome = tokio::select! {
                (_, step) = self.containers.finished() => match step {
                    LookupResult::Glanced(event, exit, quick_status) => self.on_quick_status(event, exit, quick_status),
                    LookupResult::Settled(event, rule, shown) => self.settled(event, rule, shown),
                },
                (lane, (settled, pod)) = self.pods.finished() => self.read(&lane, &settled, pod),
                envelope = envelopes.next() => self.on_envelope(envelope, namespace),
            };
            if let Err(why) = outcome {
                return why;
            }
        }
    }

    fn on_envelope(
        &mut self,
        envelope: Option<Result<Envelope, Status>>,
        namespace: &str,
    ) -> Result<(), String> {
        let envelope = envelope
            .unwrap_or_else(|| Err(subscription::ended()))
            .map_err(|status| status.message().to_owned())?;
        let event = match containerd_event::read(&envelope, namespace) {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::warn!("{}", sdk::error_chain(&error));
                return Ok(());
            }
        };
        if self.containers.len() >= MAX_QUEUED_EVENTS {
            return Err(too_many());
        }
        let key = event.container.clone();
        if let Some(event) = self.containers.push(&key, event) {
            self.begin(event);
        }
        Ok(())
    }

    fn begin(&mut self, event: ContainerdEvent) {
        let known = self.cache.sandbox_of(&event.container).cloned();
        let exit = match event.what {
            ContainerdEventKind::Exited(exit) if known.as_ref() != Some(&event.container) => exit,
            // The container's end is sent already, mostly with this reason.
            ContainerdEventKind::OutOfMemory => return self.settle(event, SendRule::News, None),
            ContainerdEventKind::Created
            | ContainerdEventKind::Started
            | ContainerdEventKind::Exited(_)
            | ContainerdEventKind::Deleted => {
                return self.settle(event, SendRule::Always, None);
            }
        };
        let sent = known.as_ref().and_then(|known| self.cache.last_sent(known));
        let quick_lookup = self.quick_lookup.clone();
        let key = event.container.clone();
        let quick_status = quick_lookup.quick_status(key.clone(), known, sent);
        self.containers.run(key, async move {
            LookupResult::Glanced(event, exit, quick_status.await)
        });
    }

    /// Sends the end of a container as containerd reports it; CRI's status of it follows.
    fn on_quick_status(
        &mut self,
        event: ContainerdEvent,
        exit: ContainerExit,
        quick_status: Result<Option<Box<QuickStatus>>, Status>,
    ) -> Result<(), String> {
        let (mut rule, mut hold) = (SendRule::Always, None);
        if let Some(quick_status) = answered(quick_status)?.flatten() {
            let sandbox = quick_status.sandbox;
            self.cache.learn_container(&event.container, &sandbox);
            let shown = quick_status
                .container
                .as_ref()
                .is_some_and(|status| status.state() == ContainerState::ContainerExited);
            let ended = quick_status
                .container
                .and_then(|status| pod::ended(status, exit));
            if let Some(ended) = ended {
                if !shown {
                    hold = Some(self.unsettled.hold(&event.container, &sandbox));
                }
                let mut pod = self
                    .cache
                    .last_sent(&sandbox)
                    .unwrap_or_default()
                    .with_ended(ended);
                pod.status = pod.status.or(quick_status.status);
                let extent = self.cache.extent(&sandbox);
                self.send_event(&event, &sandbox, (pod, extent))?;
                rule = SendRule::News;
            }
        }
        self.settle(event, rule, hold);
        Ok(())
    }

    fn settle(&mut self, event: ContainerdEvent, rule: SendRule, hold: Option<PendingExit>) {
        let key = event.container.clone();
        let known = self.cache.sandbox_of(&key).cloned();
        let lookup = self.lookup.clone();
        let pace = match rule {
            SendRule::Always => PollPace::Hurried,
            SendRule::News => PollPace::Unhurried,
        };
        self.containers.run(key, async move {
            let shown = lookup.settle(event.clone(), known, pace).await;
            drop(hold);
            LookupResult::Settled(event, rule, shown)
        });
    }

    fn settled(
        &mut self,
        event: ContainerdEvent,
        rule: SendRule,
        shown: Result<Option<(String, Shown)>, Status>,
    ) -> Result<(), String> {
        let Some((sandbox, shown)) = answered(shown)?.flatten() else {
            self.done(&event);
            return Ok(());
        };
        self.cache.learn_container(&event.container, &sandbox);
        let settled = ResolvedEvent {
            event,
            sandbox: sandbox.clone(),
            rule,
            shown,
        };
        if let Some(settled) = self.pods.push(&sandbox, settled) {
            self.read_pod(settled);
        }
        Ok(())
    }

    fn read_pod(&mut self, mut settled: ResolvedEvent) {
        let sent = match self.cache.extent(&settled.sandbox) {
            Extent::Whole => self.cache.last_sent(&settled.sandbox),
            Extent::Part => None,
        };
        let shown = std::mem::replace(&mut settled.shown, Shown::Unread);
        let subject = settled.event.container.clone();
        let lookup = self.lookup.clone();
        let pod = lookup.pod(settled.sandbox.clone(), sent, subject, shown);
        self.pods
            .run(settled.sandbox.clone(), async move { (settled, pod.await) });
    }

    fn read(
        &mut self,
        lane: &str,
        settled: &ResolvedEvent,
        pod: Result<PodStatuses, Status>,
    ) -> Result<(), String> {
        if let Some(pod) = answered(pod)? {
            let sent = self.cache.last_sent(&settled.sandbox);
            let mut pod = pod.after(sent.as_ref());
            pod.status = pod.status.or_else(|| self.cache.names(&settled.sandbox));
            let event = match settled.rule {
                SendRule::Always => true,
                // Of one that is gone by now, its deletion tells.
                SendRule::News => {
                    pod.container(&settled.event.container).is_some() && sent.as_ref() != Some(&pod)
                }
            };
            if event {
                let pod = (pod, Extent::Whole);
                self.send_event(&settled.event, &settled.sandbox, pod)?;
            }
        }
        self.done(&settled.event);
        if let Some(next) = self.pods.done(lane) {
            self.read_pod(next);
        }
        Ok(())
    }

    fn done(&mut self, event: &ContainerdEvent) {
        if let Some(next) = self.containers.done(&event.container) {
            self.begin(next);
        }
    }

    fn send_event(
        &mut self,
        event: &ContainerdEvent,
        sandbox: &str,
        (pod, extent): (PodStatuses, Extent),
    ) -> Result<(), String> {
        let kind = match event.what {
            ContainerdEventKind::Created => ContainerEventType::ContainerCreatedEvent,
            ContainerdEventKind::Started => ContainerEventType::ContainerStartedEvent,
            ContainerdEventKind::Exited(_) | ContainerdEventKind::OutOfMemory => {
                ContainerEventType::ContainerStoppedEvent
            }
            ContainerdEventKind::Deleted => ContainerEventType::ContainerDeletedEvent,
        };
        self.cache
            .learn_sent(sandbox, &pod, extent, (&event.container, event.what));
        let event = ContainerEventResponse {
            container_id: event.container.clone(),
            container_event_type: kind.into(),
            created_at: event.at,
            pod_sandbox_status: pod.status,
            containers_statuses: pod.containers,
        };
        self.events
            .try_send(Ok(event))
            .map_err(|_| format!("more than {MAX_UNREAD_EVENTS} events unread"))
    }
}

/// CRI's refusal of one question loses one event, which the agent's relist makes good; its absence ends the stream.
/// A status with a source was made on this side of the connection: the runtime did not answer.
fn answered<T>(answer: Result<T, Status>) -> Result<Option<T>, String> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status)
            if status.code() == Code::Unavailable
                || std::error::Error::source(&status).is_some() =>
        {
            Err(sdk::error_chain(&status))
        }
        Err(status) => {
            tracing::warn!("an event is not told: CRI says {}", status.message());
            Ok(None)
        }
    }
}
