//! Volumes that are images: which a pod has, and by which policy each is made present.
//!
//! Mirrors getImageVolumes (kuberuntime_manager.go, v1.36).

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::PodView;

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
