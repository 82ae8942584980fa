//! A container's effective security context (upstream's securitycontext and
//! kuberuntime/security_context.go at v1.36): the container's own word counts before the pod's.

pub mod app_armor;
mod non_root;
pub mod user_namespaces;

use k8s_openapi::api::core::v1::{Container, Pod, SeccompProfile, SecurityContext};
use logic_api::linux::{NamespaceMode, Namespaces, SeLinuxContext, Seccomp};
use logic_api::pod::PodView;
use logic_api::types::ContainerId;
use logic_resources::node::policy::NodePolicy;
pub use non_root::verify_non_root;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::sandbox::{se_linux, supplemental_groups};
use crate::security::app_armor::{AppArmor, AppArmorError};

/// A container's security context, as CRI's `LinuxContainerSecurityContext`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Security {
    /// None for the image's.
    pub run_as_user: Option<i64>,
    /// None for the user's.
    pub run_as_group: Option<i64>,
    /// Only where the image names its user and the pod does not.
    pub run_as_username: String,
    pub privileged: bool,
    pub read_only_root: bool,
    /// Nothing that the container runs gains privileges.
    pub no_new_privileges: bool,
    pub capabilities_added: Vec<String>,
    pub capabilities_dropped: Vec<String>,
    pub supplemental_groups: Vec<i64>,
    pub groups_policy: GroupsPolicy,
    pub seccomp: Seccomp,
    pub app_armor: Option<AppArmor>,
    pub se_linux: Option<SeLinuxContext>,
    pub namespaces: Namespaces,
    /// The container whose process namespace it joins, where `namespaces` says so.
    pub target: Option<ContainerId>,
    /// Paths that the container sees as empty.
    pub masked_paths: Vec<String>,
    /// Paths that the container cannot write.
    pub readonly_paths: Vec<String>,
}

/// `supplementalGroupsPolicy`: what becomes of the groups that the image gives to its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupsPolicy {
    #[default]
    Merge,
    Strict,
}

impl GroupsPolicy {
    /// Reads the pod's word; another than the two is refused.
    pub fn of(pod: &Pod) -> Result<Self, SecurityError> {
        let word = pod
            .security()
            .and_then(|s| s.supplemental_groups_policy.as_deref());
        match word {
            None | Some("Merge") => Ok(Self::Merge),
            Some("Strict") => Ok(Self::Strict),
            Some(unknown) => Err(SecurityError::GroupsPolicy(unknown.to_owned())),
        }
    }
}

/// Why a security context cannot be applied.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SecurityError {
    /// With upstream's own full stop.
    #[error("localhostProfile must be set if seccompProfile type is Localhost.")]
    LocalhostProfile,
    #[error("unsupported supplementalGroupsPolicy: {0}")]
    GroupsPolicy(String),
    #[error(transparent)]
    AppArmor(#[from] AppArmorError),
    #[error(
        "container's runAsUser breaks non-root policy (pod: \"{pod}\", container: {container})"
    )]
    RunsAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image will run as root (pod: \"{pod}\", container: {container})"
    )]
    ImageRunsAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has an invalid user id ({user}). (Must be 1-({most})): must be between 0 and {most}, inclusive (pod: \"{pod}\", container: {container})",
        most = i32::MAX
    )]
    ImageUserId {
        user: i64,
        pod: String,
        container: String,
    },
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \"{pod}\", container: {container})"
    )]
    ImageUserName {
        user: String,
        pod: String,
        container: String,
    },
}

/// The user that an image runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageUser {
    Uid(i64),
    Name(String),
    /// The image names no user: root.
    Unset,
}

/// The input of a container's security context.
#[derive(Clone, Copy, Debug)]
pub struct SecurityInput<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub node: &'a NodePolicy,
    pub image_user: &'a ImageUser,
    /// Those of the pod's sandbox.
    pub namespaces: &'a Namespaces,
    /// The instance whose process namespace an ephemeral container joins.
    pub target: Option<&'a ContainerId>,
}

const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

