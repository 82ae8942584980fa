//! The `CSINode`, and claims that grow.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use logic_volumes::RegisteredDriver;
use logic_volumes::resolve::expansion::{
    ClaimRequest, ClaimStatusUpdate, NodeResize, PvcGrowth, ResizeOutcome,
};

use super::*;
use crate::node::csi_node::{self, CsiNode};
use crate::node::pvc_resize::{self, PvcResizer};

const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/edge";
const CLAIM: &str = "/api/v1/namespaces/shop/persistentvolumeclaims/data";

struct Driving {
    server: FakeNodeApi,
    csi_node: Addr<csi_node::Msg>,
    object: channel::Sender<Option<Arc<Node>>>,
    node: Inbox<Msg>,
    volumes: Inbox<NodeNeighbourMsg>,
}

fn driving(server: FakeNodeApi) -> Driving {
    let object = channel::Sender::new(None);
    let (told, node) = inbox(16);
    let (asked, volumes) = inbox(16);
    let peers = csi_node::Peers {
        client: server.client(),
        object: object.subscribe(),
        node: told,
        volumes: Recipient::new(asked, |NodeResync| NodeNeighbourMsg::TellAgain),
    };
    let (csi_node, port) = mailbox(csi_node::MAILBOX);
    let root = Supervisor::root("test", Intensity::UNLIMITED);
    root.spawn(ChildSpec::permanent("csi-node"), port, move || {
        CsiNode::new("edge".into(), peers.clone())
    });
    Driving {
        server,
        csi_node,
        object,
        node,
        volumes,
    }
}

impl Driving {
    fn register(&self) {
        let mut node = Node::default();
        node.metadata.uid = Some("uid-node".into());
        self.object.send_replace(Some(Arc::new(node)));
    }

    fn drivers(&self, names: &[&str]) {
        let backend = |name: &&str| {
            let backend = RegisteredDriver {
                name: (*name).into(),
                node_id: format!("{name}/node"),
                ..RegisteredDriver::default()
            };
            ((*name).to_owned(), backend)
        };
        let drivers: BTreeMap<_, _> = names.iter().map(backend).collect();
        self.csi_node.tell(csi_node::Msg::Drivers(drivers)).unwrap();
    }

    fn listed(&self) -> Vec<String> {
        let object = self.server.get(CSI_NODE).unwrap();
        let drivers = object["spec"]["drivers"].as_array().unwrap().clone();
        let name = |driver: serde_json::Value| driver["name"].as_str().unwrap().to_owned();
        drivers.into_iter().map(name).collect()
    }
}

/// Upstream's TestInstallCSIDriver and TestUninstallCSIDriver, and its `InitializeCSINodeWithAnnotation`.
#[test]
fn the_csi_node_is_made_when_the_node_is_there_and_follows_the_drivers() {
    run_paused(|| async {
        let mut driving = driving(FakeNodeApi::default());
        pass(SECOND).await;
        assert!(matches!(
            driving.volumes.drain()[..],
            [NodeNeighbourMsg::TellAgain]
        ));
        assert!(driving.server.get(CSI_NODE).is_none() && driving.node.drain().is_empty());
        driving.register();
        pass(MOMENT).await;
        assert!(driving.listed().is_empty());
        let told = driving.node.drain();
        assert!(
            matches!(told[..], [Msg::Learned(NodeFact::Storage(None))]),
            "{told:?}"
        );
        let object = driving.server.get(CSI_NODE).unwrap();
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "uid-node");
        driving.drivers(&["a", "b"]);
        pass(MOMENT).await;
        assert_eq!(driving.listed(), ["a", "b"]);
        driving.drivers(&["b"]);
        pass(MOMENT).await;
        assert_eq!(driving.listed(), ["b"]);
        driving.server.heard();
        driving.drivers(&["b"]);
        pass(SECOND).await;
        assert!(driving.server.heard().is_empty());
    });
}

