//! CRI's types on one side, `logic`'s on the other: one function each direction.

use std::collections::BTreeMap;

use jiff::Timestamp;
use logic::app_armor::AppArmor;
use logic::container::{Access, ContainerConfig, Mount, Origin};
use logic::credentials::Auth;
use logic::labels;
use logic::resources::LinuxResources;
use logic::sandbox::{
    NamespaceMode, Namespaces, PortMapping, Protocol, SandboxConfig, SeLinux, Seccomp,
};
use logic::security::{GroupsPolicy, Security};
use logic::types::{
    Container, ContainerState, ContainerUser, EnforcedResources, PodUid, RuntimePod, Sandbox,
    SandboxId, SandboxState,
};
use logic::user_namespaces::UserNamespace;
use proto::cri;

use super::{Image, ListedImage, Pull};
use crate::usage::MemoryUse;

type Words = BTreeMap<String, String>;

// === To the runtime ===

pub(super) fn image_spec(image: &str) -> cri::ImageSpec {
    cri::ImageSpec {
        image: image.to_owned(),
        user_specified_image: image.to_owned(),
        ..Default::default()
    }
}

pub(super) fn pull_request(pull: Pull<'_>) -> cri::PullImageRequest {
    let mut image = image_spec(pull.image);
    if let Some(sandbox) = pull.sandbox {
        image.runtime_handler = sandbox.runtime_handler.clone();
        image.annotations = words(&sandbox.annotations);
    }
    cri::PullImageRequest {
        image: Some(image),
        auth: pull.auth.map(auth),
        sandbox_config: pull.sandbox.map(sandbox_config),
    }
}

fn auth(auth: &Auth) -> cri::AuthConfig {
    cri::AuthConfig {
        username: auth.username.clone(),
        password: auth.password.clone(),
        ..Default::default()
    }
}

pub(super) fn sandbox_config(config: &SandboxConfig) -> cri::PodSandboxConfig {
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: config.name.clone(),
            uid: config.uid.as_str().to_owned(),
            namespace: config.namespace.clone(),
            attempt: config.attempt,
        }),
        hostname: config.hostname.clone(),
        log_directory: config.log_directory.to_string_lossy().into_owned(),
        dns_config: Some(cri::DnsConfig {
            servers: config.dns.servers.clone(),
            searches: config.dns.searches.clone(),
            options: config.dns.options.clone(),
        }),
        port_mappings: config.port_mappings.iter().map(port_mapping).collect(),
        labels: words(&config.labels),
        annotations: words(&config.annotations),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: config.cgroup_parent.clone(),
            security_context: Some(sandbox_security(config)),
            sysctls: words(&config.sysctls),
            overhead: Some(resources(&config.overhead)),
            resources: Some(resources(&config.resources)),
        }),
        windows: None,
    }
}

fn sandbox_security(config: &SandboxConfig) -> cri::LinuxSandboxSecurityContext {
    cri::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(config.namespaces)),
        selinux_options: config.se_linux.as_ref().map(se_linux),
        run_as_user: number(config.run_as_user),
        run_as_group: number(config.run_as_group),
        supplemental_groups: config.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(config.groups_policy).into(),
        privileged: config.privileged,
        seccomp: Some(seccomp(&config.seccomp)),
        ..Default::default()
    }
}

pub(super) fn container_config(config: &ContainerConfig) -> cri::ContainerConfig {
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
            .map(|each| mount(each, config.security.namespaces.users))
            .collect(),
        labels: words(&config.labels),
        annotations: words(&config.annotations),
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

/// What CRI puts before a signal's name.
const SIGNAL: &str = "SIGNAL_";

/// `SIGTERM` is CRI's `SIGNAL_SIGTERM`; an unknown name leaves the choice to the image.
fn stop_signal(name: &str) -> i32 {
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
    #[expect(deprecated, reason = "what runtimes before CRI's field for it read, as upstream fills it")]
    {
        context.apparmor_profile = word.unwrap_or_default().into_owned();
    }
    context
}

pub(super) fn resources(resources: &LinuxResources) -> cri::LinuxContainerResources {
    cri::LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit,
        memory_swap_limit_in_bytes: resources.memory_swap_limit,
        oom_score_adj: resources.oom_score_adj,
        hugepage_limits: resources.huge_pages.iter().map(huge_pages).collect(),
        unified: words(&resources.unified),
        ..Default::default()
    }
}

