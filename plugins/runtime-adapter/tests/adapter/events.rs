//! Events made from a scripted containerd's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message;
use proto::containerd::{ContainerChange, Envelope, SubscribeRequest, TaskExit, TaskStart};
use proto::cri::{
    self, ContainerEventResponse, ContainerEventType, ContainerState, PodSandboxMetadata,
    PodSandboxState,
};
use runtime_adapter::Flavour;
use tokio::sync::mpsc;
use tonic::{Code, Streaming};

use crate::double::{Answer, Bench, Call, Runtime, message, refused};

/// What CRI shows. A container: its sandbox, its state, and how many questions more until it has exited.
#[derive(Debug, Default)]
struct World {
    sandboxes: BTreeMap<String, PodSandboxState>,
    containers: BTreeMap<String, (String, ContainerState)>,
    exits_after: BTreeMap<String, u32>,
    events: Option<mpsc::UnboundedReceiver<Vec<u8>>>,
}

impl World {
    fn answer(&mut self, call: &Call) -> Answer {
        match call.method() {
            "Subscribe" => self.events.take().map_or(Answer::Never, Answer::Stream),
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
            "PodSandboxStatus" => self.sandbox(
                &call
                    .message::<cri::PodSandboxStatusRequest>()
                    .pod_sandbox_id,
            ),
            "ContainerStatus" => {
                self.container(&call.message::<cri::ContainerStatusRequest>().container_id)
            }
            method => refused(Code::Unimplemented, method),
        }
    }