pub fn container_security(input: &SecurityInput<'_>) -> Result<Security, SecurityError> {
    let SecurityInput {
        pod,
        container,
        node,
        ..
    } = *input;
    let none = SecurityContext::default();
    let own = container.security_context.as_ref().unwrap_or(&none);
    let shared = pod.security();
    let capabilities = own.capabilities.as_ref();
    let labels = own
        .se_linux_options
        .as_ref()
        .or(shared.and_then(|s| s.se_linux_options.as_ref()));
    let profile = own
        .seccomp_profile
        .as_ref()
        .or(shared.and_then(|s| s.seccomp_profile.as_ref()));
    let (run_as_user, run_as_username) = user(pod, own, input.image_user);
    let (namespaces, target) = process_namespace(input);
    let (masked_paths, readonly_paths) = hidden_paths(own, node);
    Ok(Security {
        run_as_user,
        run_as_group: own.run_as_group.or(shared.and_then(|s| s.run_as_group)),
        run_as_username,
        privileged: own.privileged == Some(true),
        read_only_root: own.read_only_root_filesystem == Some(true),
        no_new_privileges: own.allow_privilege_escalation == Some(false),
        capabilities_added: capabilities.and_then(|c| c.add.clone()).unwrap_or_default(),
        capabilities_dropped: capabilities
            .and_then(|c| c.drop.clone())
            .unwrap_or_default(),
        supplemental_groups: supplemental_groups(pod),
        groups_policy: GroupsPolicy::of(pod)?,
        seccomp: seccomp(profile, node)?,
        app_armor: app_armor::profile(pod, container)?,
        se_linux: labels.map(se_linux),
        namespaces,
        target,
        masked_paths,
        readonly_paths,
    })
}

/// The definition's user, or else the image's: by number, or by name where it has no number.
fn user(pod: &Pod, own: &SecurityContext, image: &ImageUser) -> (Option<i64>, String) {
    let defined = own
        .run_as_user
        .or(pod.security().and_then(|s| s.run_as_user));
    match (defined, image) {
        (Some(user), _) => (Some(user), String::new()),
        (None, ImageUser::Uid(user)) => (Some(*user), String::new()),
        (None, ImageUser::Name(name)) => (None, name.clone()),
        (None, ImageUser::Unset) => (Some(0), String::new()),
    }
}

/// A target counts only where the container would have had processes of its own.
fn process_namespace(input: &SecurityInput<'_>) -> (Namespaces, Option<ContainerId>) {
    let namespaces = *input.namespaces;
    match input.target {
        Some(target) if namespaces.pid == NamespaceMode::Container => {
            let pid = NamespaceMode::Target;
            (Namespaces { pid, ..namespaces }, Some(target.clone()))
        }
        Some(_) | None => (namespaces, None),
    }
}

/// What the container does not see at all, and what it sees and cannot change.
fn hidden_paths(own: &SecurityContext, node: &NodePolicy) -> (Vec<String>, Vec<String>) {
    if own.proc_mount.as_deref() == Some("Unmasked") {
        return (Vec::new(), Vec::new());
    }
    let owned = |list: &[&str]| {
        list.iter()
            .map(|path| (*path).to_owned())
            .collect::<Vec<_>>()
    };
    let mut masked = owned(&MASKED);
    masked.extend_from_slice(&node.masked_paths);
    (masked, owned(&READONLY))
}

