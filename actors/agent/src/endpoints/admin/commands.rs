//! The operator's requests that change something.

use std::time::Duration;

use hyper::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kernel::{Addr, AskError, InjectedFault};
use logic_api::pod::PodView;
use plugin_host::{Declaration, HostError, Msg};
use pods::pod_manager;
use serde_json::json;
use serving::http::{HandlerResponse, json};

use super::route::{AdminError, CheckpointRequest};
use super::{AdminPeers, FaultInjection, Plugins};

/// The pod manager answers within microseconds; after this it is stuck.
const POD_MANAGER_TIMEOUT: Duration = Duration::from_secs(5);
/// A new generation may start, and an old one drain and be killed: each has its own deadline at the host.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn restart(plugins: &Plugins, name: &str) -> Result<HandlerResponse, AdminError> {
    let (name, host) = plugins.host(name)?;
    done(
        name,
        host.ask(PLUGIN_TIMEOUT, |reply| Msg::Restart { reply })
            .await,
    )
}

pub(super) async fn swap(
    plugins: &Plugins,
    name: &str,
    to: &str,
) -> Result<HandlerResponse, AdminError> {
    let (name, host) = plugins.host(name)?;
    let choice = plugins.choices.get(to).filter(|choice| choice.name == name);
    let declaration = choice
        .cloned()
        .map(Box::new)
        .ok_or_else(|| AdminError::NoSuchPlugin {
            name: to.to_owned(),
            expected: plugins.choices_of(name),
        })?;
    done(
        name,
        host.ask(PLUGIN_TIMEOUT, |reply| Msg::Swap { declaration, reply })
            .await,
    )
}

fn done(
    name: &str,
    answer: Result<Result<u64, HostError>, AskError>,
) -> Result<HandlerResponse, AdminError> {
    let generation = answer.map_err(|source| AdminError::Silent {
        who: "the plugin's host",
        source,
    })??;
    Ok(json(
        StatusCode::OK,
        &json!({ "plugin": name, "generation": generation }),
    ))
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