    fn list(&self, question: &cri::ListContainersRequest) -> Answer {
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

    fn sandbox(&self, id: &str) -> Answer {
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

    fn container(&mut self, id: &str) -> Answer {
        if let Some(left) = self.exits_after.get_mut(id) {
            *left -= 1;
            if *left == 0 {
                self.exits_after.remove(id);
                self.containers.get_mut(id).unwrap().1 = ContainerState::ContainerExited;
            }
        }
        let Some((_, state)) = self.containers.get(id) else {
            return refused(Code::NotFound, "no such container");
        };
        let status = cri::ContainerStatus {
            id: id.to_owned(),
            state: (*state).into(),
            ..Default::default()
        };
        message(&cri::ContainerStatusResponse {
            status: Some(status),
            ..Default::default()
        })
    }
}

fn metadata(sandbox: &str) -> PodSandboxMetadata {
    PodSandboxMetadata {
        name: format!("pod-of-{sandbox}"),
        uid: format!("uid-of-{sandbox}"),
        ..Default::default()
    }
}

/// A containerd 1.6 with two pods, and the adapter's stream.
struct Scene {
    world: Arc<Mutex<World>>,
    containerd: Option<mpsc::UnboundedSender<Vec<u8>>>,
    stream: Streaming<ContainerEventResponse>,
    runtime: Runtime,
    _bench: Bench,
}

impl Scene {
    async fn open() -> Self {
        let (containerd, events) = mpsc::unbounded_channel();
        let mut world = World {
            events: Some(events),
            ..Default::default()
        };
        for (sandbox, container) in [("s1", "c1"), ("s2", "c2")] {
            world
                .sandboxes
                .insert(sandbox.to_owned(), PodSandboxState::SandboxReady);
            world.containers.insert(
                container.to_owned(),
                (sandbox.to_owned(), ContainerState::ContainerRunning),
            );
        }
        let world = Arc::new(Mutex::new(world));
        let seen = Arc::clone(&world);
        let script = move |call: &Call| seen.lock().unwrap().answer(call);
        let (bench, runtime) =
            Bench::start(Flavour::Containerd, ("containerd", "1.6.20"), script).await;
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
            _bench: bench,
        }
    }

    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn tell(&self, topic: &str, body: Vec<u8>) {
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

    fn exited(&self, container: &str) {
        let exit = TaskExit {
            container_id: container.to_owned(),
            id: container.to_owned(),
            ..Default::default()
        };
        self.tell("/tasks/exit", exit.encode_to_vec());
    }

    fn changed(&self, what: &str, container: &str) {
        let body = ContainerChange {
            id: container.to_owned(),
        }
        .encode_to_vec();
        self.tell(&format!("/containers/{what}"), body);
    }

    async fn next(&mut self) -> ContainerEventResponse {
        let event = tokio::time::timeout(Duration::from_secs(10), self.stream.message()).await;
        event
            .expect("an event in time")
            .unwrap()
            .expect("an open stream")
    }
}

#[tokio::test]
async fn an_exit_is_held_until_cri_shows_it_and_holds_up_no_other_pod() {
    let mut scene = Scene::open().await;
    scene.world().exits_after.insert("c1".to_owned(), 20);
    scene.world().exits_after.insert("c2".to_owned(), 1);
    scene.exited("c1");
    scene.exited("c2");
    for container in ["c2", "c1"] {
        let event = scene.next().await;
        assert_eq!(event.container_id, container);
        assert_eq!(
            event.container_event_type(),
            ContainerEventType::ContainerStoppedEvent
        );
        assert_eq!(
            event.containers_statuses[0].state(),
            ContainerState::ContainerExited
        );
        assert_eq!(event.created_at, 1_000_000_005);
    }
    let filters = scene.runtime.calls_of("Subscribe")[0]
        .message::<SubscribeRequest>()
        .filters;
    assert!(
        filters.contains(&"namespace==k8s.io,topic==\"/tasks/exit\"".to_owned()),
        "{filters:?}"
    );
}

#[tokio::test]
async fn events_of_a_container_keep_their_order() {
    let mut scene = Scene::open().await;
    scene.world().containers.insert(
        "new".to_owned(),
        ("s1".to_owned(), ContainerState::ContainerRunning),
    );
    scene.world().exits_after.insert("new".to_owned(), 5);
    scene.changed("create", "new");
    scene.tell(
        "/tasks/start",
        TaskStart {
            container_id: "new".to_owned(),
            pid: 7,
        }
        .encode_to_vec(),
    );
    scene.exited("new");
    for kind in [
        ContainerEventType::ContainerCreatedEvent,
        ContainerEventType::ContainerStartedEvent,
        ContainerEventType::ContainerStoppedEvent,
    ] {
        let event = scene.next().await;
        assert_eq!(
            (event.container_id.as_str(), event.container_event_type()),
            ("new", kind)
        );
        assert_eq!(event.pod_sandbox_status.unwrap().id, "s1");
        assert_eq!(
            event.containers_statuses.len(),
            2,
            "all containers of the pod are in it"
        );
    }
}

#[tokio::test]
async fn a_deleted_pod_is_told_by_the_names_that_it_had() {
    let mut scene = Scene::open().await;
    scene.world().containers.remove("c1");
    scene.world().sandboxes.remove("s1");
    scene.changed("delete", "c1");
    scene.changed("delete", "s1");
    for id in ["c1", "s1"] {
        let event = scene.next().await;
        assert_eq!(event.container_id, id);
        assert_eq!(
            event.container_event_type(),
            ContainerEventType::ContainerDeletedEvent
        );
        let status = event.pod_sandbox_status.unwrap();
        assert_eq!(status.metadata, Some(metadata("s1")));
        assert_eq!(status.state(), PodSandboxState::SandboxNotready);
    }
}

#[tokio::test]
async fn memory_that_runs_out_is_told_only_of_a_container_that_it_ended() {
    let mut scene = Scene::open().await;
    scene.tell(
        "/tasks/oom",
        TaskStart {
            container_id: "c1".to_owned(),
            pid: 0,
        }
        .encode_to_vec(),
    );
    scene.world().exits_after.insert("c2".to_owned(), 1);
    scene.exited("c2");
    assert_eq!(scene.next().await.container_id, "c2");
}

#[tokio::test]
async fn what_is_not_cris_or_cannot_be_read_is_passed_over() {
    let mut scene = Scene::open().await;
    scene.changed("delete", "never-seen");
    scene.tell("/tasks/exit", vec![0x0a, 0xff]);
    let exec = TaskExit {
        container_id: "c1".to_owned(),
        id: "exec-1".to_owned(),
        ..Default::default()
    };
    scene.tell("/tasks/exit", exec.encode_to_vec());
    scene.world().exits_after.insert("c2".to_owned(), 1);
    scene.exited("c2");
    assert_eq!(scene.next().await.container_id, "c2");
}

#[tokio::test]
async fn an_interrupted_event_stream_ends_the_agents_with_unavailable() {
    let mut scene = Scene::open().await;
    scene.containerd = None;
    let status = scene.stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status
            .message()
            .ends_with("containerd ended its event stream"),
        "{status}"
    );
}
