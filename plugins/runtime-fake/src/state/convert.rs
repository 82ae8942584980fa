//! The node's state in CRI's words. Pure.

use std::collections::HashMap;

use proto::cri::{self, ContainerState, ImageSpec, PodSandboxState};

use crate::state::{ContainerPhase, FakeContainer, FakeSandbox, FakeState, ImageRecord};

pub(crate) fn sandbox_state(sandbox: &FakeSandbox) -> PodSandboxState {
    if sandbox.ready() {
        PodSandboxState::SandboxReady
    } else {
        PodSandboxState::SandboxNotready
    }
}

pub(crate) fn sandbox_status(state: &FakeState, sandbox: &FakeSandbox) -> cri::PodSandboxStatus {
    let config = sandbox.config();
    let context = config.linux.and_then(|linux| linux.security_context);
    let options = context.and_then(|context| context.namespace_options);
    let ip = sandbox
        .record
        .ip
        .map(|ip| ip.to_string())
        .unwrap_or_default();
    cri::PodSandboxStatus {
        id: state.id(sandbox.record.seq),
        metadata: config.metadata,
        state: sandbox_state(sandbox).into(),
        created_at: sandbox.record.created,
        network: Some(cri::PodSandboxNetworkStatus {
            ip,
            additional_ips: Vec::new(),
        }),
        linux: Some(cri::LinuxPodSandboxStatus {
            namespaces: Some(cri::Namespace { options }),
        }),
        labels: config.labels,
        annotations: config.annotations,
        runtime_handler: sandbox.record.handler.to_string(),
    }
}

pub(crate) fn sandbox_item(state: &FakeState, sandbox: &FakeSandbox) -> cri::PodSandbox {
    let config = sandbox.config();
    cri::PodSandbox {
        id: state.id(sandbox.record.seq),
        metadata: config.metadata,
        state: sandbox_state(sandbox).into(),
        created_at: sandbox.record.created,
        labels: config.labels,
        annotations: config.annotations,
        runtime_handler: sandbox.record.handler.to_string(),
    }
}

/// Returns the statuses of a pod's containers, oldest first.
pub(crate) fn pod_statuses(state: &FakeState, sandbox: &FakeSandbox) -> Vec<cri::ContainerStatus> {
    let containers = sandbox
        .containers
        .iter()
        .filter_map(|seq| state.containers.get(seq));
    containers
        .map(|container| container_status(state, container))
        .collect()
}

pub(crate) fn container_state(container: &FakeContainer) -> ContainerState {
    match container.record.phase {
        ContainerPhase::Created => ContainerState::ContainerCreated,
        ContainerPhase::Running { .. } => ContainerState::ContainerRunning,
        ContainerPhase::Exited { .. } => ContainerState::ContainerExited,
    }
}

pub(crate) fn container_status(
    state: &FakeState,
    container: &FakeContainer,
) -> cri::ContainerStatus {
    let config = container.config();
    let record = &container.record;
    let image = state.images.find(&record.image);
    let user = user(&config, image);
    let stop_signal = config.stop_signal;
    let mut spec = config.image.unwrap_or_default();
    if let Some(image) = image {
        spec.image = if image.tag.is_empty() {
            image.digest.clone()
        } else {
            image.tag.clone()
        };
    }
    let mut status = cri::ContainerStatus {
        id: state.id(record.seq),
        metadata: config.metadata,
        state: container_state(container).into(),
        created_at: record.created,
        image: Some(spec),
        image_ref: image.map_or_else(|| record.image.to_string(), |image| image.digest.clone()),
        image_id: record.image.to_string(),
        labels: config.labels,
        annotations: config.annotations,
        mounts: config.mounts,
        log_path: record.log.to_string(),
        resources: config.linux.and_then(|linux| linux.resources).map(|linux| {
            cri::ContainerResources {
                linux: Some(linux),
                windows: None,
            }
        }),
        user: Some(cri::ContainerUser { linux: Some(user) }),
        stop_signal,
        ..cri::ContainerStatus::default()
    };
    match &record.phase {
        ContainerPhase::Created => {}
        ContainerPhase::Running { started, .. } => status.started_at = *started,
        ContainerPhase::Exited {
            started,
            finished,
            code,
            reason,
            message,
        } => {
            (status.started_at, status.finished_at, status.exit_code) =
                (*started, *finished, *code);
            (status.reason, status.message) = (reason.to_string(), message.to_string());
        }
    }
    status
}

