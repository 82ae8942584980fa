//! What the node tells of its CSI drivers: the `CSINode` object, labels and an annotation of the `Node`, and the
//! volumes in use.
//!
//! Upstream: pkg/volume/csi/nodeinfomanager, `GetVolumesInUse` of the volume manager (1.36).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use logic_api::decode::absent_fields::says_same;

use super::{RegisteredDriver, VolumeId, resolve};

/// The annotation of a `CSINode` with the in-tree plugins that are migrated to CSI drivers.
pub const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";
/// The annotation of a `Node` with its id in each driver.
pub const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";

/// The API server takes no shorter period; a manifest may have it.
const MIN_UPDATE_PERIOD: Duration = Duration::from_secs(10);

type TopologyLabels = BTreeMap<String, String>;

/// Which drivers the node takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmittedDrivers {
    /// The registered drivers by name.
    pub backends: BTreeMap<String, RegisteredDriver>,
    /// Labels of the `Node` from their topology.
    pub labels: TopologyLabels,
    /// Why the others are not taken, by their names.
    pub refused: BTreeMap<String, String>,
}

/// Takes drivers that know the node's name and whose topology contradicts neither the node's labels nor another
/// driver's; of two that contradict each other the first by name stays.
pub fn admit(
    backends: &BTreeMap<String, RegisteredDriver>,
    node_labels: &TopologyLabels,
) -> AdmittedDrivers {
    let mut admitted = AdmittedDrivers::default();
    for (name, backend) in backends {
        match objection(backend, node_labels, &admitted.labels) {
            Some(why) => drop(admitted.refused.insert(name.clone(), why)),
            None => {
                admitted.labels.extend(backend.topology.clone());
                admitted.backends.insert(name.clone(), backend.clone());
            }
        }
    }
    admitted
}

fn objection(
    backend: &RegisteredDriver,
    own: &TopologyLabels,
    others: &TopologyLabels,
) -> Option<String> {
    if backend.node_id.is_empty() {
        return Some(
            "error adding CSI driver node info: driverNodeID must not be empty".to_owned(),
        );
    }
    let held = |key: &String| own.get(key).or_else(|| others.get(key));
    let mut topology = backend.topology.iter();
    topology.find_map(|(key, value)| {
        let other = held(key).filter(|held| *held != value)?;
        Some(format!(
            "error updating Node object with CSI driver node info: detected topology value collision: driver reported {key:?}:{value:?} but existing label is {key:?}:{other:?}"
        ))
    })
}

/// The node's `CSINode`. Without the `Node` object's UID it has no owner reference.
pub fn csi_node(
    node_name: &str,
    node_uid: Option<&str>,
    backends: &BTreeMap<String, RegisteredDriver>,
) -> CSINode {
    let owner = |uid: &str| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node_name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    };
    let migrated = resolve::MIGRATED_PLUGINS.join(",");
    CSINode {
        metadata: ObjectMeta {
            name: Some(node_name.to_owned()),
            annotations: Some([(MIGRATED_PLUGINS.to_owned(), migrated)].into()),
            owner_references: node_uid.map(|uid| vec![owner(uid)]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec {
            drivers: backends.values().map(driver).collect(),
        },
    }
}

/// The node's `CSINode` with these drivers as they are now; none where it is up to date. The drivers of `left` are
/// dropped, those that have not registered yet stay.
pub fn renewed(
    existing: &CSINode,
    there: &BTreeMap<String, RegisteredDriver>,
    left: &BTreeSet<String>,
) -> Option<CSINode> {
    let mut object = existing.clone();
    let migrated = resolve::MIGRATED_PLUGINS.join(",");
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(MIGRATED_PLUGINS.to_owned(), migrated);
    let drivers = &mut object.spec.drivers;
    drivers.retain(|driver| !left.contains(&driver.name));
    for backend in there.values() {
        let new = driver(backend);
        match drivers.iter_mut().find(|held| held.name == new.name) {
            Some(held) => *held = new,
            None => drivers.push(new),
        }
    }
    let is_new = object.metadata != existing.metadata || !says_same(&object.spec, &existing.spec);
    is_new.then_some(object)
}

/// How often a driver is to be asked again how many volumes it takes on this node; none where that stays as it is.
///
/// Upstream's `getNodeAllocatableUpdatePeriod`.
pub fn update_period(driver: &CSIDriver) -> Option<Duration> {
    let seconds = driver.spec.node_allocatable_update_period_seconds?;
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
    Some(Duration::from_secs(seconds).max(MIN_UPDATE_PERIOD))
}

fn driver(backend: &RegisteredDriver) -> CSINodeDriver {
    let most = backend.max_volumes.filter(|most| *most > 0);
    let count = most.map(|most| i32::try_from(most).unwrap_or(i32::MAX));
    let keys: Vec<String> = backend.topology.keys().cloned().collect();
    CSINodeDriver {
        allocatable: count.map(|count| VolumeNodeResources { count: Some(count) }),
        name: backend.name.clone(),
        node_id: backend.node_id.clone(),
        topology_keys: (!keys.is_empty()).then_some(keys),
    }
}

/// The value of [`NODE_IDS`]; none where there is no driver.
pub fn node_ids(backends: &BTreeMap<String, RegisteredDriver>) -> Option<String> {
    let ids: BTreeMap<&str, &str> = backends
        .values()
        .map(|backend| (backend.name.as_str(), backend.node_id.as_str()))
        .collect();
    if ids.is_empty() {
        return None;
    }
    serde_json::to_string(&ids).ok()
}

/// `status.volumesInUse`: what is attached or wanted by a pod, of the volumes that a controller attaches; in order,
/// each once.
pub fn volumes_in_use<'a>(attachable: impl IntoIterator<Item = &'a VolumeId>) -> Vec<String> {
    let ids: BTreeSet<&VolumeId> = attachable.into_iter().collect();
    ids.into_iter().map(|id| id.0.clone()).collect()
}

