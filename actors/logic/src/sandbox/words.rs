//! The words that sandboxes and containers are asked for in: namespaces, profiles, labels, ports.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::user_namespaces::UserNamespace;

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

/// A seccomp profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    Unconfined,
    RuntimeDefault,
    /// A file on the node.
    Localhost(PathBuf),
}

/// SELinux labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeLinux {
    pub user: String,
    pub role: String,
    pub type_: String,
    pub level: String,
}

/// A port of the node that leads to a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    pub protocol: Protocol,
    pub container_port: u16,
    /// Nought where the node's port is not used.
    pub host_port: u16,
    pub host_ip: String,
}

/// A transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}
