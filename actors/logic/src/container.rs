//! What to ask a runtime for when a container is made, in plain types.
//!
//! Mirrors upstream's `generateContainerConfig` (kuberuntime_container.go at v1.36).

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{self as core, Pod};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::environment::{self, EnvironmentError};
use crate::labels;
use crate::pod::PodView;
use crate::resources::{LinuxResources, linux_resources};
use crate::sandbox::NodePolicy;
use crate::security::{Security, SecurityError, container_security};

/// CRI's `ContainerConfig`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerConfig {
    pub name: String,
    pub attempt: u32,
    /// What the runtime resolved the image to.
    pub image: String,
    /// What the pod's definition calls it.
    pub image_user_spec: String,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub working_dir: String,
    pub envs: Vec<(String, String)>,
    pub mounts: Vec<Mount>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Within the sandbox's log folder.
    pub log_path: PathBuf,
    pub stdin: bool,
    pub stdin_once: bool,
    pub tty: bool,
    pub resources: LinuxResources,
    pub security: Security,
    /// As the definition says (`SIGUSR1`); none leaves it to the image.
    pub stop_signal: Option<String>,
}

/// A file or folder of the node inside the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub host_path: PathBuf,
    pub container_path: String,
    pub access: Access,
    /// What must exist on the node before the container is created.
    pub origin: Origin,
}

/// What the container may do with a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    ReadWrite,
    ReadOnly,
}

/// Where a mount comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// An empty file of mode 0666 that the worker makes first.
    TerminationMessage,
    /// A mounted volume of the pod.
    Volume,
}

/// Why a container cannot be asked for: its waiting reason is `CreateContainerConfigError`.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ContainerConfigError {
    #[error("container {container}: environment cannot be made")]
    Environment {
        container: String,
        source: EnvironmentError,
    },
    #[error("container {container}: security context cannot be honoured")]
    Security {
        container: String,
        source: SecurityError,
    },
}

impl ContainerConfigError {
    pub const REASON: &str = "CreateContainerConfigError";

    /// The text for the status: the cause, as upstream shows it.
    pub fn message(&self) -> String {
        match self {
            Self::Environment { source, .. } => source.to_string(),
            Self::Security { source, .. } => source.to_string(),
        }
    }

    /// Every cause lies in the definition: only a new definition helps, or the next sync's facts.
    pub fn transient(&self) -> bool {
        match self {
            Self::Environment { .. } | Self::Security { .. } => false,
        }
    }
}

pub fn container_config(
    pod: &Pod,
    container: &core::Container,
    restart_count: u32,
    image_ref: &str,
    pod_ips: &[String],
    node: &NodePolicy,
) -> Result<ContainerConfig, ContainerConfigError> {
    let name = &container.name;
    let envs = environment::variables(pod, container, pod_ips, node).map_err(|source| {
        ContainerConfigError::Environment {
            container: name.clone(),
            source,
        }
    })?;
    let security = container_security(pod, container, node).map_err(|source| {
        ContainerConfigError::Security {
            container: name.clone(),
            source,
        }
    })?;
    let expand = |words: &Option<Vec<String>>| -> Vec<String> {
        let words = words.iter().flatten();
        words.map(|word| environment::expand(word, &envs)).collect()
    };
    Ok(ContainerConfig {
        name: name.clone(),
        attempt: restart_count,
        image: image_ref.to_owned(),
        image_user_spec: container.image.clone().unwrap_or_default(),
        command: expand(&container.command),
        args: expand(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        mounts: termination_message_mount(pod, container, restart_count, node)
            .into_iter()
            .collect(),
        labels: labels::container_labels(pod, container),
        annotations: labels::container_annotations(pod, container, restart_count),
        log_path: labels::container_log_path(name, restart_count),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        resources: linux_resources(pod, container, node),
        security,
        stop_signal: container
            .lifecycle
            .as_ref()
            .and_then(|l| l.stop_signal.clone()),
        envs,
    })
}

/// The file in which a container may leave its last words.
///
/// Upstream gives each instance's file a random name; the attempt tells instances apart as well.
fn termination_message_mount(
    pod: &Pod,
    container: &core::Container,
    attempt: u32,
    node: &NodePolicy,
) -> Option<Mount> {
    let path = container.termination_message_path.as_ref()?;
    let folder = pod_container_directory(node, pod, &container.name);
    (!path.is_empty()).then(|| Mount {
        host_path: folder.join(format!("{attempt:08x}")),
        container_path: path.clone(),
        access: Access::ReadWrite,
        origin: Origin::TerminationMessage,
    })
}

/// `ROOT/pods/UID/containers/NAME`.
pub fn pod_container_directory(node: &NodePolicy, pod: &Pod, container: &str) -> PathBuf {
    let pods = node.root_dir.join("pods").join(pod.uid().as_str());
    pods.join("containers").join(container)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{EnvVar, SeccompProfile, SecurityContext};

    use super::*;
    use crate::testing::*;

    fn made(pod: &Pod) -> Result<ContainerConfig, ContainerConfigError> {
        container_config(
            pod,
            &pod.app_containers()[0],
            2,
            "sha256:1",
            &[],
            &NodePolicy::default(),
        )
    }

    /// Upstream's TestGenerateContainerConfig.
    #[test]
    fn a_container_gets_upstreams_config() {
        let pod = pod("web").app_with("main", |c| {
            c.command = Some(vec!["run".into(), "$(WHO)".into()]);
            c.args = Some(vec!["$$(WHO)".into()]);
            c.env = Some(vec![EnvVar {
                name: "WHO".into(),
                value: Some("me".into()),
                value_from: None,
            }]);
            c.working_dir = Some("/work".into());
            c.termination_message_path = Some("/dev/termination-log".into());
            c.tty = Some(true);
        });
        let config = made(&pod).unwrap();
        assert_eq!((config.name.as_str(), config.attempt), ("main", 2));
        assert_eq!(
            (config.image.as_str(), config.image_user_spec.as_str()),
            ("sha256:1", "localhost/main:1")
        );
        assert_eq!(config.command, ["run", "me"]);
        assert_eq!(config.args, ["$(WHO)"]);
        assert_eq!(config.log_path, std::path::Path::new("main/2.log"));
        assert_eq!((config.stdin, config.tty), (false, true));
        assert_eq!(
            config.annotations["io.kubernetes.container.restartCount"],
            "2"
        );
        let mount = &config.mounts[0];
        let file = std::path::Path::new("/var/lib/kubelet/pods/web-uid/containers/main/00000002");
        assert_eq!(
            (mount.host_path.as_path(), mount.container_path.as_str()),
            (file, "/dev/termination-log")
        );
        assert_eq!(mount.origin, Origin::TerminationMessage);
    }

    #[test]
    fn a_container_without_a_place_for_last_words_has_no_mount() {
        let pod = pod("web").app("main");
        assert!(made(&pod).unwrap().mounts.is_empty());
    }

    #[test]
    fn what_cannot_be_asked_for_says_why() {
        let profile = SeccompProfile {
            type_: "Localhost".into(),
            localhost_profile: None,
        };
        let context = SecurityContext {
            seccomp_profile: Some(profile),
            ..SecurityContext::default()
        };
        let pod = pod("web").app_with("main", |c| c.security_context = Some(context));
        let error = made(&pod).unwrap_err();
        assert_eq!(
            error.to_string(),
            "container main: security context cannot be honoured"
        );
        assert_eq!(
            error.message(),
            "localhostProfile must be set if seccompProfile type is Localhost"
        );
        assert!(!error.transient());
    }
}
