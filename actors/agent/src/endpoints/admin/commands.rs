//! The operator's requests that change something.

use std::time::Duration;

use hyper::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kernel::{Addr, AskError, InjectedFault};
use logic_api::pod::PodView;
use plugin_host::{Declaration, HostError, Msg};
use pods::pod_manager;
use pods::runtime::handover::{self, PodConsent};
use serde_json::json;
use serving::http::{HandlerResponse, json};

use super::route::{AdminError, CheckpointRequest};
use super::{AdminPeers, FaultInjection, Plugins};

/// The pod manager answers within microseconds; after this it is stuck.
const POD_MANAGER_TIMEOUT: Duration = Duration::from_secs(5);
/// A new generation may start, and an old one drain and be killed: each has its own deadline at the host.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// The pods may end first, each within its grace period. The hand-over goes on whether or not somebody waits for it.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(3600);

pub(super) async fn restart(plugins: &Plugins, name: &str) -> Result<HandlerResponse, AdminError> {
    let (name, host) = plugins.host(name)?;
    done(
        name,
        host.ask(PLUGIN_TIMEOUT, |reply| Msg::Restart { reply })
            .await,
    )
}

/// Answers with what a swap would do; nothing is changed.
pub(super) async fn swap_plan(
    peers: &AdminPeers,
    name: &str,
    to: String,
) -> Result<HandlerResponse, AdminError> {
    peers.plugins.swappable(name, &to)?;
    let plan = |reply| handover::Msg::Plan { to, reply };
    let plan = peers.handover.ask(PLUGIN_TIMEOUT, plan).await;
    let plan = plan.map_err(|source| AdminError::Silent {
        who: "the runtime's hand-over",
        source,
    })??;
    Ok(json(StatusCode::OK, &plan))
}

/// Answers when pods may start in the new runtime.
pub(super) async fn swap(
    peers: &AdminPeers,
    name: &str,
    to: String,
    consent: PodConsent,
) -> Result<HandlerResponse, AdminError> {
    let name = peers.plugins.swappable(name, &to)?;
    let swap = |reply| handover::Msg::Swap { to, consent, reply };
    let swapped = peers.handover.ask(HANDOVER_TIMEOUT, swap).await;
    let generation = swapped.map_err(|source| AdminError::Silent {
        who: "the runtime's hand-over",
        source,
    })??;
    Ok(generation_of(name, generation))
}

fn done(
    name: &str,
    answer: Result<Result<u64, HostError>, AskError>,
) -> Result<HandlerResponse, AdminError> {
    let generation = answer.map_err(|source| AdminError::Silent {
        who: "the plugin's host",
        source,
    })??;
    Ok(generation_of(name, generation))
}

fn generation_of(name: &str, generation: u64) -> HandlerResponse {
    let shown = json!({ "plugin": name, "generation": generation });
    json(StatusCode::OK, &shown)
}

/// Answers as upstream's API does: with the archive's path.
pub(super) async fn checkpoint(
    peers: &AdminPeers,
    wanted: CheckpointRequest,
) -> Result<HandlerResponse, AdminError> {
    let CheckpointRequest {
        pod,
        container,
        within,
    } = wanted;
    let pods = peers
        .pod_manager
        .ask(POD_MANAGER_TIMEOUT, pod_manager::Msg::all);
    let pods = pods.await.map_err(|source| AdminError::Silent {
        who: "the pod manager",
        source,
    })?;
    let found = pods.iter().find(|one| matches_name(one, &pod));
    let found = found.ok_or(AdminError::NoSuchPod { pod })?;
    let archives = peers.checkpoints.take(found, &container, within).await?;
    Ok(json(StatusCode::OK, &archives))
}

/// By UID, namespace/name or name; a static pod also by the name that its manifest gives it.
fn matches_name(pod: &Pod, wanted: &str) -> bool {
    let node = pod.spec().and_then(|spec| spec.node_name.as_deref());
    let suffix = format!("-{}", node.unwrap_or_default());
    let names = [Some(pod.name()), pod.name().strip_suffix(&suffix)];
    let mut names = names.into_iter().flatten();
    pod.uid().as_str() == wanted
        || names.any(|name| name == wanted || format!("{}/{name}", pod.namespace()) == wanted)
}

pub(super) fn fault(
    peers: &AdminPeers,
    path: &str,
    fault: InjectedFault,
) -> Result<HandlerResponse, AdminError> {
    if peers.faults == FaultInjection::Forbidden {
        return Err(AdminError::NoFaults {
            variable: FaultInjection::VARIABLE,
        });
    }
    peers.root.inject(path, fault)?;
    tracing::warn!("{fault:?} injected into {path} by the operator");
    Ok(json(
        StatusCode::OK,
        &json!({ "path": path, "fault": fault }),
    ))
}

impl Plugins {
    /// Finds a host by its name, or by its kind if only one host has plugins of that kind to choose from.
    fn host(&self, wanted: &str) -> Result<(&str, &Addr<Msg>), AdminError> {
        let of_kind = |choice: &&Declaration| choice.kind.to_string() == wanted;
        let by_kind = || {
            self.choices
                .values()
                .find(of_kind)
                .map(|choice| choice.name.as_str())
        };
        let name = if self.hosts.contains_key(wanted) {
            Some(wanted)
        } else {
            by_kind()
        };
        let found = name.and_then(|name| self.hosts.get_key_value(name));
        found
            .map(|(name, host)| (name.as_str(), host))
            .ok_or_else(|| AdminError::NoSuchPlugin {
                name: wanted.to_owned(),
                expected: self
                    .hosts
                    .keys()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// The name of the host whose plugin may be swapped for this declared one.
    fn swappable(&self, wanted: &str, to: &str) -> Result<&str, AdminError> {
        let (name, _) = self.host(wanted)?;
        let choice = self.choices.get(to).filter(|choice| choice.name == name);
        let refused = || AdminError::NoSuchPlugin {
            name: to.to_owned(),
            expected: self.choices_of(name),
        };
        choice.map(|_| name).ok_or_else(refused)
    }

    fn choices_of(&self, host: &str) -> String {
        let choices = self
            .choices
            .iter()
            .filter(|(_, choice)| choice.name == host);
        choices
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }
}
