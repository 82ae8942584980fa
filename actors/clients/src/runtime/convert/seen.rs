//! From CRI's statuses, lists and events of pods and images.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use logic_api::pod::labels;
use logic_api::types::{
    ContainerState, ContainerUser, EnforcedResources, LinuxContainerUser, PodUid, RuntimeContainer,
    RuntimePod, RuntimeSandbox, SandboxId, SandboxState,
};
use proto::cri;

use super::StringMap;
use super::container::{MINUS, PLUS, SIGNAL};
use crate::runtime::{ListedImage, MemoryUse, RuntimeImage};

pub(in crate::runtime) fn listed_image(image: cri::Image) -> ListedImage {
    ListedImage {
        reference: image.id.into(),
        names: [image.repo_digests, image.repo_tags].concat(),
        bytes: image.size,
    }
}

pub(in crate::runtime) fn image(image: cri::Image) -> RuntimeImage {
    RuntimeImage {
        reference: image.id.into(),
        bytes: image.size,
        uid: image.uid.map(|uid| uid.value),
        username: image.username,
    }
}

/// A pod from full statuses, each container's with the id of its sandbox (empty where that is
/// unknown); those without a kubelet's labels are left out.
pub(in crate::runtime) fn pod(
    sandboxes: impl IntoIterator<Item = cri::PodSandboxStatus>,
    containers: impl IntoIterator<Item = (SandboxId, cri::ContainerStatus)>,
) -> RuntimePod {
    let mut pod = RuntimePod::default();
    for status in sandboxes {
        if let Some(owner) = labels::owner(&ordered(&status.labels)) {
            (pod.uid, pod.name, pod.namespace) = (owner.uid, owner.name, owner.namespace);
            pod.sandboxes.push(sandbox(status));
        }
    }
    for (sandbox, status) in containers {
        let labels = ordered(&status.labels);
        if let (Some(owner), Some(name)) =
            (labels::owner(&labels), labels.get(labels::CONTAINER_NAME))
        {
            (pod.uid, pod.name, pod.namespace) = (owner.uid, owner.name, owner.namespace);
            pod.containers
                .push(container(status, sandbox, name.clone()));
        }
    }
    // A status does not name its sandbox; nearly always it is the newest.
    let newest = pod
        .newest_sandbox()
        .map(|sandbox| sandbox.id.clone())
        .unwrap_or_default();
    for container in &mut pod.containers {
        if container.sandbox.is_empty() {
            container.sandbox = newest.clone();
        }
    }
    pod.sort();
    pod
}

pub(in crate::runtime) fn sandbox(status: cri::PodSandboxStatus) -> RuntimeSandbox {
    let options = status
        .linux
        .and_then(|linux| linux.namespaces)
        .and_then(|namespaces| namespaces.options);
    let network = options.map(|options| options.network());
    let ips = ips_of(status.network);
    RuntimeSandbox {
        id: status.id.into(),
        attempt: status.metadata.map_or(0, |metadata| metadata.attempt),
        state: sandbox_state(status.state),
        created_at: time(status.created_at),
        ips,
        host_network: network == Some(cri::NamespaceMode::Node),
        runtime_handler: status.runtime_handler,
    }
}

/// A sandbox's addresses, the primary first.
fn ips_of(network: Option<cri::PodSandboxNetworkStatus>) -> Vec<String> {
    let network = network.unwrap_or_default();
    let primary = Some(network.ip).filter(|ip| !ip.is_empty());
    let additional = network.additional_ips.into_iter().map(|ip| ip.ip);
    primary.into_iter().chain(additional).collect()
}

pub(in crate::runtime) fn container(
    status: cri::ContainerStatus,
    sandbox: SandboxId,
    name: String,
) -> RuntimeContainer {
    let notes = labels::container_notes(&ordered(&status.annotations));
    let image = status.image.unwrap_or_default();
    let named = [image.user_specified_image, image.image];
    RuntimeContainer {
        id: status.id.into(),
        sandbox,
        name,
        attempt: status.metadata.map_or(0, |metadata| metadata.attempt),
        state: container_state(status.state),
        created_at: time(status.created_at),
        started_at: time(status.started_at),
        finished_at: time(status.finished_at),
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        image: named
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default(),
        image_id: if status.image_ref.is_empty() {
            status.image_id
        } else {
            status.image_ref
        },
        hash: notes.hash,
        restart_count: notes.restart_count,
        termination_grace: notes.termination_grace,
        pre_stop: notes.pre_stop,
        ports: notes.ports,
        resources: notes.resources,
        log_path: status.log_path,
        enforced: status
            .resources
            .and_then(|resources| resources.linux)
            .map(enforced),
        user: status.user.map(user),
        stop_signal: stop_signal_name(status.stop_signal),
    }
}

