//! The state that the steps of a plan share: their inputs, their progress, their results.
//!
//! The executor depends on the steps (kills, starts, the sandbox, resizes, removals); each of them on this file alone.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clients::runtime::RuntimeError;
use futures_util::future::{Either, select};
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use kernel::{Addr, watch};
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, PodUid, RuntimePod, SandboxId, WaitingReason};
use logic_placement::{ContainerPlacement, QuotaRule};
use logic_pods::runtime::call_limit::RuntimeCall;
use logic_pods::sandbox::SandboxConfig;
use logic_resources::node::policy::NodePolicy;
use logic_volumes::MountedVolumes;
use state::checkpoints::ContainerResources;

use super::metrics::PullTimings;
use super::retries::RetryKey;
use super::{Msg, Peers, PodGoal, PodWorkerState, RETRY_BACKOFF, RETRY_PERIOD};

use crate::runtime::call_limiter::{CallPermit, CallRank};

/// The result of a plan.
#[derive(Debug)]
pub struct SyncResult {
    /// The failures, by what is retried.
    pub(super) problems: Vec<(RetryKey, SyncProblem)>,
    /// Containers that run now, with the resources that they were started with or resized to.
    pub(super) started: Vec<(String, ResourceRequirements)>,
    /// Kills that were begun; one is removed when its container is seen exited.
    pub(super) kills_in_progress: KillsInProgress,
    /// When a sandbox was made; none if none was.
    pub(super) sandbox_made: Option<Instant>,
    /// Sandboxes that were stopped.
    pub(super) stopped: BTreeSet<SandboxId>,
    /// The pod's full state in the runtime after the last step.
    pub(super) runtime: Result<RuntimePod, RuntimeError>,
}

/// Why a step was not done, and when to retry it.
#[derive(Debug)]
pub(super) struct SyncProblem {
    pub(super) waiting: Option<WaitingReason>,
    pub(super) retry_after: Duration,
}

impl SyncProblem {
    /// Retries soon, whatever the error: for kills, and for a sandbox that came without an address.
    pub(super) fn soon() -> Self {
        SyncProblem {
            waiting: None,
            retry_after: RETRY_PERIOD,
        }
    }

    /// Not done, since the pod is to end.
    pub(super) fn superseded() -> Self {
        SyncProblem {
            waiting: None,
            retry_after: Duration::ZERO,
        }
    }

    pub(super) fn of(error: &RuntimeError) -> Self {
        let soon = error.transient() || error.is_clearing_up();
        SyncProblem {
            waiting: None,
            retry_after: if soon { RETRY_PERIOD } else { RETRY_BACKOFF },
        }
    }
}

/// Containers that a plan has created, with the CPUs that they run on.
pub(super) type PlacedContainers = Rc<RefCell<Vec<(ContainerId, String)>>>;

/// Carries out one plan: its inputs, and its progress.
#[derive(Debug)]
pub(super) struct PlanExecutor {
    pub(super) peers: Peers,
    /// The worker whose plan this is.
    pub(super) worker: Addr<Msg>,
    pub(super) uid: PodUid,
    pub(super) pod: Arc<Pod>,
    /// Watched for the pod's end while it syncs, and for a shorter grace period.
    pub(super) goal: watch::Receiver<PodGoal>,
    pub(super) stage: PodWorkerState,
    /// The pod's place among those that start.
    pub(super) rank: CallRank,
    /// Whether the plan ends containers to start them again.
    pub(super) replaces: bool,
    pub(super) ips: Vec<String>,
    pub(super) actuated: ContainerResources,
    /// The newest instance of each container, by name.
    pub(super) newest: BTreeMap<String, ContainerId>,
    /// By name, the instances that were made earlier and are started as they are.
    pub(super) created: BTreeMap<String, ContainerId>,
    /// The mounted volumes of the pod; empty until all are mounted, and then no container is started.
    pub(super) volumes: Arc<MountedVolumes>,
    /// Reported as each pull ends, not at the end of the plan.
    pub(super) pulls: PullTimings,
    /// Reported as each container is created, not at the end of the plan.
    pub(super) placed: PlacedContainers,
    pub(super) progress: PlanProgress,
}

