//! What is stored of one pod, and how an earlier version stored it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceRequirements;
use kernel::checkpoint::{Flaw, decode};
use logic_api::backoff::BackoffTable;
use logic_api::types::{ContainerHealth, ContainerId, PodUid, RuntimePod};
use logic_pods::resize::AllocatedResources;
use serde::{Deserialize, Serialize};

/// The schema version of the records.
pub(super) const VERSION: u16 = 4;

/// The record of one pod that outlives the agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PodRecord {
    /// When the agent first saw the pod (`status.startTime`).
    pub started: Option<Timestamp>,
    /// Of its containers.
    pub backoffs: BackoffTable,
    /// When this agent saw each exit: the runtime's clock is not compared with the agent's.
    pub exits: BTreeMap<ContainerId, Timestamp>,
    /// When this agent first saw each instance running: delays of probes count from there.
    pub runs: BTreeMap<ContainerId, Timestamp>,
    /// The last probe results of each instance: a restarted agent does not flip readiness.
    pub health: BTreeMap<ContainerId, ContainerHealth>,
    /// By container: the CPU and memory that the runtime was last given (`actuated`); the pod's own under
    /// [`logic_pods::resize::POD_LEVEL`].
    #[serde(with = "as_json")]
    pub actuated: ContainerResources,
    /// By container: the CPU and memory that are allocated to it, whatever its definition says now.
    #[serde(with = "as_json")]
    pub allocated: Option<AllocatedResources>,
    /// By instance: the termination message of each that has ended.
    pub termination_messages: BTreeMap<ContainerId, String>,
    /// Instances that were ended to be started again, whatever their exit codes.
    pub replaced: BTreeSet<ContainerId>,
    /// What the pod left in an earlier runtime, which is gone there; none where its runtime was never handed over.
    pub inherited: Option<RuntimePod>,
}

/// CPU and memory by container name.
pub type ContainerResources = BTreeMap<String, ResourceRequirements>;

/// Kubernetes' types cannot be encoded by bincode: they are stored as JSON text.
mod as_json {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(value).map_err(S::Error::custom)?;
        text.serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map_err(D::Error::custom)
    }
}

/// A record of version 3, which knew no other runtime.
#[derive(Deserialize)]
struct PodRecordV3 {
    started: Option<Timestamp>,
    backoffs: BackoffTable,
    exits: BTreeMap<ContainerId, Timestamp>,
    runs: BTreeMap<ContainerId, Timestamp>,
    health: BTreeMap<ContainerId, ContainerHealth>,
    #[serde(with = "as_json")]
    actuated: ContainerResources,
    #[serde(with = "as_json")]
    allocated: Option<AllocatedResources>,
    termination_messages: BTreeMap<ContainerId, String>,
    replaced: BTreeSet<ContainerId>,
}

impl From<PodRecordV3> for PodRecord {
    fn from(old: PodRecordV3) -> Self {
        PodRecord {
            started: old.started,
            backoffs: old.backoffs,
            exits: old.exits,
            runs: old.runs,
            health: old.health,
            actuated: old.actuated,
            allocated: old.allocated,
            termination_messages: old.termination_messages,
            replaced: old.replaced,
            inherited: None,
        }
    }
}

/// Reads the records that an earlier version wrote.
pub(super) fn migrate(version: u16, payload: &[u8]) -> Result<BTreeMap<PodUid, PodRecord>, Flaw> {
    if version != 3 {
        return Err(Flaw::Older {
            found: version,
            wanted: VERSION,
        });
    }
    let old: BTreeMap<PodUid, PodRecordV3> = decode(payload)?;
    Ok(old
        .into_iter()
        .map(|(uid, record)| (uid, record.into()))
        .collect())
}
