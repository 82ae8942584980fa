//! Events made from a scripted containerd's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message;
use proto::containerd::{SubscribeRequest, TaskExit, TaskStart};
use proto::cri::{
    self, ContainerEventResponse, ContainerEventType, ContainerState, PodSandboxMetadata,
    PodSandboxState,
};
use runtime_adapter::Flavour;
use tokio::sync::mpsc;
use tonic::Code;

use crate::double::{AdapterRig, RecordedCall, ScriptedAnswer};
use crate::event_scene::{EventScene, PODS, metadata};

/// The event's kind, and its own container as it tells it.
fn told(
    event: &ContainerEventResponse,
) -> (&str, ContainerEventType, (ContainerState, i32, i64, &str)) {
    let own = event
        .containers_statuses
        .iter()
        .find(|status| status.id == event.container_id)
        .expect("the container is in its own event");
    let state = (
        own.state(),
        own.exit_code,
        own.finished_at,
        own.reason.as_str(),
    );
    (&event.container_id, event.container_event_type(), state)
}

const EXITED: ContainerState = ContainerState::ContainerExited;
const STOPPED: ContainerEventType = ContainerEventType::ContainerStoppedEvent;

#[tokio::test]
async fn an_exit_is_told_at_once_and_only_once_when_cri_agrees() {
    let mut scene = EventScene::open().await;
    let end = cri::ContainerStatus {
        exit_code: 7,
        finished_at: 2_000_000_000,
        reason: "Error".to_owned(),
        ..Default::default()
    };
    scene.ends("c1", 20, &end);
    // Seen as exited once to settle and once to be reported.
    scene.world().gone_after.insert("c1".to_owned(), 2);
    scene.exited_with("c1", 7);
    scene.changed("delete", "c1");
    let event = scene.next().await;
    let expected = (EXITED, 7, 2_000_000_000, "Error");
    assert_eq!(told(&event), ("c1", STOPPED, expected));
    assert_eq!(event.containers_statuses[0].started_at, 1, "all else stays");
    assert_eq!(event.created_at, 1_000_000_005);
    assert_eq!(event.pod_sandbox_status.unwrap().id, "s1");
    assert!(
        scene.world().exits_after.contains_key("c1"),
        "told before CRI shows it"
    );

    let event = scene.next().await;
    assert_eq!(
        event.container_event_type(),
        ContainerEventType::ContainerDeletedEvent,
        "nothing between: {event:?}"
    );
    let filters = scene.runtime.calls_of("Subscribe")[0]
        .message::<SubscribeRequest>()
        .filters;
    assert!(
        filters.contains(&"namespace==k8s.io,topic==\"/tasks/exit\"".to_owned()),
        "{filters:?}"
    );
}

#[tokio::test]
async fn an_exit_is_told_again_when_cri_knows_more() {
    let mut scene = EventScene::open().await;
    let end = cri::ContainerStatus {
        exit_code: 137,
        finished_at: 3,
        reason: "OOMKilled".to_owned(),
        ..Default::default()
    };
    scene.ends("c1", 3, &end);
    scene.exited_with("c1", 137);
    scene.changed("delete", "c1");
    let expected = (EXITED, 137, 2_000_000_000, "Error");
    assert_eq!(told(&scene.next().await), ("c1", STOPPED, expected));
    let expected = (EXITED, 137, 3, "OOMKilled");
    assert_eq!(
        told(&scene.next().await),
        ("c1", STOPPED, expected),
        "before it is told as deleted"
    );
    scene.world().containers.remove("c1");
    assert_eq!(
        scene.next().await.container_event_type(),
        ContainerEventType::ContainerDeletedEvent
    );
}

