//! From a container's configuration to CRI's.

use logic_api::linux::UserNamespace;
use logic_pods::container::{
    ContainerConfig, ContainerMount, Device, MountAccess, MountOrigin, MountPropagation,
};
use logic_pods::sandbox::SandboxConfig;
use logic_pods::security::Security;
use logic_pods::security::app_armor::AppArmor;
use logic_resources::resources::LinuxResources;
use logic_volumes::Relabel;
use proto::cri;

use super::{
    StringMap, annotated_image, groups_policy, mappings, namespaces, number, se_linux, seccomp,
    string_map,
};

/// The pod, as it goes with the images that its containers mount.
#[derive(Clone, Copy)]
struct ImagePod<'a> {
    annotations: &'a StringMap,
    runtime_handler: &'a str,
}

/// `pod` has the pod's annotations and runtime handler, which go with the images that it mounts.
pub(in crate::runtime) fn container_config(
    config: &ContainerConfig,
    pod: &SandboxConfig,
) -> cri::ContainerConfig {
    let owner = ImagePod {
        annotations: &pod.annotations,
        runtime_handler: &pod.runtime_handler,
    };
    let env = |(key, value): &(String, String)| cri::KeyValue {
        key: key.clone(),
        value: value.clone().into_bytes(),
    };
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata {
            name: config.name.clone(),
            attempt: config.attempt,
        }),
        image: Some(cri::ImageSpec {
            image: config.image.clone(),
            user_specified_image: config.image_user_spec.clone(),
            ..Default::default()
        }),
        command: config.command.clone(),
        args: config.args.clone(),
        working_dir: config.working_dir.clone(),
        envs: config.envs.iter().map(env).collect(),
        mounts: config
            .mounts
            .iter()
            .map(|each| mount(each, config.security.namespaces.users, owner))
            .collect(),
        devices: config.devices.iter().map(device).collect(),
        cdi_devices: config
            .cdi_devices
            .iter()
            .map(|name| cri::CdiDevice { name: name.clone() })
            .collect(),
        labels: string_map(&config.labels),
        annotations: string_map(&config.annotations),
        log_path: config.log_path.to_string_lossy().into_owned(),
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(resources(&config.resources)),
            security_context: Some(container_security(&config.security)),
        }),
        stop_signal: config.stop_signal.as_deref().map_or(0, stop_signal),
        ..Default::default()
    }
}

/// CRI's prefix of a signal's name.
pub(super) const SIGNAL: &str = "SIGNAL_";
pub(super) const PLUS: &str = "PLUS";
pub(super) const MINUS: &str = "MINUS";

/// `SIGTERM` is CRI's `SIGNAL_SIGTERM`, `SIGRTMIN+1` its `SIGNAL_SIGRTMINPLUS1`; an unknown name leaves the
/// choice to the image.
fn stop_signal(name: &str) -> i32 {
    let name = name.replace('+', PLUS).replace('-', MINUS);
    cri::Signal::from_str_name(&format!("{SIGNAL}{name}"))
        .unwrap_or(cri::Signal::RuntimeDefault)
        .into()
}

fn container_security(security: &Security) -> cri::LinuxContainerSecurityContext {
    let word = security.app_armor.as_ref().map(AppArmor::as_word);
    let mut context = cri::LinuxContainerSecurityContext {
        capabilities: Some(cri::Capability {
            add_capabilities: security.capabilities_added.clone(),
            drop_capabilities: security.capabilities_dropped.clone(),
            ..Default::default()
        }),
        privileged: security.privileged,
        namespace_options: Some(cri::NamespaceOption {
            target_id: security
                .target
                .as_ref()
                .map(|target| target.as_str().to_owned())
                .unwrap_or_default(),
            ..namespaces(security.namespaces)
        }),
        selinux_options: security.se_linux.as_ref().map(se_linux),
        run_as_user: number(security.run_as_user),
        run_as_group: number(security.run_as_group),
        run_as_username: security.run_as_username.clone(),
        readonly_rootfs: security.read_only_root,
        supplemental_groups: security.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(security.groups_policy).into(),
        no_new_privs: security.no_new_privileges,
        masked_paths: security.masked_paths.clone(),
        readonly_paths: security.readonly_paths.clone(),
        seccomp: Some(seccomp(&security.seccomp)),
        apparmor: security.app_armor.as_ref().map(app_armor),
        ..Default::default()
    };
    #[expect(
        deprecated,
        reason = "what runtimes before CRI's field for it read, as upstream fills it"
    )]
    {
        context.apparmor_profile = word.unwrap_or_default().into_owned();
    }
    context
}

