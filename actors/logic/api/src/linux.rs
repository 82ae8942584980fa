//! What the CRI calls Linux security and network options, in plain types: namespaces, seccomp, SELinux, port mappings.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// CRI's namespace modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceMode {
    Pod,
    Container,
    Node,
    /// That of another container of the pod.
    Target,
}

/// Which namespaces a pod's containers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    pub network: NamespaceMode,
    pub pid: NamespaceMode,
    pub ipc: NamespaceMode,
    pub users: UserNamespace,
}

/// A container's seccomp profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    Unconfined,
    RuntimeDefault,
    /// A file on the node.
    Localhost(PathBuf),
}

/// A container's SELinux label, by its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeLinuxContext {
    pub user: String,
    pub role: String,
    pub type_: String,
    pub level: String,
}

/// A port of the node that leads to a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    pub protocol: PortProtocol,
    pub container_port: u16,
    /// Zero where the node's port is not used.
    pub host_port: u16,
    /// The node's address to which the port is bound; empty for all.
    pub host_ip: String,
}

/// A port's transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PortProtocol {
    Tcp,
    Udp,
    Sctp,
}

/// A pod's users: the node's own, or a range of ids of which the first is the pod's root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserNamespace {
    #[default]
    Node,
    Pod(IdRange),
}

/// Ids of the node in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IdRange {
    /// The first id on the node.
    pub first: u32,
    /// How many ids.
    pub length: u32,
}
