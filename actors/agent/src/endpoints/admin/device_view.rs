//! `GET /devices`: the devices of device plugins, and which containers have them.

use std::time::Duration;

use kernel::Addr;
use logic_api::pod::PodView;
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
    pub resource: String,
    pub id: String,
    /// `Healthy`, `Unhealthy`, or empty for one that its plugin does not list.
    pub health: String,
    /// The NUMA nodes that it is close to; none where its plugin does not say.
    pub nodes: Vec<u8>,
    /// Namespace, pod and container; empty for one that is free.
    pub holder: String,
}

/// The devices by resource and id.
pub(super) async fn view(
    assignments: &Assignments,
    pod_manager: &Addr<pod_manager::Msg>,
) -> Result<Vec<DeviceRow>, AdminError> {
    let pods = pod_manager.ask(POD_MANAGER_TIMEOUT, pod_manager::Msg::all);
    let pods = pods.await.map_err(|source| AdminError::Silent {
        who: "the pod manager",
        source,
    })?;
    let mut rows = Vec::new();
    for (uid, assigned) in assignments.held().iter() {
        let pod = pods.iter().find(|pod| pod.uid() == *uid);
        let pod = pod.map_or_else(
            || uid.to_string(),
            |pod| format!("{}/{}", pod.namespace(), pod.name()),
        );
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

fn nodes(mask: NumaMask) -> Vec<u8> {
    mask.nodes().map(|node| node.get()).collect()
}
