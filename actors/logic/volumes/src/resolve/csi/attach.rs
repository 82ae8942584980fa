//! Whether a controller has attached a volume to this node.
//!
//! Upstream: `VerifyControllerAttachedVolume` of operation_generator.go, `WaitForAttach` of
//! pkg/volume/csi/csi_attacher.go, `VerifyExhaustedResource` of csi_plugin.go (1.36).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::CSIPersistentVolumeSource;
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment, VolumeError};
use logic_api::pod::hash::hex;
use sha2::{Digest, Sha256};

use super::super::event_reasons::{ATTACH_LIMIT, Operation};
use super::super::lookup::{ObjectLookup, ResolveFailure};
use super::super::persistent::PersistentSpec;
use crate::csi_node::update_period;
use crate::{Attachment, VolumeId};

/// gRPC's `RESOURCE_EXHAUSTED`.
const GRPC_RESOURCE_EXHAUSTED: i32 = 8;

/// The attachment as the controller reports it.
#[derive(Debug)]
pub(super) struct AttachedVolume {
    pub(super) attachment: Attachment,
    pub(super) context: BTreeMap<String, String>,
}

/// The name of a `VolumeAttachment`.
pub fn attachment_name(volume_handle: &str, driver: &str, node_name: &str) -> String {
    let digest = Sha256::digest(format!("{volume_handle}{driver}{node_name}").as_bytes());
    format!("csi-{}", hex(&digest))
}

/// A controller attaches a volume unless the `CSIDriver` sets `attachRequired: false`.
pub(super) fn is_needed(driver: Option<&CSIDriver>) -> bool {
    driver.is_none_or(|driver| driver.spec.attach_required != Some(false))
}

pub(super) fn attached(
    lookup: &mut ObjectLookup<'_>,
    volume: &PersistentSpec,
    (source, driver): (&CSIPersistentVolumeSource, Option<&CSIDriver>),
    id: &VolumeId,
) -> Result<AttachedVolume, ResolveFailure> {
    if !is_needed(driver) {
        return Ok(AttachedVolume {
            attachment: Attachment::NotNeeded,
            context: BTreeMap::new(),
        });
    }
    let handle = &source.volume_handle;
    let name = attachment_name(handle, &source.driver, &lookup.context.node.node_name);
    let waits = |cause: &str| ResolveFailure::attaching(volume.at(Operation::WaitForAttach), cause);
    // For a volume that is mounted already the attachment is not read: it is there.
    let held = lookup.context.taken.contains_key(id);
    let listed = lookup.context.attached.is_none_or(|all| all.contains(id));
    if !held && !listed {
        // It is looked for all the same: it is wanted.
        drop(lookup.attachment(&name));
        return Err(waits("Volume not attached according to node status"));
    }
    let Some(found) = lookup.attachment(&name) else {
        let kind = ("VolumeAttachment", "volumeattachments.storage.k8s.io");
        let missing = lookup.missing(kind, "", &name);
        return Err(waits(&format!(
            "volume {handle} has GET error for volume attachment {name}: {missing}"
        )));
    };
    if found.metadata.deletion_timestamp.is_some() {
        return Err(waits("volume attachment is being deleted"));
    }
    let status = found.status.as_ref();
    if let Some(status) = status.filter(|status| status.attached) {
        return Ok(AttachedVolume {
            attachment: Attachment::Attached,
            context: status.attachment_metadata.clone().unwrap_or_default(),
        });
    }
    match error(&found) {
        None => Err(waits(&format!(
            "volume {handle} is not attached for volume attachment {name}"
        ))),
        Some(error) => {
            let refusal = waits(error.message.as_deref().unwrap_or_default());
            Err(match is_full(error, driver) {
                true => refusal.with_reason(ATTACH_LIMIT),
                false => refusal,
            })
        }
    }
}

fn error(attachment: &VolumeAttachment) -> Option<&VolumeError> {
    attachment.status.as_ref()?.attach_error.as_ref()
}

/// The node has no room for another, and its driver tells of its room.
fn is_full(error: &VolumeError, driver: Option<&CSIDriver>) -> bool {
    error.error_code == Some(GRPC_RESOURCE_EXHAUSTED) && driver.and_then(update_period).is_some()
}
