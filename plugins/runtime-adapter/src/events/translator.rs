//! Turns containerd's event stream into CRI's: each event is held until CRI shows it, then told with its pod.
//!
//! Events of a container keep their order. The pods' states are read one at a time for each pod, so that a later
//! event never carries an older state. All queues are bounded: what does not fit ends the stream, and the agent
//! relists and opens it again, as it does after every interruption.

use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use proto::containerd::events_client::EventsClient;
use proto::containerd::{Envelope, SubscribeRequest};
use proto::cri::{ContainerEventResponse, ContainerEventType};
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::happening::{self, Happening, What};
use super::lanes::Lanes;
use super::lookup::{Lookup, Pod};
use super::memory::Memory;
use crate::backend::{Backend, Connected};
use crate::connection::Connection;

/// Every container of a full node started and ended at once.
const MOST_HELD: usize = 4096;
/// As many again for an agent that is slow to read.
const MOST_UNREAD: usize = 4096;

type Events = mpsc::Sender<Result<ContainerEventResponse, Status>>;
type Envelopes = BoxStream<'static, Result<Envelope, Status>>;

/// Subscribes, and returns the translated events from now on.
pub(crate) async fn start(
    backend: &Backend,
    connected: Connected,
) -> Result<mpsc::Receiver<Result<ContainerEventResponse, Status>>, Status> {
    let namespace = backend.configuration().namespace.clone();
    let lookup = Lookup::new(connected.connection.clone());
    let mut envelopes = subscribe(connected.connection, &namespace);
    let mut early = Vec::new();
    let memory = {
        let mut learning = std::pin::pin!(learn(&lookup));
        loop {
            // Polled in this order, the subscription is sent before the lists: nothing falls between. Neither arm
            // loses anything when the other wins.
            tokio::select! {
                biased;
                envelope = envelopes.next() => early.push(envelope.unwrap_or_else(|| Err(ended()))?),
                memory = &mut learning => break memory?,
            }
        }
    };
    let (events, receiver) = mpsc::channel(MOST_UNREAD + 1);
    let envelopes = stream::iter(early.into_iter().map(Ok))
        .chain(envelopes)
        .boxed();
    let place = backend.place();
    tokio::spawn(async move {
        let Ok(last) = events.clone().reserve_owned().await else {
            return;
        };
        let translator = Translator {
            lookup,
            memory,
            settling: Lanes::new(),
            telling: Lanes::new(),
            events: events.clone(),
        };
        let why = tokio::select! {
            why = translator.run(envelopes, &namespace) => why,
            () = events.closed() => return,
        };
        let status = Status::unavailable(format!("container events of {place}: {why}"));
        tracing::warn!("{}", status.message());
        last.send(Err(status));
    });
    Ok(receiver)
}

/// containerd answers the subscription with its first event, so the call itself is part of the stream.
fn subscribe(connection: Connection, namespace: &str) -> Envelopes {
    let mut client = EventsClient::new(connection);
    let filters = happening::filters(namespace);
    let call = async move {
        client
            .subscribe(SubscribeRequest { filters })
            .await
            .map(tonic::Response::into_inner)
    };
    stream::once(call).try_flatten().boxed()
}

async fn learn(lookup: &Lookup) -> Result<Memory, Status> {
    let mut memory = Memory::new();
    for sandbox in lookup.sandboxes().await? {
        memory.learn_container(&sandbox.id, &sandbox.id);
        memory.learn_pod(&sandbox.id, sandbox.metadata.unwrap_or_default());
    }
    for container in lookup.containers(None).await? {
        memory.learn_container(&container.id, &container.pod_sandbox_id);
    }
    Ok(memory)
}

fn ended() -> Status {
    Status::unavailable("containerd ended its event stream")
}

/// An event that CRI shows by now, and the sandbox it happened in.
#[derive(Clone, Debug)]
struct Settled {
    happening: Happening,
    sandbox: String,
}

struct Translator {
    lookup: Lookup,
    memory: Memory,
    /// By container: held until CRI shows it.
    settling: Lanes<Happening, (Happening, Result<Option<String>, Status>)>,
    /// By sandbox: the pod's state being read.
    telling: Lanes<Settled, (Settled, Result<Pod, Status>)>,
    events: Events,
}

