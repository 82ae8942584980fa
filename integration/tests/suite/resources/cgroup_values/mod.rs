//! Every limit of every group, file by file, beside a table of what the kubelet 1.36.2 writes for the same pods.
//!
//! The tables are in `tests/data/cgroup-values`, one a cgroup version and scenario. They were recorded by this file: with
//! `CGROUP_VALUES_OF` set, the kubelet runs in the agent's place, on the same containerd with the same configuration, and what it
//! writes becomes the table. On version 2 it has as well how soon the kernel ends each process, the agent's included, and which
//! fields `/stats/summary` has of the node, of each pod and container. On version 1 it runs in `make test`, on version 2 in the guest of `make test-v2`.

mod groups;
mod summary;
mod table;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use integration::agent::{Cri, Node, Runtime};
use integration::containerd::Containerd;
use integration::wait_until;
use logic_resources::cgroups::CgroupDriver;
use serde_json::{Value, json};

use self::groups::read;
use self::table::{Machine, OOM_SCORE, Table};

/// An emulated machine is slow, and slower yet beside a build.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The kubelet writes the groups of the QoS classes each minute.
const KUBELET_SETTLED_AFTER: Duration = Duration::from_secs(70);
const MANIFESTS: &str = include_str!("../../../data/cgroup-values/pods.json");
/// It has huge pages, which not every machine has.
const HUGE: &str = "huge";
/// All of it has a thousandth of a CPU, sandbox and runc included: it does not come up in an emulated machine. `trickle` has the
/// same limit on one container only, which counts from its own start on.
const TINY: &str = "tiny";
/// Before what the summary is about, in place of a group.
const SUMMARY: &str = "summary:";

#[tokio::test]
async fn groups_hold_what_the_kubelet_writes() {
    compare("plain", &json!({})).await;
}

#[tokio::test]
async fn groups_hold_what_the_kubelet_writes_for_the_quality_of_memory() {
    let gates = json!({ "MemoryQoS": true });
    let tiered = json!({ "featureGates": gates, "memoryReservationPolicy": "TieredReservation" });
    compare("memory-qos", &tiered).await;
}

#[tokio::test]
async fn groups_hold_what_the_kubelet_writes_for_throttling_without_reservation() {
    let gates = json!({ "MemoryQoS": true });
    let fields = json!({
        "featureGates": gates,
        "memoryThrottlingFactor": 0.5,
        "singleProcessOOMKill": false,
        "enforceNodeAllocatable": ["none"],
    });
    compare("throttling", &fields).await;
}

/// The groups are slices and scopes; where systemd is the machine's init, as in the second guest of `make test-v2`.
#[tokio::test]
async fn slices_hold_what_the_kubelet_has_systemd_write() {
    if !Path::new("/run/systemd/private").exists() {
        eprintln!("skipped: slices take systemd as the first process");
        return;
    }
    let gates = json!({ "MemoryQoS": true });
    let fields = json!({
        "cgroupDriver": "systemd",
        "featureGates": gates,
        "memoryReservationPolicy": "TieredReservation",
    });
    compare("systemd", &fields).await;
}

