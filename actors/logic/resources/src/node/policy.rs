//! The node's own facts and settings that the decisions about every pod are made with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::linux::Seccomp;
use logic_api::pod::labels;
use serde::{Deserialize, Serialize};

use crate::cgroups::CgroupPolicy;
use crate::resources::ResourceEnforcement;

/// The node's settings that every pod depends on; the configuration and the node's discovery fill it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodePolicy {
    pub node_name: String,
    /// The node's addresses, primary first.
    pub host_ips: Vec<String>,
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    /// Whether there is no API server, and so no cluster whose names pods could look up.
    #[serde(default)]
    pub is_standalone: bool,
    /// The node's own resolver file; empty for none.
    pub resolver_config: PathBuf,
    /// Upstream's `/var/lib/kubelet`.
    pub root_dir: PathBuf,
    /// Upstream's `/var/log/pods`.
    pub pod_logs_dir: PathBuf,
    /// Where the links to containers' logs lie.
    pub container_logs_dir: PathBuf,
    /// How pods' cgroups are made; none leaves the parent to the runtime.
    pub cgroups: Option<CgroupPolicy>,
    /// Bytes of memory of the node, for the out-of-memory score.
    pub memory_capacity: u64,
    /// Bytes of memory that are not reserved; eviction's threshold is not taken off.
    pub unreserved_memory: u64,
    /// The CPU quota's period; none where limits are not enforced by quota.
    pub cpu_quota_period: Option<Duration>,
    /// The seccomp profile of a container that names none.
    pub seccomp_default: Seccomp,
    /// The allocatable quantity of each resource.
    pub allocatable: BTreeMap<String, Quantity>,
    /// Which resources the kernel and the configuration allow to enforce.
    pub enforcement: ResourceEnforcement,
    /// Paths of this machine that are masked in containers, beside the paths that are masked everywhere.
    pub masked_paths: Vec<String>,
}

impl Default for NodePolicy {
    fn default() -> Self {
        Self {
            node_name: String::new(),
            host_ips: Vec::new(),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            is_standalone: false,
            resolver_config: PathBuf::new(),
            root_dir: PathBuf::from("/var/lib/kubelet"),
            pod_logs_dir: PathBuf::from(labels::POD_LOGS_DIR),
            container_logs_dir: PathBuf::from(labels::CONTAINER_LOGS_DIR),
            cgroups: None,
            memory_capacity: 0,
            unreserved_memory: 0,
            cpu_quota_period: Some(Duration::from_millis(100)),
            seccomp_default: Seccomp::Unconfined,
            allocatable: BTreeMap::new(),
            enforcement: ResourceEnforcement::default(),
            masked_paths: Vec::new(),
        }
    }
}
