//! Removes containers whose processes containerd has forgotten.
//!
//! A start that is broken off leaves the container exited and, at times, its task alive: `runc init` waits for a start
//! that never comes. containerd then refuses for ever to remove the container ("cannot delete running task"), and CRI
//! has no call that ends such a task. It is ended here by containerd's own service, and the container removed.

use std::time::Duration;

use proto::containerd_tasks::tasks_client::TasksClient;
use proto::containerd_tasks::{DeleteTaskRequest, KillRequest};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Status};

use crate::connection::RuntimeConnection;

pub(crate) const REMOVE_CONTAINER: &str = "/runtime.v1.RuntimeService/RemoveContainer";
/// containerd's client (container.go) says so of any task that is still there.
const REFUSAL: &str = "cannot delete running task";
const SIGKILL: u32 = 9;
/// A killed task takes a moment to end.
const DELETE_ATTEMPTS: u32 = 20;
const DELETE_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Whether the runtime refuses to remove a container because of a task that it has left.
pub(crate) fn is_left(refusal: &Status) -> bool {
    refusal.message().contains(REFUSAL)
}

/// Ends and removes the task of a container that has exited.
pub(crate) async fn end(
    connection: &RuntimeConnection,
    namespace: &str,
    container: &str,
) -> Result<(), Status> {
    let namespace: MetadataValue<Ascii> = namespace
        .parse()
        .map_err(|_| Status::invalid_argument("containerd's namespace is no header value"))?;
    let mut tasks = TasksClient::new(connection.clone());
    let kill = KillRequest {
        container_id: container.to_owned(),
        signal: SIGKILL,
        all: true,
        ..Default::default()
    };
    let killed = tasks.kill(within(&namespace, kill)).await;
    if let Err(refusal) = killed
        && refusal.code() != Code::NotFound
    {
        tracing::debug!(container, %refusal, "its task cannot be killed");
    }
    let mut deleted = Ok(());
    for _ in 0..DELETE_ATTEMPTS {
        let delete = DeleteTaskRequest {
            container_id: container.to_owned(),
        };
        deleted = match tasks.delete(within(&namespace, delete)).await {
            Ok(_) => return Ok(()),
            Err(refusal) if refusal.code() == Code::NotFound => return Ok(()),
            Err(refusal) => Err(refusal),
        };
        tokio::time::sleep(DELETE_RETRY_INTERVAL).await;
    }
    deleted
}

fn within<T>(namespace: &MetadataValue<Ascii>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("containerd-namespace", namespace.clone());
    request
}
