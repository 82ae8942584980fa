//! The configuration that everything about a pod on this node is decided by.

use std::sync::Arc;
use std::time::Duration;

use logic_resources::container_gc::ContainerGcPolicy;
use logic_resources::node::NodeFacts;
use logic_resources::node::policy::NodePolicy;

use crate::pod_actions::PodActionPolicy;

/// What the pod workers, the volume manager and the stats go by: policies of the configuration, and the node's facts.
#[derive(Debug, Clone)]
pub struct PodWorkerConfig {
    pub policy: PodActionPolicy,
    pub node: NodePolicy,
    /// The node's capacity and features.
    pub facts: Arc<NodeFacts>,
    /// How long the dead containers of a static pod that is gone are kept: if its manifest comes back, its restarts go on.
    pub container_gc_period: Duration,
    /// How many dead containers are kept.
    pub container_gc: ContainerGcPolicy,
}
