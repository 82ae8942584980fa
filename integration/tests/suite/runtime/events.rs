//! Container events made from a real containerd's, and what becomes of them when containerd goes away.

use std::collections::BTreeMap;
use std::time::Duration;

use integration::containerd::Containerd;
use integration::{pods, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::ContainerEventType::{
    ContainerCreatedEvent, ContainerDeletedEvent, ContainerStartedEvent, ContainerStoppedEvent,
};
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::{self, ContainerEventResponse, ContainerState};
use proto::plugin::HealthRequest;
use proto::plugin::health_report::Status as Health;
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use super::contract::adapter;

const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(10);

async fn events(client: &RuntimeServiceClient<Channel>) -> Streaming<ContainerEventResponse> {
    let opening = timeout(
        CONVERGENCE_TIMEOUT,
        client
            .clone()
            .get_container_events(cri::GetEventsRequest {}),
    )
    .await;
    opening
        .expect("the stream opens before its first event")
        .unwrap()
        .into_inner()
}

async fn next(events: &mut Streaming<ContainerEventResponse>) -> ContainerEventResponse {
    timeout(CONVERGENCE_TIMEOUT, events.message())
        .await
        .expect("an event in time")
        .unwrap()
        .expect("an open stream")
}

/// The next event of this container; those of others are passed over.
async fn next_of(
    events: &mut Streaming<ContainerEventResponse>,
    id: &str,
) -> ContainerEventResponse {
    loop {
        let event = next(events).await;
        if event.container_id == id {
            return event;
        }
    }
}

/// The event's own container as it tells it.
fn own(event: &ContainerEventResponse) -> Option<&cri::ContainerStatus> {
    let mut all = event.containers_statuses.iter();
    all.find(|status| status.id == event.container_id)
}

fn state_of(event: &ContainerEventResponse) -> Option<ContainerState> {
    own(event).map(cri::ContainerStatus::state)
}

/// Reads on until the container is deleted: returns the events of its end, and its deletion.
async fn rest_of(
    events: &mut Streaming<ContainerEventResponse>,
    id: &str,
) -> (Vec<cri::ContainerStatus>, ContainerEventResponse) {
    let mut ends = Vec::new();
    loop {
        let event = next_of(events, id).await;
        match event.container_event_type() {
            ContainerStoppedEvent => ends.push(own(&event).unwrap().clone()),
            ContainerDeletedEvent => return (ends, event),
            other @ (ContainerCreatedEvent | ContainerStartedEvent) => {
                panic!("{other:?} after the end")
            }
        }
    }
}

#[tokio::test]
async fn a_pods_life_is_told_in_order_with_the_states_that_cri_shows() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rig) = Containerd::for_test(dir.path()).await else {
        return;
    };
    let plugin = adapter(&rig, dir.path()).await;
    let client = RuntimeServiceClient::new(plugin.channel.clone());
    let mut events = events(&client).await;

    let config = pods::sandbox(&rig, "told").unwrap();
    let sandbox = pods::run_sandbox(&client, &config).await.unwrap();
    for kind in [ContainerCreatedEvent, ContainerStartedEvent] {
        let event = next(&mut events).await;
        assert_eq!(
            (event.container_id.as_str(), event.container_event_type()),
            (sandbox.as_str(), kind)
        );
        assert_eq!(
            event.pod_sandbox_status.unwrap().metadata.unwrap().name,
            "told"
        );
    }

    let container = pods::container("main", "exit 7");
    let container = pods::run_container(&client, &sandbox, &config, container)
        .await
        .unwrap();
    let mut told = Vec::new();
    for _ in 0..3 {
        let event = next(&mut events).await;
        assert_eq!(event.container_id, container);
        assert_eq!(event.pod_sandbox_status.as_ref().unwrap().id, sandbox);
        told.push((
            event.container_event_type(),
            state_of(&event).unwrap(),
            event,
        ));
    }
    let kinds: Vec<_> = told.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(
        kinds,
        [
            ContainerCreatedEvent,
            ContainerStartedEvent,
            ContainerStoppedEvent
        ]
    );
    let (_, state, stopped) = told.pop().unwrap();
    assert_eq!(state, ContainerState::ContainerExited);
    assert_eq!(stopped.containers_statuses[0].exit_code, 7);
    assert!(stopped.created_at > 0);

    let remove = cri::RemoveContainerRequest {
        container_id: container.clone(),
    };
    client.clone().remove_container(remove).await.unwrap();
    let (_, deleted) = rest_of(&mut events, &container).await;
    assert!(deleted.containers_statuses.is_empty());

    let stop = cri::StopPodSandboxRequest {
        pod_sandbox_id: sandbox.clone(),
    };
    client.clone().stop_pod_sandbox(stop).await.unwrap();
    let remove = cri::RemovePodSandboxRequest {
        pod_sandbox_id: sandbox.clone(),
    };
    client.clone().remove_pod_sandbox(remove).await.unwrap();
    for kind in [ContainerStoppedEvent, ContainerDeletedEvent] {
        let event = next(&mut events).await;
        assert_eq!(
            (event.container_id.as_str(), event.container_event_type()),
            (sandbox.as_str(), kind)
        );
        let status = event
            .pod_sandbox_status
            .expect("a deleted pod is remembered");
        assert_eq!(status.metadata.unwrap().uid, "uid-of-told");
    }
}

