//! A case as CRI's messages, as the kubelet would send them.

use std::path::{Path, PathBuf};

use proto::cri::security_profile::ProfileType;
use proto::cri::{
    Capability, ContainerConfig, ContainerMetadata, Device, DnsConfig, IdMapping, ImageSpec,
    Int64Value, KeyValue, LinuxContainerConfig, LinuxContainerResources,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount,
    MountPropagation, NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata,
    SecurityProfile, SupplementalGroupsPolicy, UserNamespace,
};

use crate::case::{
    Case, HiddenPaths, ImageVolume, MountCase, Pids, Propagation, SeccompCase, Source,
};
use crate::image;

/// The kubelet's lists for `procMount: Default` (`pkg/securitycontext/util.go`).
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
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];
const MORE_MASKED: [&str; 4] = [
    "/app/secret",
    "/app/hidden",
    "/app/link-to-dir",
    "/no/such/path",
];
const MORE_READ_ONLY: [&str; 3] = ["/app/data", "/app/link-to-file", "/no/such/path"];

/// Profiles of the node by the names of their files.
pub(crate) const PROFILES: [(&str, &str); 3] = [
    (
        "errors.json",
        r#"{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_AARCH64"],
            "syscalls": [
              {"names": ["chmod", "fchmodat", "fchmodat2"], "action": "SCMP_ACT_ERRNO"},
              {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 16},
              {"names": ["symlink", "symlinkat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
              {"names": ["no_such_call", "link", "linkat"], "action": "SCMP_ACT_LOG"}]}"#,
    ),
    (
        "arguments.json",
        r#"{"defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [
              {"names": ["unshare"], "action": "SCMP_ACT_ERRNO", "errnoRet": 22,
               "args": [{"index": 0, "value": 268435456, "valueTwo": 268435456, "op": "SCMP_CMP_MASKED_EQ"}]},
              {"names": ["fchownat", "chown", "lchown"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5}]}"#,
    ),
    ("malformed.json", r#"{"defaultAction": "SCMP_ACT_WHATEVER"#),
];

/// Where the files of one case on one runtime are.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) fixture: PathBuf,
    pub(crate) profiles: PathBuf,
    pub(crate) logs: PathBuf,
    pub(crate) cgroup: String,
    /// The pods of one runtime's two handlers have their names in namespaces of their own.
    pub(crate) namespace: String,
}

/// Returns the sandbox's configuration.
pub(crate) fn sandbox(case: &Case, places: &Places) -> PodSandboxConfig {
    let pod = &case.pod;
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: format!("seed-{}", case.seed),
            uid: format!("uid-{}-{}", places.namespace, case.seed),
            namespace: places.namespace.clone(),
            attempt: 0,
        }),
        hostname: pod.hostname.clone(),
        log_directory: text(&places.logs),
        dns_config: pod.dns.as_ref().map(|dns| DnsConfig {
            servers: dns.servers.clone(),
            searches: dns.searches.clone(),
            options: dns.options.clone(),
        }),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: places.cgroup.clone(),
            sysctls: pod.sysctls.iter().cloned().collect(),
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(case)),
                privileged: pod.privileged,
                run_as_user: pod.run_as_user.map(|value| Int64Value { value }),
                supplemental_groups: pod.supplemental_groups.clone(),
                supplemental_groups_policy: groups_policy(case).into(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// How many ids a pod with a user namespace has, as the kubelet gives them out.
const POD_IDS: u32 = 65_536;

fn id_mappings(case: &Case) -> Vec<IdMapping> {
    let mapping = |host_id| IdMapping {
        host_id,
        container_id: 0,
        length: POD_IDS,
    };
    case.newer.user_namespace.map(mapping).into_iter().collect()
}

fn groups_policy(case: &Case) -> SupplementalGroupsPolicy {
    if case.newer.strict_groups {
        SupplementalGroupsPolicy::Strict
    } else {
        SupplementalGroupsPolicy::Merge
    }
}

fn namespaces(case: &Case) -> NamespaceOption {
    let pod = &case.pod;
    let node_or_pod = |is_node| {
        if is_node {
            NamespaceMode::Node
        } else {
            NamespaceMode::Pod
        }
    };
    let pid = match pod.pids {
        Pids::Own => NamespaceMode::Container,
        Pids::Pod => NamespaceMode::Pod,
        Pids::Node => NamespaceMode::Node,
    };
    NamespaceOption {
        network: node_or_pod(pod.node_network).into(),
        ipc: node_or_pod(pod.node_ipc).into(),
        pid: pid.into(),
        userns_options: case.newer.user_namespace.map(|_| UserNamespace {
            mode: NamespaceMode::Pod.into(),
            uids: id_mappings(case),
            gids: id_mappings(case),
        }),
        ..NamespaceOption::default()
    }
}

/// Returns the container's configuration.
pub(crate) fn container(case: &Case, places: &Places) -> ContainerConfig {
    let asked = &case.container;
    let resources = &asked.resources;
    ContainerConfig {
        command: asked.command.clone(),
        args: asked.args.clone(),
        working_dir: asked.working_dir.clone(),
        envs: asked
            .env
            .iter()
            .map(|(key, value)| KeyValue {
                key: key.clone(),
                value: value.clone().into_bytes(),
            })
            .collect(),
        mounts: asked
            .mounts
            .iter()
            .map(|asked| mount(case, asked, places))
            .chain(
                case.newer
                    .image_volumes
                    .iter()
                    .map(|asked| image_volume(case, asked)),
            )
            .collect(),
        devices: asked
            .devices
            .iter()
            .map(|device| Device {
                container_path: device.at.clone(),
                host_path: device.node.clone(),
                permissions: device.permissions.clone(),
            })
            .collect(),
        stdin: asked.stdin,
        stdin_once: asked.stdin_once,
        tty: asked.tty,
        linux: Some(LinuxContainerConfig {
            resources: Some(LinuxContainerResources {
                memory_limit_in_bytes: resources.memory,
                cpu_shares: resources.cpu_shares,
                cpu_quota: resources.cpu_quota,
                cpu_period: resources.cpu_period,
                cpuset_cpus: resources.cpuset.clone(),
                oom_score_adj: resources.oom_score_adj,
                ..Default::default()
            }),
            security_context: Some(security(case, places)),
        }),
        ..named(case, "main")
    }
}

/// Returns the configuration of the pod's other container, which has nothing but the pod's.
pub(crate) fn second_container(case: &Case, first: &str) -> ContainerConfig {
    let (masked_paths, readonly_paths) = hidden(HiddenPaths::Default);
    let mut namespaces = namespaces(case);
    if case.pod.second_joins_first {
        namespaces.pid = NamespaceMode::Target.into();
        namespaces.target_id = first.to_owned();
    }
    ContainerConfig {
        command: vec!["/bin/probe".to_owned(), "--exit=0".to_owned()],
        linux: Some(LinuxContainerConfig {
            resources: Some(LinuxContainerResources {
                oom_score_adj: 1000,
                ..Default::default()
            }),
            security_context: Some(LinuxContainerSecurityContext {
                namespace_options: Some(namespaces),
                masked_paths,
                readonly_paths,
                ..Default::default()
            }),
        }),
        ..named(case, "second")
    }
}

fn named(case: &Case, name: &str) -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: name.to_owned(),
            attempt: 0,
        }),
        image: Some(ImageSpec {
            image: image::name(case),
            ..Default::default()
        }),
        log_path: format!("{name}.log"),
        ..Default::default()
    }
}

