//! Removes dead instances of a running pod, and everything of a pod that is gone.

use std::time::Duration;

use clients::runtime::RuntimeError;
use futures_util::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::types::{ContainerInstance, RuntimeContainer, RuntimePod, SandboxId};
use logic_resources::gc::Garbage;

use super::{files, sandbox};
use crate::worker::Peers;
use crate::worker::context::{KillsInProgress, SyncProblem, SyncResult};
use crate::worker::retries::RetryKey;

/// Dead instances that could not be removed take up little: the retry can wait.
const GARBAGE_RETRY_PERIOD: Duration = Duration::from_secs(60);

/// Removes one instance and its log.
pub(super) async fn instance(
    peers: &Peers,
    pod: &Pod,
    instance: &ContainerInstance,
) -> Result<(), RuntimeError> {
    peers.runtime.remove_container(&instance.id).await?;
    files::remove_log(pod, instance, &peers.rules.node).await;
    Ok(())
}

/// Removes dead instances; a failure is retried after its back-off. Unfinished kills stay as they are.
pub(in crate::worker) async fn garbage(
    peers: &Peers,
    pod: &Pod,
    garbage: Garbage,
    kills_in_progress: KillsInProgress,
) -> SyncResult {
    let uid = pod.uid();
    let dead = garbage.containers.iter();
    let containers = dead.map(|dead| instance(peers, pod, dead));
    let mut results = join_all(containers).await;
    if results.iter().all(Result::is_ok) {
        let sandboxes = garbage.sandboxes.iter().map(|id| end_sandbox(peers, id));
        results.extend(join_all(sandboxes).await);
    }
    let mut problems = Vec::new();
    for error in results.into_iter().filter_map(Result::err) {
        tracing::warn!(pod = %uid, "cannot remove a dead instance: {}", error.describe());
        let problem = SyncProblem {
            waiting: None,
            retry_after: GARBAGE_RETRY_PERIOD,
        };
        problems.push((RetryKey::Garbage, problem));
    }
    SyncResult {
        problems,
        started: Vec::new(),
        kills_in_progress,
        runtime: peers.runtime.pod(&uid).await,
    }
}

/// Stops and removes a sandbox; only stopping releases its addresses, even if it is not ready.
async fn end_sandbox(peers: &Peers, id: &SandboxId) -> Result<(), RuntimeError> {
    peers.runtime.stop_sandbox(id).await?;
    peers.runtime.remove_sandbox(id).await
}

/// Removes a stopped pod's containers, sandboxes, logs and folders.
pub(in crate::worker) async fn everything(
    peers: &Peers,
    pod: &Pod,
    runtime: &RuntimePod,
) -> Result<(), RuntimeError> {
    let containers: Vec<ContainerInstance> = runtime
        .containers
        .iter()
        .map(RuntimeContainer::instance)
        .collect();
    try_join_all(
        containers
            .iter()
            .map(|container| instance(peers, pod, container)),
    )
    .await?;
    try_join_all(
        runtime
            .sandboxes
            .iter()
            .map(|sandbox| end_sandbox(peers, &sandbox.id)),
    )
    .await?;
    sandbox::release(peers, pod).await;
    files::remove_logs(pod, &peers.rules.node).await;
    files::remove_pod_folder(pod, &peers.rules.node).await;
    Ok(())
}

/// Removes what an ended pod has outside the runtime. Its dead containers, its stopped sandboxes and its logs stay.
pub(in crate::worker) async fn all_but_containers(peers: &Peers, pod: &Pod) {
    sandbox::release(peers, pod).await;
    files::remove_pod_folder(pod, &peers.rules.node).await;
}
