//! Calls that wait: delays, stops, commands, event streams. No lock is held while they do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cri_server::StreamingRequest;
use cri_server::list::ResponseStream;
use proto::cri::*;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self};
use tonic::Status;

use crate::node::CriError;
use crate::settings::annotations::ContainerTuning;
use crate::settings::duration::DurationSetting;
use crate::shared::{FaultSubject, SharedNode};

pub(super) async fn pause(delay: DurationSetting) {
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
pub(super) fn created_name(shared: &SharedNode, request: &CreateContainerRequest) -> FaultSubject {
    let sandbox = shared
        .node()
        .sandbox(&request.pod_sandbox_id)
        .map(|(_, sandbox)| sandbox.config());
    let meta = sandbox
        .ok()
        .and_then(|config| config.metadata)
        .unwrap_or_default();
    FaultSubject::Named(format!(
        "{}/{}/{}",
        meta.namespace,
        meta.name,
        container_name(request)
    ))
}

pub(super) fn create_delay(
    shared: &SharedNode,
    request: &CreateContainerRequest,
) -> DurationSetting {
    let node = shared.node();
    let pod = node
        .sandbox(&request.pod_sandbox_id)
        .map(|(_, sandbox)| sandbox.config().annotations);
    let tuning = request
        .config
        .as_ref()
        .map(|config| ContainerTuning::of(&pod.unwrap_or_default(), config));
    tuning.and_then(Result::ok).unwrap_or_default().create_delay
}

/// Stops a container: its stop signal, then after the timeout SIGKILL.
pub(super) async fn stop(
    shared: &SharedNode,
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
    shared: &SharedNode,
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
            biased;
            () = exec_timeout(request.timeout) => Err(CriError::TooSlow(request.timeout).into()),
            _ = ending => Ok(killed),
        },
    }
}

/// Returns the URL under which a client may run a command in a container, attach to it, or connect to ports of a pod.
pub(super) async fn streaming_url(
    shared: &Arc<SharedNode>,
    request: StreamingRequest,
) -> Result<String, Status> {
    request.validate()?;
    match &request {
        StreamingRequest::Exec(exec) => {
            drop(shared.node().command(&exec.container_id, &exec.cmd)?);
        }
        StreamingRequest::Attach(attach) => drop(shared.node().attach(&attach.container_id)?),
        // Whatever is behind the ports: the pod must run.
        StreamingRequest::PortForward(forward) => {
            shared.node().target(&forward.pod_sandbox_id, 0)?;
        }
    }
    shared.url(request).await
}

async fn exec_timeout(seconds: i64) {
    match u64::try_from(seconds) {
        Ok(seconds @ 1..) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        Ok(0) | Err(_) => std::future::pending().await,
    }
}

/// Returns the events from now on. A reader that is too slow gets an error, and its stream ends.
pub(super) fn events(
    from: broadcast::Receiver<Arc<ContainerEventResponse>>,
) -> ResponseStream<ContainerEventResponse> {
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

pub(super) fn status(shared: &SharedNode, verbose: bool) -> StatusResponse {
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
            supplemental_groups_policy: faults.supplemental_groups_policy(),
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
