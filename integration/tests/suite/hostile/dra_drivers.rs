//! A DRA driver that is killed and hung all the time while pods with its devices come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use apiserver::ServerOptions;
use integration::chaos::Chaos;
use integration::cluster::Cluster;
use integration::doubles::dra_driver::{DraDriver, DraOptions, DraVersion, POOL, cdi_name};
use integration::wait_until;
use proto::cri::ContainerStatusRequest;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::suite::node_rig::*;

const DRIVER: &str = "gpu.example.com";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const MANAGER: &str = "oxlet/dynamic-resources/manager";
const DEVICES: usize = 32;
/// Kills and hangs of the driver.
const FAULTS: usize = 200;
/// A driver hangs for at most so long.
const HANG: Duration = Duration::from_millis(60);
/// A fault comes so long at most after a pod has come or gone, whose claim is prepared or undone within half of it.
const LIFE: Duration = Duration::from_millis(110);
/// Milliseconds; a call takes twice as long at most, so that faults come in the middle of calls.
const PAUSE: u64 = 5;
/// Pods that run from the first fault to the last, with one device each.
const KEEPERS: [&str; 3] = ["keeper-0", "keeper-1", "keeper-2"];
/// Pods that come and go. A slot's claims have the same name, one after the other.
const SLOTS: usize = 12;
/// So many pods at most are deleted by force. Their claims are over at once, and their devices wait for the end.
const FORCED: usize = 6;

/// A cluster of one node, with the drivers of its devices; dropped in this order.
struct DraRig {
    drivers: BTreeMap<&'static str, DraDriver>,
    cluster: Cluster,
}

/// A pod and its claim.
#[derive(Clone, Debug)]
struct Claimant {
    pod: String,
    claim: String,
    /// The claim's.
    uid: String,
    devices: Vec<String>,
}

impl DraRig {
    async fn start(drivers: &[&'static str], pause: u64) -> DraRig {
        let (_, _, builder) = TestRuntime::Fake.prepare().await.unwrap();
        let mut cluster = Cluster::prepare(builder, ServerOptions::default())
            .await
            .unwrap();
        cluster.node.begin().await.unwrap();
        cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
        let start = |name: &'static str| {
            let options = DraOptions {
                name: name.to_owned(),
                dir: cluster.folder().join(name),
                root: cluster.node.root(),
                version: DraVersion::V1,
                devices: device_names().into_iter().collect(),
                pause,
            };
            (name, DraDriver::start(options).unwrap())
        };
        let drivers: BTreeMap<_, _> = drivers.iter().map(|name| start(name)).collect();
        let rig = DraRig { drivers, cluster };
        for name in rig.drivers.keys() {
            rig.until_connected(name).await;
        }
        rig
    }

    async fn manager(&self) -> Value {
        let tree = self.cluster.node.admin("/tree").await.unwrap();
        actor(&tree, MANAGER).unwrap()["snapshot"].clone()
    }

    async fn until_connected(&self, driver: &str) {
        let is = async || self.manager().await["drivers"][driver][0]["connection"] == "Connected";
        self.until(&format!("{driver} is connected"), is).await;
    }

    async fn until(&self, what: &str, holds: impl AsyncFnMut() -> bool) {
        wait_until(CONVERGENCE_TIMEOUT, what, holds).await.unwrap();
    }

    async fn until_running(&self, name: &str) -> Value {
        let running = |pod: &Value| is_serving(pod);
        let pod = self.cluster.until_pod(name, CONVERGENCE_TIMEOUT, running);
        pod.await.unwrap()
    }

    async fn until_gone(&self, name: &str) {
        let gone = self
            .cluster
            .until_pod(name, CONVERGENCE_TIMEOUT, Value::is_null);
        gone.await.unwrap();
    }

