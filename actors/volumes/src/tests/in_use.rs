//! Reports to the API server about volumes, and what waits for them.

use k8s_openapi::api::core::v1::{AttachedVolume, Node};
use kernel::watch;
use logic_node::node_status::registration::CONTROLLER_ATTACHES;
use logic_node::node_status::{NodeFact, VolumesInUse};
use logic_volumes::RegisteredDriver;
use logic_volumes::resolve::attachment_name;
use logic_volumes::resolve::expansion::{PvcGrowth, ResizeOutcome};

use super::*;

pub(super) const CLAIM: (&str, &str) = ("data", "persistentVolumeClaim: {claimName: data}");
pub(super) const ID: &str = "kubernetes.io/csi/d.example.com^h";

/// What the volume manager reports.
#[derive(Debug, strum::IntoStaticStr)]
enum Report {
    Fact(NodeFact),
    Drivers(BTreeMap<String, RegisteredDriver>),
    Growth(PvcGrowth),
}

/// Inboxes of the actors that report to the API server.
pub(super) struct FakeCluster {
    node: Inbox<Report>,
    csi_node: Inbox<Report>,
    claims: Inbox<Report>,
    object: watch::Sender<Option<Arc<Node>>>,
}

pub(super) async fn within(objects: &str) -> (Rig, FakeCluster) {
    start(objects, None).await
}

/// Volumes are measured each period.
async fn measured(period: Duration) -> (Rig, FakeCluster) {
    start("", Some(period)).await
}

async fn start(objects: &str, stats: Option<Duration>) -> (Rig, FakeCluster) {
    let (node, told) = inbox(256);
    let (csi_node, drivers) = inbox(64);
    let (claims, grown) = inbox(64);
    let object = watch::Sender::new(None);
    let peers = super::super::ApiPeers {
        node: Recipient::new(node, Report::Fact),
        csi_node: Recipient::new(csi_node, Report::Drivers),
        claims: Recipient::new(claims, Report::Growth),
        object: object.subscribe(),
    };
    let rig = Rig::within(Some(peers), objects, stats, |_| {}).await;
    let cluster = FakeCluster {
        node: told,
        csi_node: drivers,
        claims: grown,
        object,
    };
    (rig, cluster)
}

impl FakeCluster {
    /// The volumes reported in use, in order; uncertain ones with a question mark.
    fn in_use(&mut self) -> Vec<String> {
        let text = |msg| {
            let Report::Fact(NodeFact::VolumesInUse(in_use)) = msg else {
                return None;
            };
            Some(match in_use {
                VolumesInUse::AtLeast(ids) => format!("{}?", csi(&ids)),
                VolumesInUse::Exactly(ids) => csi(&ids),
            })
        };
        self.node.drain().into_iter().filter_map(text).collect()
    }

    /// The volumes reported as stuck.
    pub(super) fn stuck(&mut self) -> Vec<Vec<String>> {
        let stuck = |msg| {
            let Report::Fact(NodeFact::Stuck(stuck)) = msg else {
                return None;
            };
            Some(stuck)
        };
        self.node.drain().into_iter().filter_map(stuck).collect()
    }

    fn drivers(&mut self) -> Vec<Vec<String>> {
        let names = |msg| {
            let Report::Drivers(drivers) = msg else {
                panic!("{msg:?}");
            };
            drivers.into_keys().collect()
        };
        self.csi_node.drain().into_iter().map(names).collect()
    }

    pub(super) fn outcomes(&mut self) -> Vec<(String, ResizeOutcome)> {
        let outcome = |msg| {
            let Report::Growth(growth) = msg else {
                panic!("{msg:?}");
            };
            let name = format!("{}/{}", growth.namespace, growth.claim);
            (name, growth.outcome)
        };
        self.claims.drain().into_iter().map(outcome).collect()
    }
}

fn csi(ids: &BTreeSet<VolumeId>) -> String {
    let names = ids.iter().map(|id| id.0.rsplit('^').next().unwrap());
    names.collect::<Vec<_>>().join(",")
}

