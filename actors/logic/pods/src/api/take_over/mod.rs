//! What a kubelet leaves on a node for its successor, and finds again when the node is handed back.
//!
//! Most of it is written and read where it belongs, in upstream's own form: labels and hashes ([`logic_api::pod::labels`],
//! [`logic_api::pod::hash`]), UIDs of static pods ([`logic_api::manifest`]), ids of users, records of image pulls, volumes.
//! Here stands the rest: the checkpoints of allocated and of carried out resources, and what only the API's status
//! still tells of pods that another agent has run.

mod api_status;
mod checkpoint;
mod resources;
#[cfg(test)]
mod tests;

pub use api_status::{earlier, health, ran_since, start_time};
pub use checkpoint::CheckpointFlaw;
use logic_api::types::PodUid;
pub use resources::{ResourcesByPod, decode_resources, encode_resources};

/// Upstream's file of the resources allocated to each pod, in the root directory.
pub const ALLOCATED: &str = "allocated_pods_state";
/// Upstream's file of what was carried out last of each container.
pub const ACTUATED: &str = "actuated_pods_state";

/// The static pod whose directory has this name, if a kubelet gave it its UID.
pub fn resident(folder: &str) -> Option<PodUid> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (folder.len() == 32 && folder.bytes().all(is_digit)).then(|| folder.into())
}
