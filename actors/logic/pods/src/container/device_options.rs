//! What a container gets with the devices of device plugins, beside what its definition says.
//!
//! Mirrors upstream's `GetResources` of cm/container_manager_linux.go and its use in kubelet_pods.go
//! (`GenerateRunContainerOptions`) at v1.36: what plugins say comes first, so that the container's own definition wins.

use logic_placement::devices::{ContainerDevices, DeviceMount, DeviceNode};
use logic_volumes::Relabel;

use super::environment::Variables;
use super::{
    ContainerConfig, ContainerInput, ContainerMount, Device, MountAccess, MountOrigin,
    MountPropagation,
};

pub(super) fn with_devices(config: ContainerConfig, given: &ContainerDevices) -> ContainerConfig {
    let mut annotations = given.annotations.clone();
    annotations.extend(config.annotations);
    ContainerConfig {
        mounts: given
            .mounts
            .iter()
            .map(mount)
            .chain(config.mounts)
            .collect(),
        devices: given
            .nodes
            .iter()
            .map(device)
            .chain(config.devices)
            .collect(),
        cdi_devices: config
            .cdi_devices
            .into_iter()
            .chain(given.cdi_devices.iter().cloned())
            .collect(),
        annotations,
        ..config
    }
}

/// The container's variables after those that its devices bring, so that arguments and paths may name both.
pub(super) fn variables(input: &ContainerInput<'_>, own: Variables) -> Variables {
    let given = input.plugin_devices.into_iter();
    let given = given.flat_map(|devices| &devices.envs);
    let given = given.filter(|(name, _)| !own.iter().any(|(known, _)| known == *name));
    let given = given.map(|(name, value)| (name.clone(), value.clone()));
    given.chain(own.iter().cloned()).collect()
}

fn mount(mount: &DeviceMount) -> ContainerMount {
    ContainerMount {
        host_path: mount.host_path.clone().into(),
        container_path: mount.container_path.clone(),
        access: match mount.read_only {
            true => MountAccess::ReadOnly,
            false => MountAccess::ReadWrite,
        },
        propagation: MountPropagation::Private,
        relabel: Relabel::No,
        origin: MountOrigin::Volume,
    }
}

fn device(node: &DeviceNode) -> Device {
    Device {
        host_path: node.host_path.clone().into(),
        container_path: node.container_path.clone(),
        permissions: node.permissions.clone(),
    }
}

#[cfg(test)]
mod tests {
    use logic_api::testing::*;

    use super::super::tests::made_with_devices;
    use super::*;

    /// Upstream's TestGetDeviceRunContainerOptions, as far as the container's configuration goes.
    #[test]
    fn devices_bring_what_they_need_and_the_containers_own_definition_wins() {
        let pod = pod("p").app_with("c", |c| {
            c.env = Some(vec![k8s_openapi::api::core::v1::EnvVar {
                name: "BOTH".to_owned(),
                value: Some("own".to_owned()),
                value_from: None,
            }]);
            c.args = Some(vec!["--gpu=$(GPU)".to_owned()]);
        });
        let given = ContainerDevices {
            envs: string_map(&[("BOTH", "plugin"), ("GPU", "0")]),
            mounts: vec![DeviceMount {
                container_path: "/lib/gpu".to_owned(),
                host_path: "/usr/lib/gpu".to_owned(),
                read_only: true,
            }],
            nodes: vec![DeviceNode {
                container_path: "/dev/gpu0".to_owned(),
                host_path: "/dev/vendor/0".to_owned(),
                permissions: "rw".to_owned(),
            }],
            annotations: string_map(&[("vendor.com/gpu", "0")]),
            cdi_devices: vec!["vendor.com/gpu=0".to_owned()],
            conflicts: Vec::new(),
        };
        let made = made_with_devices(&pod, &given).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert!(made.envs.contains(&pair("GPU", "0")));
        let both: Vec<_> = made
            .envs
            .iter()
            .filter(|(name, _)| name == "BOTH")
            .collect();
        assert_eq!(both, [&pair("BOTH", "own")]);
        let first = &made.mounts[0];
        assert_eq!(
            (first.container_path.as_str(), first.access),
            ("/lib/gpu", MountAccess::ReadOnly)
        );
        assert_eq!(made.args, ["--gpu=0"]);
        assert_eq!(made.devices[0].permissions, "rw");
        assert_eq!(made.annotations["vendor.com/gpu"], "0");
        assert_eq!(made.cdi_devices, ["vendor.com/gpu=0"]);
    }
}
