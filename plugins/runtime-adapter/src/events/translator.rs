//! Turns containerd's event stream into CRI's: each event is held until CRI shows it, then told with its pod.
//!
//! The end of a container is told at once, as containerd says it, and again when CRI shows it otherwise.
//!
//! Events of a container keep their order: the next one is looked at when the one before has been told. The pods'
//! states are read one at a time for each pod, and a container that was told as ended stays so, so that a later
//! event never carries an older state. All queues are bounded: what does not fit ends the stream, and the agent
//! relists and opens it again, as it does after every interruption.

use futures_util::stream::{BoxStream, StreamExt};
use proto::containerd::Envelope;
use proto::cri::{ContainerEventResponse, ContainerEventType, ContainerState};
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::happening::{self, Exit, Happening, What};
use super::lanes::Lanes;
use super::lookup::{Glance, Lookup};
use super::memory::Memory;
use super::patience::Pace;
use super::pod::{self, Pod};
use super::subscription;
use super::unsettled::{Hold, Unsettled};
use crate::connection::Connection;

/// Every container of a full node started and ended at once.
pub(crate) const MOST_HELD: usize = 4096;
/// As many again for an agent that is slow to read.
pub(crate) const MOST_UNREAD: usize = 4096;

pub(crate) type Event = Result<ContainerEventResponse, Status>;
pub(crate) type Envelopes = BoxStream<'static, Result<Envelope, Status>>;

pub(crate) fn too_many() -> String {
    format!("more than {MOST_HELD} events at once")
}

/// When an event is told once CRI shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tell {
    Always,
    /// It was told already: only if the pod differs from what was told of it.
    News,
}

/// An event that CRI shows by now, and the sandbox it happened in.
#[derive(Clone, Debug)]
struct Settled {
    happening: Happening,
    sandbox: String,
    tell: Tell,
}

/// What has been found out about a container's event.
enum Step {
    Glanced(Happening, Exit, Result<Option<Box<Glance>>, Status>),
    Settled(Happening, Tell, Result<Option<String>, Status>),
}

pub(crate) struct Translator {
    lookup: Lookup,
    /// With a limit of its own: a first look does not queue behind those who wait for CRI.
    glances: Lookup,
    memory: Memory,
    unsettled: Unsettled,
    /// By container: each event from when it is heard to when it has been told.
    containers: Lanes<Happening, Step>,
    /// By sandbox: the pod's state being read.
    pods: Lanes<Settled, (Settled, Result<Pod, Status>)>,
    events: mpsc::Sender<Event>,
}

impl Translator {
    pub(crate) fn new(
        connection: Connection,
        lookup: Lookup,
        memory: Memory,
        unsettled: Unsettled,
        events: mpsc::Sender<Event>,
    ) -> Self {
        Self {
            lookup,
            glances: Lookup::new(connection),
            memory,
            unsettled,
            containers: Lanes::new(),
            pods: Lanes::new(),
            events,
        }
    }

