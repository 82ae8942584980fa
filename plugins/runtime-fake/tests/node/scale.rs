//! A thousand pods.

use std::time::Duration;

use futures_util::StreamExt;
use proto::cri::*;

use crate::rig::{container_config, create, pass, rig, run, sandbox_config};

const PODS: usize = 1_000;

#[tokio::test(start_paused = true)]
async fn a_thousand_pods_at_once_all_run_and_all_end() {
    let mut rig = rig().await;
    let mut events = rig
        .runtime
        .get_container_events(GetEventsRequest {})
        .await
        .unwrap()
        .into_inner();
    let stopped = tokio::spawn(async move {
        let mut stopped = 0;
        while stopped < PODS {
            let event = events.message().await.unwrap().unwrap();
            stopped += usize::from(
                event.container_event_type() == ContainerEventType::ContainerStoppedEvent,
            );
        }
    });
    let runtime = rig.runtime.clone();
    let pods = futures_util::stream::iter(0..PODS).map(|n| {
        let mut runtime = runtime.clone();
        async move {
            let sandbox = run(&mut runtime, sandbox_config(&format!("p{n}")))
                .await
                .unwrap();
            let config = container_config("c", "sleep 30; exit 1");
            let container_id = create(&mut runtime, &sandbox, config).await.unwrap();
            runtime
                .start_container(StartContainerRequest { container_id })
                .await
                .unwrap();
        }
    });
    pods.buffer_unordered(64).collect::<Vec<_>>().await;

    let running = ContainerStateValue {
        state: ContainerState::ContainerRunning.into(),
    };
    let filter = ContainerFilter {
        state: Some(running),
        ..ContainerFilter::default()
    };
    assert_eq!(rig.containers(filter.clone()).await.len(), PODS);
    let request = StreamContainersRequest {
        filter: Some(filter.clone()),
    };
    let mut pieces = rig
        .runtime
        .stream_containers(request)
        .await
        .unwrap()
        .into_inner();
    let mut streamed = 0;
    while let Some(piece) = pieces.message().await.unwrap() {
        streamed += piece.containers.len();
    }
    assert_eq!(streamed, PODS);

    pass(31).await;
    tokio::time::timeout(Duration::from_secs(60), stopped)
        .await
        .unwrap()
        .unwrap();
    assert!(rig.containers(filter).await.is_empty());
}
