//! A scripted containerd 1.6 with its events, and the adapter's stream of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message;
use proto::containerd::{ContainerChange, Envelope, TaskExit, TaskStart};
use proto::cri::{
    self, ContainerEventResponse, ContainerState, PodSandboxMetadata, PodSandboxState,
};
use runtime_adapter::Flavour;
use tokio::sync::mpsc;
use tonic::{Code, Streaming};

use crate::double::{AdapterRig, RecordedCall, RuntimeDouble, ScriptedAnswer, message, refused};

/// What CRI shows. A container: its sandbox, its state, and how many questions more until it has exited.
#[derive(Debug, Default)]
pub(crate) struct RuntimeState {
    pub(crate) sandboxes: BTreeMap<String, PodSandboxState>,
    pub(crate) containers: BTreeMap<String, (String, ContainerState)>,
    pub(crate) exits_after: BTreeMap<String, u32>,
    /// What CRI says of a container beside its state, once it has exited.
    pub(crate) ends: BTreeMap<String, cri::ContainerStatus>,
    /// How many answers about a container that has exited until it is gone.
    pub(crate) gone_after: BTreeMap<String, u32>,
    /// Ids that CRI never answers about.
    pub(crate) stuck: BTreeSet<String>,
    pub(crate) events: Option<mpsc::UnboundedReceiver<Vec<u8>>>,
}

impl RuntimeState {
    pub(crate) fn answer(&mut self, call: &RecordedCall) -> ScriptedAnswer {
        match call.method() {
            "Subscribe" => self
                .events
                .take()
                .map_or(ScriptedAnswer::Never, ScriptedAnswer::Stream),
            "ListPodSandbox" => {
                let items = self.sandboxes.keys().map(|id| cri::PodSandbox {
                    id: id.clone(),
                    metadata: Some(metadata(id)),
                    ..Default::default()
                });
                message(&cri::ListPodSandboxResponse {
                    items: items.collect(),
                })
            }
            "ListContainers" => self.list(&call.message()),
            "PodSandboxStatus" => {
                let question: cri::PodSandboxStatusRequest = call.message();
                self.unless_stuck(&question.pod_sandbox_id, Self::sandbox)
            }
            "ContainerStatus" => {
                let question: cri::ContainerStatusRequest = call.message();
                self.unless_stuck(&question.container_id, Self::container)
            }
            "StopPodSandbox" => {
                let id = call.message::<cri::StopPodSandboxRequest>().pod_sandbox_id;
                let unsettled = self.exits_after.keys().any(|container| {
                    let sandbox = self.containers.get(container).map(|(sandbox, _)| sandbox);
                    sandbox == Some(&id)
                });
                if unsettled {
                    return refused(Code::Unknown, "ttrpc: closed");
                }
                message(&cri::StopPodSandboxResponse {})
            }
            method => refused(Code::Unimplemented, method),
        }
    }

    pub(crate) fn unless_stuck(
        &mut self,
        id: &str,
        answer: impl FnOnce(&mut Self, &str) -> ScriptedAnswer,
    ) -> ScriptedAnswer {
        if self.stuck.contains(id) {
            return ScriptedAnswer::Never;
        }
        answer(self, id)
    }

    pub(crate) fn list(&self, question: &cri::ListContainersRequest) -> ScriptedAnswer {
        let filter = question.filter.clone().unwrap_or_default();
        let asked = |wanted: &str, value: &str| wanted.is_empty() || wanted == value;
        let found = self.containers.iter().filter(|(id, (sandbox, _))| {
            asked(&filter.id, id) && asked(&filter.pod_sandbox_id, sandbox)
        });
        let containers = found.map(|(id, (sandbox, _))| cri::Container {
            id: id.clone(),
            pod_sandbox_id: sandbox.clone(),
            ..Default::default()
        });
        message(&cri::ListContainersResponse {
            containers: containers.collect(),
        })
    }

    pub(crate) fn sandbox(&mut self, id: &str) -> ScriptedAnswer {
        let Some(state) = self.sandboxes.get(id) else {
            return refused(Code::NotFound, "no such sandbox");
        };
        let status = cri::PodSandboxStatus {
            id: id.to_owned(),
            metadata: Some(metadata(id)),
            state: (*state).into(),
            ..Default::default()
        };
        message(&cri::PodSandboxStatusResponse {
            status: Some(status),
            ..Default::default()
        })
    }

    pub(crate) fn container(&mut self, id: &str) -> ScriptedAnswer {
        if let Some(left) = self.exits_after.get_mut(id) {
            *left -= 1;
            if *left == 0 {
                self.exits_after.remove(id);
                self.containers.get_mut(id).unwrap().1 = ContainerState::ContainerExited;
            }
        }
        let exited =
            |(_, state): &(String, ContainerState)| *state == ContainerState::ContainerExited;
        if self.containers.get(id).is_some_and(exited)
            && let Some(left) = self.gone_after.get_mut(id)
        {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => drop(self.containers.remove(id)),
            }
        }
        let Some((_, state)) = self.containers.get(id) else {
            return refused(Code::NotFound, "no such container");
        };
        let end = self
            .ends
            .get(id)
            .filter(|_| *state == ContainerState::ContainerExited);
        let status = cri::ContainerStatus {
            id: id.to_owned(),
            state: (*state).into(),
            started_at: 1,
            ..end.cloned().unwrap_or_default()
        };
        message(&cri::ContainerStatusResponse {
            status: Some(status),
            ..Default::default()
        })
    }
}

