//! Reading a pod: the fields that decisions ask for, with upstream's defaults for what is absent.

pub mod conditions;
pub mod hash;
pub mod labels;
pub mod requests;
pub mod volume_stats;

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, EphemeralContainer, Pod, PodSecurityContext, PodSpec, PodStatus,
};

use crate::types::{ContainerKind, PodUid, RestartPolicy};

/// Says where a pod came from: `file`, `http`, `api`.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Marks the API's copy of a static pod.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// The manifest's hash on a static pod.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";

/// The priority from which a pod is critical for the node.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Whether a pod with this status has ended: its phase is Succeeded or Failed.
pub fn is_terminal(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Whether the pod's status says that it has ended, as upstream's `podutil.IsPodTerminal`.
pub fn has_ended(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(is_terminal)
}

/// The fields of a pod that are read most.
pub trait PodView {
    fn name(&self) -> &str;
    fn namespace(&self) -> &str;
    fn uid(&self) -> PodUid;
    fn labels(&self) -> &BTreeMap<String, String>;
    fn annotations(&self) -> &BTreeMap<String, String>;
    fn spec(&self) -> Option<&PodSpec>;

    fn init_containers(&self) -> &[Container] {
        let list = self.spec().and_then(|spec| spec.init_containers.as_deref());
        list.unwrap_or_default()
    }

    fn app_containers(&self) -> &[Container] {
        self.spec().map_or(&[], |spec| &spec.containers)
    }

    /// Init containers, then app containers, each with its kind.
    fn all_containers(&self) -> impl Iterator<Item = (ContainerKind, &Container)> {
        let init = self.init_containers().iter();
        let apps = self.app_containers().iter();
        init.map(|c| (ContainerKind::Init, c))
            .chain(apps.map(|c| (ContainerKind::App, c)))
    }

    /// The ephemeral containers in the common form: what they cannot have is absent.
    fn ephemeral_containers(&self) -> Vec<Container> {
        let list = self.spec().and_then(|s| s.ephemeral_containers.as_deref());
        list.unwrap_or_default().iter().map(as_container).collect()
    }

    /// A container of any kind.
    fn container(&self, name: &str) -> Option<(ContainerKind, Cow<'_, Container>)> {
        let lasting = self.all_containers().find(|(_, c)| c.name == name);
        lasting
            .map(|(kind, c)| (kind, Cow::Borrowed(c)))
            .or_else(|| {
                let found = self
                    .ephemeral_containers()
                    .into_iter()
                    .find(|c| c.name == name)?;
                Some((ContainerKind::Ephemeral, Cow::Owned(found)))
            })
    }

    fn restart_policy(&self) -> RestartPolicy {
        self.spec()
            .and_then(|spec| spec.restart_policy.as_deref())
            .and_then(RestartPolicy::from_name)
            .unwrap_or(RestartPolicy::Always)
    }

    fn host_network(&self) -> bool {
        self.spec().is_some_and(|s| s.host_network == Some(true))
    }

    fn host_pid(&self) -> bool {
        self.spec().is_some_and(|s| s.host_pid == Some(true))
    }

    fn host_ipc(&self) -> bool {
        self.spec().is_some_and(|s| s.host_ipc == Some(true))
    }

    fn shares_process_namespace(&self) -> bool {
        self.spec()
            .is_some_and(|s| s.share_process_namespace == Some(true))
    }

    fn security(&self) -> Option<&PodSecurityContext> {
        self.spec()?.security_context.as_ref()
    }

    fn priority(&self) -> i32 {
        self.spec().and_then(|spec| spec.priority).unwrap_or(0)
    }

    /// From a file or URL, not from the API.
    fn is_static(&self) -> bool {
        self.annotations()
            .get(CONFIG_SOURCE)
            .is_some_and(|source| source != "api")
    }

    fn is_mirror(&self) -> bool {
        self.annotations().contains_key(CONFIG_MIRROR)
    }

    /// Upstream's rule: static, mirror, or of a system-critical priority.
    fn is_critical(&self) -> bool {
        self.is_static() || self.is_mirror() || self.priority() >= SYSTEM_CRITICAL_PRIORITY
    }

    /// `name_namespace(uid)`, as upstream's messages name a pod.
    fn formatted(&self) -> String {
        format!("{}_{}({})", self.name(), self.namespace(), self.uid())
    }
}

/// Whether an init container is a sidecar: started in its turn, and kept alive through the pod's life.
pub fn is_sidecar(init: &Container) -> bool {
    init.restart_policy.as_deref() == Some("Always")
}

fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let EphemeralContainer {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        lifecycle,
        liveness_probe,
        name,
        ports,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy,
        restart_policy_rules,
        security_context,
        startup_probe,
        stdin,
        stdin_once,
        target_container_name: _,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
    } = ephemeral.clone();
    Container {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        lifecycle,
        liveness_probe,
        name,
        ports,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy,
        restart_policy_rules,
        security_context,
        startup_probe,
        stdin,
        stdin_once,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
    }
}