fn huge_pages((page_size, limit): (&String, &u64)) -> cri::HugepageLimit {
    cri::HugepageLimit {
        page_size: page_size.clone(),
        limit: *limit,
    }
}

fn mount(mount: &Mount, owners: UserNamespace) -> cri::Mount {
    let (image, image_sub_path) = match &mount.origin {
        Origin::Image { image, sub_path } => (Some(image_spec(image)), sub_path.clone()),
        Origin::TerminationMessage | Origin::Hosts | Origin::Volume => (None, String::new()),
    };
    let owners = mappings(owners);
    cri::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.to_string_lossy().into_owned(),
        readonly: mount.access != Access::ReadWrite,
        recursive_read_only: mount.access == Access::RecursiveReadOnly,
        uid_mappings: owners.clone(),
        gid_mappings: owners,
        image,
        image_sub_path,
        ..Default::default()
    }
}

fn port_mapping(mapping: &PortMapping) -> cri::PortMapping {
    let protocol = match mapping.protocol {
        Protocol::Tcp => cri::Protocol::Tcp,
        Protocol::Udp => cri::Protocol::Udp,
        Protocol::Sctp => cri::Protocol::Sctp,
    };
    cri::PortMapping {
        protocol: protocol.into(),
        container_port: mapping.container_port.into(),
        host_port: mapping.host_port.into(),
        host_ip: mapping.host_ip.clone(),
    }
}

fn namespaces(namespaces: Namespaces) -> cri::NamespaceOption {
    let mode = |mode| match mode {
        NamespaceMode::Pod => cri::NamespaceMode::Pod,
        NamespaceMode::Container => cri::NamespaceMode::Container,
        NamespaceMode::Node => cri::NamespaceMode::Node,
        NamespaceMode::Target => cri::NamespaceMode::Target,
    };
    cri::NamespaceOption {
        network: mode(namespaces.network).into(),
        pid: mode(namespaces.pid).into(),
        ipc: mode(namespaces.ipc).into(),
        userns_options: Some(users(namespaces.users)),
        ..Default::default()
    }
}

fn users(users: UserNamespace) -> cri::UserNamespace {
    let mode = match users {
        UserNamespace::Node => cri::NamespaceMode::Node,
        UserNamespace::Pod(_) => cri::NamespaceMode::Pod,
    };
    let mappings = mappings(users);
    cri::UserNamespace {
        mode: mode.into(),
        uids: mappings.clone(),
        gids: mappings,
    }
}

/// Which ids of the node stand behind the pod's; none where they are the node's own.
fn mappings(users: UserNamespace) -> Vec<cri::IdMapping> {
    match users {
        UserNamespace::Node => Vec::new(),
        UserNamespace::Pod(ids) => vec![cri::IdMapping {
            host_id: ids.first,
            container_id: 0,
            length: ids.length,
        }],
    }
}

fn groups_policy(policy: GroupsPolicy) -> cri::SupplementalGroupsPolicy {
    match policy {
        GroupsPolicy::Merge => cri::SupplementalGroupsPolicy::Merge,
        GroupsPolicy::Strict => cri::SupplementalGroupsPolicy::Strict,
    }
}

