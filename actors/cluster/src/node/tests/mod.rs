//! Laws of the node in its cluster: a server in the test's own process, on a paused clock.

mod beats;
mod double;
mod drivers;
mod reports;
mod world;

use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::{Addr, ChildSpec, InjectedFault, Intensity, Supervisor, mailbox};
use logic_api::pod::requests;
use logic_node::node_status::{Pressure, RuntimeCondition, RuntimeStatus};
use serde_json::json;
use state::events;
use tempfile::TempDir;

use self::world::FakeNodeApi;
use super::*;

const NODE: &str = "/api/v1/nodes/edge";
const MOMENT: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);

/// The node status manager, and its neighbours as inboxes.
struct Rig {
    root: Supervisor,
    server: FakeNodeApi,
    presence: Addr<Msg>,
    object: channel::Sender<Option<Arc<Node>>>,
    events: Inbox<events::Msg>,
    reported: Inbox<NodeNeighbourMsg>,
    reporters: Inbox<NodeNeighbourMsg>,
    folder: Arc<TempDir>,
}

/// A message to a neighbour.
#[derive(Debug, strum::IntoStaticStr)]
enum NodeNeighbourMsg {
    Reported(BTreeSet<VolumeId>),
    TellAgain,
}

fn policy(folder: &TempDir) -> Policy {
    let amounts = |pairs: &[(&str, &str)]| {
        let list = pairs.iter().map(|(name, text)| {
            let text = k8s_openapi::apimachinery::pkg::api::resource::Quantity((*text).into());
            ((*name).to_owned(), text)
        });
        requests::read(Some(&list.collect()))
    };
    let all = amounts(&[
        ("cpu", "2"),
        ("memory", "1Gi"),
        ("pods", "110"),
        ("ephemeral-storage", "1Gi"),
    ]);
    Policy {
        status: node_status::NodeStatusPolicy {
            name: "edge".into(),
            // An address, so that no test asks a name server.
            hostname: "192.0.2.10".into(),
            port: 10250,
            version: "v1.36.0".into(),
            labels: logic_resources::node::labels("edge", "x86_64", &Default::default()),
            ..node_status::NodeStatusPolicy::default()
        },
        registering: Registering::Itself,
        look_every: Duration::from_secs(10),
        report_every: Duration::from_secs(300),
        host: NodeHostFacts {
            boot_id: "boot".into(),
            architecture: "x86_64".into(),
            ..NodeHostFacts::default()
        },
        resources: NodeResources {
            capacity: all.clone(),
            allocatable: all,
        },
        folder: folder.path().to_owned(),
    }
}

fn runtime(ready: logic_resources::node::Support) -> NodeFact {
    let condition = |name: &str| {
        Some(RuntimeCondition {
            name: name.into(),
            state: ready,
            reason: "r".into(),
            message: "m".into(),
        })
    };
    NodeFact::Runtime(Box::new(RuntimeStatus {
        name: "fake".into(),
        version: "1".into(),
        ready: condition("RuntimeReady"),
        network: condition("NetworkReady"),
        ..RuntimeStatus::default()
    }))
}

impl Rig {
    fn begin(server: FakeNodeApi, folder: Arc<TempDir>, change: impl FnOnce(&mut Policy)) -> Rig {
        let mut policy = policy(&folder);
        change(&mut policy);
        let (events, recorded) = inbox(256);
        let (reported_to, reported) = inbox(64);
        let (reporter, reporters) = inbox(16);
        let object = channel::Sender::new(None);
        let peers = Peers {
            client: server.client(),
            recorder: Recorder::new(events),
            object: object.clone(),
            reported: Recipient::new(reported_to, NodeNeighbourMsg::Reported),
            reporters: vec![Recipient::new(reporter, |NodeResync| {
                NodeNeighbourMsg::TellAgain
            })],
        };
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (presence, port) = mailbox(MAILBOX);
        root.spawn(ChildSpec::permanent("node"), port, move || {
            NodeStatusManager::new(policy.clone(), peers.clone())
        });
        Rig {
            root,
            server,
            presence,
            object,
            events: recorded,
            reported,
            reporters,
            folder,
        }
    }

    fn new() -> Rig {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Rig::begin(FakeNodeApi::default(), folder, |_| {})
    }

    /// A node that works: registered, and ready.
    async fn ready() -> Rig {
        let mut rig = Rig::new();
        rig.work();
        pass(SECOND).await;
        assert_eq!(rig.ready_state().0, "True");
        rig.server.heard();
        rig.reasons();
        rig
    }

    fn work(&self) {
        self.tell(runtime(logic_resources::node::Support::Yes));
        self.tell(NodeFact::Storage(None));
    }

    fn tell(&self, fact: NodeFact) {
        self.presence.tell(Msg::Learned(fact)).unwrap();
    }

    /// The runtime answers every few seconds, for so long.
    async fn live(&self, seconds: u64) {
        for _ in 0..seconds / 5 {
            pass(SECOND * 5).await;
            self.tell(runtime(logic_resources::node::Support::Yes));
        }
    }

    fn condition(&self, name: &str) -> serde_json::Value {
        let node = self.server.get(NODE).unwrap();
        let conditions = node["status"]["conditions"].as_array().unwrap().clone();
        let mut found = conditions.into_iter().filter(|entry| entry["type"] == name);
        found.next().unwrap_or_default()
    }

    fn ready_state(&self) -> (String, String) {
        let ready = self.condition("Ready");
        let text = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
        (text("status"), text("message"))
    }

    fn reasons(&mut self) -> Vec<String> {
        let reason = |msg| {
            let events::Msg::Record(event) = msg else {
                panic!("{msg:?}");
            };
            event.reason
        };
        self.events.drain().into_iter().map(reason).collect()
    }
}
