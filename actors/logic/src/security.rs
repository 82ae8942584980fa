//! A container's effective security context (upstream's securitycontext and
//! kuberuntime/security_context.go at v1.36): the container's own word counts before the pod's.

use k8s_openapi::api::core::v1::{Container, Pod, SeccompProfile, SecurityContext};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::pod::PodView;
use crate::sandbox::{
    Namespaces, NodePolicy, SeLinux, Seccomp, namespaces, se_linux, supplemental_groups,
};

/// CRI's `LinuxContainerSecurityContext`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Security {
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub privileged: bool,
    pub read_only_root: bool,
    pub no_new_privileges: bool,
    pub capabilities_added: Vec<String>,
    pub capabilities_dropped: Vec<String>,
    pub supplemental_groups: Vec<i64>,
    pub seccomp: Seccomp,
    pub se_linux: Option<SeLinux>,
    pub namespaces: Namespaces,
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
}

/// Why a security context cannot be honoured.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SecurityError {
    #[error("localhostProfile must be set if seccompProfile type is Localhost")]
    LocalhostProfile,
    #[error(
        "container's runAsUser breaks non-root policy (pod: \"{pod}\", container: {container})"
    )]
    RunsAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image will run as root (pod: \"{pod}\", container: {container})"
    )]
    ImageRunsAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \"{pod}\", container: {container})"
    )]
    ImageUserName {
        user: String,
        pod: String,
        container: String,
    },
}

/// Whom an image says to run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageUser {
    Uid(i64),
    Name(String),
    /// The image says nothing: root.
    Unset,
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

pub fn container_security(
    pod: &Pod,
    container: &Container,
    node: &NodePolicy,
) -> Result<Security, SecurityError> {
    let none = SecurityContext::default();
    let own = container.security_context.as_ref().unwrap_or(&none);
    let shared = pod.security();
    let capabilities = own.capabilities.as_ref();
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |list: &[&str]| -> Vec<String> {
        let list = if unmasked { &[] } else { list };
        list.iter().map(|path| (*path).to_owned()).collect()
    };
    let labels = own
        .se_linux_options
        .as_ref()
        .or(shared.and_then(|s| s.se_linux_options.as_ref()));
    let profile = own
        .seccomp_profile
        .as_ref()
        .or(shared.and_then(|s| s.seccomp_profile.as_ref()));
    Ok(Security {
        run_as_user: own.run_as_user.or(shared.and_then(|s| s.run_as_user)),
        run_as_group: own.run_as_group.or(shared.and_then(|s| s.run_as_group)),
        privileged: own.privileged == Some(true),
        read_only_root: own.read_only_root_filesystem == Some(true),
        no_new_privileges: own.allow_privilege_escalation == Some(false),
        capabilities_added: capabilities.and_then(|c| c.add.clone()).unwrap_or_default(),
        capabilities_dropped: capabilities
            .and_then(|c| c.drop.clone())
            .unwrap_or_default(),
        supplemental_groups: supplemental_groups(pod),
        seccomp: seccomp(profile, node)?,
        se_linux: labels.map(se_linux),
        namespaces: namespaces(pod),
        masked_paths: paths(&MASKED),
        readonly_paths: paths(&READONLY),
    })
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

/// Refuses a container that must not run as root and would (upstream's `verifyRunAsNonRoot`).
pub fn verify_non_root(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
) -> Result<(), SecurityError> {
    let (own, shared) = (container.security_context.as_ref(), pod.security());
    let non_root = own
        .and_then(|s| s.run_as_non_root)
        .or(shared.and_then(|s| s.run_as_non_root));
    if non_root != Some(true) {
        return Ok(());
    }
    let user = own
        .and_then(|s| s.run_as_user)
        .or(shared.and_then(|s| s.run_as_user));
    let (pod, container) = (pod.formatted(), container.name.clone());
    match (user, image) {
        (Some(0), _) => Err(SecurityError::RunsAsRoot { pod, container }),
        (Some(_), _) => Ok(()),
        (None, ImageUser::Uid(0) | ImageUser::Unset) => {
            Err(SecurityError::ImageRunsAsRoot { pod, container })
        }
        (None, ImageUser::Uid(_)) => Ok(()),
        (None, ImageUser::Name(user)) => {
            let user = user.clone();
            Err(SecurityError::ImageUserName {
                user,
                pod,
                container,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext};

    use super::*;
    use crate::sandbox::NamespaceMode;
    use crate::testing::*;

    fn made(shared: PodSecurityContext, own: SecurityContext) -> Result<Security, SecurityError> {
        let pod = pod("p")
            .spec_with(|spec| spec.security_context = Some(shared))
            .app_with("c", |c| c.security_context = Some(own));
        container_security(&pod, &pod.app_containers()[0], &NodePolicy::default())
    }

    #[test]
    fn the_default_is_upstreams() {
        let pod = pod("p").app("c");
        let security =
            container_security(&pod, &pod.app_containers()[0], &NodePolicy::default()).unwrap();
        assert_eq!(
            (
                security.run_as_user,
                security.privileged,
                security.no_new_privileges
            ),
            (None, false, false)
        );
        assert_eq!(security.seccomp, Seccomp::Unconfined);
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
        assert_eq!(
            made(shared(), SecurityContext::default())
                .unwrap()
                .run_as_user,
            Some(1)
        );
    }

    /// Upstream's TestGetSeccompProfile.
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
    }

    /// Upstream's TestVerifyRunAsNonRoot.
    #[test]
    fn root_is_refused_where_it_must_not_be() {
        let named = ImageUser::Name("web".into());
        let cases = [
            (None, None, ImageUser::Unset, None),
            (Some(false), Some(0), ImageUser::Unset, None),
            (
                Some(true),
                None,
                ImageUser::Uid(0),
                Some("image will run as root"),
            ),
            (
                Some(true),
                None,
                ImageUser::Unset,
                Some("image will run as root"),
            ),
            (Some(true), None, ImageUser::Uid(7), None),
            (
                Some(true),
                Some(0),
                ImageUser::Uid(7),
                Some("runAsUser breaks non-root policy"),
            ),
            (Some(true), Some(7), ImageUser::Uid(0), None),
            (Some(true), None, named, Some("non-numeric user (web)")),
        ];
        for (non_root, user, image, complaint) in cases {
            let pod = pod("p").app_with("c", |c| {
                let context = SecurityContext {
                    run_as_user: user,
                    run_as_non_root: non_root,
                    ..SecurityContext::default()
                };
                c.security_context = Some(context);
            });
            let found = verify_non_root(&pod, &pod.app_containers()[0], &image);
            let text = found
                .map_err(|error| error.to_string())
                .err()
                .unwrap_or_default();
            assert_eq!(
                text.is_empty(),
                complaint.is_none(),
                "{non_root:?} {user:?} {image:?}"
            );
            assert!(text.contains(complaint.unwrap_or_default()), "{text}");
        }
    }
}