#[cfg(test)]
mod tests {
    use logic_api::testing::*;

    use super::*;

    fn backend(
        name: &str,
        topology: &[(&str, &str)],
        max_volumes: Option<u64>,
    ) -> RegisteredDriver {
        RegisteredDriver {
            name: name.into(),
            node_id: format!("{name}/node"),
            topology: string_map(topology),
            max_volumes,
            ..RegisteredDriver::default()
        }
    }

    fn backends(list: Vec<RegisteredDriver>) -> BTreeMap<String, RegisteredDriver> {
        let named = list
            .into_iter()
            .map(|backend| (backend.name.clone(), backend));
        named.collect()
    }

    /// Upstream's TestInstallCSIDriver and TestInstallCSIDriverExistingAnnotation.
    #[test]
    fn the_object_lists_the_drivers_and_the_migrated_plugins() {
        let drivers = backends(vec![
            backend("b.example.com", &[("zone", "1"), ("rack", "2")], Some(7)),
            backend("a.example.com", &[], None),
            backend("c.example.com", &[], Some(u64::MAX)),
            backend("d.example.com", &[], Some(0)),
        ]);
        let object = csi_node("edge", Some("uid-1"), &drivers);
        let found: Vec<String> = object
            .spec
            .drivers
            .iter()
            .map(|driver| {
                format!(
                    "{} {} {:?} {:?}",
                    driver.name,
                    driver.node_id,
                    driver.topology_keys.clone().unwrap_or_default(),
                    driver.allocatable.as_ref().and_then(|a| a.count)
                )
            })
            .collect();
        let expected = [
            "a.example.com a.example.com/node [] None",
            "b.example.com b.example.com/node [\"rack\", \"zone\"] Some(7)",
            "c.example.com c.example.com/node [] Some(2147483647)",
            "d.example.com d.example.com/node [] None",
        ];
        assert_eq!(found, expected);
        let owner = &object.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Node", "uid-1"));
        let annotations = object.metadata.annotations.unwrap();
        assert_eq!(
            annotations[MIGRATED_PLUGINS],
            "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"
        );
        assert_eq!(
            node_ids(&drivers).unwrap(),
            r#"{"a.example.com":"a.example.com/node","b.example.com":"b.example.com/node","c.example.com":"c.example.com/node","d.example.com":"d.example.com/node"}"#
        );
        let alone = csi_node("edge", None, &backends(vec![]));
        assert_eq!(alone.metadata.owner_references, None);
        assert_eq!(node_ids(&backends(vec![])), None);
    }

    /// Upstream's TestInstallCSIDriver, "topology conflict with existing labels".
    #[test]
    fn a_driver_whose_topology_contradicts_is_not_taken_and_its_labels_neither() {
        let drivers = backends(vec![
            backend("a", &[("zone", "1"), ("disk", "ssd")], None),
            backend("b", &[("zone", "2"), ("rack", "9")], None),
            backend("c", &[("zone", "1")], None),
            backend("d", &[("disk", "hdd")], None),
            RegisteredDriver {
                name: "e".into(),
                ..RegisteredDriver::default()
            },
        ]);
        let admitted = admit(&drivers, &string_map(&[("disk", "ssd")]));
        let taken: Vec<&String> = admitted.backends.keys().collect();
        assert_eq!(taken, ["a", "c"]);
        assert_eq!(
            admitted.labels,
            string_map(&[("zone", "1"), ("disk", "ssd")])
        );
        assert_eq!(
            admitted.refused["b"],
            "error updating Node object with CSI driver node info: detected topology value collision: driver reported \"zone\":\"2\" but existing label is \"zone\":\"1\""
        );
        assert!(admitted.refused["d"].contains("existing label is \"disk\":\"ssd\""));
        assert!(admitted.refused["e"].contains("driverNodeID must not be empty"));
    }

    /// Upstream's TestSyncDriverUpdater, as far as it is of periods.
    #[test]
    fn a_driver_is_asked_again_as_often_as_it_says_and_never_in_a_rush() {
        let says = |seconds| {
            let mut driver = CSIDriver::default();
            driver.spec.node_allocatable_update_period_seconds = seconds;
            update_period(&driver).map(|period| period.as_secs())
        };
        let cases = [
            (None, None),
            (Some(0), None),
            (Some(-60), None),
            (Some(1), Some(10)),
            (Some(10), Some(10)),
            (Some(600), Some(600)),
        ];
        for (seconds, expected) in cases {
            assert_eq!(says(seconds), expected, "{seconds:?}");
        }
    }

    /// Upstream's TestGetMountedVolumesForPodAndGetVolumesInUse.
    #[test]
    fn volumes_in_use_are_told_in_order_and_once() {
        let ids = ["b", "a", "b"].map(|id| VolumeId(format!("kubernetes.io/csi/{id}^1")));
        assert_eq!(
            volumes_in_use(&ids),
            ["kubernetes.io/csi/a^1", "kubernetes.io/csi/b^1"]
        );
    }
}
