//! The same through a whole node: its agent is killed too.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use integration::chaos::Chaos;
use integration::doubles::csi_driver::{DriverFault, DriverFaultAction, FaultPoint, mount_table};
use integration::wait_until;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::csi::{CsiRig, DRIVER, claimed, pod};
use crate::suite::node_rig::*;

const RUNS: u64 = 40;
const LANES: u64 = 2;
const CLAIMS: u64 = 3;
/// A failed operation is retried with back-off.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(90);
const CALLS: [&str; 4] = [
    "NodeStageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
    "NodeUnstageVolume",
];

#[tokio::test]
async fn forty_storms_over_a_whole_node_leak_lose_and_double_nothing() {
    let began = Instant::now();
    let lanes = tokio::join!(Box::pin(lane(0)), Box::pin(lane(1)));
    println!(
        "runs {:?} with {} kills in {:?}",
        super::wanted(RUNS),
        lanes.0 + lanes.1,
        began.elapsed()
    );
}

/// Runs every other storm on a node of its own; answers with the number of kills.
async fn lane(number: u64) -> u64 {
    // Both kinds of volumes may be had by one driver.
    let spec = json!({
        "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"],
    });
    let bed = CsiRig::start(TestRuntime::Fake, &[], spec).await;
    let mut node = AgentKillRig {
        bed: bed.expect("the fake runtime is always there"),
        kills: 0,
        runs: 0,
    };
    node.drop_objects();
    for run in super::wanted(RUNS).filter(|run| run % LANES == number) {
        let seed = run.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        node.once(run, Chaos::new(seed)).await;
    }
    node.kills
}

struct AgentKillRig {
    bed: CsiRig,
    kills: u64,
    runs: usize,
}

