//! `GET /devices`: the devices of device plugins and of claims in use, and which containers and pods have them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::Addr;
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_placement::claims::ClaimDevice;
use logic_placement::claims::health::KnownClaims;
use logic_placement::topology::NumaMask;
use pods::pod_manager;
use serde::{Deserialize, Serialize};
use state::assignments::Assignments;

use super::route::AdminError;

/// The pod manager answers from memory.
const POD_MANAGER_TIMEOUT: Duration = Duration::from_secs(5);

/// One device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRow {
    /// The resource, or of a claim's device its driver.
    pub resource: String,
    /// The plugin's id; of a claim's device its pool and its name.
    pub id: String,
    /// `Healthy`, `Unhealthy`, `Unknown` where a claim's driver has told nothing, or empty for one that its plugin does
    /// not list.
    pub health: String,
    /// The NUMA nodes that it is close to; none where its plugin does not say.
    pub nodes: Vec<u8>,
    /// Namespace, pod and container, or of a claim's device the claim; empty for one that is free.
    pub holder: String,
}

/// The devices by resource and id.
pub(super) async fn view(
    (assignments, claims): (&Assignments, &KnownClaims),
    pod_manager: &Addr<pod_manager::Msg>,
) -> Result<Vec<DeviceRow>, AdminError> {
    let pods = pod_manager.ask(POD_MANAGER_TIMEOUT, pod_manager::Msg::all);
    let pods = pods.await.map_err(|source| AdminError::Silent {
        who: "the pod manager",
        source,
    })?;
    let mut rows = claimed(claims, &pods);
    for (uid, assigned) in assignments.held().iter() {
        let pod = name(&pods, uid);
        for (container, own) in &assigned.containers {
            for (resource, ids) in &own.devices {
                rows.extend(ids.iter().map(|id| DeviceRow {
                    resource: resource.clone(),
                    id: id.clone(),
                    health: String::new(),
                    nodes: Vec::new(),
                    holder: format!("{pod} {container}"),
                }));
            }
        }
    }
    for (resource, known) in assignments.devices().resources() {
        for (id, device) in known.devices() {
            let health = device.health.as_str();
            let nodes = nodes(device.nodes);
            let is_this = |row: &&mut DeviceRow| row.resource == resource && row.id == *id;
            let mut held = rows.iter_mut().filter(is_this).peekable();
            if held.peek().is_none() {
                rows.push(DeviceRow {
                    resource: resource.to_owned(),
                    id: id.clone(),
                    health: health.to_owned(),
                    nodes,
                    holder: String::new(),
                });
                continue;
            }
            for row in held {
                health.clone_into(&mut row.health);
                row.nodes.clone_from(&nodes);
            }
        }
    }
    rows.sort_by(|a, b| (&a.resource, &a.id, &a.holder).cmp(&(&b.resource, &b.id, &b.holder)));
    Ok(rows)
}

/// The devices of claims in use, for each pod that has them.
fn claimed(known: &KnownClaims, pods: &[Arc<Pod>]) -> Vec<DeviceRow> {
    let now = kernel::timestamp();
    let mut rows = Vec::new();
    for claim in known.claims.entries() {
        for (driver, devices) in &claim.drivers {
            for ClaimDevice { pool, device, .. } in devices {
                let said = known.health.get(now, driver, pool, device);
                rows.extend(claim.pods.iter().map(|pod| DeviceRow {
                    resource: driver.to_string(),
                    id: format!("{pool}/{device}"),
                    health: said.health.as_str().to_owned(),
                    nodes: Vec::new(),
                    holder: format!("{} claim {}", name(pods, pod), claim.name),
                }));
            }
        }
    }
    rows
}

/// Namespace and name of a pod, or its UID where it is gone.
fn name(pods: &[Arc<Pod>], uid: &PodUid) -> String {
    let pod = pods.iter().find(|pod| pod.uid() == *uid);
    pod.map_or_else(
        || uid.to_string(),
        |pod| format!("{}/{}", pod.namespace(), pod.name()),
    )
}

fn nodes(mask: NumaMask) -> Vec<u8> {
    mask.nodes().map(|node| node.get()).collect()
}
