//! Against the double of the API server, on the machine's clock: what it makes of what we send.

use api_client::plain;
use apiserver::{Server, ServerOptions};
use kernel::testing::inbox;
use logic_node::node_status::lease::LeaseHolder;
use serde_json::Value;

use super::*;
use crate::node::csi_node::{self, CsiNode};
use crate::node::lease::{self, Heartbeat};

const SOON: Duration = Duration::from_secs(20);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/edge";
const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/edge";

struct NodeFixture {
    server: Server,
    presence: Addr<Msg>,
    object: channel::Sender<Option<Arc<Node>>>,
    _folder: TempDir,
}

/// All of the node's actors, each as in the tree.
fn play<F: Future>(change: impl FnOnce(&mut Policy), act: impl FnOnce(NodeFixture) -> F) {
    kernel::system::run(async {
        let server = Server::start(ServerOptions::default()).await.unwrap();
        let client = plain(server.url().parse().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let mut policy = policy(&folder);
        change(&mut policy);
        let (events, _recorded) = inbox(256);
        let (heard, _heard) = inbox::<NodeNeighbourMsg>(64);
        let (presence, port) = mailbox(MAILBOX);
        let (csi_node, csi_port) = mailbox(csi_node::MAILBOX);
        let object = channel::Sender::new(None);
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let peers = Peers {
            client: client.clone(),
            recorder: Recorder::new(events),
            object: object.clone(),
            reported: Recipient::new(heard.clone(), NodeNeighbourMsg::Reported),
            reporters: vec![Recipient::new(csi_node.clone(), |NodeResync| {
                csi_node::Msg::TellAgain
            })],
        };
        root.spawn(ChildSpec::permanent("node"), port, move || {
            NodeStatusManager::new(policy.clone(), peers.clone())
        });
        let peers = csi_node::Peers {
            client: client.clone(),
            object: object.subscribe(),
            node: presence.clone(),
            volumes: Recipient::new(heard, |NodeResync| NodeNeighbourMsg::TellAgain),
        };
        root.spawn(ChildSpec::permanent("csi-node"), csi_port, move || {
            CsiNode::new("edge".into(), peers.clone())
        });
        let (_, port) = mailbox(lease::MAILBOX);
        let (holder, receiver) = (
            LeaseHolder {
                name: "edge".into(),
                seconds: 40,
            },
            object.subscribe(),
        );
        root.spawn(ChildSpec::permanent("lease"), port, move || {
            Heartbeat::new(holder.clone(), client.clone(), receiver.clone())
        });
        let stage = NodeFixture {
            server,
            presence,
            object,
            _folder: folder,
        };
        act(stage).await;
        root.shutdown().await;
    })
    .unwrap();
}

impl NodeFixture {
    fn tell(&self, fact: NodeFact) {
        self.presence.tell(Msg::Learned(fact)).unwrap();
    }

    async fn until(&self, path: &str, what: impl Fn(&Value) -> bool) -> Value {
        let there = |object: Option<&Value>| object.is_some_and(&what);
        let found = self.server.wait(path, SOON, there).await;
        found
            .flatten()
            .unwrap_or_else(|| panic!("{path}: {:?}", self.server.get(path)))
    }
}

fn state(node: &Value, name: &str) -> String {
    let conditions = node["status"]["conditions"].as_array().cloned();
    let mut conditions = conditions.unwrap_or_default().into_iter();
    let found = conditions.find(|entry| entry["type"] == name);
    found.map_or_else(String::new, |entry| {
        entry["status"].as_str().unwrap().to_owned()
    })
}

#[test]
fn the_node_its_lease_and_its_csi_node_come_and_the_node_is_ready_soon() {
    play(
        |_| {},
        async |stage| {
            stage.tell(runtime(logic_resources::node::Support::Yes));
            let began = kernel::now();
            let node = stage
                .until(NODE, |node| state(node, "Ready") == "True")
                .await;
            let took = kernel::now() - began;
            // Process start to Ready is to take under 300 ms; this part of it is a handful of requests.
            assert!(took < Duration::from_secs(3), "{took:?}");
            let uid = &node["metadata"]["uid"];
            let lease = stage.until(LEASE, |_| true).await;
            assert_eq!(&lease["metadata"]["ownerReferences"][0]["uid"], uid);
            let csi_node = stage.until(CSI_NODE, |_| true).await;
            assert_eq!(&csi_node["metadata"]["ownerReferences"][0]["uid"], uid);
            assert_eq!(node["status"]["addresses"][0]["address"], "192.0.2.10");
            assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.36.0");
        },
    );
}

#[test]
fn conditions_merge_by_type_addresses_are_replaced_and_what_others_wrote_stays() {
    play(
        |_| {},
        async |stage| {
            stage.tell(runtime(logic_resources::node::Support::Yes));
            stage
                .until(NODE, |node| state(node, "Ready") == "True")
                .await;
            let strange = json!({"status": {
                "conditions": [{"type": "KernelDeadlock", "status": "False"}],
                "addresses": [{"type": "ExternalIP", "address": "198.51.100.1"}],
            }});
            let path = format!("{NODE}/status");
            stage.server.patch(&path, &strange).unwrap();
            stage.tell(NodeFact::Pressures([Pressure::Disk].into()));
            let addresses = json!([
                {"type": "InternalIP", "address": "192.0.2.10"},
                {"type": "Hostname", "address": "192.0.2.10"},
            ]);
            let node = stage
                .until(NODE, |node| {
                    let pressed = state(node, "DiskPressure") == "True";
                    pressed && node["status"]["addresses"] == addresses
                })
                .await;
            assert_eq!(state(&node, "KernelDeadlock"), "False");
            assert_eq!(state(&node, "MemoryPressure"), "False");
        },
    );
}

#[test]
fn after_the_server_comes_back_the_node_is_seen_and_told_again() {
    play(
        |policy| policy.look_every = Duration::from_secs(1),
        async |stage| {
            stage.tell(runtime(logic_resources::node::Support::Yes));
            stage
                .until(NODE, |node| state(node, "Ready") == "True")
                .await;
            stage.server.stop();
            stage.tell(NodeFact::Pressures([Pressure::Pid].into()));
            tokio::time::timeout(SOON, async {
                let mut object = stage.object.subscribe();
                object.wait_for(Option::is_some).await.map(drop)
            })
            .await
            .unwrap()
            .unwrap();
            stage.server.resume().unwrap();
            let node = stage
                .until(NODE, |node| state(node, "PIDPressure") == "True")
                .await;
            assert_eq!(state(&node, "Ready"), "True");
        },
    );
}
