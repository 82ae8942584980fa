//! The operators' view of volumes.

use logic_api::pod::PodView;
use logic_api::pod::volume_stats::VolumeMetrics;
use logic_volumes::{csi_node, reconciler};
use serde::{Deserialize, Serialize};

use super::VolumeManager;

/// What operators see of volumes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct VolumesView {
    pub volumes: Vec<VolumeView>,
    /// The drivers that registered: the `CSINode` object's `spec.drivers`, as JSON.
    pub csi_node: serde_json::Value,
    /// Refused drivers: the socket or name, a colon and a space, and the reason.
    #[serde(default)]
    pub refused: Vec<String>,
    /// Upstream's `status.volumesInUse`.
    pub in_use: Vec<String>,
    /// The names of stuck volumes: the node condition `VolumesStuck`.
    pub stuck: Vec<String>,
}

/// One volume of one pod.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeView {
    /// Namespace and name, or the UID of a pod that is gone.
    pub pod: String,
    /// The pod's name of it.
    pub volume: String,
    /// The plugin's word: `empty-dir`, `csi`.
    pub kind: String,
    pub id: String,
    /// `Mounted`, `Mounting`, `Waiting`, `Unmounting`, `Stuck`, `Left over`
    pub state: String,
    /// Why it is not mounted; empty if it is.
    pub why: String,
    /// Where it is mounted; empty if it is not.
    pub path: String,
    pub figures: VolumeMetrics,
}

impl VolumeManager {
    pub(super) fn view(&self) -> VolumesView {
        let node_name = &self.peers.rules.node.node_name;
        let csi_node = csi_node::csi_node(node_name, None, self.drivers.admitted());
        VolumesView {
            volumes: self
                .world
                .rows()
                .into_iter()
                .map(|row| self.row(row))
                .collect(),
            csi_node: serde_json::to_value(csi_node).unwrap_or_default(),
            refused: self.drivers.refused(),
            in_use: csi_node::volumes_in_use(self.reporter.in_use()),
            stuck: self.stuck(),
        }
    }

    fn row(&self, row: reconciler::VolumeRow) -> VolumeView {
        let pod = self.pods.get(&row.uid).map(|wanting| {
            let pod = &wanting.pod;
            format!("{}/{}", pod.namespace(), pod.name())
        });
        let place = row.place.as_ref();
        let figures = place.and_then(|place| self.measures.of(place)).cloned();
        VolumeView {
            pod: pod.unwrap_or_else(|| row.uid.to_string()),
            volume: row.name,
            kind: place
                .map(|place| place.kind.as_str().to_owned())
                .unwrap_or_default(),
            id: row.id.to_string(),
            state: row.state.to_owned(),
            why: row.why,
            path: row.path.display().to_string(),
            figures: figures.unwrap_or_default(),
        }
    }
}
