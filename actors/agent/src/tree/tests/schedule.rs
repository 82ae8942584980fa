//! What happens to the node from outside, as a seed has it: pods come, change and go; the runtime, the API server and
//! the node's own actors fail.

use std::collections::BTreeMap;
use std::time::Duration;

use apiserver::{ApiFault, Effect};
use kernel::testing::pass;
use kernel::{InjectedFault, chance};
use runtime_fake::FaultScript;
use serde_json::{Value, json};

use super::simulated_cluster::SimulatedCluster;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Between two steps at the most.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Pods at once; beyond them one is deleted instead.
const MOST_PODS: usize = 10;
/// The longest outage of the API server.
const LONGEST_OUTAGE: Duration = Duration::from_secs(40);

/// The actors that are broken.
const VICTIMS: [&str; 6] = [
    "oxlet/pods/pod-manager",
    "oxlet/pods/pleg",
    "oxlet/pods/images",
    "oxlet/state/status",
    "oxlet/volumes/volumes",
    "oxlet/cluster/pods",
];

/// The runtime's faults; the first ends them.
const RUNTIME_FAULTS: [&str; 8] = [
    r#"{}"#,
    r#"{"faults": [{"call": "RunPodSandbox", "every": 2, "code": "Unavailable", "message": "no"}]}"#,
    r#"{"faults": [{"call": "CreateContainer", "every": 2, "code": "Unknown", "after_effect": true}]}"#,
    r#"{"faults": [{"call": "StartContainer", "every": 3, "hang": true}]}"#,
    r#"{"faults": [{"call": "*", "every": 5, "delay": "700ms"}]}"#,
    r#"{"faults": [{"call": "ListContainers", "every": 2, "code": "Internal"}]}"#,
    r#"{"faults": [{"call": "PullImage", "times": 2, "code": "Unavailable"}]}"#,
    r#"{"faults": [{"call": "GetContainerEvents", "times": 1, "code": "Unavailable"}, {"call": "StopPodSandbox", "every": 2, "code": "Unknown"}]}"#,
];

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Create,
    Delete,
    Change,
    /// A container is killed.
    Kill,
    /// The runtime's calls fail, hang or take long in another way than before.
    Runtime,
    /// Requests to the API server fail in some way.
    Api,
    /// Watches end, or the history that they could go on from.
    Watches,
    /// The API server is away.
    Outage,
    /// One of the node's actors panics.
    Panic,
    /// The agent is restarted.
    Restart,
}

/// How often each step is among those that are drawn one by one, and then anew.
pub(super) const STEPS: [(Step, usize); 10] = [
    (Step::Create, 16),
    (Step::Delete, 6),
    (Step::Change, 5),
    (Step::Kill, 5),
    (Step::Runtime, 6),
    (Step::Api, 7),
    (Step::Watches, 3),
    (Step::Outage, 1),
    (Step::Panic, 2),
    (Step::Restart, 1),
];

/// What a pod is, and how it should end up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PodKind {
    /// Runs until it is deleted.
    Server,
    /// Exits twice before it runs.
    Crashing,
    /// Ends well.
    Job,
    /// An init container, a sidecar, and a container with probes.
    Probed,
    /// Mounts an emptyDir and a ConfigMap, and pulls its image.
    Mounting,
}

/// The steps until the faults end, and the pods that should be there.
pub(super) struct Schedule {
    pub(super) wanted: BTreeMap<String, PodKind>,
    /// How often each step was made.
    pub(super) steps: BTreeMap<Step, usize>,
    ahead: Vec<Step>,
    made: usize,
}

/// Draws one of so many.
fn draw(of: usize) -> usize {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "small, and never negative"
    )]
    let drawn = (chance() * of as f64) as usize;
    drawn
}

impl PodKind {
    fn draw() -> PodKind {
        let kinds = [
            PodKind::Server,
            PodKind::Crashing,
            PodKind::Job,
            PodKind::Probed,
            PodKind::Mounting,
        ];
        kinds[draw(kinds.len())]
    }

