//! Laws of the object manager, against a server in the same thread and on a paused clock.

mod certificates;
mod claims;
mod double;
mod following;
mod outages;
mod script;
mod tokens;

use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::{Addr, ChildSpec, InjectedFault, Intensity, Supervisor, mailbox};
use logic_api::objects::Objects;
use serde_json::{Value, json};

use self::script::ScriptedApi;
use super::*;
use crate::events;

/// Long enough for every answer that nothing holds up.
const MOMENT: Duration = Duration::from_millis(100);
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, strum::IntoStaticStr)]
enum NeighbourMsg {
    Supplied(BTreeSet<PodUid>),
}

struct Rig {
    script: ScriptedApi,
    root: Supervisor,
    manager: Addr<Msg>,
    store: ObjectStore,
    told: Inbox<NeighbourMsg>,
    events: Inbox<events::Msg>,
    supplied: BTreeSet<String>,
}

/// How an object manager starts.
struct RigOptions {
    detection: ChangeDetection,
    asking: IssuancePolicy,
    remembered: StaticObjects,
    supplied: Vec<&'static str>,
    folder: Option<ObjectStore>,
    room: usize,
}

impl Default for RigOptions {
    fn default() -> RigOptions {
        RigOptions {
            detection: ChangeDetection::Watch,
            asking: IssuancePolicy::Always,
            remembered: StaticObjects::default(),
            supplied: Vec::new(),
            folder: None,
            room: 100,
        }
    }
}

impl Rig {
    fn new() -> Rig {
        Rig::with(RigOptions::default())
    }

    fn with(start: RigOptions) -> Rig {
        let script = ScriptedApi::new();
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (supply, store) = ObjectStore::new(start.remembered);
        let (addr, told) = inbox(start.room);
        let (recorder, events) = inbox(100);
        let peers = Peers::new(
            script.client(),
            supply,
            start.folder,
            vec![Recipient::new(addr, NeighbourMsg::Supplied)],
        )
        .with_recorder(Recorder::new(recorder));
        let rules = SupplyRules {
            node_name: "worker-1".into(),
            detection: start.detection,
            period: MINUTE,
            asking: start.asking,
            supplied: start.supplied.into_iter().map(uid).collect(),
        };
        let (manager, port) = mailbox(MAILBOX);
        root.spawn(ChildSpec::permanent("keeper"), port, move || {
            ObjectManager::new(peers.clone(), rules.clone())
        });
        Rig {
            script,
            root,
            manager,
            store,
            told,
            events,
            supplied: BTreeSet::new(),
        }
    }

    /// Sends the set of pods, of which no others have workers, and waits until it is handled.
    async fn pods(&mut self, pods: &[&Arc<Pod>]) {
        let workers = pods.iter().map(|pod| pod.uid()).collect();
        self.list(pods).await;
        self.manager.tell(Msg::Workers { pods: workers }).unwrap();
        self.settle().await;
    }

    /// Sends the set of pods that the API has, and waits until it is handled.
    async fn list(&mut self, pods: &[&Arc<Pod>]) {
        let pods = pods.iter().map(|pod| Arc::clone(pod)).collect();
        self.manager.tell(Msg::Pods { pods }).unwrap();
        self.settle().await;
    }

    /// Tells that the pod's worker is done, and waits until it is handled.
    async fn ended(&mut self, name: &str) {
        self.manager.tell(Msg::Ended { uid: uid(name) }).unwrap();
        self.settle().await;
    }

    async fn settle(&mut self) {
        self.pass(MOMENT).await;
    }

    async fn pass(&mut self, time: Duration) {
        pass(time).await;
        for NeighbourMsg::Supplied(uids) in self.told.drain() {
            self.supplied = uids.iter().map(|uid| uid.to_string()).collect();
        }
    }

    fn is_supplied(&self, name: &str) -> bool {
        self.supplied.contains(&format!("{name}-uid"))
    }

    fn value(&self, map: &str) -> Option<String> {
        let map = self.store.config_map("apps", map)?;
        map.data.as_ref()?.get("k").cloned()
    }

    fn refused(&self, map: &str) -> Option<String> {
        self.store.refused("ConfigMap", "apps", map)
    }

    fn put_map(&self, name: &str, value: &str) {
        self.script.put(&map_path(name), map(value));
    }

    async fn view(&self) -> Value {
        let tree = self.root.tree().await;
        let node = tree.find("test/keeper").expect("there is a keeper");
        node.snapshot.clone()
    }
}

fn uid(name: &str) -> PodUid {
    PodUid::from(format!("{name}-uid"))
}

fn map_path(name: &str) -> String {
    format!("/api/v1/namespaces/apps/configmaps/{name}")
}

fn map(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"k": value}})
}

/// A pod with these volumes, each of them mounted.
fn pod(name: &str, volumes: Value) -> Arc<Pod> {
    let volumes = volumes.as_array().unwrap().iter().enumerate();
    let volumes: Vec<Value> = volumes
        .map(|(index, volume)| {
            let mut volume = volume.clone();
            volume["name"] = json!(format!("v{index}"));
            volume
        })
        .collect();
    let mounts: Vec<Value> = volumes
        .iter()
        .map(|volume| json!({"name": volume["name"], "mountPath": "/v"}))
        .collect();
    let pod = json!({
        "metadata": {"name": name, "namespace": "apps", "uid": format!("{name}-uid")},
        "spec": {
            "serviceAccountName": "worker",
            "containers": [{"name": "c", "volumeMounts": mounts}],
            "volumes": volumes,
        },
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// A pod that mounts these config maps.
fn mapped(name: &str, maps: &[&str]) -> Arc<Pod> {
    let maps = maps.iter();
    pod(
        name,
        maps.map(|map| json!({"configMap": {"name": map}}))
            .collect(),
    )
}