#[tokio::test]
async fn the_end_of_an_exec_is_no_event_and_a_kill_is_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rig) = Containerd::for_test(dir.path()).await else {
        return;
    };
    let plugin = adapter(&rig, dir.path()).await;
    let client = RuntimeServiceClient::new(plugin.channel.clone());
    let config = pods::sandbox(&rig, "killed").unwrap();
    let sandbox = pods::run_sandbox(&client, &config).await.unwrap();

    // Subscribed after the sandbox was made: its containers are found all the same.
    let mut events = events(&client).await;
    let mut raw = raw_exits(&rig);
    let (mut raw_waits, mut shown_waits, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    let mut added = Vec::new();
    for turn in 0..20 {
        let container = pods::container(&format!("c{turn}"), "sleep 1000");
        let id = pods::run_container(&client, &sandbox, &config, container)
            .await
            .unwrap();
        assert_eq!(
            next_of(&mut events, &id).await.container_event_type(),
            ContainerCreatedEvent
        );
        assert_eq!(
            next_of(&mut events, &id).await.container_event_type(),
            ContainerStartedEvent
        );
        let exec = cri::ExecSyncRequest {
            container_id: id.clone(),
            cmd: vec!["true".to_owned()],
            timeout: 10,
        };
        client.clone().exec_sync(exec).await.unwrap();

        let pid = Pid::from_raw(pods::pid_of(&client, &id).await.unwrap());
        let killed = Instant::now();
        kill(pid, Signal::SIGKILL).unwrap();
        let event = next_of(&mut events, &id).await;
        let told = Instant::now();
        let (process, heard) = raw.recv().await.unwrap();
        assert_eq!(process, id);
        shown(&rig, &id).await;
        shown_waits.push(killed.elapsed());
        waits.push(told - killed);
        raw_waits.push(heard - killed);
        added.push(told.saturating_duration_since(heard));
        assert_eq!(event.container_event_type(), ContainerStoppedEvent);
        let end = own(&event).unwrap();
        assert_eq!(
            (end.state(), end.exit_code, end.reason.as_str()),
            (ContainerState::ContainerExited, 137, "Error")
        );
    }
    print_waits("kill to containerd's event", raw_waits);
    let told = print_waits("kill to CRI's event", waits);
    print_waits("containerd's event to CRI's", added);
    let shown = print_waits("kill to CRI showing it", shown_waits);
    assert!(
        told < shown,
        "{told:?} and {shown:?}: the end is told at once"
    );
}

