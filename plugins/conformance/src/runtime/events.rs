//! Laws of the stream of container events.

use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use proto::cri::{
    ContainerEventResponse, ContainerEventType, ContainerState, GetEventsRequest, PodSandboxState,
    RemoveContainerRequest, StopPodSandboxRequest,
};

use super::super::{CheckResult, CheckStop, holds, same};
use super::case::{EXIT_SEVEN, RuntimeCase, SLEEP};
use super::{Events, RuntimeCheck};

/// Events come after the fact by a round trip; more is a lost event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) const LAWS: &[(&str, RuntimeCheck)] = &[
    (
        "life of a container is reported as created, started, stopped, deleted",
        |case| life(case).boxed(),
    ),
    (
        "exit by itself is reported with the state of its sandbox and containers",
        |case| exit(case).boxed(),
    ),
    ("each reader of the stream gets every event", |case| {
        two_readers(case).boxed()
    }),
];

async fn life(case: &mut RuntimeCase) -> CheckResult {
    let mut events = Box::pin(open(case)?);
    let (sandbox, id) = case.run_container(SLEEP).await?;
    case.stop(&id, 0).await?;
    case.reach(&id, ContainerState::ContainerExited).await?;
    case.runtime
        .remove_container(RemoveContainerRequest {
            container_id: id.clone(),
        })
        .await?;
    for wanted in [
        ContainerEventType::ContainerCreatedEvent,
        ContainerEventType::ContainerStartedEvent,
        ContainerEventType::ContainerStoppedEvent,
        ContainerEventType::ContainerDeletedEvent,
    ] {
        let mut event = next(&mut events, &id).await?;
        // The end may be reported twice: as it happened, and as the runtime records it.
        while wanted == ContainerEventType::ContainerDeletedEvent
            && event.container_event_type() == ContainerEventType::ContainerStoppedEvent
        {
            event = next(&mut events, &id).await?;
        }
        same("event", event.container_event_type(), wanted)?;
        holds(event.created_at > 0, || {
            format!("created_at of {wanted:?} is {}", event.created_at)
        })?;
        let status = event.pod_sandbox_status;
        same(
            "sandbox of the event",
            status.map(|status| status.id),
            Some(sandbox.id.clone()),
        )?;
    }
    Ok(())
}

async fn exit(case: &mut RuntimeCase) -> CheckResult {
    let mut events = Box::pin(open(case)?);
    let (sandbox, id) = case.run_container(EXIT_SEVEN).await?;
    loop {
        let event = next(&mut events, &id).await?;
        if event.container_event_type() != ContainerEventType::ContainerStoppedEvent {
            continue;
        }
        let status = event.pod_sandbox_status.unwrap_or_default();
        same(
            "sandbox",
            (status.id.as_str(), status.state()),
            (&sandbox.id, PodSandboxState::SandboxReady),
        )?;
        same(
            "metadata of the sandbox",
            status.metadata,
            sandbox.config.metadata.clone(),
        )?;
        let exited = event
            .containers_statuses
            .into_iter()
            .find(|status| status.id == id);
        let exited = exited.map(|status| (status.state(), status.exit_code));
        return same(
            "container in the event",
            exited,
            Some((ContainerState::ContainerExited, 7)),
        );
    }
}

async fn two_readers(case: &mut RuntimeCase) -> CheckResult {
    let mut readers = [Box::pin(open(case)?), Box::pin(open(case)?)];
    let (sandbox, id) = case.run_container(EXIT_SEVEN).await?;
    case.reach(&id, ContainerState::ContainerExited).await?;
    for events in &mut readers {
        let event = next(events, &id).await?;
        same(
            "first event",
            event.container_event_type(),
            ContainerEventType::ContainerCreatedEvent,
        )?;
    }
    case.runtime
        .stop_pod_sandbox(StopPodSandboxRequest {
            pod_sandbox_id: sandbox.id,
        })
        .await?;
    Ok(())
}

/// Opens the stream. It is read beside the check, because some servers answer only with the first
/// event.
fn open(
    case: &RuntimeCase,
) -> Result<impl Stream<Item = Result<ContainerEventResponse, tonic::Status>> + use<>, CheckStop> {
    if case.target.events == Events::Absent {
        return Err(CheckStop::Skipped("this runtime has no GetContainerEvents"));
    }
    let mut runtime = case.runtime.clone();
    // Holds the events of one check: a container's four and its sandbox's.
    let (events, read) = tokio::sync::mpsc::channel(256);
    tokio::spawn(async move {
        let mut stream = match runtime.get_container_events(GetEventsRequest {}).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => return drop(events.send(Err(status)).await),
        };
        while let Some(event) = stream.next().await {
            if events.send(event).await.is_err() {
                return;
            }
        }
    });
    Ok(tokio_stream::wrappers::ReceiverStream::new(read))
}

/// Returns the next event of this container.
async fn next<S>(events: &mut S, container: &str) -> Result<ContainerEventResponse, CheckStop>
where
    S: Stream<Item = Result<ContainerEventResponse, tonic::Status>> + Unpin,
{
    let found = async {
        while let Some(event) = events.next().await {
            let event = event?;
            if event.container_id == container {
                return Ok(event);
            }
        }
        Err(CheckStop::Broken("the stream of events ended".to_owned()))
    };
    let late = |_| {
        CheckStop::Broken(format!(
            "no further event of the container within {EVENT_TIMEOUT:?}"
        ))
    };
    tokio::time::timeout(EVENT_TIMEOUT, found)
        .await
        .map_err(late)?
}
