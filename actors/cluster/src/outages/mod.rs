//! An hour without the API server, for all actors that call it: on a paused clock.

mod world;

use std::sync::Arc;
use std::time::Duration;

use api_client::RequestLane;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::watch;
use kernel::{Addr, ChildSpec, Intensity, Recipient, Supervisor, mailbox};
use logic_api::objects::{ChangeDetection, IssuancePolicy, Objects, StaticObjects};
use logic_api::pod::PodView;
use logic_node::node_status::lease::LeaseHolder;
use logic_node::node_status::{self, NodeFact, NodeHostFacts, NodeResources};
use serde_json::{Value, json};
use state::events::{self, EventBroadcaster, Recorder};
use state::objects::ObjectStore;
use state::objects::manager::{self, ObjectManager};
use state::status::{self, StatusManager};

use self::world::OutageCluster;
use crate::node::lease::{self, Heartbeat};
use crate::node::{self, NodeStatusManager, Registering};
use crate::pods::{self, ApiPods, PodSubscribers};

const MINUTE: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/namespaces/default/pods";
const MAP: &str = "/api/v1/namespaces/default/configmaps/settings";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/edge";
const NODE: &str = "/api/v1/nodes/edge";
const NAMES: [&str; 5] = ["a", "b", "c", "d", "gone"];

#[derive(Debug, strum::IntoStaticStr)]
enum OutageMsg {
    Pods(Vec<Arc<Pod>>),
    Other,
}

/// The node's actors, as in the tree, and the inboxes of the pods' area.
struct OutageRig {
    world: OutageCluster,
    root: Supervisor,
    statuses: Addr<status::Msg>,
    node: Addr<node::Msg>,
    directory: Inbox<OutageMsg>,
    others: Inbox<OutageMsg>,
    store: ObjectStore,
    _folder: tempfile::TempDir,
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
        "spec": {
            "nodeName": "edge", "enableServiceLinks": false,
            "containers": [{"name": "main", "image": "localhost/a:1",
                "volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}],
            "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
        },
        "status": {"phase": "Pending"},
    })
}

fn map(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"},
        "data": {"k": value}})
}

fn rules() -> manager::SupplyRules {
    manager::SupplyRules {
        node_name: "edge".into(),
        detection: ChangeDetection::Watch,
        period: MINUTE,
        asking: IssuancePolicy::Never,
        supplied: Default::default(),
    }
}

fn policy(folder: &std::path::Path) -> node::Policy {
    node::Policy {
        status: node_status::NodeStatusPolicy {
            name: "edge".into(),
            // An address, so that no test asks a name server.
            hostname: "192.0.2.10".into(),
            ..node_status::NodeStatusPolicy::default()
        },
        registering: Registering::Itself,
        look_every: Duration::from_secs(10),
        report_every: 5 * MINUTE,
        host: NodeHostFacts::default(),
        resources: NodeResources::default(),
        folder: folder.to_owned(),
    }
}

impl OutageRig {
    fn begin() -> OutageRig {
        let world = OutageCluster::default();
        world.put(MAP, map("before"));
        for name in NAMES {
            world.put(&format!("{PODS}/{name}"), pod(name));
        }
        let client = world.client();
        let folder = tempfile::tempdir().unwrap();
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (to_directory, directory) = inbox(64);
        let (to_others, others) = inbox(4096);
        let (pods, pods_port) = mailbox(pods::MAILBOX);
        let (keeper, keeper_port) = mailbox(manager::MAILBOX);
        let (statuses, statuses_port) = mailbox(status::MAILBOX);
        let (node, node_port) = mailbox(node::MAILBOX);
        let (events, events_port) = mailbox(events::MAILBOX);
        let object = watch::Sender::new(None);

        let told = PodSubscribers {
            directory: Recipient::new(to_directory, OutageMsg::Pods),
            remembered: Recipient::new(to_others.clone(), |_| OutageMsg::Other),
            objects: Recipient::new(keeper, |pods| manager::Msg::Pods { pods }),
            alone: Recipient::new(to_others.clone(), |_| OutageMsg::Other),
            statuses: Recipient::new(statuses.clone(), |pods| status::Msg::Pods { pods }),
            kept: pods::KnownStaticPods::default(),
        };
        let asked = client.clone();
        root.spawn(ChildSpec::permanent("pods"), pods_port, move || {
            ApiPods::new(asked.clone(), "edge".into(), Vec::new(), told.clone())
        });
        let (supply, store) = ObjectStore::new(StaticObjects::default());
        let supplied = Recipient::new(pods.clone(), |uids| pods::Msg::Supplied { uids });
        let peers =
            manager::Peers::new(client.kube(RequestLane::Work), supply, None, vec![supplied]);
        let rules = rules();
        root.spawn(ChildSpec::permanent("objects"), keeper_port, move || {
            ObjectManager::new(peers.clone(), rules.clone())
        });
        let again = Recipient::new(pods, |status::PodResync| pods::Msg::Resync);
        let peers = status::Peers {
            republish: Recipient::new(to_others.clone(), |_| OutageMsg::Other),
            api: Some(status::StatusClient::new(&client, again)),
            kept: None,
        };
        root.spawn(ChildSpec::permanent("status"), statuses_port, move || {
            StatusManager::new(peers.clone())
        });
        root.spawn(
            ChildSpec::permanent("events"),
            events_port,
            EventBroadcaster::default,
        );
        let peers = node::Peers {
            client: client.clone(),
            recorder: Recorder::new(events),
            object: object.clone(),
            reported: Recipient::new(to_others.clone(), |_| OutageMsg::Other),
            reporters: vec![Recipient::new(to_others, |_| OutageMsg::Other)],
        };
        let policy = policy(folder.path());
        root.spawn(ChildSpec::permanent("node"), node_port, move || {
            NodeStatusManager::new(policy.clone(), peers.clone())
        });
        let holder = LeaseHolder {
            name: "edge".into(),
            seconds: 40,
        };
        let (_, port) = mailbox(lease::MAILBOX);
        root.spawn(ChildSpec::permanent("lease"), port, move || {
            Heartbeat::new(holder.clone(), client.clone(), object.subscribe())
        });
        OutageRig {
            world,
            root,
            statuses,
            node,
            directory,
            others,
            store,
            _folder: folder,
        }
    }

