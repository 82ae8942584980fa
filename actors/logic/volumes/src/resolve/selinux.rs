//! The SELinux label that a volume is mounted with, instead of a walk through its files.
//!
//! Upstream: pkg/volume/util/selinux.go, `AddPodToVolume` of the desired state of the world (1.36), and `InitLabels`
//! of opencontainers/selinux. The types are those of the common policies, since a decision reads no files of the node.
//! A pod without a level gets none: the runtime chooses one that is not known here.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, SELinuxOptions, VolumeMount};
use k8s_openapi::api::storage::v1::CSIDriver;
use logic_api::pod::PodView;

use super::SeLinuxMountPolicy;
use super::lookup::{ObjectLookup, ResolveFailure};
use super::persistent::PersistentSpec;
use crate::RetryWhen;

/// Empty where the volume is mounted without one.
pub(super) fn label(
    lookup: &ObjectLookup<'_>,
    volume: &PersistentSpec,
    driver: Option<&CSIDriver>,
) -> Result<String, ResolveFailure> {
    let in_reach = match lookup.context.selinux {
        SeLinuxMountPolicy::Off => false,
        SeLinuxMountPolicy::On => volume.is_for_one_pod(),
        SeLinuxMountPolicy::OnForAll => true,
    };
    if !in_reach {
        return Ok(String::new());
    }
    let labels = labels(lookup.pod, lookup.name);
    if labels.len() > 1 {
        let labels: Vec<String> = labels.into_iter().collect();
        let text = format!("multiple SELinux labels found: {}", labels.join(","));
        return Err(ResolveFailure::unprocessed(text, RetryWhen::Changed));
    }
    let able = driver.is_some_and(|driver| driver.spec.se_linux_mount == Some(true));
    let security = lookup.pod.security();
    let policy = security.and_then(|s| s.se_linux_change_policy.as_deref());
    let label = labels.into_iter().next();
    let label = label.filter(|_| able && policy != Some("Recursive"));
    Ok(label.unwrap_or_default())
}

/// Those of all containers that mount the volume.
fn labels(pod: &Pod, volume: &str) -> BTreeSet<String> {
    let mounts = |list: &Option<Vec<VolumeMount>>| {
        let mut mounts = list.iter().flatten();
        mounts.any(|mount| mount.name == volume)
    };
    let ephemeral = pod.ephemeral_containers();
    let all = pod
        .all_containers()
        .map(|(_, container)| container)
        .chain(&ephemeral);
    all.filter(|container| mounts(&container.volume_mounts))
        .filter_map(|container| file_label(options(pod, container)?))
        .collect()
}

/// The container's replace the pod's, as a whole.
fn options<'a>(pod: &'a Pod, container: &'a Container) -> Option<&'a SELinuxOptions> {
    let own = container.security_context.as_ref();
    own.and_then(|own| own.se_linux_options.as_ref())
        .or_else(|| pod.security()?.se_linux_options.as_ref())
}

/// A process's label as its files have it: of its user and level, in a role and of a type that are the files' own.
fn file_label(options: &SELinuxOptions) -> Option<String> {
    let given = |word: &Option<String>| word.clone().filter(|word| !word.is_empty());
    let user = given(&options.user).unwrap_or_else(|| "system_u".to_owned());
    let level = given(&options.level)?;
    Some(format!("{user}:object_r:container_file_t:{level}"))
}
