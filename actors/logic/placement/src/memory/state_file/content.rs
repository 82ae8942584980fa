//! The file's content, field by field in the order in which Go writes them. None is Go's `nil`, which its checksum tells
//! from what is empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StateFile {
    pub(super) policy_name: String,
    #[serde(serialize_with = "by_text")]
    pub(super) machine_state: Option<BTreeMap<i64, Option<FileNode>>>,
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) entries: Option<Entries>,
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) pod_entries: Option<PodEntries>,
    pub(super) checksum: u64,
}

/// Blocks by pod UID and container name.
pub(super) type Entries = BTreeMap<String, Option<BTreeMap<String, Option<Vec<FileBlock>>>>>;

/// By pod UID.
pub(super) type PodEntries = BTreeMap<String, PodEntry>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FileNode {
    pub(super) number_of_assignments: i64,
    /// By resource.
    pub(super) memory_map: Option<BTreeMap<String, Option<FileTable>>>,
    /// Ids of the nodes of the group.
    pub(super) cells: Option<Vec<i64>>,
}

/// Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FileTable {
    pub(super) total: u64,
    pub(super) system_reserved: u64,
    pub(super) allocatable: u64,
    pub(super) reserved: u64,
    pub(super) free: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FileBlock {
    /// Ids of nodes.
    pub(super) numa_affinity: Option<Vec<i64>>,
    #[serde(rename = "type")]
    pub(super) resource: String,
    /// Bytes.
    pub(super) size: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory_blocks: Option<Vec<FileBlock>>,
}

/// As upstream makes one before it reads a file: maps that are not there are empty.
impl Default for StateFile {
    fn default() -> Self {
        Self {
            policy_name: String::new(),
            machine_state: Some(BTreeMap::new()),
            entries: Some(Entries::new()),
            pod_entries: Some(PodEntries::new()),
            checksum: 0,
        }
    }
}

impl StateFile {
    /// Whether a container of any pod is in it.
    pub(super) fn has_entries(&self) -> bool {
        !is_empty(&self.entries)
    }
}

fn is_empty<V>(map: &Option<BTreeMap<String, V>>) -> bool {
    map.as_ref().is_none_or(BTreeMap::is_empty)
}

/// Go orders the keys of a map as texts: 10 comes before 2.
fn by_text<S: Serializer>(
    nodes: &Option<BTreeMap<i64, Option<FileNode>>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let nodes = nodes.as_ref().map(|nodes| {
        let node = |(id, node)| (i64::to_string(id), node);
        nodes.iter().map(node).collect::<BTreeMap<_, _>>()
    });
    nodes.serialize(serializer)
}