fn seccomp(profile: Option<&SeccompProfile>, node: &NodePolicy) -> Result<Seccomp, SecurityError> {
    let Some(profile) = profile else {
        return Ok(node.seccomp_default.clone());
    };
    match profile.type_.as_str() {
        "RuntimeDefault" => Ok(Seccomp::RuntimeDefault),
        "Localhost" => match profile.localhost_profile.as_deref() {
            None | Some("") => Err(SecurityError::LocalhostProfile),
            Some(file) => Ok(Seccomp::Localhost(node.root_dir.join("seccomp").join(file))),
        },
        _ => Ok(Seccomp::Unconfined),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{AppArmorProfile, Capabilities, PodSecurityContext};
    use logic_api::testing::*;

    use super::*;
    use crate::sandbox::namespaces;

    fn of(
        pod: &Pod,
        image_user: &ImageUser,
        target: Option<&str>,
    ) -> Result<Security, SecurityError> {
        let target = target.map(ContainerId::from);
        container_security(&SecurityInput {
            pod,
            container: &pod.app_containers()[0],
            node: &NodePolicy::default(),
            image_user,
            namespaces: &namespaces(pod),
            target: target.as_ref(),
        })
    }

    fn made(shared: PodSecurityContext, own: SecurityContext) -> Result<Security, SecurityError> {
        let pod = pod("p")
            .spec_with(|spec| spec.security_context = Some(shared))
            .app_with("c", |c| c.security_context = Some(own));
        of(&pod, &ImageUser::Unset, None)
    }

    #[test]
    fn the_default_is_upstreams() {
        let security = of(&pod("p").app("c"), &ImageUser::Unset, None).unwrap();
        assert_eq!(
            (security.run_as_user, security.run_as_group),
            (Some(0), None)
        );
        assert!(!security.privileged && !security.no_new_privileges && !security.read_only_root);
        assert_eq!(security.seccomp, Seccomp::Unconfined);
        assert_eq!(security.app_armor, None);
        assert_eq!(security.groups_policy, GroupsPolicy::Merge);
        assert_eq!(security.masked_paths.len(), 12);
        assert_eq!(security.readonly_paths, READONLY);
        let modes = security.namespaces;
        assert_eq!(
            (modes.network, modes.pid, modes.ipc),
            (
                NamespaceMode::Pod,
                NamespaceMode::Container,
                NamespaceMode::Pod
            )
        );
    }

    /// Upstream's TestDetermineEffectiveSecurityContext, TestAddNoNewPrivileges,
    /// TestConvertToRuntimeMaskedPaths and TestConvertToRuntimeReadonlyPaths.
    #[test]
    fn the_containers_word_counts_before_the_pods() {
        let shared = || PodSecurityContext {
            run_as_user: Some(1),
            run_as_group: Some(2),
            fs_group: Some(3),
            supplemental_groups: Some(vec![4, 5]),
            ..PodSecurityContext::default()
        };
        let own = SecurityContext {
            run_as_user: Some(10),
            privileged: Some(true),
            read_only_root_filesystem: Some(true),
            allow_privilege_escalation: Some(false),
            proc_mount: Some("Unmasked".into()),
            capabilities: Some(Capabilities {
                add: Some(vec!["NET_ADMIN".into()]),
                drop: Some(vec!["ALL".into()]),
            }),
            ..SecurityContext::default()
        };
        let security = made(shared(), own).unwrap();
        assert_eq!(
            (security.run_as_user, security.run_as_group),
            (Some(10), Some(2))
        );
        assert_eq!(security.supplemental_groups, [3, 4, 5]);
        assert!(security.privileged && security.read_only_root && security.no_new_privileges);
        assert!(security.masked_paths.is_empty() && security.readonly_paths.is_empty());
        assert_eq!(security.capabilities_added, ["NET_ADMIN"]);
        assert_eq!(security.capabilities_dropped, ["ALL"]);
        let shared = made(shared(), SecurityContext::default()).unwrap();
        assert_eq!(shared.run_as_user, Some(1));
    }

    #[test]
    fn paths_of_this_machine_are_masked_as_well() {
        let pod = pod("p").app("c");
        let node = NodePolicy {
            masked_paths: vec!["/sys/devices/system/cpu/cpu0/thermal_throttle".into()],
            ..NodePolicy::default()
        };
        let (masked, _) = hidden_paths(&SecurityContext::default(), &node);
        assert_eq!(masked.last(), node.masked_paths.last());
        let security = of(&pod, &ImageUser::Unset, None).unwrap();
        assert_eq!(masked.len(), security.masked_paths.len() + 1);
    }

    /// Upstream's TestGetImageUser, as the security context has it.
    #[test]
    fn the_images_user_counts_where_the_definition_names_none() {
        let named = || ImageUser::Name("web".into());
        let cases = [
            (None, ImageUser::Unset, Some(0), ""),
            (None, ImageUser::Uid(7), Some(7), ""),
            (None, named(), None, "web"),
            (Some(5), named(), Some(5), ""),
            (Some(5), ImageUser::Uid(7), Some(5), ""),
        ];
        for (defined, image, user, name) in cases {
            let pod = pod("p").app_with("c", |c| {
                c.security_context = Some(SecurityContext {
                    run_as_user: defined,
                    ..SecurityContext::default()
                });
            });
            let made = of(&pod, &image, None).unwrap();
            assert_eq!(
                (made.run_as_user, made.run_as_username.as_str()),
                (user, name),
                "{image:?}"
            );
        }
    }

    /// Upstream's TestGenerateLinuxContainerConfigNamespaces.
    #[test]
    fn a_target_counts_only_where_processes_are_not_shared_anyway() {
        let plain = || pod("p").app("c");
        let shared = plain().spec_with(|spec| spec.share_process_namespace = Some(true));
        let host = plain().spec_with(|spec| spec.host_pid = Some(true));
        let cases = [
            (plain(), None, NamespaceMode::Container, None),
            (shared.clone(), None, NamespaceMode::Pod, None),
            (shared, Some("t"), NamespaceMode::Pod, None),
            (host, Some("t"), NamespaceMode::Node, None),
            (plain(), Some("t"), NamespaceMode::Target, Some("t")),
        ];
        for (pod, target, pid, joined) in cases {
            let made = of(&pod, &ImageUser::Unset, target).unwrap();
            assert_eq!(made.namespaces.pid, pid, "{target:?}");
            assert_eq!(made.target.as_ref().map(ContainerId::as_str), joined);
        }
    }

    /// Upstream's TestGenerateLinuxContainerConfigSupplementalGroupsPolicy.
    #[test]
    fn the_groups_policy_is_the_pods() {
        let with = |policy: Option<&str>| {
            let shared = PodSecurityContext {
                supplemental_groups_policy: policy.map(str::to_owned),
                ..PodSecurityContext::default()
            };
            made(shared, SecurityContext::default())
        };
        let cases = [
            (None, GroupsPolicy::Merge),
            (Some("Merge"), GroupsPolicy::Merge),
            (Some("Strict"), GroupsPolicy::Strict),
        ];
        for (word, policy) in cases {
            assert_eq!(with(word).unwrap().groups_policy, policy);
        }
        let said = with(Some("UnsupportedPolicy")).unwrap_err().to_string();
        assert_eq!(
            said,
            "unsupported supplementalGroupsPolicy: UnsupportedPolicy"
        );
    }

    #[test]
    fn a_profile_that_is_none_is_refused() {
        let own = |kind: &str| SecurityContext {
            app_armor_profile: Some(AppArmorProfile {
                type_: kind.into(),
                localhost_profile: None,
            }),
            ..SecurityContext::default()
        };
        let shared = PodSecurityContext::default;
        let plain = made(shared(), own("RuntimeDefault")).unwrap();
        assert_eq!(plain.app_armor, Some(AppArmor::RuntimeDefault));
        let error = made(shared(), own("Localhost")).unwrap_err();
        assert_eq!(error.to_string(), "missing localhost apparmor profile name");
    }

    /// Upstream's TestGetSeccompProfile, TestGetSeccompProfileDefaultSeccomp and TestFieldSeccompProfile.
    #[test]
    fn seccomp_profiles_are_upstreams() {
        let profile = |kind: &str, file: Option<&str>| {
            Some(SeccompProfile {
                type_: kind.into(),
                localhost_profile: file.map(str::to_owned),
            })
        };
        let local = Seccomp::Localhost("/var/lib/kubelet/seccomp/a.json".into());
        let cases = [
            (None, None, Ok(Seccomp::Unconfined)),
            (
                profile("RuntimeDefault", None),
                None,
                Ok(Seccomp::RuntimeDefault),
            ),
            (
                profile("RuntimeDefault", None),
                profile("Unconfined", None),
                Ok(Seccomp::Unconfined),
            ),
            (None, profile("Localhost", Some("a.json")), Ok(local)),
            (
                None,
                profile("Localhost", None),
                Err(SecurityError::LocalhostProfile),
            ),
            (
                None,
                profile("Localhost", Some("")),
                Err(SecurityError::LocalhostProfile),
            ),
        ];
        for (shared, own, expected) in cases {
            let shared = PodSecurityContext {
                seccomp_profile: shared,
                ..PodSecurityContext::default()
            };
            let own = SecurityContext {
                seccomp_profile: own,
                ..SecurityContext::default()
            };
            assert_eq!(made(shared, own).map(|s| s.seccomp), expected);
        }
        let pod = pod("p").app("c");
        let node = NodePolicy {
            seccomp_default: Seccomp::RuntimeDefault,
            ..NodePolicy::default()
        };
        assert_eq!(seccomp(None, &node), Ok(Seccomp::RuntimeDefault));
        assert_eq!(
            seccomp(profile("Unconfined", None).as_ref(), &node),
            Ok(Seccomp::Unconfined)
        );
        assert_eq!(
            of(&pod, &ImageUser::Unset, None).unwrap().seccomp,
            Seccomp::Unconfined
        );
    }
}