/// Upstream's TestInstallCSIDriver: "existing", and its back-off.
#[test]
fn a_driver_from_before_stays_until_it_is_heard_of_and_conflicts_are_tried_again() {
    run_paused(|| async {
        let server = FakeNodeApi::default();
        server.put(
            CSI_NODE,
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "edge"},
                "spec": {"drivers": [{"name": "old", "nodeID": "o"}, {"name": "a", "nodeID": "before"}]},
            }),
        );
        server.fail("GET", 500);
        server.fail("PUT", 409);
        let driving = driving(server);
        driving.register();
        driving.drivers(&["a"]);
        pass(SECOND * 2).await;
        assert_eq!(driving.listed(), ["old", "a"]);
        let object = driving.server.get(CSI_NODE).unwrap();
        assert_eq!(object["spec"]["drivers"][1]["nodeID"], "a/node");
        let annotations = &object["metadata"]["annotations"];
        assert!(annotations["storage.alpha.kubernetes.io/migrated-plugins"].is_string());
    });
}

fn growth(outcome: ResizeOutcome) -> pvc_resize::Msg {
    pvc_resize::Msg::Grew(Box::new(PvcGrowth {
        namespace: "shop".into(),
        claim: "data".into(),
        grow: NodeResize {
            size: 2 << 30,
            quantity: "2Gi".into(),
            claim: ClaimStatusUpdate::Needed,
            request: ClaimRequest::Same,
        },
        outcome,
    }))
}

/// Upstream's TestNodeExpander, MarkNodeExpansionInProgress, MarkFSResizeFinished, MarkNodeExpansionFailedCondition.
#[test]
fn a_claim_follows_its_volume_through_conflicts_and_failures() {
    run_paused(|| async {
        let server = FakeNodeApi::default();
        server.put(
            CLAIM,
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data", "namespace": "shop"},
                "status": {
                    "capacity": {"storage": "1Gi"},
                    "allocatedResources": {"storage": "2Gi"},
                    "allocatedResourceStatuses": {"storage": "NodeResizePending"},
                    "conditions": [
                        {"type": "FileSystemResizePending", "status": "True"},
                        {"type": "Other", "status": "True"},
                    ],
                },
            }),
        );
        let (claims, port) = mailbox(pvc_resize::MAILBOX);
        let client = server.client();
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        root.spawn(ChildSpec::permanent("pvc-resizer"), port, move || {
            PvcResizer::new(client.clone())
        });
        let claim = || -> PersistentVolumeClaim {
            serde_json::from_value(server.get(CLAIM).unwrap()).unwrap()
        };
        claims.tell(growth(ResizeOutcome::Begun)).unwrap();
        pass(MOMENT).await;
        let words = claim().status.unwrap().allocated_resource_statuses.unwrap();
        assert_eq!(words["storage"], "NodeResizeInProgress");
        server.fail("PATCH", 409);
        claims
            .tell(growth(ResizeOutcome::Failed("no".into())))
            .unwrap();
        pass(SECOND).await;
        let conditions = claim().status.unwrap().conditions.unwrap();
        let error = conditions
            .iter()
            .find(|c| c.type_ == "NodeResizeError")
            .unwrap();
        assert_eq!(
            error.message.as_deref(),
            Some("failed to expand pvc with no")
        );
        server.fail("GET", 503);
        claims.tell(growth(ResizeOutcome::Grown)).unwrap();
        pass(SECOND * 2).await;
        let status = claim().status.unwrap();
        assert_eq!(status.capacity.unwrap()["storage"].0, "2Gi");
        assert_eq!(status.allocated_resource_statuses, None);
        let left: Vec<String> = status
            .conditions
            .unwrap()
            .into_iter()
            .map(|c| c.type_)
            .collect();
        assert_eq!(left, ["Other"]);
        assert!(server.last_body()["metadata"]["resourceVersion"].is_string());
        // A claim that is gone is no error.
        server.delete(CLAIM);
        server.heard();
        claims.tell(growth(ResizeOutcome::Grown)).unwrap();
        pass(SECOND * 60).await;
        assert_eq!(server.heard().len(), 1);
    });
}
