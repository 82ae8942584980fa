//! The runtime's own word on what happens, with its own times: what both agents are measured by.

use std::time::Duration;

use anyhow::{Context, Result};
use proto::cri::{ContainerEventResponse, ContainerEventType, GetEventsRequest};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::Status;

use crate::agent::Cri;

/// One container's creation, start or end.
#[derive(Clone, Debug)]
pub(super) struct ObservedEvent {
    pub(super) kind: ContainerEventType,
    /// By the runtime's clock, which is the wall's.
    pub(super) at: i64,
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) attempt: u32,
}

/// Everything that happens from now on.
#[derive(Debug)]
pub(super) struct EventWatch {
    events: mpsc::UnboundedReceiver<Result<ObservedEvent, Status>>,
    reader: JoinHandle<()>,
}

impl EventWatch {
    pub(super) async fn start(cri: &Cri) -> Result<Self> {
        let stream = cri
            .runtime()
            .get_container_events(GetEventsRequest {})
            .await;
        let mut stream = stream.context("no container events")?.into_inner();
        let (sender, events) = mpsc::unbounded_channel();
        // Read at once, in a task of its own: the runtime ends a stream that lags.
        let reader = tokio::spawn(async move {
            loop {
                let next = match stream.message().await {
                    Ok(Some(event)) => observed(event).map(Ok),
                    Ok(None) => return,
                    Err(status) => Some(Err(status)),
                };
                if next.is_some_and(|next| sender.send(next).is_err()) {
                    return;
                }
            }
        });
        Ok(Self { events, reader })
    }

    /// Waits for the next event that fits.
    pub(super) async fn until(
        &mut self,
        within: Duration,
        what: &str,
        fits: impl Fn(&ObservedEvent) -> bool,
    ) -> Result<ObservedEvent> {
        let found = async {
            loop {
                let happened = self
                    .events
                    .recv()
                    .await
                    .context("the event stream ended")?
                    .context("the event stream broke")?;
                if fits(&happened) {
                    return anyhow::Ok(happened);
                }
            }
        };
        let found = tokio::time::timeout(within, found).await;
        found.with_context(|| format!("not within {within:?}: {what}"))?
    }

    /// Waits for the end of a pod's container.
    pub(super) async fn ended(
        &mut self,
        within: Duration,
        manifest: &str,
    ) -> Result<ObservedEvent> {
        let what = format!("a container of {manifest} ends");
        let is_end = |happened: &ObservedEvent| {
            let ended = ContainerEventType::ContainerStoppedEvent;
            happened.kind == ended && happened.pod.starts_with(&format!("{manifest}-"))
        };
        self.until(within, &what, is_end).await
    }

    /// Waits for a container's first start in each of so many pods; returns the last one.
    pub(super) async fn started(&mut self, pods: usize, within: Duration) -> Result<ObservedEvent> {
        let deadline = tokio::time::Instant::now() + within;
        let mut last = None;
        for nth in 0..pods {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let what = format!("{pods} containers started, {nth} did");
            let is_start = |happened: &ObservedEvent| {
                happened.kind == ContainerEventType::ContainerStartedEvent
            };
            last = Some(self.until(left, &what, is_start).await?);
        }
        last.context("no pods to wait for")
    }
}

impl Drop for EventWatch {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Events of sandboxes are of no interest: they have no container status.
fn observed(event: ContainerEventResponse) -> Option<ObservedEvent> {
    let kind = event.container_event_type();
    let mut statuses = event.containers_statuses.into_iter();
    let container = statuses
        .find(|status| status.id == event.container_id)?
        .metadata?;
    let pod = event.pod_sandbox_status?.metadata?;
    Some(ObservedEvent {
        kind,
        at: event.created_at,
        pod: pod.name,
        container: container.name,
        attempt: container.attempt,
    })
}