#[tokio::test]
async fn an_agent_that_acts_on_an_exit_at_once_does_not_meet_a_runtime_that_is_cleaning_up() {
    let mut scene = EventScene::open().await;
    scene.ends("c1", 10, &cri::ContainerStatus::default());
    scene.exited("c1");
    assert_eq!(scene.next().await.container_id, "c1");
    let mut client = scene.bench.client();
    let stop = |sandbox: &str| cri::StopPodSandboxRequest {
        pod_sandbox_id: sandbox.to_owned(),
    };
    client.stop_pod_sandbox(stop("s2")).await.unwrap();
    assert!(
        scene.world().exits_after.contains_key("c1"),
        "another pod's call does not wait"
    );
    client.stop_pod_sandbox(stop("s1")).await.unwrap();
    let calls = scene.runtime.calls_of("StopPodSandbox");
    let stopped = calls.iter().map(cri_subject).collect::<Vec<_>>();
    assert_eq!(stopped, ["s2", "s1"], "the call arrives as it was sent");
}

fn cri_subject(call: &RecordedCall) -> String {
    call.message::<cri::StopPodSandboxRequest>().pod_sandbox_id
}

#[tokio::test]
async fn what_was_told_before_stands_in_for_an_answer_that_tarries() {
    let mut scene = EventScene::open().await;
    scene.started("c1");
    let started = scene.next().await;
    assert_eq!(
        started.container_event_type(),
        ContainerEventType::ContainerStartedEvent
    );
    scene
        .world()
        .stuck
        .extend(["c1".to_owned(), "s1".to_owned()]);
    scene.exited_with("c1", 9);
    let event = scene.next().await;
    let expected = (EXITED, 9, 2_000_000_000, "Error");
    assert_eq!(told(&event), ("c1", STOPPED, expected));
    assert_eq!(event.pod_sandbox_status, started.pod_sandbox_status);
}

#[tokio::test]
async fn a_burst_of_exits_waits_for_no_other_pod() {
    let mut scene = EventScene::open().await;
    // The first pods answer nothing: as many as may be asked about at once, short of one.
    for number in 1..=7 {
        let stuck = [format!("c{number}"), format!("s{number}")];
        scene.world().stuck.extend(stuck);
    }
    for number in 1..=PODS {
        scene.exited_with(&format!("c{number}"), number);
    }
    let mut seen = BTreeMap::new();
    while seen.len() < 13 {
        let event = scene.next().await;
        let (id, kind, (state, code, ..)) = told(&event);
        assert_eq!((kind, state), (STOPPED, EXITED));
        seen.insert(id.to_owned(), code);
    }
    let expected = (8..=20).map(|number| (format!("c{number}"), number));
    assert_eq!(seen, expected.collect());
}

#[tokio::test]
async fn a_neighbours_event_does_not_bring_an_ended_container_back_to_life() {
    let mut scene = EventScene::open().await;
    scene.holds("c1-too", ContainerState::ContainerRunning);
    scene.exited("c1");
    assert_eq!(told(&scene.next().await).2.0, EXITED);
    scene.changed("create", "c1-too");
    let event = scene.next().await;
    assert_eq!(event.container_id, "c1-too");
    let states: Vec<_> = event
        .containers_statuses
        .iter()
        .map(|status| (status.id.as_str(), status.state()))
        .collect();
    assert_eq!(
        states,
        [("c1", EXITED), ("c1-too", ContainerState::ContainerRunning)]
    );
}