    /// Makes a pod with a claim that is allocated these devices of the driver; bound to the node when all of that is there.
    fn come(&self, driver: &str, pod: &str, claim: &str, devices: Vec<String>) -> Claimant {
        let server = &self.cluster.server;
        let made = self.cluster.apply(&claiming(pod, claim)).unwrap();
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": claim },
            "spec": { "devices": { "requests": [{ "name": "some", "exactly": { "deviceClassName": "gpu" } }] } },
        });
        let object = server.post(CLAIMS, &object).unwrap();
        let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
        let results = devices.iter().map(
            |device| json!({ "request": "some", "driver": driver, "pool": POOL, "device": device }),
        );
        let results: Vec<Value> = results.collect();
        let status = json!({ "status": {
            "allocation": { "devices": { "results": results } },
            "reservedFor": [{ "resource": "pods", "name": pod, "uid": made["metadata"]["uid"] }],
        }});
        let path = format!("{CLAIMS}/{claim}/status");
        server.patch(&path, &status).unwrap();
        self.drivers[driver].allocate(&uid, &devices).unwrap();
        let bindable = json!({ "spec": { "schedulingGates": null } });
        server.patch(&format!("{PODS}/{pod}"), &bindable).unwrap();
        Claimant {
            pod: pod.to_owned(),
            claim: claim.to_owned(),
            uid,
            devices,
        }
    }

    /// Deletes the claim of a pod that is gone, as the controllers do.
    fn release(&self, driver: &str, gone: &Claimant) {
        let path = format!("{CLAIMS}/{}", gone.claim);
        self.cluster.server.delete(&path).unwrap();
        self.drivers[driver].deallocate(&gone.uid).unwrap();
    }

    fn delete(&self, pod: &str) {
        self.cluster
            .server
            .delete(&format!("{PODS}/{pod}"))
            .unwrap();
    }

    /// The CDI names that the runtime was given with the pod's container; none where the container has gone meanwhile.
    async fn given(&self, pod: &Value) -> Option<Vec<String>> {
        let id = container_id(pod);
        let question = ContainerStatusRequest {
            container_id: id.split_once("://").unwrap().1.to_owned(),
            verbose: true,
        };
        let cri = self.cluster.node.cri().await.unwrap();
        let answer = cri.runtime().container_status(question).await.ok()?;
        let asked: Value = serde_json::from_str(&answer.into_inner().info["info"]).unwrap();
        let devices = asked["config"]["CDI_devices"].as_array().unwrap().iter();
        let names = devices.map(|device| device["name"].as_str().unwrap().to_owned());
        Some(names.collect())
    }

    async fn assert_given(&self, claimant: &Claimant) {
        let pod = self.until_running(&claimant.pod).await;
        let names: Vec<String> = claimant.devices.iter().map(|name| cdi_name(name)).collect();
        assert_eq!(self.given(&pod).await, Some(names), "{claimant:?}");
    }

    /// Waits until the devices are shown as the driver reports them.
    async fn until_healthy(&self, holders: &[Claimant]) {
        self.until("the devices are healthy", async || {
            let rows = self.cluster.node.admin("/devices").await.unwrap();
            let rows = rows.as_array().unwrap();
            let healthy = |device: &String| {
                let id = format!("{POOL}/{device}");
                rows.iter()
                    .any(|row| row["id"] == id && row["health"] == "Healthy")
            };
            holders.iter().flat_map(|own| &own.devices).all(healthy)
        })
        .await;
    }

    /// The text of the agent's own record.
    fn state(&self) -> String {
        fs::read_to_string(self.cluster.node.root().join("dra_manager_state")).unwrap()
    }

    fn pods(&self) -> Vec<Value> {
        self.cluster.server.list(PODS).unwrap()
    }
}

fn device_names() -> BTreeSet<String> {
    (0..DEVICES).map(|number| format!("d{number:02}")).collect()
}

/// A pod that waits to be bound, and whose container uses the claim.
fn claiming(name: &str, claim: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "schedulingGates": [{ "name": "allocation" }], "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{ "name": "device", "resourceClaimName": claim }],
            "containers": [{
                "name": "app", "image": "localhost/oxlet/busybox:1", "command": ["sh", "-c", SERVE],
                "resources": { "claims": [{ "name": "device" }] },
            }],
        },
    })
}

fn is_serving(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && pod["status"]["containerStatuses"][0]["ready"] == true
}

