//! What the API server is told of volumes, and what waits for it.

use cluster::node::claims::{self, Growth};
use cluster::node::{self, csi_node};
use k8s_openapi::api::core::v1::{AttachedVolume, Node};
use logic::node_status::registration::CONTROLLER_ATTACHES;
use logic::node_status::{Fact, InUse};
use logic::volumes::resolve::attachment_name;
use logic::volumes::resolve::expansion::Outcome;
use tokio::sync::watch;

use super::*;

const CLAIM: (&str, &str) = ("data", "persistentVolumeClaim: {claimName: data}");
const ID: &str = "kubernetes.io/csi/d.example.com^h";

/// Those who pass on to the API server.
struct Cluster {
    node: Inbox<node::Msg>,
    csi_node: Inbox<csi_node::Msg>,
    claims: Inbox<claims::Msg>,
    object: watch::Sender<Option<Arc<Node>>>,
}

async fn within(objects: &str) -> (Rig, Cluster) {
    let (node, told) = inbox(256);
    let (csi_node, drivers) = inbox(64);
    let (claims, grown) = inbox(64);
    let object = watch::Sender::new(None);
    let peers = super::super::Cluster {
        node,
        csi_node,
        claims,
        object: object.subscribe(),
    };
    let rig = Rig::within(Some(peers), objects, None, |_| {}).await;
    let cluster = Cluster {
        node: told,
        csi_node: drivers,
        claims: grown,
        object,
    };
    (rig, cluster)
}

impl Cluster {
    /// The volumes that were told to be in use, in order; what is not certain yet has a question mark.
    fn in_use(&mut self) -> Vec<String> {
        let text = |msg| {
            let node::Msg::Learned(Fact::VolumesInUse(in_use)) = msg else {
                return None;
            };
            Some(match in_use {
                InUse::AtLeast(ids) => format!("{}?", csi(&ids)),
                InUse::Exactly(ids) => csi(&ids),
            })
        };
        self.node.drain().into_iter().filter_map(text).collect()
    }

    fn drivers(&mut self) -> Vec<Vec<String>> {
        let names = |msg| {
            let csi_node::Msg::Drivers(drivers) = msg else {
                panic!("{msg:?}");
            };
            drivers.into_keys().collect()
        };
        self.csi_node.drain().into_iter().map(names).collect()
    }

    fn outcomes(&mut self) -> Vec<(String, Outcome)> {
        let outcome = |msg| {
            let claims::Msg::Grew(growth) = msg else {
                panic!("{msg:?}");
            };
            let Growth {
                namespace,
                claim,
                outcome,
                ..
            } = *growth;
            (format!("{namespace}/{claim}"), outcome)
        };
        self.claims.drain().into_iter().map(outcome).collect()
    }
}

fn csi(ids: &BTreeSet<VolumeId>) -> String {
    let names = ids.iter().map(|id| id.0.rsplit('^').next().unwrap());
    names.collect::<Vec<_>>().join(",")
}

/// A claim whose volume has `size`; `claimed` is how much the claim has.
fn objects(size: &str, claimed: &str, attach: bool) -> String {
    let attachment = attachment_name("h", "d.example.com", "edge");
    format!(
        "
apiVersion: v1
kind: PersistentVolume
metadata: {{name: pv}}
spec:
  capacity: {{storage: {size}}}
  accessModes: [ReadWriteOnce]
  claimRef: {{namespace: default, name: data, uid: u}}
  csi: {{driver: d.example.com, volumeHandle: h}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data, uid: u}}
spec: {{volumeName: pv, accessModes: [ReadWriteOnce]}}
status: {{phase: Bound, capacity: {{storage: {claimed}}}}}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {{name: d.example.com}}
spec: {{attachRequired: {attach}}}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {{name: {attachment}}}
spec: {{attacher: d.example.com, nodeName: edge, source: {{persistentVolumeName: pv}}}}
status: {{attached: true}}
"
    )
}

fn ids(names: &[&str]) -> BTreeSet<VolumeId> {
    names.iter().map(|id| VolumeId((*id).to_owned())).collect()
}

/// Upstream's TestGetAttachedVolumes of the reconciler: `verifyVolumeIsReportedInUse`.
#[test]
fn an_attached_volume_is_mounted_when_the_api_server_knows_it_to_be_in_use() {
    run_paused(|| async {
        let (rig, mut cluster) = within(&objects("1Gi", "1Gi", true)).await;
        rig.plugins.backend("d.example.com");
        pass(MOMENT).await;
        let answer = rig.want(&pod_with("a", &[CLAIM]));
        pass(SECOND).await;
        assert_eq!(cluster.in_use().last().unwrap(), "h?");
        assert_eq!(rig.plugins.staged(), NONE);
        rig.keeper.tell(Msg::Reported(ids(&[ID]))).unwrap();
        answer.await.unwrap().unwrap().unwrap();
        assert_eq!(rig.plugins.staged(), [ID]);
        rig.pods(&["a"]);
        pass(MOMENT).await;
        assert_eq!(cluster.in_use(), ["h"]);
        rig.release("a").await.unwrap().unwrap().unwrap();
        pass(SECOND).await;
        assert_eq!(cluster.in_use(), [""]);
    });
}

