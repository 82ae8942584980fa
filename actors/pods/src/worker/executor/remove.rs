//! Removes dead instances of a running pod, and everything of a pod that is gone.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use clients::runtime::RuntimeError;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::types::{ContainerInstance, RuntimePod, SandboxId};
use logic_pods::pod_actions::RemovedLog;
use logic_pods::runtime::call_limit::RuntimeCall;
use logic_resources::gc::Garbage;
use state::{checkpoints, status as status_manager};

use super::{STORED_TIMEOUT, files, sandbox};
use crate::runtime::call_limiter::CallRank;
use crate::worker::Peers;
use crate::worker::context::{KillsInProgress, SyncProblem, SyncResult};
use crate::worker::retries::RetryKey;

/// Dead instances that could not be removed take up little: the retry can wait.
const GARBAGE_RETRY_PERIOD: Duration = Duration::from_secs(60);

/// What is left of a pod that was to be removed.
#[derive(Debug, Default)]
pub struct NotRemoved {
    /// What the runtime has not removed, by name, each with the reason.
    remains: Vec<String>,
    /// Processes in the pod's cgroup that were killed and have not ended.
    alive: Vec<u32>,
    /// Whether the runtime refuses one of these calls, so that it will refuse it again.
    refused: bool,
}

impl NotRemoved {
    fn add(&mut self, name: String, removed: Result<(), RuntimeError>) {
        if let Err(error) = removed {
            self.refused |= !error.transient() && !error.is_clearing_up();
            self.remains.push(format!("{name}: {}", error.describe()));
        }
    }

    fn is_empty(&self) -> bool {
        self.remains.is_empty() && self.alive.is_empty()
    }

    /// Whether something of the pod still runs.
    pub(in crate::worker) fn is_alive(&self) -> bool {
        !self.alive.is_empty()
    }

    pub(in crate::worker) fn is_refused(&self) -> bool {
        self.refused
    }
}

impl fmt::Display for NotRemoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alive = self
            .alive
            .iter()
            .map(|pid| format!("process {pid}: killed, but has not ended"));
        let all: Vec<String> = alive.chain(self.remains.iter().cloned()).collect();
        f.write_str(&all.join("; "))
    }
}

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
        sandbox_made: None,
        stopped: BTreeSet::new(),
        runtime: peers.runtime.pod(&uid).await,
    }
}

/// Stops and removes a sandbox; only stopping releases its addresses, even if it is not ready.
async fn end_sandbox(peers: &Peers, id: &SandboxId) -> Result<(), RuntimeError> {
    peers.runtime.stop_sandbox(id).await?;
    peers.runtime.remove_sandbox(id).await
}

/// Stops the sandboxes that are not stopped yet: each stop makes a runtime take the network down once more.
async fn stop_sandboxes(peers: &Peers, runtime: &RuntimePod, stopped: &mut BTreeSet<SandboxId>) {
    let all = runtime.sandboxes.iter().map(|old| &old.id);
    let stops = all.filter(|id| !stopped.contains(id)).map(async |id| {
        // One that cannot be stopped cannot be removed either, which tells why.
        peers.runtime.stop_sandbox(id).await.ok().map(|()| id)
    });
    let now = join_all(stops).await;
    stopped.extend(now.into_iter().flatten().cloned());
}

/// Removes a stopped pod's containers, sandboxes and folders, and its logs or not. `stopped` are the sandboxes that need no
/// other stop.
pub(in crate::worker) async fn everything(
    peers: &Peers,
    pod: &Pod,
    (runtime, stopped): (&RuntimePod, BTreeSet<SandboxId>),
    logs: RemovedLog,
) -> Result<(), NotRemoved> {
    let containers = async |container: &ContainerInstance| match logs {
        RemovedLog::Removed => instance(peers, pod, container).await,
        RemovedLog::Kept => peers.runtime.remove_container(&container.id).await,
    };
    let end = PodEnd::of(peers, pod, runtime, stopped).await;
    if end.is_over(runtime) && !pod.is_static() {
        // As upstream the API forgets the pod now. The worker sends it again when everything is removed.
        let forget = status_manager::Msg::Forget { uid: pod.uid() };
        drop(peers.state.statuses.tell(forget));
    }
    // Removing costs a runtime as much as stopping: what is dead goes after what still has to stop.
    let stops = &peers.gate.stops;
    let permit = stops
        .enter(RuntimeCall::SandboxStop, CallRank::last())
        .await;
    instances(peers, end, runtime, containers).await?;
    drop(permit);
    sandbox::release(peers, pod).await;
    if logs == RemovedLog::Removed {
        files::remove_logs(pod, &peers.rules.node).await;
    }
    files::remove_pod_folder(pod, &peers.rules.node).await;
    Ok(())
}