fn is_going(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

fn container_id(pod: &Value) -> String {
    let status = &pod["status"]["containerStatuses"][0];
    status["containerID"].as_str().unwrap().to_owned()
}

/// The pods that come and go, by slot, with what the cluster's controllers know of them.
#[derive(Debug, Default)]
struct Churn {
    slots: [Option<Claimant>; SLOTS],
    /// Devices that no claim is allocated.
    free: BTreeSet<String>,
    came: usize,
    /// UIDs of claims that are no more.
    over: BTreeSet<String>,
    forced: Vec<Claimant>,
    /// Pods whose container was seen to have the claim's devices.
    ran: BTreeSet<String>,
}

impl Churn {
    /// Has one pod go, or another one come in its place.
    fn turn(&mut self, rig: &DraRig, chaos: &mut Chaos) {
        let slot = usize::try_from(chaos.below(SLOTS as u64)).unwrap();
        let (wanted, by_force) = (1 + usize::from(chaos.below(2) == 0), chaos.below(4) == 0);
        let stays = chaos.below(2) == 0;
        match &self.slots[slot] {
            // After a failure it waits for 10 s before it is begun anew.
            Some(own) if stays && !self.ran.contains(&own.pod) => {}
            Some(own) if rig.cluster.pod(&own.pod).is_some_and(|pod| !is_going(&pod)) => {
                if by_force && self.forced.len() < FORCED {
                    rig.delete(&format!("{}?gracePeriodSeconds=0", own.pod));
                    rig.release(DRIVER, own);
                    self.over.insert(own.uid.clone());
                    self.forced.extend(self.slots[slot].take());
                } else {
                    rig.delete(&own.pod);
                }
            }
            None if self.free.len() >= wanted => {
                let (pod, claim) = (format!("churn-{}", self.came), format!("slot-{slot}"));
                let devices = self.take(wanted);
                self.slots[slot] = Some(rig.come(DRIVER, &pod, &claim, devices));
                self.came += 1;
            }
            Some(_) | None => {}
        }
    }

    fn take(&mut self, count: usize) -> Vec<String> {
        (0..count).map_while(|_| self.free.pop_first()).collect()
    }

    /// Gives the devices of pods that are gone free at once: by then they must be unprepared.
    fn reap(&mut self, rig: &DraRig) {
        for slot in &mut self.slots {
            if let Some(gone) = slot.take_if(|own| rig.cluster.pod(&own.pod).is_none()) {
                let prepared = rig.drivers[DRIVER].prepared().unwrap();
                assert_eq!(prepared.get(&gone.uid), None, "{gone:?} is gone");
                rig.release(DRIVER, &gone);
                self.free.extend(gone.devices);
                self.over.insert(gone.uid);
            }
        }
    }

    /// No container has been started twice, and those that run have what their pods claim.
    async fn look(&mut self, rig: &DraRig) {
        for pod in rig.pods() {
            let status = &pod["status"]["containerStatuses"][0];
            assert!(status["restartCount"].as_u64().unwrap_or(0) == 0, "{pod:#}");
            let mut own = self.slots.iter().flatten();
            let Some(own) = own.find(|own| pod["metadata"]["name"] == own.pod) else {
                continue;
            };
            if !is_serving(&pod) || is_going(&pod) || self.ran.contains(&own.pod) {
                continue;
            }
            let names: Vec<String> = own.devices.iter().map(|name| cdi_name(name)).collect();
            assert_eq!(rig.given(&pod).await, Some(names), "{own:?}");
            self.ran.insert(own.pod.clone());
        }
    }

    async fn end(&mut self, rig: &DraRig) {
        for own in self.slots.iter().flatten() {
            if rig.cluster.pod(&own.pod).is_some_and(|pod| !is_going(&pod)) {
                rig.delete(&own.pod);
            }
        }
        rig.until("every pod that came is gone", async || {
            self.reap(rig);
            let prepared = rig.drivers[DRIVER].prepared().unwrap();
            let mut forced = self.forced.iter();
            self.slots.iter().all(Option::is_none)
                && !forced.any(|gone| prepared.contains_key(&gone.uid))
        })
        .await;
        let forced = self.forced.iter().flat_map(|gone| gone.devices.clone());
        self.free.extend(forced);
    }
}

/// Kills the driver's process, hangs it for a while, or hangs it and kills it then. The next process may speak the other
/// version of the service, as after an update.
async fn fail(driver: &mut DraDriver, chaos: &mut Chaos) {
    let fault = chaos.below(3);
    if fault > 0 {
        driver.hang().unwrap();
        chaos.moment(HANG).await;
    }
    if fault == 1 {
        return driver.resume().unwrap();
    }
    let version = match chaos.below(2) {
        0 => DraVersion::V1,
        _ => DraVersion::V1beta1,
    };
    driver.replace(version).unwrap();
}

/// The containers of the pods that stay, and how often each was restarted.
fn kept(pods: &[Value]) -> BTreeMap<String, (String, u64)> {
    let keepers = pods.iter().filter_map(|pod| {
        let name = pod["metadata"]["name"].as_str()?.to_owned();
        let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64()?;
        KEEPERS
            .contains(&name.as_str())
            .then(|| (name, (container_id(pod), restarts)))
    });
    keepers.collect()
}

/// Who has which devices by the driver's records.
fn holdings(claimants: &[Claimant]) -> BTreeMap<String, Vec<String>> {
    let each = claimants.iter().cloned();
    each.map(|own| (own.uid, own.devices)).collect()
}

/// Kills and hangs the driver while pods come and go.
async fn attack(rig: &mut DraRig, churn: &mut Churn) {
    let mut chaos = Chaos::new(29);
    let began = Instant::now();
    for _ in 0..FAULTS {
        // Most drivers live until they can be called: else few pods would ever run.
        if chaos.below(4) > 0 {
            let is_registered = async || rig.drivers[DRIVER].is_registered().unwrap();
            rig.until("the driver is registered", is_registered).await;
        }
        churn.reap(rig);
        churn.turn(rig, &mut chaos);
        chaos.moment(LIFE).await;
        fail(rig.drivers.get_mut(DRIVER).unwrap(), &mut chaos).await;
        churn.look(rig).await;
    }
    println!(
        "{FAULTS} faults in {:?}: {} pods came, {} of them ran, {} were deleted by force, {} calls",
        began.elapsed(),
        churn.came,
        churn.ran.len(),
        churn.forced.len(),
        rig.drivers[DRIVER].calls().unwrap().len()
    );
    // On a busy machine fewer run than the 37 of an idle one.
    assert!(churn.ran.len() > 8, "{churn:?}");
}

#[tokio::test]
async fn a_driver_killed_and_hung_two_hundred_times_gives_no_device_twice_and_loses_none() {
    let mut rig = DraRig::start(&[DRIVER], PAUSE).await;
    let mut churn = Churn {
        free: device_names(),
        ..Churn::default()
    };
    let keepers = KEEPERS.map(|name| rig.come(DRIVER, name, name, churn.take(1)));
    for own in &keepers {
        rig.assert_given(own).await;
    }
    let (before, agent) = (kept(&rig.pods()), rig.cluster.node.pid());

    attack(&mut rig, &mut churn).await;
    churn.end(&rig).await;
    assert_eq!(
        kept(&rig.pods()),
        before,
        "who ran from the start runs as ever"
    );
    let driver = &rig.drivers[DRIVER];
    assert_eq!(driver.prepared().unwrap(), holdings(&keepers));
    assert_eq!(driver.complaints().unwrap(), [""; 0]);

    // Every device can be had, at once, and the health of those in use is known again.
    rig.until_connected(DRIVER).await;
    rig.until_healthy(&keepers).await;
    let all = rig.come(DRIVER, "all", "all", churn.take(DEVICES));
    rig.assert_given(&all).await;
    let holders = [&keepers[..], std::slice::from_ref(&all)].concat();
    assert_eq!(driver.prepared().unwrap(), holdings(&holders));
    let state = rig.state();
    let known = |uid: &String| state.contains(uid.as_str());
    assert!(holders.iter().all(|own| known(&own.uid)), "{state}");
    assert!(!churn.over.iter().any(known), "{state}");
    for own in &holders {
        rig.delete(&own.pod);
    }
    for own in &holders {
        rig.until_gone(&own.pod).await;
    }
    assert_eq!(driver.prepared().unwrap(), BTreeMap::new());
    assert_eq!(driver.complaints().unwrap(), [""; 0]);
    let (state, manager) = (rig.state(), rig.manager().await);
    assert!(
        !holders.iter().any(|own| state.contains(&own.uid)),
        "{state}"
    );
    assert_eq!(
        (&manager["claims"], &manager["jobs"]),
        (&json!([]), &json!(0))
    );
    assert_eq!(rig.cluster.node.pid(), agent);
    let tree = rig.cluster.node.admin("/tree").await.unwrap();
    assert_eq!(restarts(&tree), 0);
}

#[tokio::test]
async fn a_driver_that_hangs_delays_the_start_and_the_end_of_its_own_pods_alone() {
    const HUNG: &str = "hung.example.com";
    let rig = DraRig::start(&[DRIVER, HUNG], 0).await;
    let device = || vec!["d00".to_owned()];
    let old = rig.come(HUNG, "old", "old", device());
    rig.assert_given(&old).await;

    rig.drivers[HUNG].hang().unwrap();
    let late = rig.come(HUNG, "late", "late", vec!["d01".to_owned()]);
    rig.delete("old");
    for turn in 0..3 {
        let name = format!("quick-{turn}");
        let quick = rig.come(DRIVER, &name, &name, device());
        rig.assert_given(&quick).await;
        rig.delete(&name);
        rig.until_gone(&name).await;
        rig.release(DRIVER, &quick);
    }
    let began = rig.cluster.pod("late").unwrap();
    assert_eq!(began["status"]["containerStatuses"][0]["started"], false);
    assert!(is_going(&rig.cluster.pod("old").unwrap()));
    let manager = rig.manager().await;
    assert_eq!(manager["jobs"], 2, "{manager:#}");

    rig.drivers[HUNG].resume().unwrap();
    rig.assert_given(&late).await;
    rig.until_gone("old").await;
    let mut calls = rig.drivers[HUNG].calls().unwrap();
    calls.sort();
    let mut expected = [
        format!("prepare {}", old.uid),
        format!("prepare {}", late.uid),
        format!("unprepare {}", old.uid),
    ];
    expected.sort();
    assert_eq!(calls, expected);
}
