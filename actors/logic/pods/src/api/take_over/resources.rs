//! Resources by pod and container, as upstream keeps them over a restart.
//!
//! Upstream: pkg/kubelet/allocation/state (1.34: containers alone; later releases: the pod's own as well).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use logic_api::types::PodUid;
use serde::{Deserialize, Deserializer, Serialize};

use super::checkpoint::{CheckpointFlaw, decode_checkpoint, encode_checkpoint};
use crate::resize::AllocatedResources;

/// Allocated resources by pod.
pub type ResourcesByPod = BTreeMap<PodUid, AllocatedResources>;

#[derive(Default, Serialize, Deserialize)]
struct ResourceEntries {
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "or_empty"
    )]
    entries: BTreeMap<String, PodResourceEntry>,
}

#[derive(Default, Serialize, Deserialize)]
struct PodResourceEntry {
    #[serde(default, rename = "ContainerResources", deserialize_with = "or_empty")]
    containers: BTreeMap<String, ResourceRequirements>,
    #[serde(
        default,
        rename = "PodLevelResources",
        skip_serializing_if = "Option::is_none"
    )]
    pod: Option<ResourceRequirements>,
}

/// Reads a file of a kubelet, or of this agent.
pub fn decode_resources(bytes: &[u8]) -> Result<ResourcesByPod, CheckpointFlaw> {
    let data = decode_checkpoint(bytes)?;
    let data: ResourceEntries = serde_json::from_str(&data).map_err(CheckpointFlaw::Data)?;
    let entries = data.entries.into_iter();
    let known = entries.map(|(uid, PodResourceEntry { containers, pod })| {
        let allocated = AllocatedResources { pod, containers };
        (PodUid::from(uid.as_str()), allocated)
    });
    Ok(known.collect())
}

/// Returns a file that every kubelet of 1.34 and later reads.
pub fn encode_resources(pods: ResourcesByPod) -> Vec<u8> {
    let entries = pods.into_iter();
    let entries = entries.map(|(uid, AllocatedResources { pod, containers })| {
        (uid.to_string(), PodResourceEntry { containers, pod })
    });
    let data = ResourceEntries {
        entries: entries.collect(),
    };
    encode_checkpoint(serde_json::to_string(&data).expect("resources are plain data"))
}

/// Go writes an absent map as null.
fn or_empty<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