/// The progress of a plan.
#[derive(Debug, Default)]
pub(super) struct PlanProgress {
    pub(super) sandbox: Option<SandboxId>,
    /// The config of the sandbox, if this plan created it.
    pub(super) made: Option<Arc<SandboxConfig>>,
    pub(super) made_at: Option<Instant>,
    pub(super) kills_in_progress: KillsInProgress,
    pub(super) stopped: BTreeSet<SandboxId>,
    pub(super) problems: Vec<(RetryKey, SyncProblem)>,
    pub(super) started: Vec<(String, ResourceRequirements)>,
}

impl PlanExecutor {
    /// Waits for the turn of a call that starts something; none when the pod is to end before.
    pub(super) async fn turn(&self, call: RuntimeCall) -> Option<CallPermit> {
        let turn = pin!(self.peers.gate.starts.enter(call, self.rank));
        match select(pin!(self.wait_for_end()), turn).await {
            Either::Left(((), _)) => None,
            Either::Right((permit, _)) => Some(permit),
        }
    }

    /// Resolves when the pod's goal is no longer to run, or its runtime is handed over.
    pub(super) async fn wait_for_end(&self) {
        let ended = async {
            let mut desired = self.goal.clone();
            // The pod manager's end of the goal is gone: the pod keeps running.
            if desired.wait_for(|desired| !desired.is_run()).await.is_err() {
                std::future::pending().await
            }
        };
        select(pin!(ended), pin!(self.peers.gate.closed())).await;
    }

    /// Where a container of the pod runs.
    pub(super) fn placement(&self, name: &str) -> ContainerPlacement {
        let assignments = &self.peers.assignments;
        let held = assignments.held();
        assignments.placement.container(&held, &self.pod, name)
    }

    /// Whether a container, or any of the pod's, has devices of device plugins.
    pub(super) fn has_devices(&self, container: Option<&str>) -> bool {
        let held = self.peers.assignments.held();
        let containers = held.get(&self.uid).into_iter();
        let mut containers = containers.flat_map(|own| &own.containers);
        containers.any(|(name, own)| {
            container.is_none_or(|wanted| wanted == name) && !own.devices.is_empty()
        })
    }

    /// The rules by which the pod as a whole is limited.
    pub(super) fn pod_policy(&self) -> Cow<'_, NodePolicy> {
        let (assignments, node) = (&self.peers.assignments, &self.peers.rules.node);
        let held = assignments.held();
        match assignments.placement.pod_quota(&held, &self.pod) {
            QuotaRule::Enforced => Cow::Borrowed(node),
            QuotaRule::Off => Cow::Owned(NodePolicy {
                cpu_quota_period: None,
                ..node.clone()
            }),
        }
    }

    /// The resources allocated to a container of the pod.
    pub(super) fn resources(&self, name: &str) -> Option<ResourceRequirements> {
        let (_, container) = self.pod.container(name)?;
        Some(container.resources.clone().unwrap_or_default())
    }
}

/// The state that all containers of a pod share.
#[derive(Debug)]
pub(super) struct PodContext {
    pub(super) sandbox: Arc<SandboxConfig>,
    /// The managed hosts file, once the pod has an address.
    pub(super) hosts: Option<PathBuf>,
}

/// The progress of killing a container.
#[derive(Debug, Clone, Copy)]
pub(super) struct KillProgress {
    /// The deadline for SIGKILL. Never moves back: a new grace period can only shorten it.
    pub(super) until: Instant,
    pub(super) hook: PreStopState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreStopState {
    Due,
    Run,
}

/// The kills under way, by instance.
pub(super) type KillsInProgress = BTreeMap<ContainerId, KillProgress>;