#[tokio::test]
async fn the_first_word_on_an_end_is_right_and_the_last_is_cris_own() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rig) = Containerd::for_test(dir.path()).await else {
        return;
    };
    let plugin = adapter(&rig, dir.path()).await;
    let client = RuntimeServiceClient::new(plugin.channel.clone());
    let config = pods::sandbox(&rig, "ends").unwrap();
    let sandbox = pods::run_sandbox(&client, &config).await.unwrap();
    // A neighbour that lives on is in every picture.
    let neighbour = pods::container("neighbour", "sleep 1000");
    pods::run_container(&client, &sandbox, &config, neighbour)
        .await
        .unwrap();
    let mut events = events(&client).await;
    for (name, script, code, reason) in [
        ("done", "sleep 0.3", 0, "Completed"),
        ("failed", "sleep 0.3; exit 7", 7, "Error"),
        ("killed", "sleep 0.3; kill -9 $$", 137, "Error"),
        ("quick", "exit 3", 3, "Error"),
        ("greedy", "sleep 0.3; exec tail /dev/zero", 137, "OOMKilled"),
    ] {
        let mut container = pods::container(name, script);
        let resources = cri::LinuxContainerResources {
            memory_limit_in_bytes: 16 << 20,
            ..Default::default()
        };
        container.linux = Some(cri::LinuxContainerConfig {
            resources: Some(resources),
            ..Default::default()
        });
        let id = pods::run_container(&client, &sandbox, &config, container)
            .await
            .unwrap();
        for kind in [ContainerCreatedEvent, ContainerStartedEvent] {
            let event = next_of(&mut events, &id).await;
            assert_eq!(event.container_event_type(), kind, "{name}");
        }
        let event = next_of(&mut events, &id).await;
        assert_eq!(event.container_event_type(), ContainerStoppedEvent);
        let first = own(&event).unwrap().clone();
        assert_eq!(
            (first.state(), first.exit_code),
            (ContainerState::ContainerExited, code),
            "{name}"
        );
        let shown = shown(&rig, &id).await;
        assert_eq!((shown.exit_code, shown.reason.as_str()), (code, reason));

        let remove = cri::RemoveContainerRequest {
            container_id: id.clone(),
        };
        client.clone().remove_container(remove).await.unwrap();
        let (again, _) = rest_of(&mut events, &id).await;
        println!("{name}: told {} times", 1 + again.len());
        assert_eq!(again.last().unwrap_or(&first), &shown, "{name}");
    }
}

#[tokio::test]
async fn twenty_pods_that_end_at_once_do_not_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rig) = Containerd::for_test(dir.path()).await else {
        return;
    };
    let plugin = adapter(&rig, dir.path()).await;
    let client = RuntimeServiceClient::new(plugin.channel.clone());
    let mut events = events(&client).await;
    let mut raw = raw_exits(&rig);
    let mut pids = Vec::new();
    for turn in 0..20 {
        let config = pods::sandbox(&rig, &format!("burst-{turn}")).unwrap();
        let sandbox = pods::run_sandbox(&client, &config).await.unwrap();
        let container = pods::container("main", "sleep 1000");
        let id = pods::run_container(&client, &sandbox, &config, container)
            .await
            .unwrap();
        let started = async {
            while next_of(&mut events, &id).await.container_event_type() != ContainerStartedEvent {}
        };
        started.await;
        pids.push(pods::pid_of(&client, &id).await.unwrap());
    }
    let killed = Instant::now();
    for pid in &pids {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap();
    }
    let mut told = BTreeMap::new();
    while told.len() < pids.len() {
        let event = next(&mut events).await;
        assert_eq!(event.container_event_type(), ContainerStoppedEvent);
        assert_eq!(state_of(&event), Some(ContainerState::ContainerExited));
        told.entry(event.container_id).or_insert_with(Instant::now);
    }
    let (mut raw_waits, mut waits, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for _ in &pids {
        let (id, heard) = raw.recv().await.unwrap();
        raw_waits.push(heard - killed);
        waits.push(told[&id] - killed);
        added.push(told[&id].saturating_duration_since(heard));
    }
    print_waits("burst: kill to containerd's event", raw_waits);
    print_waits("burst: kill to CRI's event", waits);
    print_waits("burst: containerd's event to CRI's", added);
    // The rig removes its pods without the adapter: containerd refuses that while it cleans up.
    for id in told.keys() {
        shown(&rig, id).await;
    }
}

