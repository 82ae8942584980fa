//! A pod's sandbox: its configuration and its creation.
//!
//! Upstream: kuberuntime_sandbox.go (createPodSandbox), kubelet.go (SyncPod), 1.36.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clients::runtime::{RuntimeError, RuntimePodUpdate};
use futures_util::TryFutureExt;
use futures_util::future::{Either, select, try_join3};
use k8s_openapi::api::core::v1::Pod;
use logic_api::linux::UserNamespace;
use logic_api::pod::PodView;
use logic_api::types::{
    EventLevel, HistoryEvent, RuntimePod, RuntimeSandbox, SandboxId, WaitingReason,
};
use logic_pods::runtime::call_limit::RuntimeCall;
use logic_pods::sandbox::{
    SandboxConfig, SandboxConfigError, SandboxInput, SandboxRequest, creation_failed,
    sandbox_config,
};
use logic_pods::security::user_namespaces;
use logic_pods::security::user_namespaces::UserNamespaceUnsupported;
use metrics::pods::pod_starts;
use state::events::{EventType, InvolvedObject};
use state::user_namespaces::{Msg as Users, UserNamespaceError};
use thiserror::Error;

use super::{creation, files};
use crate::cgroups::pod_cgroups::PodCgroupError;
use crate::hosts::{self, NamesError};
use crate::pod_manager::claims::ClaimRequestError;
use crate::worker::context::{PlanExecutor, SyncProblem};
use crate::worker::{Msg, RETRY_BACKOFF, RETRY_PERIOD};