fn mount(case: &Case, asked: &MountCase, places: &Places) -> Mount {
    let propagation = match asked.propagation {
        Propagation::Private => MountPropagation::PropagationPrivate,
        Propagation::FromNode => MountPropagation::PropagationHostToContainer,
        Propagation::Both => MountPropagation::PropagationBidirectional,
    };
    Mount {
        container_path: asked.at.clone(),
        host_path: text(&source(asked.source, &places.fixture)),
        readonly: asked.readonly,
        propagation: propagation.into(),
        recursive_read_only: asked.readonly && case.newer.recursive_readonly,
        uid_mappings: id_mappings(case),
        gid_mappings: id_mappings(case),
        ..Mount::default()
    }
}

fn image_volume(case: &Case, asked: &ImageVolume) -> Mount {
    Mount {
        container_path: asked.at.clone(),
        readonly: true,
        image: Some(ImageSpec {
            image: image::name(case),
            ..Default::default()
        }),
        image_sub_path: asked.sub_path.clone(),
        uid_mappings: id_mappings(case),
        gid_mappings: id_mappings(case),
        ..Mount::default()
    }
}

/// Returns the node's path of a source.
pub(crate) fn source(source: Source, fixture: &Path) -> PathBuf {
    match source {
        Source::Folder => fixture.join("folder"),
        Source::Private => fixture.join("private"),
        Source::SubFolder => fixture.join("folder/below"),
        Source::File => fixture.join("file"),
        Source::Link => fixture.join("link"),
        Source::Missing => fixture.join("missing/made"),
        Source::Tree => fixture.join("tree"),
        Source::Null => PathBuf::from("/dev/null"),
        Source::NodeDev => PathBuf::from("/dev"),
    }
}

fn security(case: &Case, places: &Places) -> LinuxContainerSecurityContext {
    let asked = &case.container;
    let (masked_paths, readonly_paths) = hidden(asked.hidden);
    LinuxContainerSecurityContext {
        capabilities: Some(Capability {
            add_capabilities: asked.capabilities_add.clone(),
            drop_capabilities: asked.capabilities_drop.clone(),
            ..Capability::default()
        }),
        privileged: asked.privileged,
        namespace_options: Some(namespaces(case)),
        run_as_user: asked.run_as_user.map(|value| Int64Value { value }),
        run_as_group: asked.run_as_group.map(|value| Int64Value { value }),
        run_as_username: asked.run_as_username.clone(),
        supplemental_groups: asked.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(case).into(),
        readonly_rootfs: asked.readonly_root,
        no_new_privs: asked.no_new_privs,
        masked_paths,
        readonly_paths,
        seccomp: seccomp(asked.seccomp, places),
        ..Default::default()
    }
}

fn hidden(paths: HiddenPaths) -> (Vec<String>, Vec<String>) {
    let owned = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect();
    match paths {
        HiddenPaths::Default => (owned(&MASKED), owned(&READ_ONLY)),
        HiddenPaths::None => (Vec::new(), Vec::new()),
        HiddenPaths::More => (
            owned(&[&MASKED[..], &MORE_MASKED].concat()),
            owned(&[&READ_ONLY[..], &MORE_READ_ONLY].concat()),
        ),
    }
}

fn seccomp(asked: SeccompCase, places: &Places) -> Option<SecurityProfile> {
    let file = |name: &str| (ProfileType::Localhost, text(&places.profiles.join(name)));
    let (kind, localhost_ref) = match asked {
        SeccompCase::Absent => return None,
        SeccompCase::Unconfined => (ProfileType::Unconfined, String::new()),
        SeccompCase::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        SeccompCase::Errors => file("errors.json"),
        SeccompCase::Arguments => file("arguments.json"),
        SeccompCase::Malformed => file("malformed.json"),
        SeccompCase::NoFile => file("missing.json"),
    };
    Some(SecurityProfile {
        profile_type: kind.into(),
        localhost_ref,
    })
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
