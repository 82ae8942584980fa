//! The limit of a driver's volumes on the node.
//!
//! Upstream's scheduler counts; a static pod has none, and the kubelet mounts without a check. Here a volume beyond
//! the limit waits until another one is released. A volume that a controller has attached has been counted already.

use crate::resolve::event_reasons::Operation;
use crate::resolve::lookup::{ObjectLookup, ResolveFailure};
use crate::resolve::persistent::PersistentSpec;
use crate::{Attachment, RegisteredDriver, RetryWhen, VolumeId};

pub(super) fn check(
    lookup: &ObjectLookup<'_>,
    volume: &PersistentSpec,
    id: &VolumeId,
    (backend, attachment): (&RegisteredDriver, &Attachment),
) -> Result<(), ResolveFailure> {
    let Some(most) = backend.max_volumes.filter(|most| *most > 0) else {
        return Ok(());
    };
    let taken = lookup.context.taken;
    if *attachment == Attachment::Attached || taken.contains_key(id) {
        return Ok(());
    }
    let prefix = format!("kubernetes.io/csi/{}^", backend.name);
    let ours = taken
        .iter()
        .filter(|(id, pods)| id.0.starts_with(&prefix) && !pods.is_empty());
    let used = u64::try_from(ours.count()).unwrap_or(u64::MAX);
    if used < most {
        return Ok(());
    }
    let cause = format!(
        "node exceeds max volume count: driver {} takes at most {most} volumes on a node, and {used} are in use",
        backend.name
    );
    Err(volume.failed(Operation::Stage, &cause, RetryWhen::Changed))
}