/// Upstream's `VerifyControllerAttachedVolume`.
#[test]
fn a_volume_is_mounted_when_the_nodes_object_says_that_it_is_attached() {
    run_paused(|| async {
        let (rig, cluster) = within(&objects("1Gi", "1Gi", true)).await;
        let mut node = Node::default();
        let managed = (CONTROLLER_ATTACHES.to_owned(), "true".to_owned());
        node.metadata.annotations = Some([managed].into());
        cluster.object.send_replace(Some(Arc::new(node.clone())));
        rig.plugins.backend("d.example.com");
        rig.keeper.tell(Msg::Reported(ids(&[ID]))).unwrap();
        pass(MOMENT).await;
        let answer = rig.want(&pod_with("a", &[CLAIM]));
        pass(SECOND * 5).await;
        assert_eq!(rig.plugins.staged(), NONE);
        node.status.get_or_insert_default().volumes_attached = Some(vec![AttachedVolume {
            name: ID.to_owned(),
            device_path: String::new(),
        }]);
        cluster.object.send_replace(Some(Arc::new(node.clone())));
        answer.await.unwrap().unwrap().unwrap();
        assert_eq!(rig.plugins.staged(), [ID]);
        // It is a controller's word while it is not mounted, and the node's from then on.
        node.status = None;
        cluster.object.send_replace(Some(Arc::new(node)));
        pass(SECOND).await;
        assert_eq!(rig.plugins.staged(), [ID]);
    });
}

/// Upstream's TestWaitForAttachAndMountVolumeAttachLimitExceededError.
#[test]
fn who_waits_for_an_attachment_that_finds_no_room_is_told_so() {
    run_paused(|| async {
        let full = "status: {attached: false, attachError: {message: full, errorCode: 8}}";
        let tells = "attachRequired: true, nodeAllocatableUpdatePeriodSeconds: 60";
        let objects = objects("1Gi", "1Gi", true)
            .replace("status: {attached: true}", full)
            .replace("attachRequired: true", tells);
        let (rig, _cluster) = within(&objects).await;
        rig.plugins.backend("d.example.com");
        pass(MOMENT).await;
        let answer = rig.want(&pod_with("a", &[CLAIM])).await.unwrap().unwrap();
        let Err(NotMounted::NoRoom(text)) = answer else {
            panic!("{answer:?}");
        };
        assert!(text.contains("unmounted volumes=[data]"), "{text}");
    });
}

#[test]
fn a_volume_that_was_reported_before_is_mounted_without_waiting() {
    run_paused(|| async {
        let (rig, mut cluster) = within(&objects("1Gi", "1Gi", true)).await;
        rig.plugins.backend("d.example.com");
        rig.keeper.tell(Msg::Reported(ids(&[ID]))).unwrap();
        pass(MOMENT).await;
        rig.mounted(&pod_with("a", &[CLAIM])).await;
        cluster.in_use();
        rig.keeper.tell(Msg::TellAgain).unwrap();
        pass(MOMENT).await;
        assert_eq!(cluster.in_use(), ["h?"]);
    });
}

/// Upstream's TestInstallCSIDriver: "topology conflict with existing labels", and the call for each driver.
#[test]
fn drivers_are_told_as_they_come_and_go_and_must_fit_the_nodes_labels() {
    run_paused(|| async {
        let (rig, mut cluster) = within("").await;
        cluster.drivers();
        rig.plugins.backend("d.example.com");
        pass(MOMENT).await;
        assert_eq!(cluster.drivers(), [["d.example.com"]]);
        let mut node = Node::default();
        node.metadata.labels = Some([("zone".to_owned(), "1".to_owned())].into());
        cluster.object.send_replace(Some(Arc::new(node)));
        pass(MOMENT).await;
        assert_eq!(cluster.drivers(), [["d.example.com"]]);
        rig.plugins.gone("d.example.com");
        pass(MOMENT).await;
        assert_eq!(cluster.drivers(), [Vec::<String>::new()]);
        let told = |msg: &node::Msg| matches!(msg, node::Msg::Learned(Fact::Drivers(_)));
        assert_eq!(
            cluster.node.drain().iter().filter(|msg| told(msg)).count(),
            3
        );
    });
}

/// Upstream's TestNodeExpander, and `MarkNodeExpansionFailedCondition`.
#[test]
fn a_claim_is_told_each_step_of_its_volumes_growth() {
    run_paused(|| async {
        let (rig, mut cluster) = within(&objects("2Gi", "1Gi", false)).await;
        rig.plugins.backend("d.example.com");
        pass(MOMENT).await;
        rig.plugins
            .fault("expand", ID, Fault::Refused(Status::internal("no")));
        let answer = rig.want(&pod_with("a", &[CLAIM]));
        pass(SECOND * 5).await;
        answer.await.unwrap().unwrap().unwrap();
        let name = || "default/data".to_owned();
        let outcomes = cluster.outcomes();
        assert_eq!(outcomes[0], (name(), Outcome::Begun));
        assert!(matches!(&outcomes[1], (_, Outcome::Failed(why)) if why.contains("no")));
        assert_eq!(
            outcomes[2..],
            [(name(), Outcome::Begun), (name(), Outcome::Grown)]
        );
    });
}