pub(crate) fn metadata(sandbox: &str) -> PodSandboxMetadata {
    PodSandboxMetadata {
        name: format!("pod-of-{sandbox}"),
        uid: format!("uid-of-{sandbox}"),
        ..Default::default()
    }
}

pub(crate) const PODS: u32 = 20;

/// A containerd 1.6 with pods of one container each, and the adapter's stream.
pub(crate) struct EventScene {
    pub(crate) world: Arc<Mutex<RuntimeState>>,
    pub(crate) containerd: Option<mpsc::UnboundedSender<Vec<u8>>>,
    pub(crate) stream: Streaming<ContainerEventResponse>,
    pub(crate) runtime: RuntimeDouble,
    pub(crate) bench: AdapterRig,
}

impl EventScene {
    pub(crate) async fn open() -> Self {
        Self::open_with(|_| None).await
    }

    /// With calls that are answered otherwise.
    pub(crate) async fn open_with(
        otherwise: impl Fn(&RecordedCall) -> Option<ScriptedAnswer> + Send + Sync + 'static,
    ) -> Self {
        let (containerd, events) = mpsc::unbounded_channel();
        let mut world = RuntimeState {
            events: Some(events),
            ..Default::default()
        };
        for number in 1..=PODS {
            let (sandbox, container) = (format!("s{number}"), format!("c{number}"));
            world
                .sandboxes
                .insert(sandbox.clone(), PodSandboxState::SandboxReady);
            world
                .containers
                .insert(container, (sandbox, ContainerState::ContainerRunning));
        }
        let world = Arc::new(Mutex::new(world));
        let seen = Arc::clone(&world);
        let script = move |call: &RecordedCall| {
            otherwise(call).unwrap_or_else(|| seen.lock().unwrap().answer(call))
        };
        let (bench, runtime) =
            AdapterRig::start(Flavour::Containerd, ("containerd", "1.6.20"), script).await;
        let stream = bench
            .client()
            .get_container_events(cri::GetEventsRequest {})
            .await
            .unwrap()
            .into_inner();
        Self {
            world,
            containerd: Some(containerd),
            stream,
            runtime,
            bench,
        }
    }

    pub(crate) fn world(&self) -> std::sync::MutexGuard<'_, RuntimeState> {
        self.world.lock().unwrap()
    }

    /// One more container of the first pod.
    pub(crate) fn holds(&self, id: &str, state: ContainerState) {
        let container = ("s1".to_owned(), state);
        self.world().containers.insert(id.to_owned(), container);
    }

    pub(crate) fn tell(&self, topic: &str, body: Vec<u8>) {
        let envelope = Envelope {
            timestamp: Some(prost_types::Timestamp {
                seconds: 1,
                nanos: 5,
            }),
            namespace: "k8s.io".to_owned(),
            topic: topic.to_owned(),
            event: Some(prost_types::Any {
                type_url: String::new(),
                value: body,
            }),
        };
        self.containerd
            .as_ref()
            .unwrap()
            .send(envelope.encode_to_vec())
            .unwrap();
    }

    pub(crate) fn exited(&self, container: &str) {
        self.exited_with(container, 0);
    }

    /// At second 2.
    pub(crate) fn exited_with(&self, container: &str, exit_status: u32) {
        let exit = TaskExit {
            container_id: container.to_owned(),
            id: container.to_owned(),
            exit_status,
            exited_at: Some(prost_types::Timestamp {
                seconds: 2,
                nanos: 0,
            }),
            ..Default::default()
        };
        self.tell("/tasks/exit", exit.encode_to_vec());
    }

    pub(crate) fn started(&self, container: &str) {
        let start = TaskStart {
            container_id: container.to_owned(),
            pid: 7,
        };
        self.tell("/tasks/start", start.encode_to_vec());
    }

    /// What CRI says of a container's end, after so many questions.
    pub(crate) fn ends(&self, container: &str, after: u32, end: &cri::ContainerStatus) {
        let mut world = self.world();
        world.exits_after.insert(container.to_owned(), after);
        world.ends.insert(container.to_owned(), end.clone());
    }

    pub(crate) fn changed(&self, what: &str, container: &str) {
        let body = ContainerChange {
            id: container.to_owned(),
        }
        .encode_to_vec();
        self.tell(&format!("/containers/{what}"), body);
    }

    pub(crate) async fn next(&mut self) -> ContainerEventResponse {
        let event = tokio::time::timeout(Duration::from_secs(10), self.stream.message()).await;
        event
            .expect("an event in time")
            .unwrap()
            .expect("an open stream")
    }
}
