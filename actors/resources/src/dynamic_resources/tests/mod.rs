//! Laws of the manager of dynamic resources, with drivers at real sockets in this process.

mod health;
mod jobs;
mod links;
mod registering;
mod restarts;

use std::path::Path;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clients::drivers::testing::{DriverFault, FakeDriver};
use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::{Addr, ChildSpec, Intensity, Supervisor, mailbox};
use logic_placement::claims::NodeService;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// Longer than any job may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// What the manager tells, and whom.
#[derive(Debug, strum::IntoStaticStr)]
enum PeerMessage {
    Drivers,
    Pods(PodsQuery),
    Health(BTreeSet<PodUid>),
}

/// The API and the node around the manager.
#[derive(Debug, Default)]
struct Surroundings {
    claims: BTreeMap<String, ResourceClaim>,
    /// Questions for claims, by name.
    fetched: Vec<String>,
    /// Selectors of deletions, with the seconds since the start.
    deleted: Vec<(u64, String)>,
    /// Deletions that fail before one succeeds.
    refusals: u32,
}

struct Rig {
    folder: TempDir,
    surroundings: Rc<Mutex<Surroundings>>,
    root: Supervisor,
    addr: Addr<Msg>,
    known: watch::Receiver<Arc<KnownClaims>>,
    told: Inbox<PeerMessage>,
}

impl Rig {
    fn start() -> Rig {
        Rig::start_in(TempDir::new().unwrap(), Rc::default())
    }

    fn start_in(folder: TempDir, surroundings: Rc<Mutex<Surroundings>>) -> Rig {
        let (addr, port) = mailbox(MAILBOX);
        let (tells, told) = inbox(64);
        let (publish, known) = watch::channel(Arc::default());
        let peers = peers(&surroundings, tells, publish);
        let config = DynamicResourcesConfig {
            node_name: "worker".to_owned(),
            root_dir: folder.path().to_owned(),
            gates: ClaimGates::default(),
            health: HealthWatch::On,
        };
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let spec = ChildSpec::permanent("dynamic-resources");
        root.spawn(spec, port, move || {
            DynamicResources::new(config.clone(), peers.clone())
        });
        Rig {
            folder,
            surroundings,
            root,
            addr,
            known,
            told,
        }
    }

    /// Ends the agent, and starts one after it.
    async fn restart(self) -> Rig {
        self.root.shutdown().await;
        Rig::start_in(self.folder, self.surroundings)
    }

    fn with<T>(&self, change: impl FnOnce(&mut Surroundings) -> T) -> T {
        change(&mut lock(&self.surroundings))
    }

    fn socket(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(format!("{name}.sock"))
    }

    /// A driver that serves a version, and has registered it.
    async fn driver(&self, name: &str, service: NodeService) -> FakeDriver {
        let socket = self.socket(name);
        let driver = FakeDriver::start(&socket, service);
        self.register(name, &socket, service).await.unwrap();
        pass(SECOND).await;
        driver
    }

    async fn register(
        &self,
        name: &str,
        socket: &Path,
        service: NodeService,
    ) -> Result<(), DriverError> {
        let registered = self.addr.ask(ANSWER_TIMEOUT, |reply| Msg::Registered {
            driver: name.into(),
            socket: socket.to_owned(),
            versions: vec![service.as_str().to_owned()],
            reply,
        });
        registered.await.unwrap()
    }

    fn deregister(&self, name: &str) {
        let gone = Msg::Deregistered {
            driver: name.into(),
            socket: self.socket(name),
        };
        self.addr.tell(gone).unwrap();
    }

    /// A claim of these drivers, which these pods may use.
    fn claim(&self, name: &str, drivers: &[&str], pods: &[&str]) {
        let claim = claim_of(name, drivers, pods);
        self.with(|around| around.claims.insert(name.to_owned(), claim));
    }

    async fn prepare(&self, pod: &Arc<Pod>) -> Result<(), String> {
        let pod = Arc::clone(pod);
        let answer = self
            .addr
            .ask(ANSWER_TIMEOUT, |reply| Msg::Prepare { pod, reply });
        answer.await.unwrap().map_err(|error| error.to_string())
    }

