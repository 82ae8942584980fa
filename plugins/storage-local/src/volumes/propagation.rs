//! Mounts that a container makes in a volume, or that the node makes later, are seen elsewhere only where the kubelet's
//! folder lies on a shared mount (upstream's MakeRShared, pkg/volume/util/hostutil, 1.36).

use std::path::Path;

use mounts::answer::failed;
use mounts::mount::{self, Depth};
use mounts::table::MountTable;
use proto::storage::Access;
use rustix::mount::{MountPropagationFlags, mount_change};
use tonic::Status;

/// Makes the folder a shared mount unless it lies on one.
pub(crate) fn share(root: &Path) -> Result<(), Status> {
    let what = |error| failed(format!("cannot make {} shared", root.display()), error);
    let real = root.canonicalize().map_err(what)?;
    let table = MountTable::read().map_err(what)?;
    if table.holding(&real).is_some_and(|entry| {
        entry
            .propagation
            .iter()
            .any(|word| word.starts_with("shared:"))
    }) {
        return Ok(());
    }
    if !table.is_mount_point(&real) {
        if !table.below(&real).is_empty() {
            // A bind would hide what is mounted there already.
            return Err(Status::failed_precondition(format!(
                "cannot make {} shared: there are mounts below it, and it is none itself",
                root.display()
            )));
        }
        mount::bind(&real, &real, Access::ReadWrite, Depth::Single)?;
    }
    let how = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    mount_change(&real, how).map_err(|error| what(error.into()))
}
