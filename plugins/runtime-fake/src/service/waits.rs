//! Calls that wait: delays, stops, commands, event streams. No lock is held while they do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proto::cri::*;
use tokio::sync::broadcast::{self, error::RecvError};
use tonic::Status;

use crate::annotations::Tuning;
use crate::duration::GoDuration;
use crate::node::Refusal;
use crate::service::Answers;
use crate::shared::{Shared, Subject};
use crate::streaming::Asked;

pub(super) async fn pause(delay: GoDuration) {
    if !delay.0.is_zero() {
        tokio::time::sleep(delay.0).await;
    }
}

fn container_name(request: &CreateContainerRequest) -> &str {
    let meta = request
        .config
        .as_ref()
        .and_then(|config| config.metadata.as_ref());
    meta.map_or("", |meta| meta.name.as_str())
}

/// Returns the name of a container that is to be made.
pub(super) fn created_name(shared: &Shared, request: &CreateContainerRequest) -> Subject {
    let sandbox = shared
        .node()
        .sandbox(&request.pod_sandbox_id)
        .map(|(_, sandbox)| sandbox.config());
    let meta = sandbox
        .ok()
        .and_then(|config| config.metadata)
        .unwrap_or_default();
    Subject::Named(format!(
        "{}/{}/{}",
        meta.namespace,
        meta.name,
        container_name(request)
    ))
}

pub(super) fn create_delay(shared: &Shared, request: &CreateContainerRequest) -> GoDuration {
    let node = shared.node();
    let pod = node
        .sandbox(&request.pod_sandbox_id)
        .map(|(_, sandbox)| sandbox.config().annotations);
    let tuning = request
        .config
        .as_ref()
        .map(|config| Tuning::of(&pod.unwrap_or_default(), config));
    tuning.and_then(Result::ok).unwrap_or_default().create_delay
}

/// Stops a container: its stop signal, then after the timeout SIGKILL.
pub(super) async fn stop(
    shared: &Shared,
    request: StopContainerRequest,
) -> Result<StopContainerResponse, Status> {
    let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
    if grace.is_zero() {
        let mut node = shared.node();
        if let Ok((seq, _)) = node.container(&request.container_id) {
            node.kill(seq);
        }
        return Ok(StopContainerResponse {});
    }
    let begun = shared.node().begin_stop(&request.container_id);
    if let Some((seq, ending)) = begun
        && tokio::time::timeout(grace, ending).await.is_err()
    {
        shared.node().kill(seq);
    }
    Ok(StopContainerResponse {})
}

/// Runs a command in a container and answers when it is over.
pub(super) async fn exec(
    shared: &Shared,
    request: ExecSyncRequest,
) -> Result<ExecSyncResponse, Status> {
    let (executed, ending, clock) = {
        let mut node = shared.node();
        let executed = node.exec(&request)?;
        let ending = node.ending(executed.container);
        (executed, ending, node.clock)
    };
    let killed = ExecSyncResponse {
        exit_code: 137,
        ..ExecSyncResponse::default()
    };
    // Each arm only waits. The answer first: a command that kills its own container still has one.
    match executed.answer {
        Some((response, at)) => tokio::select! {
            biased;
            () = tokio::time::sleep_until(clock.instant(at)) => Ok(response),
            _ = ending => Ok(killed),
        },
        None => tokio::select! {
            () = patience(request.timeout) => Err(Refusal::TooSlow(request.timeout).into()),
            _ = ending => Ok(killed),
        },
    }
}

/// Returns the URL under which a client may run a command in a container.
pub(super) async fn exec_url(shared: &Arc<Shared>, request: ExecRequest) -> Result<String, Status> {
    let ExecRequest {
        stdin,
        stdout,
        stderr,
        tty,
        ..
    } = request;
    check_streams([stdin, stdout, stderr], tty)?;
    drop(shared.node().command(&request.container_id, &request.cmd)?);
    shared.url(Asked::Exec(request)).await
}

