//! Groups that the processes of a pod have because of its persistent volumes.
//!
//! Upstream: `GetExtraSupplementalGroupsForPod` (volume_manager.go, 1.36).

use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::objects::Objects;
use logic_api::pod::PodView;

const GROUP: &str = "pv.beta.kubernetes.io/gid";

/// The groups of the files of the pod's persistent volumes, each once and in order, that the pod does not ask for
/// itself.
pub fn groups(pod: &Pod, objects: &dyn Objects) -> Vec<i64> {
    let wanted = super::pod_volume_names(pod);
    let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
    let used = volumes.unwrap_or_default().iter();
    let used = used.filter(|volume| wanted.contains(&volume.name));
    let security = pod.security();
    let asked = security.and_then(|s| s.supplemental_groups.as_deref());
    let mut groups: Vec<i64> = used
        .filter_map(|volume| group(pod, volume, objects))
        .filter(|group| !asked.unwrap_or_default().contains(group))
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn group(pod: &Pod, volume: &core::Volume, objects: &dyn Objects) -> Option<i64> {
    let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => source.claim_name.clone(),
        (None, Some(_)) => format!("{}-{}", pod.name(), volume.name),
        (None, None) => return None,
    };
    let claim = objects.claim(pod.namespace(), &claim)?;
    let name = claim.spec.as_ref()?.volume_name.as_ref()?;
    let volume = objects.persistent_volume(name)?;
    volume
        .metadata
        .annotations
        .as_ref()?
        .get(GROUP)?
        .parse()
        .ok()
}
