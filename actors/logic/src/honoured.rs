//! What of a pod's definition this version does not act on, said aloud.
//!
//! A field that is silently passed over is the worst kind of bug: the list becomes one event a pod,
//! and part of `oxctl why`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::pod::PodView;

/// The fields, as paths within the pod.
pub fn not_honoured(pod: &Pod) -> Vec<String> {
    let Some(spec) = pod.spec() else {
        return Vec::new();
    };
    let mut fields: Vec<String> = pod_fields(spec)
        .into_iter()
        .filter(|(_, used)| *used)
        .map(|(field, _)| format!("spec.{field}"))
        .collect();
    for container in pod.init_containers() {
        let base = format!("spec.initContainers[{}]", container.name);
        if container.restart_policy.as_deref() == Some("Always") {
            fields.push(format!("{base}.restartPolicy"));
        }
        fields.extend(container_fields(container, &base));
    }
    for container in pod.app_containers() {
        let base = format!("spec.containers[{}]", container.name);
        fields.extend(container_fields(container, &base));
    }
    fields
}

fn pod_fields(spec: &PodSpec) -> [(&'static str, bool); 9] {
    fn any<T>(list: Option<&Vec<T>>) -> bool {
        list.is_some_and(|list| !list.is_empty())
    }
    [
        (
            "ephemeralContainers",
            any(spec.ephemeral_containers.as_ref()),
        ),
        ("hostAliases", any(spec.host_aliases.as_ref())),
        ("hostUsers", spec.host_users == Some(false)),
        ("imagePullSecrets", any(spec.image_pull_secrets.as_ref())),
        ("resourceClaims", any(spec.resource_claims.as_ref())),
        ("resources", spec.resources.is_some()),
        ("runtimeClassName", spec.runtime_class_name.is_some()),
        (
            "activeDeadlineSeconds",
            spec.active_deadline_seconds.is_some(),
        ),
        ("volumes", any(spec.volumes.as_ref())),
    ]
}

fn container_fields(container: &Container, base: &str) -> Vec<String> {
    let lifecycle = container.lifecycle.as_ref();
    let variables = container.env.as_deref().unwrap_or_default();
    let from_store = variables
        .iter()
        .filter_map(|v| v.value_from.as_ref())
        .any(|source| {
            source.config_map_key_ref.is_some()
                || source.secret_key_ref.is_some()
                || source.file_key_ref.is_some()
        });
    let security = container.security_context.as_ref();
    let fields = [
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
        (
            "lifecycle.postStart",
            lifecycle.is_some_and(|l| l.post_start.is_some()),
        ),
        (
            "lifecycle.preStop",
            lifecycle.is_some_and(|l| l.pre_stop.is_some()),
        ),
        (
            "envFrom",
            container
                .env_from
                .as_ref()
                .is_some_and(|list| !list.is_empty()),
        ),
        ("env.valueFrom", from_store),
        (
            "volumeDevices",
            container
                .volume_devices
                .as_ref()
                .is_some_and(|list| !list.is_empty()),
        ),
        (
            "securityContext.appArmorProfile",
            security.is_some_and(|s| s.app_armor_profile.is_some()),
        ),
    ];
    let used = fields.into_iter().filter(|(_, used)| *used);
    used.map(|(field, _)| format!("{base}.{field}")).collect()
}

/// The volumes that containers mount and that cannot be provided: the pod waits in ContainerCreating.
pub fn unmountable_volumes(pod: &Pod) -> Vec<String> {
    let mounted: BTreeSet<&str> = pod
        .all_containers()
        .flat_map(|(_, c)| {
            let mounts = c.volume_mounts.iter().flatten().map(|m| m.name.as_str());
            mounts.chain(c.volume_devices.iter().flatten().map(|d| d.name.as_str()))
        })
        .collect();
    mounted.into_iter().map(str::to_owned).collect()
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
        EnvVar, EnvVarSource, Lifecycle, LifecycleHandler, Probe, SecretKeySelector, VolumeMount,
    };

    use super::*;
    use crate::testing::*;

    #[test]
    fn a_plain_pod_is_honoured_in_full() {
        assert!(not_honoured(&pod("p").init("i").app("c")).is_empty());
    }

    #[test]
    fn each_field_passed_over_is_named() {
        let pod = pod("p")
            .spec_with(|spec| spec.host_users = Some(false))
            .spec_with(|spec| {
                let mut sidecar = spec_container("side");
                sidecar.restart_policy = Some("Always".into());
                spec.init_containers = Some(vec![sidecar]);
            })
            .app_with("c", |c| {
                c.readiness_probe = Some(Probe::default());
                let pre_stop = Some(LifecycleHandler::default());
                c.lifecycle = Some(Lifecycle {
                    pre_stop,
                    ..Lifecycle::default()
                });
                let secret = EnvVarSource {
                    secret_key_ref: Some(SecretKeySelector::default()),
                    ..EnvVarSource::default()
                };
                c.env = Some(vec![EnvVar {
                    value_from: Some(secret),
                    ..EnvVar::default()
                }]);
            });
        let expected = [
            "spec.hostUsers",
            "spec.initContainers[side].restartPolicy",
            "spec.containers[c].readinessProbe",
            "spec.containers[c].lifecycle.preStop",
            "spec.containers[c].env.valueFrom",
        ];
        assert_eq!(not_honoured(&pod), expected);
    }

    #[test]
    fn mounted_volumes_hold_the_pod_back() {
        let mount = |name: &str| VolumeMount {
            name: name.into(),
            ..VolumeMount::default()
        };
        let pod = pod("p")
            .app_with("b", |c| {
                c.volume_mounts = Some(vec![mount("data"), mount("cache")])
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