/// Returns the URL under which a client may attach to a container.
pub(super) async fn attach_url(
    shared: &Arc<Shared>,
    request: AttachRequest,
) -> Result<String, Status> {
    let AttachRequest {
        stdin,
        stdout,
        stderr,
        tty,
        ..
    } = request;
    check_streams([stdin, stdout, stderr], tty)?;
    drop(shared.node().attach(&request.container_id)?);
    shared.url(Asked::Attach(request)).await
}

/// Returns the URL under which a client may connect to ports of a pod.
pub(super) async fn forward_url(
    shared: &Arc<Shared>,
    request: PortForwardRequest,
) -> Result<String, Status> {
    // Whatever is behind them: the pod must run.
    shared.node().target(&request.pod_sandbox_id, 0)?;
    shared.url(Asked::PortForward(request)).await
}

fn check_streams(wanted: [bool; 3], tty: bool) -> Result<(), Status> {
    if tty && wanted[2] {
        return Err(Status::invalid_argument(
            "tty and stderr cannot both be true",
        ));
    }
    if wanted == [false; 3] {
        return Err(Status::invalid_argument(
            "one of stdin, stdout, or stderr must be set",
        ));
    }
    Ok(())
}

async fn patience(seconds: i64) {
    match u64::try_from(seconds) {
        Ok(seconds @ 1..) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        Ok(0) | Err(_) => std::future::pending().await,
    }
}

/// Returns the events from now on. A reader that is too slow is told so, and its stream ends.
pub(super) fn events(
    from: broadcast::Receiver<Arc<ContainerEventResponse>>,
) -> Answers<ContainerEventResponse> {
    Box::pin(futures_util::stream::unfold(Some(from), |from| async {
        let mut from = from?;
        match from.recv().await {
            Ok(event) => Some((Ok(ContainerEventResponse::clone(&event)), Some(from))),
            Err(RecvError::Lagged(missed)) => {
                let status = Status::data_loss(format!(
                    "the reader is too slow: {missed} events are lost to it"
                ));
                Some((Err(status), None))
            }
            Err(RecvError::Closed) => None,
        }
    }))
}

pub(super) fn status(shared: &Shared, verbose: bool) -> StatusResponse {
    let faults = shared.faults();
    let condition = |name: &str, status: bool| RuntimeCondition {
        r#type: name.to_owned(),
        status,
        reason: if status {
            String::new()
        } else {
            "Scripted".to_owned()
        },
        message: if status {
            String::new()
        } else {
            format!("{name} is scripted to be false")
        },
    };
    let conditions = vec![
        condition("RuntimeReady", faults.runtime_ready()),
        condition("NetworkReady", faults.network_ready()),
    ];
    let info = serde_json::json!({ "script": faults.complaint().unwrap_or("reads"), "folder": shared.mountpoint });
    let mut handlers = vec![String::new()];
    handlers.extend(faults.runtime_handlers().iter().cloned());
    let able = RuntimeHandlerFeatures {
        recursive_read_only_mounts: true,
        user_namespaces: true,
    };
    StatusResponse {
        status: Some(RuntimeStatus { conditions }),
        info: if verbose {
            HashMap::from([("info".to_owned(), info.to_string())])
        } else {
            HashMap::new()
        },
        runtime_handlers: handlers
            .into_iter()
            .map(|name| RuntimeHandler {
                name,
                features: Some(able),
            })
            .collect(),
        features: Some(RuntimeFeatures {
            supplemental_groups_policy: true,
            user_namespaces_host_network: false,
            mount_options: false,
        }),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[tokio::test]
    async fn a_reader_that_is_too_slow_is_told_so_and_others_are_not_disturbed() {
        let sender = broadcast::Sender::new(2);
        let (mut slow, mut quick) = (events(sender.subscribe()), events(sender.subscribe()));
        for _ in 0..3 {
            sender
                .send(Arc::new(ContainerEventResponse::default()))
                .unwrap();
            quick.next().await.unwrap().unwrap();
        }
        let lost = slow.next().await.unwrap().unwrap_err();
        assert_eq!(lost.code(), tonic::Code::DataLoss);
        assert!(slow.next().await.is_none());
    }
}