pub(in crate::runtime) fn resources(resources: &LinuxResources) -> cri::LinuxContainerResources {
    cri::LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit,
        memory_swap_limit_in_bytes: resources.memory_swap_limit,
        oom_score_adj: resources.oom_score_adj,
        cpuset_cpus: resources.cpus.clone(),
        cpuset_mems: resources.memory_nodes.clone(),
        hugepage_limits: resources.huge_pages.iter().map(huge_pages).collect(),
        unified: string_map(&resources.unified),
    }
}

fn huge_pages((page_size, limit): (&String, &u64)) -> cri::HugepageLimit {
    cri::HugepageLimit {
        page_size: page_size.clone(),
        limit: *limit,
    }
}

fn mount(mount: &ContainerMount, owners: UserNamespace, pod: ImagePod<'_>) -> cri::Mount {
    let (image, image_sub_path) = match &mount.origin {
        MountOrigin::Image {
            image,
            user_spec,
            sub_path,
        } => {
            let image = cri::ImageSpec {
                user_specified_image: user_spec.clone(),
                runtime_handler: pod.runtime_handler.to_owned(),
                ..annotated_image(image, pod.annotations)
            };
            (Some(image), sub_path.clone())
        }
        MountOrigin::TerminationMessage | MountOrigin::Hosts | MountOrigin::Volume => {
            (None, String::new())
        }
    };
    let owners = mappings(owners);
    cri::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.to_string_lossy().into_owned(),
        readonly: mount.access != MountAccess::ReadWrite,
        recursive_read_only: mount.access == MountAccess::RecursiveReadOnly,
        uid_mappings: owners.clone(),
        gid_mappings: owners,
        propagation: propagation(mount.propagation).into(),
        selinux_relabel: mount.relabel == Relabel::Yes,
        image,
        image_sub_path,
        ..Default::default()
    }
}

fn propagation(propagation: MountPropagation) -> cri::MountPropagation {
    match propagation {
        MountPropagation::Private => cri::MountPropagation::PropagationPrivate,
        MountPropagation::HostToContainer => cri::MountPropagation::PropagationHostToContainer,
        MountPropagation::Bidirectional => cri::MountPropagation::PropagationBidirectional,
    }
}

fn device(device: &Device) -> cri::Device {
    cri::Device {
        container_path: device.container_path.clone(),
        host_path: device.host_path.to_string_lossy().into_owned(),
        permissions: device.permissions.clone(),
    }
}