/// Runs the pods under the scenario's configuration, and compares or records.
async fn compare(scenario: &str, fields: &Value) {
    let machine = Machine::here();
    let version = machine.version();
    if version == "v1" && scenario != "plain" {
        // Version 1 has none of its files.
        return;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/cgroup-values")
        .join(format!("{version}-{scenario}.txt"));
    let dir = tempfile::tempdir().unwrap();
    let driver = match fields["cgroupDriver"] == "systemd" {
        true => CgroupDriver::Systemd,
        false => CgroupDriver::Cgroupfs,
    };
    let Some(rig) = Containerd::for_test_by(dir.path(), driver).await else {
        return;
    };
    let kubelet = std::env::var_os("CGROUP_VALUES_OF");
    let table = match &kubelet {
        Some(_) => None,
        None => Some(Table::parse(&std::fs::read_to_string(&file).unwrap())),
    };
    let mut pods = pods(&machine);
    pods.retain(|pod| table.iter().all(|table| table.has_pod(name_of(pod))));
    let mut node = prepared(&rig, fields, &pods);
    let kubelet = match &kubelet {
        None => {
            node.begin().await.unwrap();
            None
        }
        Some(program) => Some(Kubelet::start(Path::new(program), &node, &rig, driver).await),
    };
    let cri = Cri::over(rig.channel());
    let running = wait_until(TIMEOUT, "all containers run", async || {
        let found = cri.running().await.unwrap_or_default();
        pods.iter().all(|pod| has_its_containers(pod, &found))
    });
    if let Err(error) = running.await {
        let log = std::fs::read_to_string(node.dir().join("kubelet.log"));
        let log = log.unwrap_or_default();
        panic!("{error:#}; {:?}\n{log}", cri.running().await);
    }
    let pid = kubelet.as_ref().map(|Kubelet(child)| child.id());
    let pid = pid.or_else(|| node.pid()).unwrap();
    let actual = || async {
        let mut values = read(&rig, &machine, driver).await;
        if version == "v2" {
            let score = groups::score(&pid.to_string()).unwrap_or_default();
            values.insert(("agent".to_owned(), OOM_SCORE.to_owned()), score);
        }
        if file.ends_with("v2-plain.txt") {
            values.extend(summary::read(node.read_only_port()).await);
        }
        values
    };
    let Some(table) = table else {
        tokio::time::sleep(KUBELET_SETTLED_AFTER).await;
        let recorded = Table::recorded(&actual().await, &machine);
        // The guest's file system is gone with it: its console is what is left.
        println!("=== {version}-{scenario}.txt\n{recorded}===");
        drop(std::fs::write(&file, recorded));
        return;
    };
    let both = async || {
        let (mut expected, mut actual) = (table.of(&machine), actual().await);
        table::keep_common(&mut expected, &mut actual);
        (expected, actual)
    };
    let same = wait_until(
        Duration::from_secs(60),
        "the groups are as the kubelet's",
        async || {
            let (expected, actual) = both().await;
            expected == actual
        },
    );
    if same.await.is_err() {
        let (expected, actual) = both().await;
        panic!("{}\n{}", table::difference(&expected, &actual), node.log());
    }
}

fn name_of(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap()
}

/// The manifests that this machine can run.
fn pods(machine: &Machine) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(MANIFESTS).unwrap();
    all.into_iter()
        .filter(|pod| machine.can_run(name_of(pod)))
        .collect()
}

fn has_its_containers(
    pod: &Value,
    found: &std::collections::BTreeMap<(String, String), String>,
) -> bool {
    let name = name_of(pod);
    let containers = pod["spec"]["containers"].as_array().unwrap();
    containers.iter().all(|container| {
        let container = container["name"].as_str().unwrap();
        found
            .keys()
            .any(|(pod, of_pod)| pod.starts_with(name) && of_pod == container)
    })
}

/// A node that does not run yet, whose configuration a kubelet can read as well.
fn prepared(rig: &Containerd, fields: &Value, pods: &[Value]) -> Node {
    let base = json!({
        "cgroupRoot": rig.cgroup(),
        "cgroupDriver": "cgroupfs",
        "volumePluginDir": rig.dir().join("volume-plugins"),
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "maxPods": 20,
        "podPidsLimit": 100,
        "kubeReserved": { "cpu": "300m", "memory": "200Mi", "pid": "1000" },
        "systemReserved": { "cpu": "200m", "memory": "100Mi" },
        "enforceNodeAllocatable": ["pods"],
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
    });
    let runtime = Runtime::Undeclared(rig.endpoint());
    let mut builder = Node::builder()
        .runtime(runtime)
        .config(&base)
        .config(fields);
    for pod in pods {
        let name = name_of(pod);
        builder = builder.manifest(&format!("{name}.yaml"), &pod.to_string());
    }
    builder.prepare().unwrap()
}

/// A kubelet in the agent's place; it ends with this.
struct Kubelet(Child);

impl Kubelet {
    async fn start(program: &Path, node: &Node, rig: &Containerd, driver: CgroupDriver) -> Kubelet {
        rig.create_cgroup(driver).await.unwrap();
        let log = std::fs::File::create(node.dir().join("kubelet.log")).unwrap();
        let argument =
            |name: &str, path: &str| format!("--{name}={}", node.dir().join(path).display());
        let child = Command::new(program)
            .arg(argument("config", "config.yaml"))
            .arg(argument("root-dir", "root"))
            .arg(argument("cert-dir", "pki"))
            .arg("--hostname-override=node")
            // Its cAdvisor looks for containers at the machine's own.
            .arg(format!("--containerd={}", rig.socket().display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Kubelet(child)
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