/// Prints median and worst; returns the median.
fn print_waits(what: &str, mut waits: Vec<Duration>) -> Duration {
    waits.sort();
    let median = waits[waits.len() / 2];
    println!(
        "{what}: median {median:?}, worst {:?}",
        waits[waits.len() - 1]
    );
    median
}

/// When containerd itself tells of each container's end.
fn raw_exits(rig: &Containerd) -> tokio::sync::mpsc::Receiver<(String, Instant)> {
    let mut client = proto::containerd::events_client::EventsClient::new(rig.channel());
    let (exits, received) = tokio::sync::mpsc::channel(64);
    tokio::spawn(async move {
        let filters = vec!["topic==\"/tasks/exit\"".to_owned()];
        let subscribed = client
            .subscribe(proto::containerd::SubscribeRequest { filters })
            .await;
        let mut stream = subscribed.unwrap().into_inner();
        while let Ok(Some(envelope)) = stream.message().await {
            let heard = Instant::now();
            let body = envelope.event.unwrap().value;
            let exit =
                <proto::containerd::TaskExit as prost::Message>::decode(body.as_slice()).unwrap();
            if exit.id == exit.container_id && exits.send((exit.id, heard)).await.is_err() {
                return;
            }
        }
    });
    received
}

/// Waits until CRI itself shows the container as exited, and returns what it shows.
async fn shown(rig: &Containerd, id: &str) -> cri::ContainerStatus {
    let mut client = rig.runtime();
    let question = cri::ContainerStatusRequest {
        container_id: id.to_owned(),
        verbose: false,
    };
    let mut found = None;
    wait_until(CONVERGENCE_TIMEOUT, "CRI shows the exit", async || {
        let answer = client.container_status(question.clone()).await;
        found = answer.unwrap().into_inner().status;
        let state = found.as_ref().map(cri::ContainerStatus::state);
        state == Some(ContainerState::ContainerExited)
    })
    .await
    .unwrap();
    found.unwrap()
}

#[tokio::test]
async fn a_restarted_containerd_ends_the_stream_degrades_the_plugin_and_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut rig) = Containerd::for_test(dir.path()).await else {
        return;
    };
    let plugin = adapter(&rig, dir.path()).await;
    let client = RuntimeServiceClient::new(plugin.channel.clone());
    let mut health = plugin
        .base()
        .health(HealthRequest {
            interval_ms: 60_000,
        })
        .await
        .unwrap()
        .into_inner();
    let report = health.message().await.unwrap().unwrap();
    assert_eq!(report.status(), Health::Healthy);
    assert!(
        report.attributes["backend"].starts_with("containerd 1.6."),
        "{report:?}"
    );
    assert_eq!(
        report.attributes["container-events"],
        "from containerd's events"
    );
    let mut stream = events(&client).await;

    rig.stop().await.unwrap();
    let lost = timeout(CONVERGENCE_TIMEOUT, stream.message())
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(lost.code(), Code::Unavailable);
    assert!(lost.message().contains(&rig.endpoint()), "{lost}");
    let report = health.message().await.unwrap().unwrap();
    assert_eq!(report.status(), Health::Degraded);
    let refused = client
        .clone()
        .version(cri::VersionRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains(&rig.endpoint()), "{refused}");

    rig.begin().await.unwrap();
    let found = Instant::now();
    wait_until(CONVERGENCE_TIMEOUT, "the plugin is healthy", async || {
        health.message().await.unwrap().unwrap().status() == Health::Healthy
    })
    .await
    .unwrap();
    println!("containerd ready to plugin healthy: {:?}", found.elapsed());
    let mut stream = events(&client).await;
    let config = pods::sandbox(&rig, "again").unwrap();
    let sandbox = pods::run_sandbox(&client, &config).await.unwrap();
    assert_eq!(next(&mut stream).await.container_id, sandbox);
}