fn enforced(resources: cri::LinuxContainerResources) -> EnforcedResources {
    EnforcedResources {
        cpu_shares: resources.cpu_shares,
        cpu_quota: resources.cpu_quota,
        cpu_period: resources.cpu_period,
        memory_limit: resources.memory_limit_in_bytes,
    }
}

fn user(user: cri::ContainerUser) -> ContainerUser {
    let linux = |user: cri::LinuxContainerUser| LinuxContainerUser {
        uid: user.uid,
        gid: user.gid,
        supplemental_groups: user.supplemental_groups,
    };
    ContainerUser {
        linux: user.linux.map(linux),
    }
}

/// The signal's name; none where the runtime leaves it open or names one that CRI does not know.
fn stop_signal_name(signal: i32) -> Option<String> {
    match cri::Signal::try_from(signal) {
        Ok(cri::Signal::RuntimeDefault) | Err(_) => None,
        Ok(signal) => {
            let name = signal.as_str_name().strip_prefix(SIGNAL)?;
            Some(name.replace(PLUS, "+").replace(MINUS, "-"))
        }
    }
}

/// Adds a sandbox from a list; those that no kubelet made are left out.
pub(in crate::runtime) fn add_listed_sandbox(
    pods: &mut BTreeMap<PodUid, RuntimePod>,
    sandbox: cri::PodSandbox,
) {
    let Some(owner) = labels::owner(&ordered(&sandbox.labels)) else {
        return;
    };
    let pod = pods.entry(owner.uid.clone()).or_default();
    (pod.uid, pod.name, pod.namespace) = (owner.uid, owner.name, owner.namespace);
    pod.sandboxes.push(RuntimeSandbox {
        id: sandbox.id.into(),
        attempt: sandbox.metadata.map_or(0, |metadata| metadata.attempt),
        state: sandbox_state(sandbox.state),
        created_at: time(sandbox.created_at),
        ips: Vec::new(),
        host_network: false,
        runtime_handler: String::new(),
    });
}

/// Adds a container from a list; those that no kubelet made are left out.
pub(in crate::runtime) fn add_listed_container(
    pods: &mut BTreeMap<PodUid, RuntimePod>,
    listed: cri::Container,
) {
    let labels = ordered(&listed.labels);
    let (Some(owner), Some(name)) = (labels::owner(&labels), labels.get(labels::CONTAINER_NAME))
    else {
        return;
    };
    let pod = pods.entry(owner.uid.clone()).or_default();
    (pod.uid, pod.name, pod.namespace) = (owner.uid, owner.name, owner.namespace);
    let notes = labels::container_notes(&ordered(&listed.annotations));
    pod.containers.push(RuntimeContainer {
        id: listed.id.into(),
        sandbox: listed.pod_sandbox_id.into(),
        name: name.clone(),
        attempt: listed.metadata.map_or(0, |metadata| metadata.attempt),
        state: container_state(listed.state),
        created_at: time(listed.created_at),
        started_at: None,
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: listed.image.map(|image| image.image).unwrap_or_default(),
        image_id: listed.image_ref,
        hash: notes.hash,
        restart_count: notes.restart_count,
        termination_grace: notes.termination_grace,
        pre_stop: notes.pre_stop,
        ports: notes.ports,
        resources: notes.resources,
        log_path: String::new(),
        enforced: None,
        user: None,
        stop_signal: None,
    });
}

/// The pod in an event, and the id of a sandbox or container that was removed, if one was.
pub(in crate::runtime) fn event(
    event: cri::ContainerEventResponse,
) -> Option<(RuntimePod, Option<String>)> {
    let deleted = event.container_event_type() == cri::ContainerEventType::ContainerDeletedEvent;
    let removed = deleted.then(|| event.container_id.clone());
    let sandbox = event
        .pod_sandbox_status
        .filter(|status| removed.as_ref() != Some(&status.id) || !deleted);
    let uid = sandbox
        .as_ref()
        .and_then(|status| labels::owner(&ordered(&status.labels)));
    let containers = event.containers_statuses.into_iter();
    let mut pod = pod(
        sandbox,
        containers.map(|status| (SandboxId::default(), status)),
    );
    if let Some(owner) = uid {
        (pod.uid, pod.name, pod.namespace) = (owner.uid, owner.name, owner.namespace);
    }
    (!pod.uid.is_empty()).then_some((pod, removed))
}

