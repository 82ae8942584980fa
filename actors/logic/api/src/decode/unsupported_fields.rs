//! Fields of a pod's spec that this version does not act on, reported to the user.
//!
//! A field that is silently ignored is the worst kind of bug: the list becomes one event a pod,
//! and part of `oxctl why`.

use k8s_openapi::api::core::v1::{Pod, Volume};

use crate::pod::PodView;

/// The fields, as paths within the pod.
pub fn unsupported_fields(pod: &Pod) -> Vec<String> {
    let Some(spec) = pod.spec() else {
        return Vec::new();
    };
    let volumes = spec.volumes.iter().flatten().filter_map(|volume| {
        let kind = unknown_kind(volume)?;
        Some(format!("spec.volumes[{}].{kind}", volume.name))
    });
    volumes.collect()
}

/// Kinds of volumes for which the node has no plugin, most of them for which upstream has none any more either.
fn unknown_kind(volume: &Volume) -> Option<&'static str> {
    let kinds = [
        ("cephfs", volume.cephfs.is_some()),
        ("fc", volume.fc.is_some()),
        ("flexVolume", volume.flex_volume.is_some()),
        ("flocker", volume.flocker.is_some()),
        ("gitRepo", volume.git_repo.is_some()),
        ("glusterfs", volume.glusterfs.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        (
            "photonPersistentDisk",
            volume.photon_persistent_disk.is_some(),
        ),
        ("quobyte", volume.quobyte.is_some()),
        ("rbd", volume.rbd.is_some()),
        ("scaleIO", volume.scale_io.is_some()),
        ("storageos", volume.storageos.is_some()),
    ];
    let found = kinds.into_iter().find(|(_, used)| *used);
    found.map(|(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        EmptyDirVolumeSource, EnvVar, EnvVarSource, ImageVolumeSource, PodResourceClaim, Probe,
        SecretKeySelector, VolumeDevice,
    };

    use super::*;
    use crate::testing::*;

    fn image(name: &str) -> Volume {
        Volume {
            name: name.into(),
            image: Some(ImageVolumeSource::default()),
            ..Volume::default()
        }
    }

    fn other(name: &str) -> Volume {
        Volume {
            name: name.into(),
            ..Volume::default()
        }
    }

    fn empty_dir(name: &str) -> Volume {
        Volume {
            name: name.into(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        }
    }

    #[test]
    fn what_the_agent_acts_on_is_not_named() {
        let pod = pod("p")
            .init("i")
            .spec_with(|spec| {
                spec.host_users = Some(false);
                spec.resource_claims = Some(vec![PodResourceClaim::default()]);
                spec.runtime_class_name = Some("small".into());
                spec.volumes = Some(vec![image("data"), other("cache"), empty_dir("tmp")]);
            })
            .app_with("c", |c| {
                c.readiness_probe = Some(Probe::default());
                c.volume_devices = Some(vec![VolumeDevice::default()]);
                let secret = EnvVarSource {
                    secret_key_ref: Some(SecretKeySelector::default()),
                    ..EnvVarSource::default()
                };
                c.env = Some(vec![EnvVar {
                    value_from: Some(secret),
                    ..EnvVar::default()
                }]);
            });
        assert!(unsupported_fields(&pod).is_empty());
    }

    #[test]
    fn each_field_passed_over_is_named() {
        let of_kind = |name: &str, kind: &str| -> Volume {
            serde_json::from_value(serde_json::json!({"name": name, kind: {}})).unwrap()
        };
        let kinds = [
            "cephfs",
            "fc",
            "flexVolume",
            "flocker",
            "gitRepo",
            "glusterfs",
            "iscsi",
            "photonPersistentDisk",
            "quobyte",
            "rbd",
            "scaleIO",
            "storageos",
        ];
        let pod = pod("p").spec_with(|spec| {
            let volumes = kinds.iter().map(|kind| of_kind("v", kind));
            spec.volumes = Some(volumes.chain([empty_dir("cache")]).collect());
        });
        let expected = kinds.map(|kind| format!("spec.volumes[v].{kind}"));
        assert_eq!(unsupported_fields(&pod), expected);
    }
}