static NO_WORDS: BTreeMap<String, String> = BTreeMap::new();

impl PodView for Pod {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or("default")
    }

    fn uid(&self) -> PodUid {
        self.metadata.uid.as_deref().unwrap_or_default().into()
    }

    fn labels(&self) -> &BTreeMap<String, String> {
        self.metadata.labels.as_ref().unwrap_or(&NO_WORDS)
    }

    fn annotations(&self) -> &BTreeMap<String, String> {
        self.metadata.annotations.as_ref().unwrap_or(&NO_WORDS)
    }

    fn spec(&self) -> Option<&PodSpec> {
        self.spec.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The highest that a user's priority class may have.
    const HIGHEST_USER_PRIORITY: i32 = 1_000_000_000;

    fn pod(annotations: &[(&str, &str)], priority: Option<i32>) -> Pod {
        let mut pod = Pod::default();
        let words = annotations.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        pod.metadata.annotations = Some(words.collect());
        pod.spec = Some(PodSpec {
            priority,
            ..PodSpec::default()
        });
        pod
    }

    /// Upstream's TestIsStaticPod, TestIsMirrorPod and TestGetPodSource.
    #[test]
    fn a_pod_is_static_by_its_source_and_a_mirror_by_its_annotation() {
        let rows = [
            (pod(&[], None), false, false),
            (pod(&[(CONFIG_SOURCE, "file")], None), true, false),
            (pod(&[(CONFIG_SOURCE, "http")], None), true, false),
            (pod(&[(CONFIG_SOURCE, "api")], None), false, false),
            (pod(&[(CONFIG_MIRROR, "true")], None), false, true),
        ];
        for (pod, is_static, is_mirror) in rows {
            let found = (pod.is_static(), pod.is_mirror());
            assert_eq!(found, (is_static, is_mirror), "{:?}", pod.metadata);
        }
        assert!(!Pod::default().is_static() && !Pod::default().is_mirror());
    }

    /// Upstream's TestIsCriticalPod and TestIsCriticalPodBasedOnPriority.
    #[test]
    fn critical_pods_are_static_mirror_or_of_system_priority() {
        let cases = [
            (pod(&[], None), false),
            (pod(&[(CONFIG_SOURCE, "api")], None), false),
            (pod(&[(CONFIG_SOURCE, "file")], None), true),
            (pod(&[(CONFIG_SOURCE, "http")], None), true),
            (
                pod(&[(CONFIG_SOURCE, "api"), (CONFIG_MIRROR, "x")], None),
                true,
            ),
            (pod(&[(CONFIG_MIRROR, "true")], None), true),
            (pod(&[], Some(SYSTEM_CRITICAL_PRIORITY)), true),
            (pod(&[], Some(SYSTEM_CRITICAL_PRIORITY + 1000)), true),
            (pod(&[], Some(SYSTEM_CRITICAL_PRIORITY - 1)), false),
            (pod(&[], Some(HIGHEST_USER_PRIORITY)), false),
        ];
        for (pod, critical) in cases {
            assert_eq!(pod.is_critical(), critical, "{:?}", pod.metadata);
        }
    }

    /// Upstream's TestGetContainerSpec.
    #[test]
    fn a_container_of_any_kind_is_found_by_its_name() {
        let named = |name: &str| Container {
            name: name.into(),
            ..Container::default()
        };
        let mut pod = pod(&[], None);
        let spec = pod.spec.as_mut().unwrap();
        spec.containers = vec![named("plain-ole-container")];
        spec.init_containers = Some(vec![named("init-container")]);
        spec.ephemeral_containers = Some(vec![EphemeralContainer {
            name: "debug-container".into(),
            ..EphemeralContainer::default()
        }]);
        for (name, kind) in [
            ("plain-ole-container", ContainerKind::App),
            ("init-container", ContainerKind::Init),
            ("debug-container", ContainerKind::Ephemeral),
        ] {
            let (found, container) = pod.container(name).unwrap();
            assert_eq!((found, container.into_owned()), (kind, named(name)));
        }
        assert_eq!(pod.container("other"), None);
    }

    #[test]
    fn an_empty_pod_reads_as_the_defaults() {
        let pod = Pod::default();
        assert_eq!(pod.restart_policy(), RestartPolicy::Always);
        assert!(pod.app_containers().is_empty() && pod.init_containers().is_empty());
        assert!(!pod.host_network() && !pod.is_static());
    }
}