    /// The phase in which it should end up.
    pub(super) fn phase(self) -> &'static str {
        match self {
            PodKind::Job => "Succeeded",
            PodKind::Server | PodKind::Crashing | PodKind::Probed | PodKind::Mounting => "Running",
        }
    }

    fn manifest(self, name: &str) -> Value {
        let container = |name: &str, more: Value| {
            let mut container = json!({"name": name, "image": "localhost/busybox"});
            let fields = more.as_object().cloned().unwrap_or_default();
            container.as_object_mut().unwrap().extend(fields);
            container
        };
        let mut annotations = json!({});
        let spec = match self {
            PodKind::Server => json!({"containers": [container("main", json!({}))]}),
            PodKind::Crashing => {
                annotations = json!({"fake.oxlet.dev/run-for": "2s", "fake.oxlet.dev/exit-code": "3", "fake.oxlet.dev/attempts": "2"});
                json!({"containers": [container("main", json!({}))]})
            }
            PodKind::Job => json!({
                "restartPolicy": "OnFailure",
                "containers": [container("main", json!({"command": ["sleep", "15"]}))],
            }),
            PodKind::Probed => json!({
                "initContainers": [
                    container("sidecar", json!({"restartPolicy": "Always"})),
                    container("init", json!({"command": ["sleep", "1"]})),
                ],
                "containers": [container("main", json!({
                    "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 10},
                    "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 10},
                }))],
            }),
            PodKind::Mounting => json!({
                "volumes": [
                    {"name": "empty", "emptyDir": {}},
                    {"name": "map", "configMap": {"name": "map"}},
                ],
                "containers": [container("main", json!({
                    "image": format!("localhost/app:{name}"),
                    "volumeMounts": [{"name": "empty", "mountPath": "/empty"}, {"name": "map", "mountPath": "/map"}],
                }))],
            }),
        };
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": spec,
        });
        pod["spec"]["terminationGracePeriodSeconds"] = json!(3);
        pod
    }
}