#[tokio::test]
async fn an_event_asks_for_nothing_of_its_pod_that_cannot_have_changed() {
    let mut scene = EventScene::open().await;
    for (id, state) in [
        ("over", EXITED),
        ("alive", ContainerState::ContainerRunning),
    ] {
        scene.holds(id, state);
    }
    let statuses = |scene: &EventScene| {
        let calls = scene.runtime.calls_of("ContainerStatus");
        let ids = calls
            .iter()
            .map(|call| call.message::<cri::ContainerStatusRequest>().container_id);
        ids.collect::<Vec<_>>()
    };
    let methods = ["ContainerStatus", "PodSandboxStatus", "ListContainers"];
    let asked = |scene: &EventScene| methods.map(|method| scene.runtime.calls_of(method).len());
    // What is not known of a pod yet is read.
    scene.changed("create", "alive");
    assert_eq!(scene.next().await.containers_statuses.len(), 3);
    let before = asked(&scene);
    scene.started("c1");
    let event = scene.next().await;
    assert_eq!(event.containers_statuses.len(), 3);
    assert_eq!(statuses(&scene)[before[0]..], ["c1", "alive"]);
    assert_eq!(asked(&scene)[1..], before[1..]);

    scene.world().containers.remove("alive");
    scene.changed("delete", "alive");
    let left = |event: &ContainerEventResponse| {
        let ids = event.containers_statuses.iter().map(|one| one.id.clone());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(left(&scene.next().await), ["c1", "over"]);
    let state = PodSandboxState::SandboxNotready;
    scene.world().sandboxes.insert("s1".to_owned(), state);
    let before = asked(&scene);
    scene.exited("s1");
    let event = scene.next().await;
    assert_eq!(left(&event), ["c1", "over"]);
    assert_eq!(event.pod_sandbox_status.unwrap().state(), state);
    assert_eq!(statuses(&scene)[before[0]..], ["c1"]);
    assert_eq!(asked(&scene)[1..], [before[1] + 1, before[2]]);
}

#[tokio::test]
async fn the_first_exit_that_is_told_of_a_pod_is_followed_by_all_of_it() {
    let mut scene = EventScene::open().await;
    scene.holds("c1-too", ContainerState::ContainerRunning);
    scene.ends("c1", 2, &cri::ContainerStatus::default());
    scene.exited("c1");
    assert_eq!(scene.next().await.containers_statuses.len(), 1);
    assert_eq!(scene.next().await.containers_statuses.len(), 2);
}

#[tokio::test]
async fn the_end_of_a_container_that_cri_is_still_starting_is_held_until_cri_knows_why() {
    let mut scene = EventScene::open().await;
    let starting = ("s1".to_owned(), ContainerState::ContainerCreated);
    scene.world().containers.insert("new".to_owned(), starting);
    let end = cri::ContainerStatus {
        exit_code: 128,
        reason: "StartError".to_owned(),
        ..Default::default()
    };
    scene.ends("new", 5, &end);
    scene.exited_with("new", 137);
    let expected = (EXITED, 128, 0, "StartError");
    assert_eq!(told(&scene.next().await), ("new", STOPPED, expected));
}

#[tokio::test]
async fn the_end_of_a_sandbox_is_held_until_cri_shows_it() {
    let mut scene = EventScene::open().await;
    scene.exited("s1");
    scene.world().exits_after.insert("c2".to_owned(), 1);
    scene.exited("c2");
    assert_eq!(scene.next().await.container_id, "c2");
    scene
        .world()
        .sandboxes
        .insert("s1".to_owned(), PodSandboxState::SandboxNotready);
    let event = scene.next().await;
    assert_eq!(event.container_id, "s1");
    assert_eq!(
        event.pod_sandbox_status.unwrap().state(),
        PodSandboxState::SandboxNotready
    );
}

#[tokio::test]
async fn events_of_a_container_keep_their_order() {
    let mut scene = EventScene::open().await;
    scene.world().containers.insert(
        "new".to_owned(),
        ("s1".to_owned(), ContainerState::ContainerRunning),
    );
    scene.world().exits_after.insert("new".to_owned(), 5);
    scene.changed("create", "new");
    scene.started("new");
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
    let mut scene = EventScene::open().await;
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
    let mut scene = EventScene::open().await;
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
    let mut scene = EventScene::open().await;
    scene.changed("delete", "never-seen");
    scene.tell("/tasks/exit", vec![0x0a, 0xff]);
    for topic in ["/tasks/start", "/tasks/oom", "/containers/create"] {
        scene.tell(topic, b"\xff\xff\xff\xff garbage".to_vec());
    }
    scene.exited(&"x".repeat(3 << 20));
    scene.exited("no container of CRI's\n\u{0}\u{202e}");
    scene.exited_with("c3", u32::MAX);
    let exec = TaskExit {
        container_id: "c1".to_owned(),
        id: "exec-1".to_owned(),
        ..Default::default()
    };
    scene.tell("/tasks/exit", exec.encode_to_vec());
    assert_eq!(told(&scene.next().await).2.1, -1);
    scene.exited("c2");
    assert_eq!(scene.next().await.container_id, "c2");
}

#[tokio::test]
async fn a_container_of_no_sandbox_does_not_get_every_pods_containers() {
    let mut scene = EventScene::open().await;
    let homeless = (String::new(), ContainerState::ContainerRunning);
    scene
        .world()
        .containers
        .insert("homeless".to_owned(), homeless);
    scene.exited("homeless");
    scene.exited("c2");
    assert_eq!(scene.next().await.container_id, "c2");
}

#[tokio::test]
async fn an_envelope_that_cannot_be_read_ends_the_stream_with_unavailable() {
    let mut scene = EventScene::open().await;
    let containerd = scene.containerd.as_ref().unwrap();
    containerd
        .send(b"\x0a\xff not an envelope".to_vec())
        .unwrap();
    let status = scene.stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("decode"), "{status}");
}