impl Translator {
    /// Translates until it cannot go on; returns why.
    async fn run(mut self, mut envelopes: Envelopes, namespace: &str) -> String {
        loop {
            // Every arm is cancel-safe: a result or an envelope is taken or stays where it is.
            let outcome = tokio::select! {
                (lane, (happening, sandbox)) = self.settling.finished() => self.settled(&lane, happening, sandbox),
                (lane, (settled, pod)) = self.telling.finished() => self.told(&lane, settled, pod),
                envelope = envelopes.next() => self.heard(envelope, namespace),
            };
            if let Err(why) = outcome {
                return why;
            }
        }
    }

    fn heard(
        &mut self,
        envelope: Option<Result<Envelope, Status>>,
        namespace: &str,
    ) -> Result<(), String> {
        let envelope = envelope
            .unwrap_or_else(|| Err(ended()))
            .map_err(|status| status.message().to_owned())?;
        let happening = match happening::read(&envelope, namespace) {
            Ok(Some(happening)) => happening,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::warn!("{}", crate::backend::chain(&error));
                return Ok(());
            }
        };
        if self.settling.len() + self.telling.len() >= MOST_HELD {
            return Err(format!("more than {MOST_HELD} events at once"));
        }
        let lane = happening.container.clone();
        if let Some(happening) = self.settling.push(&lane, happening) {
            self.settle(lane, happening);
        }
        Ok(())
    }

    fn settle(&mut self, lane: String, happening: Happening) {
        let known = self.memory.sandbox_of(&happening.container).cloned();
        let lookup = self.lookup.clone();
        self.settling.run(lane, async move {
            let sandbox = lookup.settle(happening.clone(), known).await;
            (happening, sandbox)
        });
    }

    fn settled(
        &mut self,
        lane: &str,
        happening: Happening,
        sandbox: Result<Option<String>, Status>,
    ) -> Result<(), String> {
        if let Some(sandbox) = answered(sandbox)?.flatten() {
            self.memory.learn_container(&happening.container, &sandbox);
            let settled = Settled {
                happening,
                sandbox: sandbox.clone(),
            };
            if let Some(settled) = self.telling.push(&sandbox, settled) {
                self.tell(sandbox, settled);
            }
        }
        if let Some(next) = self.settling.done(lane) {
            self.settle(lane.to_owned(), next);
        }
        Ok(())
    }

    fn tell(&mut self, lane: String, settled: Settled) {
        let pod = self.lookup.clone().pod(settled.sandbox.clone());
        self.telling.run(lane, async move { (settled, pod.await) });
    }

    fn told(
        &mut self,
        lane: &str,
        settled: Settled,
        pod: Result<Pod, Status>,
    ) -> Result<(), String> {
        if let Some(pod) = answered(pod)? {
            if let Some(metadata) = pod
                .status
                .as_ref()
                .and_then(|status| status.metadata.clone())
            {
                self.memory.learn_pod(&settled.sandbox, metadata);
            }
            let event = self.event(&settled, pod);
            self.events
                .try_send(Ok(event))
                .map_err(|_| format!("more than {MOST_UNREAD} events unread"))?;
            if settled.happening.what == What::Deleted {
                self.memory.forget(&settled.happening.container);
            }
        }
        if let Some(next) = self.telling.done(lane) {
            self.tell(lane.to_owned(), next);
        }
        Ok(())
    }

    fn event(&self, settled: &Settled, pod: Pod) -> ContainerEventResponse {
        let kind = match settled.happening.what {
            What::Created => ContainerEventType::ContainerCreatedEvent,
            What::Started => ContainerEventType::ContainerStartedEvent,
            What::Exited | What::OutOfMemory => ContainerEventType::ContainerStoppedEvent,
            What::Deleted => ContainerEventType::ContainerDeletedEvent,
        };
        ContainerEventResponse {
            container_id: settled.happening.container.clone(),
            container_event_type: kind.into(),
            created_at: settled.happening.at,
            pod_sandbox_status: pod
                .status
                .or_else(|| self.memory.remembered(&settled.sandbox)),
            containers_statuses: pod.containers,
        }
    }
}

/// CRI's refusal of one question loses one event, which the agent's relist makes good; its absence ends the stream.
/// A status with a source was made on this side: nobody answered.
fn answered<T>(answer: Result<T, Status>) -> Result<Option<T>, String> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status)
            if status.code() == Code::Unavailable
                || std::error::Error::source(&status).is_some() =>
        {
            Err(crate::backend::chain(&status))
        }
        Err(status) => {
            tracing::warn!(
                "CRI refused to describe an event's pod: {}",
                status.message()
            );
            Ok(None)
        }
    }
}