impl Schedule {
    pub(super) fn new(cluster: &SimulatedCluster) -> Schedule {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"key": "0"}});
        cluster
            .api
            .post("/api/v1/namespaces/default/configmaps", &map)
            .unwrap();
        Schedule {
            wanted: BTreeMap::new(),
            steps: BTreeMap::new(),
            ahead: Vec::new(),
            made: 0,
        }
    }

    /// Lets things happen for this long, and then ends every fault.
    pub(super) async fn run(&mut self, cluster: &mut SimulatedCluster, lasts: Duration) {
        let end = cluster.trace.passed() + lasts;
        while cluster.trace.passed() < end {
            pass(LONGEST_PAUSE.mul_f64(chance())).await;
            let step = self.next();
            cluster.trace.add("schedule", &format!("{step:?}"));
            *self.steps.entry(step).or_default() += 1;
            self.make(step, cluster).await;
        }
        cluster.api.clear_faults();
        cluster.fake.follow(FaultScript::default());
        cluster.trace.add("schedule", "the faults end");
    }

    fn next(&mut self) -> Step {
        if self.ahead.is_empty() {
            let all = STEPS.iter().flat_map(|(step, times)| vec![*step; *times]);
            self.ahead.extend(all);
        }
        let at = draw(self.ahead.len());
        self.ahead.swap_remove(at)
    }

    async fn make(&mut self, step: Step, cluster: &mut SimulatedCluster) {
        match step {
            Step::Create if self.wanted.len() < MOST_PODS => self.create(PodKind::draw(), cluster),
            Step::Create | Step::Delete => self.delete(cluster),
            Step::Change => self.change(cluster),
            Step::Kill => self.kill(cluster),
            Step::Runtime => {
                let script = RUNTIME_FAULTS[draw(RUNTIME_FAULTS.len())];
                cluster.fake.follow(serde_json::from_str(script).unwrap());
            }
            Step::Api => cluster.api.fault(api_fault()),
            Step::Watches if draw(2) == 0 => cluster.api.expire_history(),
            Step::Watches => cluster.api.close_watches(),
            Step::Outage => {
                cluster.api.stop();
                pass(LONGEST_OUTAGE.mul_f64(chance())).await;
                cluster.api.resume_simulated();
            }
            Step::Panic => {
                let victim = VICTIMS[draw(VICTIMS.len())];
                // One that waits for its restart is not there to be broken.
                drop(cluster.root.inject(victim, InjectedFault::Panic));
            }
            Step::Restart => cluster.restart().await,
        }
    }

    fn create(&mut self, kind: PodKind, cluster: &SimulatedCluster) {
        let name = format!("pod-{}", self.made);
        self.made += 1;
        cluster.api.post(PODS, &kind.manifest(&name)).unwrap();
        self.wanted.insert(name, kind);
    }

    fn delete(&mut self, cluster: &SimulatedCluster) {
        let Some(name) = self.any() else { return };
        self.wanted.remove(&name);
        cluster.api.delete(&format!("{PODS}/{name}")).unwrap();
    }

    /// Another label, another image, or other data of the ConfigMap.
    fn change(&mut self, cluster: &SimulatedCluster) {
        let Some(name) = self.any() else { return };
        let path = format!("{PODS}/{name}");
        let turn = self.made.to_string();
        match draw(3) {
            0 => drop(
                cluster
                    .api
                    .patch(&path, &json!({"metadata": {"labels": {"turn": turn}}}))
                    .unwrap(),
            ),
            1 if self.wanted[&name] == PodKind::Server => {
                let mut pod = cluster.api.get(&path).unwrap();
                pod["spec"]["containers"][0]["image"] = json!(format!("localhost/web:{turn}"));
                cluster.api.put(&path, &pod).unwrap();
            }
            _ => {
                let data = json!({"data": {"key": turn}});
                cluster
                    .api
                    .patch("/api/v1/namespaces/default/configmaps/map", &data)
                    .unwrap();
            }
        }
    }

    /// Kills a container that runs, if the API knows of one.
    fn kill(&mut self, cluster: &SimulatedCluster) {
        let Some(name) = self.any() else { return };
        let pod = cluster.api.get(&format!("{PODS}/{name}")).unwrap();
        let id = pod["status"]["containerStatuses"][0]["containerID"].as_str();
        if let Some((_, id)) = id.and_then(|id| id.split_once("://"))
            && self.wanted[&name] != PodKind::Job
        {
            cluster.fake.kill(id);
        }
    }

    fn any(&self) -> Option<String> {
        let at = draw(self.wanted.len());
        self.wanted.keys().nth(at).cloned()
    }
}

fn api_fault() -> ApiFault {
    let status = |code, retry_after| Effect::Status { code, retry_after };
    let effects = [
        status(500, None),
        status(409, None),
        status(429, Some(1)),
        status(503, Some(2)),
        Effect::Hang,
        Effect::Refuse,
        Effect::Lose,
        Effect::Cut,
        Effect::Garbage,
        Effect::Delay(2.5),
        Effect::HalfEvent,
        Effect::GarbageEvent,
        Effect::ExpireEvent,
    ];
    let effect = effects[draw(effects.len())].clone();
    let of_watch = matches!(
        effect,
        Effect::HalfEvent | Effect::GarbageEvent | Effect::ExpireEvent
    );
    let methods = ["GET", "PATCH", "POST", "PUT"];
    ApiFault {
        method: (!of_watch).then(|| methods[draw(methods.len())].to_owned()),
        path: String::new(),
        contains: None,
        watch: Some(of_watch),
        times: u32::try_from(1 + draw(3)).unwrap(),
        effect,
    }
}