/// The clock is paused while a task runs: a minute of silence passes at once.
#[tokio::test(start_paused = true)]
async fn a_question_that_cri_never_answers_loses_its_event_and_no_other() {
    let mut scene = EventScene::open().await;
    scene.world().stuck.insert("c1".to_owned());
    scene.exited("c1");
    let told = tokio::time::timeout(Duration::from_secs(60), scene.stream.message()).await;
    assert!(told.is_err(), "{told:?}");
    scene.exited("c2");
    assert_eq!(scene.next().await.container_id, "c2");
    // The queue of the stuck container is free again.
    scene.world().stuck.clear();
    scene.world().containers.remove("c1");
    scene.changed("delete", "c1");
    loop {
        let event = scene.next().await;
        if event.container_id == "c1" {
            let kind = event.container_event_type();
            assert_eq!(kind, ContainerEventType::ContainerDeletedEvent);
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lists_that_cri_never_answers_refuse_the_stream_in_time() {
    let (bench, _runtime) =
        AdapterRig::start(Flavour::Containerd, ("containerd", "1.6.20"), |_| {
            ScriptedAnswer::Never
        })
        .await;
    let opened = bench
        .client()
        .get_container_events(cri::GetEventsRequest {})
        .await;
    let status = opened.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(
        status.message(),
        "ListPodSandbox was not answered within 10s"
    );
}

#[tokio::test]
async fn an_interrupted_event_stream_ends_the_agents_with_unavailable() {
    let mut scene = EventScene::open().await;
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

/// A call that is answered later, by what is sent here.
type Later = mpsc::UnboundedSender<Vec<u8>>;

/// A scene whose calls that create wait for their answers, by what they create.
async fn creating_scene() -> (EventScene, Arc<Mutex<BTreeMap<String, Later>>>) {
    let waiting: Arc<Mutex<BTreeMap<String, Later>>> = Arc::default();
    let asked = Arc::clone(&waiting);
    let scene = EventScene::open_with(move |call| {
        let subject = match call.method() {
            "RunPodSandbox" => {
                let request: cri::RunPodSandboxRequest = call.message();
                request.config?.metadata?.name
            }
            "CreateContainer" => {
                let request: cri::CreateContainerRequest = call.message();
                request.config?.metadata?.name
            }
            _ => return None,
        };
        let (later, answer) = mpsc::unbounded_channel();
        asked.lock().unwrap().insert(subject, later);
        Some(ScriptedAnswer::Stream(answer))
    })
    .await;
    (scene, waiting)
}

/// Waits for a call to reach the runtime.
async fn reached(waiting: &Mutex<BTreeMap<String, Later>>, subject: &str) -> Later {
    loop {
        if let Some(later) = waiting.lock().unwrap().remove(subject) {
            return later;
        }
        tokio::task::yield_now().await;
    }
}

fn with_deadline<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(Duration::from_secs(60));
    request
}

#[tokio::test]
async fn what_the_agent_has_made_is_known_by_the_answer_and_not_asked_for() {
    const MADE: usize = 10;
    /// In which a poll would ask some ten times.
    const A_WHILE: Duration = Duration::from_millis(60);
    let (mut scene, waiting) = creating_scene().await;
    let before = |scene: &EventScene, method| scene.runtime.calls_of(method).len();
    let lists = before(&scene, "ListContainers");
    let statuses = before(&scene, "PodSandboxStatus");
    for number in 0..MADE {
        let (sandbox, container) = (format!("new-s{number}"), format!("new-c{number}"));
        let run = tokio::spawn({
            let (mut client, name) = (scene.bench.client(), sandbox.clone());
            async move {
                let config = cri::PodSandboxConfig {
                    metadata: Some(PodSandboxMetadata {
                        name,
                        ..Default::default()
                    }),
                    ..Default::default()
                };
                let request = cri::RunPodSandboxRequest {
                    config: Some(config),
                    ..Default::default()
                };
                client.run_pod_sandbox(with_deadline(request)).await
            }
        });
        let later = reached(&waiting, &sandbox).await;
        scene.changed("create", &sandbox);
        scene.started(&sandbox);
        tokio::time::sleep(A_WHILE).await;
        scene
            .world()
            .sandboxes
            .insert(sandbox.clone(), PodSandboxState::SandboxReady);
        let answer = cri::RunPodSandboxResponse {
            pod_sandbox_id: sandbox.clone(),
        };
        later.send(answer.encode_to_vec()).unwrap();
        drop(later);
        assert_eq!(run.await.unwrap().unwrap().into_inner(), answer);
        for _ in 0..2 {
            assert_eq!(scene.next().await.container_id, sandbox);
        }

        let create = tokio::spawn({
            let (mut client, name) = (scene.bench.client(), container.clone());
            let pod_sandbox_id = sandbox.clone();
            async move {
                let config = cri::ContainerConfig {
                    metadata: Some(cri::ContainerMetadata { name, attempt: 0 }),
                    ..Default::default()
                };
                let request = cri::CreateContainerRequest {
                    pod_sandbox_id,
                    config: Some(config),
                    ..Default::default()
                };
                client.create_container(with_deadline(request)).await
            }
        });
        let later = reached(&waiting, &container).await;
        scene.changed("create", &container);
        tokio::time::sleep(A_WHILE).await;
        let made = (sandbox.clone(), ContainerState::ContainerCreated);
        scene.world().containers.insert(container.clone(), made);
        let answer = cri::CreateContainerResponse {
            container_id: container.clone(),
        };
        later.send(answer.encode_to_vec()).unwrap();
        drop(later);
        create.await.unwrap().unwrap();
        let event = scene.next().await;
        assert_eq!(event.container_id, container);
        assert_eq!(event.pod_sandbox_status.unwrap().id, sandbox);
    }
    assert_eq!(before(&scene, "ListContainers") - lists, MADE);
    assert_eq!(before(&scene, "PodSandboxStatus") - statuses, MADE);
}

#[tokio::test]
async fn what_others_have_made_is_asked_for_also_while_the_agent_makes_something() {
    let (mut scene, waiting) = creating_scene().await;
    let call = tokio::spawn({
        let mut client = scene.bench.client();
        let config = cri::PodSandboxConfig {
            metadata: Some(metadata("failing")),
            ..Default::default()
        };
        let request = cri::RunPodSandboxRequest {
            config: Some(config),
            ..Default::default()
        };
        async move { client.run_pod_sandbox(with_deadline(request)).await }
    });
    let later = reached(&waiting, &metadata("failing").name).await;
    scene.holds("theirs", ContainerState::ContainerCreated);
    scene.changed("create", "theirs");
    // Its answer names nothing.
    later
        .send(cri::RunPodSandboxResponse::default().encode_to_vec())
        .unwrap();
    drop(later);
    call.await.unwrap().unwrap();
    assert_eq!(scene.next().await.container_id, "theirs");
}