/// Removes a stopped pod from a runtime that it leaves. Its logs, volumes and folders stay, and its record is on the disk before.
pub(in crate::worker) async fn cleared(
    peers: &Peers,
    pod: &Pod,
    runtime: &RuntimePod,
    stopped: BTreeSet<SandboxId>,
) -> Result<(), NotRemoved> {
    let stored = |reply| checkpoints::Msg::Stored { reply };
    let mut left = NotRemoved::default();
    if let Err(error) = peers.state.checkpoints.ask(STORED_TIMEOUT, stored).await {
        left.remains.push(format!(
            "everything: the pod's record is not stored: {error}"
        ));
        return Err(left);
    }
    let containers =
        async |container: &ContainerInstance| peers.runtime.remove_container(&container.id).await;
    let end = PodEnd::of(peers, pod, runtime, stopped).await;
    instances(peers, end, runtime, containers).await?;
    if let Err(error) = peers.cgroups.remove(pod).await {
        tracing::warn!(pod = %pod.uid(), "the pod's cgroup stays: {error}");
    }
    Ok(())
}

/// A pod whose sandboxes are stopped and whose processes are killed.
struct PodEnd {
    stopped: BTreeSet<SandboxId>,
    left: NotRemoved,
}

impl PodEnd {
    /// Stops what is not stopped yet, and kills what containers have left running.
    async fn of(
        peers: &Peers,
        pod: &Pod,
        runtime: &RuntimePod,
        mut stopped: BTreeSet<SandboxId>,
    ) -> PodEnd {
        stop_sandboxes(peers, runtime, &mut stopped).await;
        let mut left = NotRemoved::default();
        match peers.cgroups.kill(pod).await {
            Ok(alive) => left.alive = alive,
            Err(error) => tracing::warn!(pod = %pod.uid(), "its cgroup is not looked at: {error}"),
        }
        PodEnd { stopped, left }
    }

    /// Whether nothing of the pod runs, and its addresses are released.
    fn is_over(&self, runtime: &RuntimePod) -> bool {
        let mut sandboxes = runtime.sandboxes.iter();
        !self.left.is_alive() && sandboxes.all(|old| self.stopped.contains(&old.id))
    }
}

/// Removes a stopped pod's sandboxes and containers, these by `remove`.
///
/// Removing a sandbox removes its containers by other means than removing them: what the one call refuses, the other may do.
async fn instances(
    peers: &Peers,
    PodEnd { stopped, mut left }: PodEnd,
    runtime: &RuntimePod,
    remove: impl AsyncFn(&ContainerInstance) -> Result<(), RuntimeError>,
) -> Result<(), NotRemoved> {
    let sandboxes = &runtime.sandboxes;
    let containers = runtime.containers.iter().map(async |container| {
        let removed = remove(&container.instance()).await;
        (container, removed)
    });
    let containers = join_all(containers).await;
    let removals = sandboxes.iter().map(async |old| {
        let removed = match stopped.contains(&old.id) {
            true => peers.runtime.remove_sandbox(&old.id).await,
            false => end_sandbox(peers, &old.id).await,
        };
        (old, removed)
    });
    for (old, removed) in join_all(removals).await {
        left.add(format!("sandbox {}", old.id), removed);
    }
    if !left.is_empty() || sandboxes.is_empty() {
        for (container, removed) in containers {
            left.add(
                format!("container {} ({})", container.name, container.id),
                removed,
            );
        }
    }
    match left.is_empty() {
        true => Ok(()),
        false => Err(left),
    }
}

/// Removes what an ended pod has outside the runtime. Its dead containers, its stopped sandboxes and its logs stay.
pub(in crate::worker) async fn all_but_containers(peers: &Peers, pod: &Pod) {
    sandbox::release(peers, pod).await;
    files::remove_pod_folder(pod, &peers.rules.node).await;
}