    /// Translates until it cannot go on; returns why.
    pub(crate) async fn run(mut self, mut envelopes: Envelopes, namespace: &str) -> String {
        loop {
            // Every arm is cancel-safe: a result or an envelope is taken or stays where it is.
            let outcome = tokio::select! {
                (_, step) = self.containers.finished() => match step {
                    Step::Glanced(happening, exit, glance) => self.glanced(happening, exit, glance),
                    Step::Settled(happening, tell, sandbox) => self.settled(happening, tell, sandbox),
                },
                (lane, (settled, pod)) = self.pods.finished() => self.read(&lane, &settled, pod),
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
            .unwrap_or_else(|| Err(subscription::ended()))
            .map_err(|status| status.message().to_owned())?;
        let happening = match happening::read(&envelope, namespace) {
            Ok(Some(happening)) => happening,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::warn!("{}", crate::backend::chain(&error));
                return Ok(());
            }
        };
        if self.containers.len() >= MOST_HELD {
            return Err(too_many());
        }
        let lane = happening.container.clone();
        if let Some(happening) = self.containers.push(&lane, happening) {
            self.begin(happening);
        }
        Ok(())
    }

    fn begin(&mut self, happening: Happening) {
        let known = self.memory.sandbox_of(&happening.container).cloned();
        let exit = match happening.what {
            What::Exited(exit) if known.as_ref() != Some(&happening.container) => exit,
            // Of a container whose end is told already, mostly with this reason.
            What::OutOfMemory => return self.settle(happening, Tell::News, None),
            What::Created | What::Started | What::Exited(_) | What::Deleted => {
                return self.settle(happening, Tell::Always, None);
            }
        };
        let told = known.as_ref().and_then(|known| self.memory.told(known));
        let glances = self.glances.clone();
        let lane = happening.container.clone();
        let glance = glances.glance(lane.clone(), known, told);
        self.containers.run(
            lane,
            async move { Step::Glanced(happening, exit, glance.await) },
        );
    }

    /// Tells the end of a container as containerd says it; CRI's word on it follows.
    fn glanced(
        &mut self,
        happening: Happening,
        exit: Exit,
        glance: Result<Option<Box<Glance>>, Status>,
    ) -> Result<(), String> {
        let (mut tell, mut hold) = (Tell::Always, None);
        if let Some(glance) = answered(glance)?.flatten() {
            let sandbox = glance.sandbox;
            self.memory.learn_container(&happening.container, &sandbox);
            let shown = glance
                .container
                .as_ref()
                .is_some_and(|status| status.state() == ContainerState::ContainerExited);
            let ended = glance.container.and_then(|status| pod::ended(status, exit));
            if let Some(ended) = ended {
                if !shown {
                    hold = Some(self.unsettled.hold(&happening.container, &sandbox));
                }
                let mut pod = self
                    .memory
                    .told(&sandbox)
                    .unwrap_or_default()
                    .with_ended(ended);
                pod.status = pod.status.or(glance.status);
                self.tell(&happening, &sandbox, pod)?;
                tell = Tell::News;
            }
        }
        self.settle(happening, tell, hold);
        Ok(())
    }

    fn settle(&mut self, happening: Happening, tell: Tell, hold: Option<Hold>) {
        let lane = happening.container.clone();
        let known = self.memory.sandbox_of(&lane).cloned();
        let lookup = self.lookup.clone();
        let pace = match tell {
            Tell::Always => Pace::Hurried,
            Tell::News => Pace::Unhurried,
        };
        self.containers.run(lane, async move {
            let sandbox = lookup.settle(happening.clone(), known, pace).await;
            drop(hold);
            Step::Settled(happening, tell, sandbox)
        });
    }

    fn settled(
        &mut self,
        happening: Happening,
        tell: Tell,
        sandbox: Result<Option<String>, Status>,
    ) -> Result<(), String> {
        let Some(sandbox) = answered(sandbox)?.flatten() else {
            self.done(&happening);
            return Ok(());
        };
        self.memory.learn_container(&happening.container, &sandbox);
        let settled = Settled {
            happening,
            sandbox: sandbox.clone(),
            tell,
        };
        if let Some(settled) = self.pods.push(&sandbox, settled) {
            self.read_pod(settled);
        }
        Ok(())
    }

    fn read_pod(&mut self, settled: Settled) {
        let pod = self.lookup.clone().pod(settled.sandbox.clone());
        self.pods
            .run(settled.sandbox.clone(), async move { (settled, pod.await) });
    }

    fn read(
        &mut self,
        lane: &str,
        settled: &Settled,
        pod: Result<Pod, Status>,
    ) -> Result<(), String> {
        if let Some(pod) = answered(pod)? {
            let told = self.memory.told(&settled.sandbox);
            let mut pod = pod.after(told.as_ref());
            pod.status = pod.status.or_else(|| self.memory.names(&settled.sandbox));
            let news = match settled.tell {
                Tell::Always => true,
                // Of one that is gone by now, its deletion tells.
                Tell::News => {
                    pod.container(&settled.happening.container).is_some()
                        && told.as_ref() != Some(&pod)
                }
            };
            if news {
                self.tell(&settled.happening, &settled.sandbox, pod)?;
            }
        }
        self.done(&settled.happening);
        if let Some(next) = self.pods.done(lane) {
            self.read_pod(next);
        }
        Ok(())
    }

    fn done(&mut self, happening: &Happening) {
        if let Some(next) = self.containers.done(&happening.container) {
            self.begin(next);
        }
    }

    fn tell(&mut self, happening: &Happening, sandbox: &str, pod: Pod) -> Result<(), String> {
        let kind = match happening.what {
            What::Created => ContainerEventType::ContainerCreatedEvent,
            What::Started => ContainerEventType::ContainerStartedEvent,
            What::Exited(_) | What::OutOfMemory => ContainerEventType::ContainerStoppedEvent,
            What::Deleted => ContainerEventType::ContainerDeletedEvent,
        };
        self.memory
            .learn_told(sandbox, &pod, &happening.container, happening.what);
        let event = ContainerEventResponse {
            container_id: happening.container.clone(),
            container_event_type: kind.into(),
            created_at: happening.at,
            pod_sandbox_status: pod.status,
            containers_statuses: pod.containers,
        };
        self.events
            .try_send(Ok(event))
            .map_err(|_| format!("more than {MOST_UNREAD} events unread"))
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
            tracing::warn!("an event is not told: CRI says {}", status.message());
            Ok(None)
        }
    }
}