    async fn unprepare(&self, pod: &Arc<Pod>) -> Result<(), String> {
        let pod = Arc::clone(pod);
        let answer = self
            .addr
            .ask(ANSWER_TIMEOUT, |reply| Msg::Unprepare { pod, reply });
        answer.await.unwrap().map_err(|error| error.to_string())
    }

    /// The devices of the pod's container `app`.
    async fn devices(&self, pod: &Arc<Pod>) -> Vec<String> {
        let (pod, container) = (Arc::clone(pod), "app".to_owned());
        let devices = self.addr.ask(ANSWER_TIMEOUT, |reply| Msg::Devices {
            pod,
            container,
            reply,
        });
        devices.await.unwrap().unwrap()
    }

    fn is_referenced(&self, pod: &str) -> bool {
        let pod = format!("{pod}-uid").into();
        self.known.borrow().claims.is_referenced(&pod)
    }

    async fn snapshot(&self) -> Value {
        let tree = self.root.tree().await;
        tree.children[0].snapshot.clone()
    }

    /// The state file's text of the claims; empty where there is no file.
    fn state(&self) -> String {
        let text = std::fs::read_to_string(self.folder.path().join(STATE_FILE));
        text.unwrap_or_default()
    }
}

fn lock(surroundings: &Mutex<Surroundings>) -> std::sync::MutexGuard<'_, Surroundings> {
    surroundings.lock().unwrap_or_else(PoisonError::into_inner)
}

fn peers(
    surroundings: &Rc<Mutex<Surroundings>>,
    tells: Addr<PeerMessage>,
    known: watch::Sender<Arc<KnownClaims>>,
) -> Peers {
    let around = Rc::clone(surroundings);
    let claims = Question::new(move |key: ClaimKey| {
        let mut around = lock(&around);
        around.fetched.push(key.name.clone());
        let found = around.claims.get(&key.name).cloned();
        let absent = || format!("resourceclaims.resource.k8s.io {:?} not found", key.name);
        std::future::ready(found.ok_or_else(absent))
    });
    let (around, begun) = (Rc::clone(surroundings), kernel::now());
    let slices = Question::new(move |selector: ResourceSliceSelector| {
        let mut around = lock(&around);
        let second = kernel::now().duration_since(begun).as_secs();
        around.deleted.push((second, selector.field_selector()));
        let refused = around.refusals > 0;
        around.refusals = around.refusals.saturating_sub(1);
        std::future::ready(match refused {
            true => Err("Unauthorized".to_owned()),
            false => Ok(()),
        })
    });
    Peers {
        api: ClaimApi {
            claims: Some(claims),
            slices: Some(slices),
        },
        pods: Recipient::new(tells.clone(), PeerMessage::Pods),
        drivers: Recipient::new(tells.clone(), |DriverResync| PeerMessage::Drivers),
        status: Recipient::new(tells, |HealthChanged(pods)| PeerMessage::Health(pods)),
        known,
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A pod of the namespace `ns` whose container `app` uses these claims.
fn pod_of(name: &str, claims: &[&str]) -> Arc<Pod> {
    let named = claims.iter();
    let named: Vec<Value> = named
        .map(|claim| json!({"name": claim, "resourceClaimName": claim}))
        .collect();
    let used: Vec<Value> = claims.iter().map(|claim| json!({"name": claim})).collect();
    Arc::new(read(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("{name}-uid")},
        "spec": {
            "resourceClaims": named,
            "containers": [{"name": "app", "resources": {"claims": used}}],
        },
    })))
}

fn claim_of(name: &str, drivers: &[&str], pods: &[&str]) -> ResourceClaim {
    let results: Vec<Value> = drivers
        .iter()
        .map(|driver| json!({"request": "gpu", "pool": "pool", "device": "dev", "driver": driver}))
        .collect();
    let reserved: Vec<Value> = pods
        .iter()
        .map(|pod| json!({"resource": "pods", "name": pod, "uid": format!("{pod}-uid")}))
        .collect();
    read(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("{name}-uid")},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved},
    }))
}
