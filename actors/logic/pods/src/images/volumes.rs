//! Volumes that are images: which a pod has, and by which policy each is made present.
//!
//! Mirrors getImageVolumes (kuberuntime_manager.go, v1.36).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::PodView;
use logic_api::types::WaitingReason;

use super::{PullPolicy, pull_policy};

/// A volume that is an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageVolume {
    pub name: String,
    /// As the pod names it; an empty one is refused like any malformed reference.
    pub image: String,
    pub policy: PullPolicy,
}

/// A pod's image volumes, in the order of its spec.
pub fn of(pod: &Pod) -> Vec<ImageVolume> {
    let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
    let images = volumes.unwrap_or_default().iter().filter_map(|volume| {
        let source = volume.image.as_ref()?;
        let image = source.reference.clone().unwrap_or_default();
        Some(ImageVolume {
            name: volume.name.clone(),
            policy: pull_policy(source.pull_policy.as_deref(), &image),
            image,
        })
    });
    images.collect()
}

/// Whether a container mounts this volume: its failure is that container's failure, and no other's.
pub fn is_mounted(container: &Container, volume: &str) -> bool {
    container
        .volume_mounts
        .iter()
        .flatten()
        .any(|mount| mount.name == volume)
}

/// What one start of a container adds to the counts of image volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageVolumeCounts {
    pub requested: u64,
    /// Mounts, of which a volume may have several.
    pub mounted: u64,
    pub failed: u64,
}

/// How a runtime's message begins where it could not mount an image volume (cri-api's errors).
const MOUNT_FAILED: &str = "ImageVolumeMountFailed";

/// Counts a start with these image volumes, by volume, that ended well or left the container waiting; every other
/// failure counts as mounted, as upstream's `incrementImageVolumeMetrics` has it.
pub fn count(
    container: &Container,
    volumes: &BTreeMap<String, String>,
    waiting: Option<&WaitingReason>,
) -> ImageVolumeCounts {
    let mounts = container.volume_mounts.iter().flatten();
    let of_images = mounts.filter(|mount| volumes.contains_key(&mount.name));
    let mounts = u64::try_from(of_images.count()).unwrap_or(0);
    let failed = waiting.is_some_and(|waiting| {
        waiting.reason == "CreateContainerError" && waiting.message.starts_with(MOUNT_FAILED)
    });
    ImageVolumeCounts {
        requested: u64::try_from(volumes.len()).unwrap_or(0),
        mounted: if failed { 0 } else { mounts },
        failed: if failed { mounts } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ImageVolumeSource, Volume, VolumeMount};
    use logic_api::testing::*;

    use super::*;

    #[test]
    fn image_volumes_have_a_policy_of_their_own() {
        let volume = |name: &str, image: Option<(&str, Option<&str>)>| Volume {
            name: name.into(),
            image: image.map(|(reference, policy)| ImageVolumeSource {
                reference: Some(reference.into()),
                pull_policy: policy.map(str::to_owned),
            }),
            ..Volume::default()
        };
        let pod = pod("p").spec_with(|spec| {
            spec.volumes = Some(vec![
                volume("data", None),
                volume("tools", Some(("localhost/tools", None))),
                volume("model", Some(("localhost/model:1", Some("Never")))),
            ]);
        });
        let found: Vec<(String, PullPolicy)> = of(&pod)
            .into_iter()
            .map(|volume| (volume.name, volume.policy))
            .collect();
        let expected = [
            ("tools".to_owned(), PullPolicy::Always),
            ("model".to_owned(), PullPolicy::Never),
        ];
        assert_eq!(found, expected);
    }

    /// Upstream's TestIncrementImageVolumeMetrics.
    #[test]
    fn mounts_count_as_failed_only_where_the_runtime_says_so() {
        let images: &[(&str, &str)] = &[("mount1", "a"), ("mount2", "b"), ("mount3", "c")];
        let waits = |reason: &str, message: &str| {
            Some(WaitingReason {
                reason: reason.into(),
                message: message.into(),
            })
        };
        let (create, told) = ("CreateContainerError", "ImageVolumeMountFailed: no space");
        let both = ["mount1", "mount2"].as_slice();
        let cases = [
            (both, images, None, (3, 2, 0)),
            (both, images, waits(create, told), (3, 0, 2)),
            (both, images, waits(create, ""), (3, 2, 0)),
            (both, images, waits("RunContainerError", told), (3, 2, 0)),
            (&both[..1], &[], None, (0, 0, 0)),
        ];
        for (mounts, images, waiting, expected) in cases {
            let mount = |name: &&str| VolumeMount {
                name: (*name).into(),
                ..VolumeMount::default()
            };
            let mut container = spec_container("c");
            container.volume_mounts = Some(mounts.iter().map(mount).collect());
            let counts = count(&container, &string_map(images), waiting.as_ref());
            let found = (counts.requested, counts.mounted, counts.failed);
            assert_eq!(found, expected, "{mounts:?} {waiting:?}");
        }
    }

    #[test]
    fn a_volume_concerns_those_who_mount_it() {
        let mut container = spec_container("c");
        container.volume_mounts = Some(vec![VolumeMount {
            name: "tools".into(),
            ..VolumeMount::default()
        }]);
        assert!(is_mounted(&container, "tools"));
        assert!(!is_mounted(&container, "model"));
    }
}
