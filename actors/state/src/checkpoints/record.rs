//! What is stored of one pod, and how an earlier version stored it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceRequirements;
use kernel::checkpoint::{Flaw, decode};
use logic_api::backoff::BackoffTable;
use logic_api::types::{ContainerHealth, ContainerId, PodUid, RuntimePod};
use logic_pods::resize::AllocatedResources;
use serde::de::DeserializeOwned;
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

/// A record of version 2, which knew no replaced instances.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Default, Serialize))]
struct PodRecordV2 {
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
}

/// A record of version 3, which knew no other runtime: it is stored as version 2 with a field more.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Default, Serialize))]
struct PodRecordV3 {
    older: PodRecordV2,
    replaced: BTreeSet<ContainerId>,
}

impl From<PodRecordV2> for PodRecord {
    fn from(old: PodRecordV2) -> Self {
        PodRecord {
            started: old.started,
            backoffs: old.backoffs,
            exits: old.exits,
            runs: old.runs,
            health: old.health,
            actuated: old.actuated,
            allocated: old.allocated,
            termination_messages: old.termination_messages,
            replaced: BTreeSet::new(),
            inherited: None,
        }
    }
}

impl From<PodRecordV3> for PodRecord {
    fn from(old: PodRecordV3) -> Self {
        PodRecord {
            replaced: old.replaced,
            ..old.older.into()
        }
    }
}

/// Reads the records that an earlier version wrote.
pub(super) fn migrate(version: u16, payload: &[u8]) -> Result<BTreeMap<PodUid, PodRecord>, Flaw> {
    match version {
        2 => migrated::<PodRecordV2>(payload),
        3 => migrated::<PodRecordV3>(payload),
        found => Err(Flaw::Older {
            found,
            wanted: VERSION,
        }),
    }
}

fn migrated<T: DeserializeOwned + Into<PodRecord>>(
    payload: &[u8],
) -> Result<BTreeMap<PodUid, PodRecord>, Flaw> {
    let old: BTreeMap<PodUid, T> = decode(payload)?;
    let records = old.into_iter().map(|(uid, record)| (uid, record.into()));
    Ok(records.collect())
}

#[cfg(test)]
mod tests {
    use kernel::checkpoint::{CheckpointFile, LoadOutcome, Schema};

    use super::*;

    fn read(version: u16, old: &impl Serialize) -> PodRecord {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pods.checkpoint");
        let old: BTreeMap<PodUid, _> = [(PodUid::from("web"), old)].into();
        let schema = |version| Schema { kind: 1, version };
        let saved = CheckpointFile::new(path.clone(), schema(version)).save(&old);
        saved.unwrap();
        let file = CheckpointFile::new(path, schema(VERSION));
        let LoadOutcome::Found(mut records) = file.load_migrating(migrate).unwrap() else {
            panic!("not read");
        };
        records.remove(&PodUid::from("web")).unwrap()
    }

    #[test]
    fn what_earlier_versions_stored_of_a_pod_is_read() {
        let v2 = || PodRecordV2 {
            termination_messages: [("a".into(), "bye".to_owned())].into(),
            ..PodRecordV2::default()
        };
        let expected = PodRecord {
            termination_messages: v2().termination_messages,
            ..PodRecord::default()
        };
        assert_eq!(read(2, &v2()), expected);
        let v3 = PodRecordV3 {
            older: v2(),
            replaced: ["b".into()].into(),
        };
        let expected = PodRecord {
            replaced: ["b".into()].into(),
            ..expected
        };
        assert_eq!(read(3, &v3), expected);
    }

    /// The nested field is stored as its own fields: version 3 was one flat struct.
    #[test]
    fn a_nested_record_is_stored_as_a_flat_one() {
        let record = PodRecord {
            replaced: ["b".into()].into(),
            ..PodRecord::default()
        };
        let v3 = PodRecordV3 {
            older: PodRecordV2::default(),
            replaced: record.replaced.clone(),
        };
        #[derive(Serialize)]
        struct WithInherited(PodRecordV3, Option<RuntimePod>);
        assert_eq!(read(VERSION, &WithInherited(v3, None)), record);
    }
}
