//! Conversions between CRI's types and those of `logic_api`: one function each direction.

mod container;
mod figures;
mod seen;

use std::collections::{BTreeMap, HashMap};

pub(super) use container::{container_config, resources};
pub(super) use figures::{containers, layer, sandboxes};
use logic_api::linux::{
    NamespaceMode, Namespaces, PortMapping, PortProtocol, SeLinuxContext, Seccomp, UserNamespace,
};
use logic_pods::images::credentials::AuthConfig;
use logic_pods::sandbox::SandboxConfig;
use logic_pods::security::GroupsPolicy;
use proto::cri;
pub(super) use seen::{
    add_listed_container, add_listed_sandbox, container, event, image, listed_image,
    memory_charged, memory_use, pod, sandbox,
};

use super::ImagePull;

type StringMap = BTreeMap<String, String>;

pub(super) fn image_spec(image: &str) -> cri::ImageSpec {
    cri::ImageSpec {
        image: image.to_owned(),
        ..Default::default()
    }
}

/// The image with the annotations of the pod that needs it.
pub(super) fn annotated_image(image: &str, pod: &StringMap) -> cri::ImageSpec {
    cri::ImageSpec {
        annotations: string_map(pod),
        ..image_spec(image)
    }
}

/// The image goes with the pod's annotations, but without its runtime handler: that is in the sandbox's configuration,
/// and upstream names it here behind a gate that is off (`RuntimeClassInImageCriApi`).
pub(super) fn pull_request(pull: ImagePull<'_>) -> cri::PullImageRequest {
    let mut image = image_spec(pull.image);
    if let Some(sandbox) = pull.sandbox {
        image.annotations = string_map(&sandbox.annotations);
    }
    cri::PullImageRequest {
        image: Some(image),
        auth: pull.auth.map(auth),
        sandbox_config: pull.sandbox.map(sandbox_config),
    }
}

fn auth(auth: &AuthConfig) -> cri::AuthConfig {
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
        labels: string_map(&config.labels),
        annotations: string_map(&config.annotations),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: config.cgroup_parent.clone(),
            security_context: Some(sandbox_security(config)),
            sysctls: string_map(&config.sysctls),
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

fn port_mapping(mapping: &PortMapping) -> cri::PortMapping {
    let protocol = match mapping.protocol {
        PortProtocol::Tcp => cri::Protocol::Tcp,
        PortProtocol::Udp => cri::Protocol::Udp,
        PortProtocol::Sctp => cri::Protocol::Sctp,
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

/// CRI's id mappings of the pod's user namespace; empty where the pod uses the node's own ids.
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

fn se_linux(options: &SeLinuxContext) -> cri::SeLinuxOption {
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

fn string_map(words: &StringMap) -> HashMap<String, String> {
    words
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestToRuntimeProtocol.
    #[test]
    fn each_protocol_has_cris_number() {
        let cases = [
            (PortProtocol::Tcp, cri::Protocol::Tcp),
            (PortProtocol::Udp, cri::Protocol::Udp),
            (PortProtocol::Sctp, cri::Protocol::Sctp),
        ];
        for (protocol, expected) in cases {
            let made = port_mapping(&PortMapping {
                protocol,
                container_port: 80,
                host_port: 8080,
                host_ip: "::1".into(),
            });
            assert_eq!(made.protocol(), expected);
            let ports = (made.container_port, made.host_port, made.host_ip.as_str());
            assert_eq!(ports, (80, 8080, "::1"));
        }
    }

    /// Upstream's TestConvertToRuntimeAPIImageSpec.
    #[test]
    fn an_image_is_pulled_by_its_name_alone() {
        let request = pull_request(ImagePull {
            image: "test",
            auth: None,
            sandbox: None,
        });
        let expected = cri::ImageSpec {
            image: "test".into(),
            ..Default::default()
        };
        assert_eq!((request.image, request.auth), (Some(expected), None));
    }

    #[test]
    fn an_image_is_looked_for_with_its_pods_annotations() {
        let notes = StringMap::from([("team".to_owned(), "a".to_owned())]);
        let made = annotated_image("test", &notes);
        assert_eq!(
            (made.image.as_str(), made.annotations["team"].as_str()),
            ("test", "a")
        );
        assert!(made.runtime_handler.is_empty());
    }
}