/// The working set by pod and container; containers that no kubelet made are left out.
pub(in crate::runtime) fn memory_use(stats: Vec<cri::ContainerStats>) -> MemoryUse {
    let bytes = |memory: Option<cri::MemoryUsage>| {
        let working_set = memory.and_then(|memory| memory.working_set_bytes);
        Some(working_set.map_or(0, |bytes| bytes.value))
    };
    by_container(stats, bytes)
}

/// All memory that counts against limits, by pod and container; containers whose runtime does not tell are left out.
pub(in crate::runtime) fn memory_charged(stats: Vec<cri::ContainerStats>) -> MemoryUse {
    let bytes = |memory: Option<cri::MemoryUsage>| {
        let memory = memory?;
        // Runtimes of old tell the working set alone.
        let bytes = memory.usage_bytes.or(memory.working_set_bytes);
        bytes.map(|bytes| bytes.value)
    };
    by_container(stats, bytes)
}

fn by_container(
    stats: Vec<cri::ContainerStats>,
    bytes: impl Fn(Option<cri::MemoryUsage>) -> Option<u64>,
) -> MemoryUse {
    let mut usage = MemoryUse::new();
    for stats in stats {
        let labels = ordered(&stats.attributes.unwrap_or_default().labels);
        if let (Some(owner), Some(name), Some(bytes)) = (
            labels::owner(&labels),
            labels.get(labels::CONTAINER_NAME),
            bytes(stats.memory),
        ) {
            usage
                .entry(owner.uid)
                .or_default()
                .insert(name.clone(), bytes);
        }
    }
    usage
}

fn sandbox_state(state: i32) -> SandboxState {
    match cri::PodSandboxState::try_from(state) {
        Ok(cri::PodSandboxState::SandboxReady) => SandboxState::Ready,
        Ok(cri::PodSandboxState::SandboxNotready) | Err(_) => SandboxState::NotReady,
    }
}