/// A claim whose volume has `size`, with `claimed` as the capacity in its status.
pub(super) fn objects(size: &str, claimed: &str, attach: bool) -> String {
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
        rig.manager.tell(Msg::Reported(ids(&[ID]))).unwrap();
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

/// Upstream's TestGetMountedVolumesForPodAndGetVolumesInUse, and the order of the attach controller.
#[test]
fn a_volume_is_told_to_be_in_use_before_anybody_has_attached_it_and_once() {
    run_paused(|| async {
        let attached = objects("1Gi", "1Gi", true);
        let awaited = attached.replace("status: {attached: true}", "status: {attached: false}");
        let (rig, mut cluster) = within(&awaited).await;
        rig.plugins.backend("d.example.com");
        rig.pods(&["a"]);
        rig.manager.tell(Msg::Reported(ids(&[]))).unwrap();
        pass(MOMENT).await;
        cluster.in_use();
        let answer = rig.want(&pod_with("a", &[CLAIM]));
        pass(SECOND).await;
        assert_eq!(cluster.in_use(), ["h"]);
        rig.manager.tell(Msg::Reported(ids(&[ID]))).unwrap();
        pass(SECOND * 30).await;
        assert_eq!(rig.plugins.staged(), NONE, "nobody has attached it");
        rig.set_objects(&attached);
        answer.await.unwrap().unwrap().unwrap();
        assert_eq!(rig.plugins.staged(), [ID]);
        pass(SECOND * 300).await;
        assert_eq!(cluster.in_use(), NONE, "it is as it was told");
        rig.release("a").await.unwrap().unwrap().unwrap();
        pass(SECOND).await;
        assert_eq!(cluster.in_use(), [""]);
    });
}

#[test]
fn a_volume_that_its_pod_gave_up_before_it_was_attached_is_in_use_no_more() {
    run_paused(|| async {
        let objects = objects("1Gi", "1Gi", true).replace("attached: true", "attached: false");
        let (rig, mut cluster) = within(&objects).await;
        rig.pods(&["a"]);
        rig.manager.tell(Msg::Reported(ids(&[]))).unwrap();
        pass(MOMENT).await;
        cluster.in_use();
        let answer = rig.want(&pod_with("a", &[CLAIM]));
        pass(SECOND).await;
        assert_eq!(cluster.in_use(), ["h"]);
        rig.manager.tell(Msg::Reported(ids(&[ID]))).unwrap();
        rig.release("a").await.unwrap().unwrap().unwrap();
        assert!(answer.await.unwrap().unwrap().is_err());
        pass(MOMENT).await;
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
        rig.manager.tell(Msg::Reported(ids(&[ID]))).unwrap();
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
        // Whether it is attached only matters until it is mounted.
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
        rig.manager.tell(Msg::Reported(ids(&[ID]))).unwrap();
        pass(MOMENT).await;
        rig.mounted(&pod_with("a", &[CLAIM])).await;
        cluster.in_use();
        rig.manager.tell(Msg::Resync).unwrap();
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
        let told = |msg: &Report| matches!(msg, Report::Fact(NodeFact::Drivers(_)));
        assert_eq!(
            cluster.node.drain().iter().filter(|msg| told(msg)).count(),
            3
        );
    });
}

/// Upstream's `runPeriodicUpdate` and TestSyncDriverUpdater.
#[test]
fn a_driver_that_tells_of_its_room_is_asked_each_period_and_the_api_server_told() {
    run_paused(|| async {
        let says = |period: u32| {
            let tells =
                format!("attachRequired: false, nodeAllocatableUpdatePeriodSeconds: {period}");
            objects("1Gi", "1Gi", false).replace("attachRequired: false", &tells)
        };
        let (rig, mut cluster) = within(&says(60)).await;
        let asked = || {
            let calls = rig.calls().into_iter();
            calls.filter(|call| call == "inquire d.example.com").count()
        };
        pass(SECOND * 120).await;
        assert_eq!(asked(), 0, "it has not registered");
        rig.plugins.backend_for("d.example.com", 7);
        rig.plugins.backend_for("e.example.com", 7);
        pass(SECOND * 59).await;
        assert_eq!(asked(), 0);
        pass(SECOND * 122).await;
        assert_eq!(asked(), 3);
        assert!(!rig.calls().contains(&"inquire e.example.com".to_owned()));
        cluster.drivers();
        rig.plugins.backend_for("d.example.com", 5);
        pass(MOMENT).await;
        assert_eq!(cluster.drivers().len(), 1, "what is different is told");
        // A changed period restarts the timer, an equal one does not.
        rig.set_objects(&says(600));
        pass(SECOND * 599).await;
        rig.plugins.backend_for("d.example.com", 6);
        assert_eq!(asked(), 3);
        pass(SECOND * 2).await;
        assert_eq!(asked(), 4);
        rig.set_objects(&says(0));
        pass(SECOND * 1300).await;
        assert_eq!(asked(), 4, "it wants it no more");
        rig.set_objects(&says(60));
        rig.plugins.gone("d.example.com");
        pass(SECOND * 300).await;
        assert_eq!(asked(), 4, "it is gone");
    });
}

#[test]
fn a_driver_that_does_not_answer_is_not_asked_twice_at_once() {
    run_paused(|| async {
        let tells = "attachRequired: false, nodeAllocatableUpdatePeriodSeconds: 10";
        let objects = objects("1Gi", "1Gi", false).replace("attachRequired: false", tells);
        let (rig, _cluster) = within(&objects).await;
        rig.plugins
            .fault("inquire", "d.example.com", StorageFault::Held);
        rig.plugins.backend("d.example.com");
        pass(SECOND * 65).await;
        let asked = || rig.calls().len();
        assert_eq!(asked(), 1);
        rig.plugins.release();
        pass(SECOND * 10).await;
        assert_eq!(asked(), 2);
        rig.assert_serial();
    });
}

/// Upstream's `VerifyExhaustedResource`.
#[test]
fn a_driver_is_asked_at_once_when_a_controller_finds_no_room_for_its_volume() {
    run_paused(|| async {
        let tells = "attachRequired: true, nodeAllocatableUpdatePeriodSeconds: 600";
        let objects = objects("1Gi", "1Gi", true).replace("attachRequired: true", tells);
        let full = "status: {attached: false, attachError: {message: full, errorCode: 8}}";
        let full = objects.replace("status: {attached: true}", full);
        let waits = objects.replace("attached: true", "attached: false");
        let (rig, _cluster) = within(&waits).await;
        rig.plugins.backend("d.example.com");
        pass(MOMENT).await;
        let _answer = rig.want(&pod_with("a", &[CLAIM]));
        pass(SECOND).await;
        assert_eq!(rig.calls(), NONE);
        rig.set_objects(&full);
        pass(SECOND).await;
        assert_eq!(rig.calls(), ["inquire d.example.com"]);
        pass(SECOND * 100).await;
        assert_eq!(rig.calls().len(), 1, "once, until its period is over");
    });
}

#[test]
fn what_hangs_is_told_of_the_node_and_when_it_hangs_no_more() {
    run_paused(|| async {
        let (rig, mut cluster) = within("").await;
        cluster.stuck();
        let id = "kubernetes.io/host-path/a-h";
        rig.plugins.fault("mount", id, StorageFault::Stuck);
        rig.mounted(&pod_with("a", &[("h", "hostPath: {path: /x}")]))
            .await;
        let hangs = format!("{id}: mount of {id} did not end within 1s");
        assert_eq!(cluster.stuck(), [vec![hangs], vec![]]);
    });
}

/// A server that is unreachable hangs every access, long after the volume was mounted.
#[test]
fn a_mounted_volume_that_hangs_is_told_of_the_node_too() {
    run_paused(|| async {
        let (rig, mut cluster) = measured(SECOND * 60).await;
        let id = "kubernetes.io/empty-dir/a-e";
        rig.plugins.fault("stats", id, StorageFault::Stuck);
        rig.mounted(&pod_with("a", &[EMPTY_DIR])).await;
        cluster.stuck();
        pass(SECOND * 10).await;
        let hangs = format!("{id}: stats of {id} did not end within 1s");
        assert_eq!(cluster.stuck(), [vec![hangs], vec![]]);
    });
}