impl AgentKillRig {
    fn drop_objects(&self) {
        for claim in 0..CLAIMS {
            self.bed.claim(&name(claim), json!({}));
        }
        let settings = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings", "namespace": "default" },
            "data": { "key": "value" },
        });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "hidden", "namespace": "default" },
            "stringData": { "word": "sesame" },
        });
        self.bed.drop_object("settings", &settings);
        self.bed.drop_object("hidden", &secret);
    }

    async fn once(&mut self, run: u64, mut chaos: Chaos) {
        self.order_fault(&mut chaos);
        for claim in 0..CLAIMS {
            self.bed.drop_pod(&with_all_kinds(run, claim));
        }
        self.storm(&mut chaos, 2).await;
        let mut pods = Vec::new();
        for claim in 0..CLAIMS {
            pods.push(self.until_running(run, claim).await);
        }
        let written = self.write(run, &pods);
        self.storm(&mut chaos, 1).await;
        for (path, text) in &written {
            assert_eq!(read(path), *text, "run {run}: {}", path.display());
        }
        for claim in 0..CLAIMS {
            let file = format!("{}.json", pod_name(run, claim));
            self.bed.node_rig.node.remove_manifest(&file).unwrap();
        }
        self.storm(&mut chaos, 2).await;
        self.until_clean(run).await;
        for claim in 0..CLAIMS {
            let data = self.bed.driver.data(&format!("h-{}", name(claim)));
            let files = fs::read_dir(&data).unwrap().count();
            assert_eq!(files, self.runs + 1, "run {run}: data is lost");
        }
        self.runs += 1;
    }

    /// Half of the runs have a driver that crashes at a step of a call.
    fn order_fault(&self, chaos: &mut Chaos) {
        let mut any = |length: usize| usize::try_from(chaos.below(length as u64)).unwrap();
        let when = [FaultPoint::Before, FaultPoint::Between, FaultPoint::After][any(3)];
        let fault = DriverFault::at(CALLS[any(4)], when, DriverFaultAction::Crash).times(1);
        let faults = if any(2) == 0 { vec![fault] } else { vec![] };
        self.bed.driver.set_faults(&faults).unwrap();
    }

    /// Kills one of the processes at a random moment, so often.
    async fn storm(&mut self, chaos: &mut Chaos, kills: u64) {
        for _ in 0..kills {
            chaos.moment(Duration::from_millis(500)).await;
            let node = &mut self.bed.node_rig.node;
            match chaos.below(5) {
                0 => {
                    self.bed.driver.kill9().unwrap();
                    self.bed.driver.spawn().unwrap();
                }
                1 => drop(node.kill_plugin_named("storage-csi")),
                2 => drop(node.kill_plugin_named("storage-local")),
                _ => {
                    node.kill9().unwrap();
                    node.begin().await.unwrap();
                }
            }
            self.kills += 1;
            self.bed.driver.revive().unwrap();
        }
    }

    async fn until_running(&mut self, run: u64, claim: u64) -> Pod {
        let name = pod_name(run, claim);
        let CsiRig {
            node_rig, driver, ..
        } = &mut self.bed;
        let mut found = None;
        let what = format!("pod {name} runs");
        let waited = wait_until(CONVERGENCE_TIMEOUT, &what, async || {
            driver.revive().unwrap();
            let pod = node_rig.node.pod(&name).await.ok().flatten();
            found = pod.filter(is_ready);
            found.is_some()
        });
        if let Err(error) = waited.await {
            self.tell(run, &error.to_string()).await;
        }
        found.unwrap()
    }

    /// Each volume gets a file; answers with what they should hold from now on.
    fn write(&self, run: u64, pods: &[Pod]) -> Vec<(PathBuf, String)> {
        let mut written = Vec::new();
        for (claim, pod) in pods.iter().enumerate() {
            let target = self.bed.target(pod, &format!("pv-claim-{claim}"));
            let inline = self.bed.target(pod, "inline");
            let folder = self.bed.node_rig.node.root().join("pods").join(uid(pod));
            let scratch = folder.join("volumes/kubernetes.io~empty-dir/scratch");
            let memory = folder.join("volumes/kubernetes.io~empty-dir/memory");
            for mount in [&target, &inline, &memory] {
                let mounts = mount_table::mounted_at(mount);
                assert_eq!(mounts.len(), 1, "run {run}: {mounts:?}");
            }
            for volume in [target, inline, scratch, memory] {
                let path = volume.join(format!("run-{run}"));
                fs::write(&path, uid(pod)).unwrap();
                written.push((path, uid(pod)));
            }
            let volumes = folder.join("volumes");
            let settings = volumes.join("kubernetes.io~configmap/settings/key");
            let word = volumes.join("kubernetes.io~secret/hidden/word");
            written.push((settings, "value".to_owned()));
            written.push((word, "sesame".to_owned()));
        }
        written
    }

    /// Waits until nothing is left of any pod; the driver has no complaints.
    async fn until_clean(&mut self, run: u64) {
        let CsiRig {
            node_rig, driver, ..
        } = &mut self.bed;
        let root = node_rig.node.root();
        let pods = root.join("pods");
        let waited = wait_until(CONVERGENCE_TIMEOUT, "nothing is left", async || {
            driver.revive().unwrap();
            let gone = node_rig.node.pods().await.is_ok_and(|pods| pods.is_empty());
            let removed = fs::read_dir(&pods).map_or(0, Iterator::count) == 0;
            let mut mounts = mount_table::mounts().into_iter();
            let own = |mount: &mount_table::MountEntry| mount.point.starts_with(&pods);
            gone && removed && driver.in_use().unwrap().is_empty() && !mounts.any(|one| own(&one))
        });
        if let Err(error) = waited.await {
            self.tell(run, &error.to_string()).await;
        }
        let driver = &self.bed.driver;
        let complaints = driver.complaints().unwrap();
        assert!(complaints.is_empty(), "run {run}: {complaints:#?}");
        assert_eq!(driver.mounts(), [], "run {run}");
    }

    async fn tell(&self, run: u64, what: &str) -> ! {
        let node = &self.bed.node_rig.node;
        let volumes = node.oxctl(&["volumes"]).await.unwrap_or_default();
        let pods = node.oxctl(&["pods"]).await.unwrap_or_default();
        let in_use = self.bed.driver.in_use();
        let left = tree(&node.root().join("pods"));
        panic!("run {run}: {what}\n{pods}\n{volumes}\nin use: {in_use:#?}\nleft: {left:#?}");
    }
}

/// Everything below a folder.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let below = |path: PathBuf| {
        let mut all = match path.is_symlink() {
            true => Vec::new(),
            false => tree(&path),
        };
        all.insert(0, path);
        all
    };
    entries.flat_map(|entry| below(entry.path())).collect()
}

fn name(claim: u64) -> String {
    format!("claim-{claim}")
}

fn pod_name(run: u64, claim: u64) -> String {
    format!("pod-{run}-{claim}")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A pod with a claim of the driver, a volume of its own from it, and volumes of the node.
fn with_all_kinds(run: u64, claim: u64) -> Value {
    let mut pod = pod(&pod_name(run, claim), claimed(&name(claim)));
    let more = json!([
        { "name": "inline", "csi": { "driver": DRIVER } },
        { "name": "scratch", "emptyDir": {} },
        { "name": "memory", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
        { "name": "settings", "configMap": { "name": "settings" } },
        { "name": "hidden", "secret": { "secretName": "hidden" } },
    ]);
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    volumes.extend(more.as_array().unwrap().clone());
    let names: Vec<Value> = volumes
        .iter()
        .map(|volume| volume["name"].clone())
        .collect();
    let mounts: Vec<Value> = names
        .iter()
        .map(|name| json!({ "name": name, "mountPath": format!("/{}", name.as_str().unwrap()) }))
        .collect();
    pod["spec"]["containers"][0]["volumeMounts"] = json!(mounts);
    pod
}