fn app_armor(profile: &AppArmor) -> cri::SecurityProfile {
    use cri::security_profile::ProfileType;
    let (kind, name) = match profile {
        AppArmor::Unconfined => (ProfileType::Unconfined, String::new()),
        AppArmor::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        AppArmor::Localhost(name) => (ProfileType::Localhost, name.clone()),
    };
    cri::SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: name,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use logic_api::linux::{IdRange, NamespaceMode, Namespaces, Seccomp};
    use logic_pods::security::GroupsPolicy;

    use super::*;

    const USERS: UserNamespace = UserNamespace::Pod(IdRange {
        first: 65_536,
        length: 65_536,
    });

    fn security() -> Security {
        Security {
            run_as_user: None,
            run_as_group: Some(7),
            run_as_username: "web".into(),
            privileged: false,
            read_only_root: true,
            no_new_privileges: true,
            capabilities_added: vec!["NET_ADMIN".into()],
            capabilities_dropped: vec!["ALL".into()],
            supplemental_groups: vec![3],
            groups_policy: GroupsPolicy::Strict,
            seccomp: Seccomp::RuntimeDefault,
            app_armor: Some(AppArmor::Localhost("mine".into())),
            se_linux: None,
            namespaces: Namespaces {
                network: NamespaceMode::Pod,
                pid: NamespaceMode::Target,
                ipc: NamespaceMode::Pod,
                users: USERS,
            },
            target: Some("t1".into()),
            masked_paths: vec!["/proc/kcore".into()],
            readonly_paths: Vec::new(),
        }
    }

    fn mounted(access: MountAccess, origin: MountOrigin) -> ContainerMount {
        ContainerMount {
            host_path: "/h".into(),
            container_path: "/c".into(),
            access,
            propagation: MountPropagation::default(),
            relabel: Relabel::No,
            origin,
        }
    }

    #[test]
    fn the_security_context_is_told_in_full() {
        let context = container_security(&security());
        assert_eq!(
            (context.run_as_user, context.run_as_username.as_str()),
            (None, "web")
        );
        assert_eq!(
            context.supplemental_groups_policy(),
            cri::SupplementalGroupsPolicy::Strict
        );
        let profile = context.apparmor.unwrap();
        assert_eq!(profile.localhost_ref, "mine");
        assert_eq!(
            profile.profile_type,
            i32::from(cri::security_profile::ProfileType::Localhost)
        );
        #[expect(deprecated, reason = "what older runtimes read")]
        let word = context.apparmor_profile;
        assert_eq!(word, "localhost/mine");
        let options = context.namespace_options.unwrap();
        assert_eq!(
            (options.pid(), options.target_id.as_str()),
            (cri::NamespaceMode::Target, "t1")
        );
        let users = options.userns_options.unwrap();
        assert_eq!(users.mode(), cri::NamespaceMode::Pod);
        assert_eq!(
            (users.uids[0].host_id, users.gids[0].length),
            (65_536, 65_536)
        );
        let plain = Security {
            app_armor: None,
            ..security()
        };
        assert_eq!(container_security(&plain).apparmor, None);
    }

    #[test]
    fn resources_of_every_kind_reach_the_runtime() {
        let made = resources(&LinuxResources {
            memory_swap_limit: 5,
            huge_pages: BTreeMap::from([("2MB".to_owned(), 4)]),
            unified: BTreeMap::from([("memory.high".to_owned(), "9".to_owned())]),
            ..LinuxResources::default()
        });
        assert_eq!(made.memory_swap_limit_in_bytes, 5);
        let pages = &made.hugepage_limits[0];
        assert_eq!((pages.page_size.as_str(), pages.limit), ("2MB", 4));
        assert_eq!(made.unified["memory.high"], "9");
    }

    #[test]
    fn a_mount_is_a_path_or_an_image_owned_as_the_pod_sees_it() {
        let image = MountOrigin::Image {
            image: "sha256:2".into(),
            user_spec: "tools:1".into(),
            sub_path: "a".into(),
        };
        let notes = StringMap::from([("team".to_owned(), "a".to_owned())]);
        let pod = ImagePod {
            annotations: &notes,
            runtime_handler: "kata",
        };
        let made = mount(&mounted(MountAccess::ReadOnly, image), USERS, pod);
        let image = made.image.unwrap();
        assert_eq!(
            (image.image.as_str(), image.user_specified_image.as_str()),
            ("sha256:2", "tools:1")
        );
        assert_eq!(image.annotations["team"], "a");
        assert_eq!(image.runtime_handler, "kata");
        assert_eq!((made.image_sub_path.as_str(), made.readonly), ("a", true));
        assert_eq!(
            (made.uid_mappings.len(), made.gid_mappings[0].host_id),
            (1, 65_536)
        );
        let cases = [
            (MountAccess::ReadWrite, false, false),
            (MountAccess::ReadOnly, true, false),
            (MountAccess::RecursiveReadOnly, true, true),
        ];
        for (access, read_only, recursive) in cases {
            let mounted = mounted(access, MountOrigin::Hosts);
            let made = mount(&mounted, UserNamespace::Node, pod);
            assert_eq!(
                (made.readonly, made.recursive_read_only),
                (read_only, recursive)
            );
            assert!(made.image.is_none() && made.uid_mappings.is_empty());
        }
    }

    #[test]
    fn a_stop_signal_is_named_as_cri_names_it() {
        assert_eq!(stop_signal("SIGUSR1"), i32::from(cri::Signal::Sigusr1));
        assert_eq!(
            stop_signal("SIGRTMIN+1"),
            i32::from(cri::Signal::Sigrtminplus1)
        );
        assert_eq!(
            stop_signal("NONSENSE"),
            i32::from(cri::Signal::RuntimeDefault)
        );
    }
}