fn seccomp(profile: &Seccomp) -> cri::SecurityProfile {
    use cri::security_profile::ProfileType;
    let (kind, path) = match profile {
        Seccomp::Unconfined => (ProfileType::Unconfined, String::new()),
        Seccomp::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        Seccomp::Localhost(path) => (ProfileType::Localhost, path.to_string_lossy().into_owned()),
    };
    cri::SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: path,
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

fn se_linux(options: &SeLinux) -> cri::SeLinuxOption {
    cri::SeLinuxOption {
        user: options.user.clone(),
        role: options.role.clone(),
        r#type: options.type_.clone(),
        level: options.level.clone(),
    }
}

fn number(value: Option<i64>) -> Option<cri::Int64Value> {
    value.map(|value| cri::Int64Value { value })
}

fn words(words: &Words) -> std::collections::HashMap<String, String> {
    words
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

// === From the runtime ===

pub(super) fn listed_image(image: cri::Image) -> ListedImage {
    ListedImage {
        reference: image.id.into(),
        names: [image.repo_tags, image.repo_digests].concat(),
    }
}

pub(super) fn image(image: cri::Image) -> Image {
    Image {
        reference: image.id.into(),
        bytes: image.size,
        uid: image.uid.map(|uid| uid.value),
        username: image.username,
    }
}

/// A pod from full statuses, each container's beside the sandbox it was listed in (empty where that is
/// not known); what no kubelet made is left out.
pub(super) fn pod(
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
    // A status alone does not name the sandbox; nearly always it is the newest.
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

fn sandbox(status: cri::PodSandboxStatus) -> Sandbox {
    let options = status
        .linux
        .and_then(|linux| linux.namespaces)
        .and_then(|namespaces| namespaces.options);
    let network = options.map(|options| options.network());
    let ips = ips_of(status.network);
    Sandbox {
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
pub(super) fn ips(status: cri::PodSandboxStatus) -> Vec<String> {
    ips_of(status.network)
}

fn ips_of(network: Option<cri::PodSandboxNetworkStatus>) -> Vec<String> {
    let network = network.unwrap_or_default();
    let primary = Some(network.ip).filter(|ip| !ip.is_empty());
    let additional = network.additional_ips.into_iter().map(|ip| ip.ip);
    primary.into_iter().chain(additional).collect()
}

fn container(status: cri::ContainerStatus, sandbox: SandboxId, name: String) -> Container {
    let notes = labels::container_notes(&ordered(&status.annotations));
    let image = status.image.unwrap_or_default();
    let named = [image.user_specified_image, image.image];
    Container {
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
        log_path: status.log_path,
        enforced: status.resources.and_then(|resources| resources.linux).map(enforced),
        user: status.user.and_then(|user| user.linux).map(user),
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

fn user(user: cri::LinuxContainerUser) -> ContainerUser {
    ContainerUser {
        uid: user.uid,
        gid: user.gid,
        supplemental_groups: user.supplemental_groups,
    }
}

/// None where the runtime leaves it open or names one that CRI does not know.
fn stop_signal_name(signal: i32) -> Option<String> {
    match cri::Signal::try_from(signal) {
        Ok(cri::Signal::RuntimeDefault) | Err(_) => None,
        Ok(signal) => signal.as_str_name().strip_prefix(SIGNAL).map(str::to_owned),
    }
}

/// Adds an outline from a list; what no kubelet made is left out.
pub(super) fn add_listed_sandbox(
    pods: &mut BTreeMap<PodUid, RuntimePod>,
    sandbox: cri::PodSandbox,
) {
    let Some(owner) = labels::owner(&ordered(&sandbox.labels)) else {
        return;
    };
    let pod = pods.entry(owner.uid.clone()).or_default();
    (pod.uid, pod.name, pod.namespace) = (owner.uid, owner.name, owner.namespace);
    pod.sandboxes.push(Sandbox {
        id: sandbox.id.into(),
        attempt: sandbox.metadata.map_or(0, |metadata| metadata.attempt),
        state: sandbox_state(sandbox.state),
        created_at: time(sandbox.created_at),
        ips: Vec::new(),
        host_network: false,
        runtime_handler: String::new(),
    });
}

/// Adds an outline from a list; what no kubelet made is left out.
pub(super) fn add_listed_container(
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
    pod.containers.push(Container {
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
        log_path: String::new(),
        enforced: None,
        user: None,
        stop_signal: None,
    });
}

/// What an event shows: the pod, and the id that was removed, if one was.
pub(super) fn event(event: cri::ContainerEventResponse) -> Option<(RuntimePod, Option<String>)> {
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

/// What no kubelet made is left out.
pub(super) fn memory_use(stats: Vec<cri::ContainerStats>) -> MemoryUse {
    let mut usage = MemoryUse::new();
    for stats in stats {
        let labels = ordered(&stats.attributes.unwrap_or_default().labels);
        let working_set = stats.memory.and_then(|memory| memory.working_set_bytes);
        if let (Some(owner), Some(name)) =
            (labels::owner(&labels), labels.get(labels::CONTAINER_NAME))
        {
            let bytes = working_set.map_or(0, |bytes| bytes.value);
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

/// CRI's nanoseconds; nought is never.
fn time(nanoseconds: i64) -> Option<Timestamp> {
    if nanoseconds == 0 {
        return None;
    }
    Timestamp::from_nanosecond(nanoseconds.into()).ok()
}

fn ordered(words: &std::collections::HashMap<String, String>) -> Words {
    words
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
