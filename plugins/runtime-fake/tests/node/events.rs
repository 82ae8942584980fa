//! The stream of container events.

use std::collections::BTreeSet;

use proto::cri::*;
use tonic::Code;

use crate::rig::{pass, rig};

#[tokio::test(start_paused = true)]
async fn every_step_of_a_life_is_told_with_the_pods_state() {
    let mut rig = rig().await;
    let mut events = rig.runtime.get_container_events(GetEventsRequest {}).await.unwrap().into_inner();
    let sandbox = rig.sandbox("a").await;
    let id = rig.running(&sandbox, "c", "sleep 1; exit 2").await;
    pass(2).await;
    rig.runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: sandbox.clone() }).await.unwrap();

    use ContainerEventType::*;
    let expected = [
        (&sandbox, ContainerCreatedEvent, 0),
        (&sandbox, ContainerStartedEvent, 0),
        (&id, ContainerCreatedEvent, 1),
        (&id, ContainerStartedEvent, 1),
        (&id, ContainerStoppedEvent, 1),
        (&sandbox, ContainerStoppedEvent, 1),
        (&id, ContainerDeletedEvent, 0),
    ];
    for (who, what, containers) in expected {
        let event = events.message().await.unwrap().unwrap();
        assert_eq!((&event.container_id, event.container_event_type()), (who, what));
        assert_eq!(event.pod_sandbox_status.unwrap().metadata.unwrap().uid, "uid-a");
        assert_eq!(event.containers_statuses.len(), containers);
        if what == ContainerStoppedEvent {
            assert_eq!(event.containers_statuses[0].exit_code, 2);
        }
    }
    let last = events.message().await.unwrap().unwrap();
    assert_eq!((last.container_event_type(), last.container_id), (ContainerDeletedEvent, sandbox));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_too_slow_is_told_so_and_others_are_not_disturbed() {
    let mut rig = rig().await;
    let mut slow = rig.runtime.get_container_events(GetEventsRequest {}).await.unwrap().into_inner();
    let mut quick = rig.runtime.get_container_events(GetEventsRequest {}).await.unwrap().into_inner();
    let sandbox = rig.sandbox("a").await;
    let reader = tokio::spawn(async move {
        let mut seen = BTreeSet::new();
        while seen.len() < 3_000 {
            let event = quick.message().await.unwrap().unwrap();
            if event.container_event_type() == ContainerEventType::ContainerDeletedEvent {
                seen.insert(event.container_id);
            }
        }
    });
    for _ in 0..3_000 {
        let id = rig.running(&sandbox, "c", "sleep 9").await;
        rig.runtime.remove_container(RemoveContainerRequest { container_id: id }).await.unwrap();
    }
    reader.await.unwrap();
    let lost = loop {
        match slow.message().await {
            Ok(event) => assert!(event.is_some(), "the stream ended without a word"),
            Err(status) => break status,
        }
    };
    assert_eq!(lost.code(), Code::DataLoss);
    assert!(lost.message().contains("events are lost"), "{lost}");
}
