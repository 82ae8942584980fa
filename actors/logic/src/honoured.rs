//! What of a pod's definition this version does not act on, said aloud.
//!
//! A field that is silently passed over is the worst kind of bug: the list becomes one event a pod,
//! and part of `oxctl why`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, Volume};

use crate::pod::PodView;
use crate::types::ContainerKind;

/// The fields, as paths within the pod.
pub fn not_honoured(pod: &Pod) -> Vec<String> {
    let Some(spec) = pod.spec() else {
        return Vec::new();
    };
    let is_claimed = spec
        .resource_claims
        .as_ref()
        .is_some_and(|list| !list.is_empty());
    let has_volumes = spec
        .volumes
        .iter()
        .flatten()
        .any(|volume| !is_image(volume));
    let fields = [("resourceClaims", is_claimed), ("volumes", has_volumes)];
    let used = fields.into_iter().filter(|(_, used)| *used);
    let mut fields: Vec<String> = used.map(|(field, _)| format!("spec.{field}")).collect();
    for (kind, container) in pod.all_containers() {
        let list = match kind {
            ContainerKind::Init => "initContainers",
            ContainerKind::App | ContainerKind::Ephemeral => "containers",
        };
        if container
            .volume_devices
            .as_ref()
            .is_some_and(|list| !list.is_empty())
        {
            fields.push(format!("spec.{list}[{}].volumeDevices", container.name));
        }
    }
    fields
}

/// Images are the volumes that the node can provide: the runtime mounts them.
fn is_image(volume: &Volume) -> bool {
    volume.image.is_some()
}

/// The volumes that containers mount and that cannot be provided: the pod waits in ContainerCreating.
pub fn unmountable_volumes(pod: &Pod) -> Vec<String> {
    let volumes = pod
        .spec()
        .and_then(|spec| spec.volumes.as_deref())
        .unwrap_or_default();
    let images: BTreeSet<&str> = volumes
        .iter()
        .filter(|volume| is_image(volume))
        .map(|volume| volume.name.as_str())
        .collect();
    let mounted: BTreeSet<&str> = pod
        .all_containers()
        .flat_map(|(_, c)| {
            let mounts = c.volume_mounts.iter().flatten().map(|m| m.name.as_str());
            mounts.chain(c.volume_devices.iter().flatten().map(|d| d.name.as_str()))
        })
        .collect();
    mounted
        .difference(&images)
        .map(|name| (*name).to_owned())
        .collect()
}

/// The message of the `FailedMount` event, as upstream words it.
pub fn failed_mount(unmountable: &[String]) -> String {
    let list = unmountable.join(" ");
    format!(
        "Unable to attach or mount volumes: unmounted volumes=[{list}], unattached volumes=[], failed to process volumes=[{list}]: volumes are not supported yet"
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        EnvVar, EnvVarSource, ImageVolumeSource, PodResourceClaim, Probe, SecretKeySelector,
        VolumeDevice, VolumeMount,
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

    #[test]
    fn what_the_agent_acts_on_is_not_named() {
        let pod = pod("p")
            .init("i")
            .spec_with(|spec| {
                spec.host_users = Some(false);
                spec.runtime_class_name = Some("small".into());
                spec.volumes = Some(vec![image("data")]);
            })
            .app_with("c", |c| {
                c.readiness_probe = Some(Probe::default());
                let secret = EnvVarSource {
                    secret_key_ref: Some(SecretKeySelector::default()),
                    ..EnvVarSource::default()
                };
                c.env = Some(vec![EnvVar {
                    value_from: Some(secret),
                    ..EnvVar::default()
                }]);
            });
        assert!(not_honoured(&pod).is_empty());
    }

    #[test]
    fn each_field_passed_over_is_named() {
        let pod = pod("p")
            .spec_with(|spec| {
                spec.resource_claims = Some(vec![PodResourceClaim::default()]);
                spec.volumes = Some(vec![image("data"), other("cache")]);
                let mut init = spec_container("i");
                init.volume_devices = Some(vec![VolumeDevice::default()]);
                spec.init_containers = Some(vec![init]);
            })
            .app_with("c", |c| {
                c.volume_devices = Some(vec![VolumeDevice::default()])
            });
        let expected = [
            "spec.resourceClaims",
            "spec.volumes",
            "spec.initContainers[i].volumeDevices",
            "spec.containers[c].volumeDevices",
        ];
        assert_eq!(not_honoured(&pod), expected);
    }

    #[test]
    fn mounted_volumes_hold_the_pod_back_unless_they_are_images() {
        let mount = |name: &str| VolumeMount {
            name: name.into(),
            ..VolumeMount::default()
        };
        let pod = pod("p")
            .spec_with(|spec| spec.volumes = Some(vec![image("programs"), other("data")]))
            .app_with("b", |c| {
                c.volume_mounts = Some(vec![mount("data"), mount("cache"), mount("programs")])
            })
            .app_with("a", |c| c.volume_mounts = Some(vec![mount("data")]));
        let volumes = unmountable_volumes(&pod);
        assert_eq!(volumes, ["cache", "data"]);
        assert!(
            failed_mount(&volumes)
                .starts_with("Unable to attach or mount volumes: unmounted volumes=[cache data]")
        );
    }
}