/// The user namespace manager writes a small file before it answers.
const USER_NAMESPACE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a sandbox could not be configured or created.
#[derive(Debug, Error)]
pub(super) enum SandboxError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Config(#[from] SandboxConfigError),
    #[error(transparent)]
    Names(#[from] NamesError),
    #[error(transparent)]
    Cgroup(#[from] PodCgroupError),
    #[error(transparent)]
    Users(#[from] UserNamespaceError),
    #[error(transparent)]
    Unsupported(#[from] UserNamespaceUnsupported),
    #[error("failed to prepare dynamic resources: {0}")]
    Claims(#[from] ClaimRequestError),
    #[error("the pod is to end")]
    Superseded,
    #[error("network is not ready: {0}")]
    NetworkNotReady(String),
    #[error("the user namespace manager does not answer")]
    Silent(#[source] kernel::AskError),
}

impl SandboxError {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Runtime(error) => error.describe(),
            Self::Config(error) => error.to_string(),
            Self::Names(error) => with_cause(error),
            Self::Cgroup(error) => error.to_string(),
            Self::Users(error) => error.to_string(),
            Self::Unsupported(error) => error.to_string(),
            Self::Superseded | Self::NetworkNotReady(_) | Self::Claims(_) => self.to_string(),
            Self::Silent(error) => with_cause(error),
        }
    }

    /// The event about it, with upstream's reason and message.
    fn event(&self) -> HistoryEvent {
        match self {
            Self::Cgroup(error) => HistoryEvent {
                object: None,
                weight: EventLevel::Warning,
                reason: "FailedCreatePodContainer".to_owned(),
                message: format!("unable to ensure pod container exists: {error}"),
            },
            Self::NetworkNotReady(_) => HistoryEvent {
                object: None,
                weight: EventLevel::Warning,
                reason: "NetworkNotReady".to_owned(),
                message: self.to_string(),
            },
            Self::Claims(error) => HistoryEvent {
                object: None,
                weight: EventLevel::Warning,
                reason: "FailedPrepareDynamicResources".to_owned(),
                message: format!("Failed to prepare dynamic resources: {error}"),
            },
            Self::Runtime(error) => creation_failed(&error.as_grpc_status()),
            Self::Config(_)
            | Self::Names(_)
            | Self::Users(_)
            | Self::Unsupported(_)
            | Self::Superseded
            | Self::Silent(_) => creation_failed(&self.describe()),
        }
    }

    /// When to retry.
    pub(super) fn problem(&self) -> SyncProblem {
        let transient = match self {
            Self::Runtime(error) => return SyncProblem::of(error),
            Self::Superseded => return SyncProblem::superseded(),
            Self::Config(error) => error.transient(),
            Self::Names(error) => error.transient(),
            Self::Cgroup(error) => error.transient(),
            Self::Users(error) => error.transient(),
            // A driver is not called each second for what it has refused.
            Self::Unsupported(_) | Self::Claims(_) => false,
            Self::NetworkNotReady(_) | Self::Silent(_) => true,
        };
        SyncProblem {
            waiting: None::<WaitingReason>,
            retry_after: if transient {
                RETRY_PERIOD
            } else {
                RETRY_BACKOFF
            },
        }
    }
}

fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

impl PlanExecutor {
    /// Creates the pod's sandbox, and reads its addresses.
    pub(super) async fn create_sandbox(&mut self, attempt: u32) -> Result<SandboxId, SandboxError> {
        if let Err(error) = self.check_network().await {
            if !self.is_over() {
                self.tell(&error.event());
            }
            return Err(error);
        }
        let result = self.make_sandbox(attempt).await;
        let wants_users = user_namespaces::requests_user_namespace(&self.pod);
        pod_starts::STARTED_PODS.inc();
        if wants_users {
            pod_starts::STARTED_USER_NAMESPACED.inc();
        }
        match &result {
            Ok(id) => self.ips = self.addresses(id).await?,
            // A pod that is deleted meanwhile takes its network and its objects with it: that is no error.
            Err(_) if self.is_over() => {}
            // Broken off by the node's own restarts: the next plan looks what is there.
            Err(SandboxError::Runtime(error)) if error.setback().is_some() => {}
            Err(error @ SandboxError::Claims(_)) => self.tell(&error.event()),
            Err(error) => {
                pod_starts::STARTED_PODS_ERRORS.inc();
                if wants_users {
                    pod_starts::STARTED_USER_NAMESPACED_ERRORS.inc();
                }
                self.tell(&error.event());
            }
        }
        result
    }

    /// Refuses a pod with a network of its own while the runtime's is not ready. A runtime that does not tell says so
    /// when it is asked for the sandbox.
    async fn check_network(&self) -> Result<(), SandboxError> {
        if self.pod.host_network() {
            return Ok(());
        }
        match self.peers.runtime.network_problem().await {
            Ok(Some(why)) => Err(SandboxError::NetworkNotReady(why)),
            Ok(None) => Ok(()),
            Err(error) => {
                tracing::debug!(pod = %self.uid, "network state unknown: {}", error.describe());
                Ok(())
            }
        }
    }

    async fn make_sandbox(&mut self, attempt: u32) -> Result<SandboxId, SandboxError> {
        files::make_pod_folders(&self.pod, &self.peers.rules.node).await;
        self.prepare_claims().await?;
        let request = self.sandbox_request(attempt).await?;
        for why in &request.why {
            self.tell(why);
        }
        for why in &request.node_why {
            self.notify_about(self.node(), why);
        }
        let turn = self.turn(RuntimeCall::Sandbox).await;
        let turn = turn.ok_or(SandboxError::Superseded)?;
        let runtime = &self.peers.runtime;
        let id = creation::once(
            async || runtime.run_sandbox(&request.config).await,
            async |holder| self.find_sandbox(attempt, holder).await,
        )
        .await?;
        turn.end();
        self.progress.made = Some(Arc::new(request.config));
        self.progress.made_at = Some(kernel::now());
        Ok(id)
    }

    /// Has drivers prepare the pod's claims: at each sandbox, as upstream, so that a node that was restarted does it anew.
    async fn prepare_claims(&self) -> Result<(), SandboxError> {
        let prepared = self.peers.claims.prepare(&self.pod);
        match select(pin!(prepared), pin!(self.wait_for_end())).await {
            Either::Left((prepared, _)) => Ok(prepared?),
            Either::Right(((), _)) => Err(SandboxError::Superseded),
        }
    }

    async fn addresses(&self, id: &SandboxId) -> Result<Vec<String>, SandboxError> {
        let sandbox = self.peers.runtime.sandbox(id).await?;
        let found = sandbox.as_ref().map(|sandbox| sandbox.ips.clone());
        self.show(sandbox);
        let host_ips = &self.peers.rules.node.host_ips;
        Ok(addresses(&self.pod, &found.unwrap_or_default(), host_ips))
    }

    /// Has the worker show its pod's new sandbox at once: images may take long, and not every runtime sends events.
    fn show(&self, sandbox: Option<RuntimeSandbox>) {
        let pod = RuntimePod {
            uid: self.uid.clone(),
            name: self.pod.name().to_owned(),
            namespace: self.pod.namespace().to_owned(),
            sandboxes: sandbox.into_iter().collect(),
            containers: Vec::new(),
        };
        let update = RuntimePodUpdate {
            pod,
            removed: None,
            at: kernel::now(),
        };
        if let Err(full) = self.worker.tell(Msg::Observed(Box::new(update))) {
            tracing::debug!(pod = %self.uid, "its sandbox shows when the plan is done: {full}");
        }
    }

    /// The sandbox's configuration as the pod has it now; its containers are created with the same one.
    pub(super) async fn sandbox_config(&self) -> Result<SandboxConfig, SandboxError> {
        Ok(self.sandbox_request(0).await?.config)
    }

    async fn sandbox_request(&self, attempt: u32) -> Result<SandboxRequest, SandboxError> {
        let (pod, peers) = (&self.pod, &self.peers);
        let node = &*self.pod_policy();
        let cgroup_parent = peers.cgroups.create(pod, node).map_err(SandboxError::from);
        let resolver = hosts::resolver(node).map_err(SandboxError::from);
        let (users, cgroup_parent, resolver) =
            try_join3(self.users(), cgroup_parent, resolver).await?;
        Ok(sandbox_config(&SandboxInput {
            pod,
            attempt,
            node,
            objects: &*peers.objects,
            resolver: &resolver,
            users,
            cgroup_parent: &cgroup_parent,
        })?)
    }

    /// The pod's user namespace: a range of its own if the pod wants one and the runtime supports it.
    async fn users(&self) -> Result<UserNamespace, SandboxError> {
        if !user_namespaces::requests_user_namespace(&self.pod) {
            return Ok(UserNamespace::Node);
        }
        let handler = logic_pods::runtime::runtime_class::handler(&self.pod, &*self.peers.objects);
        let handler = handler.map_err(SandboxConfigError::from)?;
        let handlers = self.peers.runtime.handlers().await?;
        user_namespaces::check_support(&handler, &handlers)?;
        let ask = self
            .peers
            .state
            .users
            .ask(USER_NAMESPACE_TIMEOUT, |reply| Users::Ensure {
                uid: self.uid.clone(),
                reply,
            });
        let range = ask.await.map_err(SandboxError::Silent)??;
        Ok(UserNamespace::Pod(range))
    }

    /// Records an event of the pod.
    fn tell(&self, why: &HistoryEvent) {
        self.notify_about(InvolvedObject::pod(&self.pod, why.object.as_deref()), why);
    }

    fn notify_about(&self, object: InvolvedObject, why: &HistoryEvent) {
        let r#type = EventType::from(why.weight);
        let (reason, message) = (&why.reason, why.message.clone());
        let recorder = &self.peers.recorder;
        recorder.record(kernel::timestamp(), r#type, object, reason, message);
    }

    fn node(&self) -> InvolvedObject {
        InvolvedObject::node(&self.peers.rules.node.node_name)
    }
}

/// The pod's addresses: those of the node if the pod uses the host network.
pub(in crate::worker) fn addresses(
    pod: &Pod,
    found: &[String],
    host_ips: &[String],
) -> Vec<String> {
    match pod.host_network() {
        true => host_ips.to_vec(),
        false => logic_pods::status::pod_addresses(found, host_ips),
    }
}

/// Removes the cgroup of a pod that is gone, and releases its id range.
pub(super) async fn release(peers: &crate::worker::Peers, pod: &Pod) {
    let uid = pod.uid();
    if let Err(error) = peers.cgroups.remove(pod).await {
        tracing::warn!(pod = %uid, "the pod's cgroup stays: {error}");
    }
    if user_namespaces::requests_user_namespace(pod) {
        // A range that is not released now is released when the manager restarts.
        drop(peers.state.users.tell(Users::Release { uid }));
    }
}