fn user(config: &cri::ContainerConfig, image: Option<&ImageRecord>) -> cri::LinuxContainerUser {
    let context = config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref());
    let asked = |value: Option<&cri::Int64Value>| value.map(|value| value.value);
    let uid = asked(context.and_then(|context| context.run_as_user.as_ref()));
    let gid = asked(context.and_then(|context| context.run_as_group.as_ref())).unwrap_or(0);
    let extra = context
        .map(|context| context.supplemental_groups.as_slice())
        .unwrap_or_default();
    let supplemental_groups = [gid]
        .iter()
        .chain(extra.iter().filter(|group| **group != gid))
        .copied()
        .collect();
    cri::LinuxContainerUser {
        uid: uid.or(image.and_then(|image| image.uid)).unwrap_or(0),
        gid,
        supplemental_groups,
    }
}

pub(crate) fn container_item(state: &FakeState, container: &FakeContainer) -> cri::Container {
    let config = container.config();
    let record = &container.record;
    cri::Container {
        id: state.id(record.seq),
        pod_sandbox_id: state.id(record.sandbox),
        metadata: config.metadata,
        image: config.image,
        image_ref: record.image.to_string(),
        state: container_state(container).into(),
        created_at: record.created,
        labels: config.labels,
        annotations: config.annotations,
        image_id: record.image.to_string(),
    }
}

pub(crate) fn image(image: &ImageRecord) -> cri::Image {
    cri::Image {
        id: image.id.clone(),
        repo_tags: Some(&image.tag)
            .filter(|tag| !tag.is_empty())
            .cloned()
            .into_iter()
            .collect(),
        repo_digests: Some(&image.digest)
            .filter(|digest| !digest.is_empty())
            .cloned()
            .into_iter()
            .collect(),
        size: image.size,
        uid: image.uid.map(|value| cri::Int64Value { value }),
        username: image.username.clone(),
        spec: Some(ImageSpec {
            image: image.id.clone(),
            ..ImageSpec::default()
        }),
        pinned: image.pinned,
    }
}

/// Returns the verbose part of a sandbox's status.
pub(crate) fn sandbox_info(sandbox: &FakeSandbox) -> HashMap<String, String> {
    let config = sandbox.config();
    let dns = config.dns_config.unwrap_or_default();
    let ports: Vec<_> = config
        .port_mappings
        .iter()
        .map(|port| (port.container_port, port.host_port))
        .collect();
    let cgroup_parent = config
        .linux
        .map(|linux| linux.cgroup_parent)
        .unwrap_or_default();
    info(serde_json::json!({
        "pid": pid(sandbox.record.seq),
        "runtimeHandler": &*sandbox.record.handler,
        "hostname": config.hostname,
        "logDirectory": config.log_directory,
        "dns": { "servers": dns.servers, "searches": dns.searches, "options": dns.options },
        "ports": ports,
        "cgroupParent": cgroup_parent,
    }))
}

/// Returns the verbose part of a container's status.
pub(crate) fn container_info(
    state: &FakeState,
    container: &FakeContainer,
) -> HashMap<String, String> {
    let config = container.config();
    let envs: Vec<_> = config
        .envs
        .iter()
        .map(|env| format!("{}={}", env.key, String::from_utf8_lossy(&env.value)))
        .collect();
    let cdi_devices = config.cdi_devices.iter();
    let cdi_devices: Vec<_> = cdi_devices
        .map(|device| serde_json::json!({ "name": device.name }))
        .collect();
    info(serde_json::json!({
        "sandboxID": state.id(container.record.sandbox),
        "pid": if container.running() { pid(container.record.seq) } else { 0 },
        "config": {
            "command": config.command, "args": config.args, "workingDir": config.working_dir, "envs": envs,
            "stdin": config.stdin, "tty": config.tty, "CDI_devices": cdi_devices,
        },
        "files": container.record.files,
    }))
}

fn info(value: serde_json::Value) -> HashMap<String, String> {
    HashMap::from([("info".to_owned(), value.to_string())])
}

/// Returns a process id that no process of this machine has.
fn pid(seq: u64) -> u64 {
    (1 << 22) + seq
}
