//! The stream of container events.

use proto::cri::*;

use crate::rig::{pass, rig};

#[tokio::test(start_paused = true)]
async fn every_step_of_a_life_is_told_with_the_pods_state() {
    let mut rig = rig().await;
    let mut events = rig
        .runtime
        .get_container_events(GetEventsRequest {})
        .await
        .unwrap()
        .into_inner();
    let sandbox = rig.sandbox("a").await;
    let id = rig.running(&sandbox, "c", "sleep 1; exit 2").await;
    pass(2).await;
    rig.runtime
        .remove_pod_sandbox(RemovePodSandboxRequest {
            pod_sandbox_id: sandbox.clone(),
        })
        .await
        .unwrap();

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
        assert_eq!(
            (&event.container_id, event.container_event_type()),
            (who, what)
        );
        assert_eq!(
            event.pod_sandbox_status.unwrap().metadata.unwrap().uid,
            "uid-a"
        );
        assert_eq!(event.containers_statuses.len(), containers);
        if what == ContainerStoppedEvent {
            assert_eq!(event.containers_statuses[0].exit_code, 2);
        }
    }
    let last = events.message().await.unwrap().unwrap();
    assert_eq!(
        (last.container_event_type(), last.container_id),
        (ContainerDeletedEvent, sandbox)
    );
}