fn container_state(state: i32) -> ContainerState {
    match cri::ContainerState::try_from(state) {
        Ok(cri::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(cri::ContainerState::ContainerRunning) => ContainerState::Running,
        Ok(cri::ContainerState::ContainerExited) => ContainerState::Exited,
        Ok(cri::ContainerState::ContainerUnknown) | Err(_) => ContainerState::Unknown,
    }
}

/// A time from CRI's nanoseconds since the epoch; 0 is none.
pub(super) fn time(nanoseconds: i64) -> Option<Timestamp> {
    if nanoseconds == 0 {
        return None;
    }
    Timestamp::from_nanosecond(nanoseconds.into()).ok()
}

fn ordered(words: &HashMap<String, String>) -> StringMap {
    words
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestGetImageRefReturnsImageIdNotRepoDigest, TestImageSize and TestListImages.
    #[test]
    fn an_image_is_known_by_its_id_whatever_its_registries_call_it() {
        let told = || cri::Image {
            id: "sha256:abcd1234".into(),
            repo_digests: vec!["one.io/a@sha256:1".into(), "two.io/a@sha256:1".into()],
            repo_tags: vec!["a:latest".into()],
            size: 64,
            ..Default::default()
        };
        let own = image(told());
        assert_eq!((own.reference.as_str(), own.bytes), ("sha256:abcd1234", 64));
        let listed = listed_image(told());
        assert_eq!((listed.reference, listed.bytes), (own.reference, own.bytes));
        let names = ["one.io/a@sha256:1", "two.io/a@sha256:1", "a:latest"];
        assert_eq!(listed.names, names);
    }

    /// Upstream's TestToKubeContainerState.
    #[test]
    fn a_state_that_cri_does_not_know_is_unknown() {
        use ContainerState::{Created, Exited, Running, Unknown};
        for (number, expected) in (0..).zip([Created, Running, Exited, Unknown, Unknown]) {
            assert_eq!(container_state(number), expected);
        }
    }

    /// Upstream's TestToKubeContainerStatus.
    #[test]
    fn a_status_is_read_with_its_times_and_its_end() {
        use cri::ContainerState::{
            ContainerCreated, ContainerExited, ContainerRunning, ContainerUnknown,
        };
        let states = [
            (ContainerCreated, ContainerState::Created),
            (ContainerRunning, ContainerState::Running),
            (ContainerExited, ContainerState::Exited),
            (ContainerUnknown, ContainerState::Unknown),
        ];
        for (told, expected) in states {
            let started = if told == ContainerCreated { 0 } else { 999 };
            let ended = told == ContainerExited;
            let read = container(
                cri::ContainerStatus {
                    id: "dummyid".into(),
                    metadata: Some(cri::ContainerMetadata {
                        name: "cname".into(),
                        attempt: 3,
                    }),
                    image: Some(cri::ImageSpec {
                        image: "fimage".into(),
                        ..Default::default()
                    }),
                    state: told.into(),
                    created_at: 327,
                    started_at: started,
                    finished_at: if ended { 1278 } else { 0 },
                    exit_code: if ended { 121 } else { 0 },
                    reason: if ended { "GotKilled" } else { "" }.into(),
                    message: if ended { "it was killed" } else { "" }.into(),
                    ..Default::default()
                },
                "s".into(),
                "cname".into(),
            );
            assert_eq!((read.id.as_str(), read.attempt), ("dummyid", 3));
            assert_eq!((read.state, read.image.as_str()), (expected, "fimage"));
            assert_eq!(read.created_at, time(327));
            assert_eq!(read.started_at, time(started));
            let end = (read.finished_at, read.exit_code, read.reason.as_str());
            let expected = match ended {
                true => (time(1278), 121, "GotKilled"),
                false => (None, 0, ""),
            };
            assert_eq!(end, expected);
        }
    }

    /// Upstream's TestToKubeContainer and TestContainerLabels, as far as they are read.
    #[test]
    fn what_a_kubelet_made_is_listed_by_its_labels_and_annotations_and_nothing_else_is() {
        let words = |list: &[(&str, &str)]| -> HashMap<String, String> {
            let words = list.iter();
            words.map(|(k, v)| ((*k).into(), (*v).into())).collect()
        };
        let listed = |labels: &[(&str, &str)]| cri::Container {
            id: "test-id".into(),
            metadata: Some(cri::ContainerMetadata {
                name: "test-name".into(),
                attempt: 1,
            }),
            image: Some(cri::ImageSpec {
                image: "test-image".into(),
                runtime_handler: "test-handler".into(),
                ..Default::default()
            }),
            image_ref: "test-image-ref".into(),
            state: cri::ContainerState::ContainerRunning.into(),
            labels: words(labels),
            annotations: words(&[(labels::CONTAINER_HASH, "1234")]),
            ..Default::default()
        };
        let own = [
            (labels::POD_UID, "u"),
            (labels::POD_NAME, "web"),
            (labels::POD_NAMESPACE, "default"),
            (labels::CONTAINER_NAME, "test-name"),
        ];
        let mut pods = BTreeMap::new();
        add_listed_container(&mut pods, listed(&own[1..]));
        assert!(pods.is_empty());
        add_listed_container(&mut pods, listed(&own));
        let pod = &pods[&PodUid::from("u")];
        assert_eq!(
            (pod.name.as_str(), pod.namespace.as_str()),
            ("web", "default")
        );
        let read = &pod.containers[0];
        assert_eq!(
            (read.id.as_str(), read.name.as_str()),
            ("test-id", "test-name")
        );
        let image = (read.image.as_str(), read.image_id.as_str());
        assert_eq!(image, ("test-image", "test-image-ref"));
        assert_eq!((read.hash, read.attempt), (Some(0x1234), 1));
        assert_eq!(read.state, ContainerState::Running);
    }

    #[test]
    fn what_is_enforced_and_whose_it_is_is_read_where_the_runtime_says_so() {
        let told = cri::ContainerStatus {
            resources: Some(cri::ContainerResources {
                linux: Some(cri::LinuxContainerResources {
                    cpu_shares: 2,
                    cpu_quota: 3,
                    cpu_period: 4,
                    memory_limit_in_bytes: 5,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            user: Some(cri::ContainerUser {
                linux: Some(cri::LinuxContainerUser {
                    uid: 1,
                    gid: 2,
                    supplemental_groups: vec![3],
                }),
            }),
            stop_signal: cri::Signal::Sigrtmaxminus2.into(),
            ..Default::default()
        };
        let made = container(told, "s".into(), "c".into());
        let enforced = EnforcedResources {
            cpu_shares: 2,
            cpu_quota: 3,
            cpu_period: 4,
            memory_limit: 5,
        };
        assert_eq!(made.enforced, Some(enforced));
        let user = made.user.unwrap().linux.unwrap();
        assert_eq!(
            (user.uid, user.gid, user.supplemental_groups),
            (1, 2, vec![3])
        );
        assert_eq!(made.stop_signal.as_deref(), Some("SIGRTMAX-2"));
        let untold = cri::ContainerStatus {
            user: Some(cri::ContainerUser::default()),
            ..Default::default()
        };
        let untold = container(untold, "s".into(), "c".into());
        assert_eq!(untold.user, Some(ContainerUser::default()));
        let silent = container(cri::ContainerStatus::default(), "s".into(), "c".into());
        assert_eq!(
            (silent.enforced, silent.user, silent.stop_signal),
            (None, None, None)
        );
    }
}