    fn say(&self, name: &str, message: &str) {
        let status = PodStatus {
            phase: Some("Running".into()),
            message: Some(message.into()),
            ..PodStatus::default()
        };
        let (uid, status) = (format!("{name}-uid").as_str().into(), Arc::new(status));
        self.statuses
            .tell(status::Msg::Changed { uid, status })
            .unwrap();
    }

    /// A minute in which every pod changes six times, and the runtime reports.
    async fn live(&mut self, minute: usize) {
        for part in 0..6 {
            for name in NAMES {
                self.say(name, &format!("{minute}.{part}"));
            }
            let runtime = NodeFact::Runtime(Box::default());
            self.node.tell(node::Msg::Learned(runtime)).unwrap();
            pass(MINUTE / 6).await;
        }
        self.others.drain();
    }

    fn last_wishes(&mut self) -> Option<Vec<Arc<Pod>>> {
        match self.directory.drain().pop() {
            Some(OutageMsg::Pods(pods)) => Some(pods),
            Some(OutageMsg::Other) | None => None,
        }
    }

    fn value(&self) -> Option<String> {
        let map = self.store.config_map("default", "settings")?;
        map.data.as_ref()?.get("k").cloned()
    }

    /// No actor has restarted, and no mailbox is full.
    async fn assert_at_ease(&self) {
        let tree = self.root.tree().await;
        for actor in &tree.children {
            assert_eq!(actor.restarts, 0, "{}", actor.path);
            let waiting = actor.snapshot["waiting"].as_u64().unwrap_or_default();
            assert!(waiting <= NAMES.len() as u64, "{waiting} statuses wait");
            assert_eq!(
                (actor.mailbox.len, actor.mailbox.overloaded),
                (0, 0),
                "{}",
                actor.path
            );
        }
    }
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name()).collect()
}

#[test]
fn an_hour_without_a_server_is_asked_through_with_patience_and_all_is_told_once_afterwards() {
    run_paused(|| async {
        let mut rig = OutageRig::begin();
        rig.live(0).await;
        let before = rig.last_wishes().unwrap();
        assert_eq!(names(&before), NAMES);
        let beat = rig.world.get(LEASE)["spec"]["renewTime"].clone();
        assert!(beat.is_string(), "{beat}");
        rig.world.requests();

        rig.world.go_away();
        rig.world.put(MAP, map("after"));
        rig.world.remove(&format!("{PODS}/gone"));
        rig.world.put(&format!("{PODS}/new"), pod("new"));
        let mut all = 0;
        for minute in 1..=60 {
            rig.live(minute).await;
            let heard = rig.world.requests();
            // Five lists at client-go's back-off, the lease every 7 s, the node every 10 s, five statuses as often.
            let most = if minute == 1 { 120 } else { 70 };
            assert!(heard.len() < most, "minute {minute}: {heard:#?}");
            all += heard.len();
            if minute % 10 == 0 {
                rig.assert_at_ease().await;
            }
        }
        assert!(all > 60 * 10, "{all} requests: somebody has given up");
        assert!(rig.last_wishes().is_none(), "no server, no word on pods");
        assert_eq!(rig.value().as_deref(), Some("before"));

        rig.world.come_back();
        pass(2 * MINUTE).await;
        let heard = rig.world.requests();
        for name in ["a", "b", "c", "d"] {
            let patch = format!("PATCH {PODS}/{name}/status");
            let told = heard.iter().filter(|one| **one == patch).count();
            assert_eq!(told, 1, "{name}: {heard:#?}");
            let status = rig.world.get(&format!("{PODS}/{name}"))["status"].clone();
            assert_eq!(status["message"], "60.5", "{name}");
        }
        let after = rig.last_wishes().unwrap();
        assert_eq!(names(&after), ["a", "b", "c", "d", "new"]);
        assert_eq!(rig.value().as_deref(), Some("after"));
        assert_ne!(rig.world.get(LEASE)["spec"]["renewTime"], beat);
        assert!(rig.world.get(NODE)["status"]["conditions"].is_array());
        assert!(
            rig.world.most_at_once() <= 40,
            "{}",
            rig.world.most_at_once()
        );
        rig.assert_at_ease().await;
    });
}
