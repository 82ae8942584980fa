//! Volumes of CSI drivers, proved on a real agent with a real driver: what a pod sees of them on containerd, what the
//! driver is asked for on either runtime.

use std::fs;
use std::path::{Path, PathBuf};

use integration::doubles::csi_driver::{CsiDriver, mount_table};
use integration::wait_until;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::suite::node_rig::*;

mod container_view;
mod driver_requests;
mod drivers;
mod endpoint;
mod failing;
mod lifetimes;
mod registration;
mod sizes;

pub(super) const DRIVER: &str = "csi.example.com";
/// What the driver's volumes claim to have.
const SIZE: &str = "64Mi";
/// Ends within a fifth of a second of SIGTERM.
const SERVE_ON: &str = "trap 'exit 0' TERM; while true; do sleep 0.2; done";

/// A node with a CSI driver. Dropped in this order.
pub(super) struct CsiRig {
    pub(super) node_rig: NodeRig,
    pub(super) driver: CsiDriver,
    dir: TempDir,
}

impl CsiRig {
    /// Starts a node, then a driver with these flags whose `CSIDriver` has these fields. None where the runtime cannot
    /// be had.
    pub(super) async fn start(on: TestRuntime, flags: &[&str], spec: Value) -> Option<Self> {
        let stats = json!({
            "volumeStatsAggPeriod": "2s",
            "featureGates": { "CSIVolumeHealth": true },
        });
        let start = on.start_with(|builder| builder.with_objects().with_patience().config(&stats));
        let node_rig = start.await?;
        let dir = tempfile::tempdir().unwrap();
        let driver = driver(&node_rig, &dir, DRIVER, flags).await;
        let rig = CsiRig {
            node_rig,
            driver,
            dir,
        };
        rig.drop_driver(DRIVER, spec);
        rig.until_registered(DRIVER).await;
        Some(rig)
    }

    /// Starts another driver beside the first.
    async fn another(&self, name: &str, flags: &[&str], spec: Value) -> CsiDriver {
        let driver = driver(&self.node_rig, &self.dir, name, flags).await;
        self.drop_driver(name, spec);
        self.until_registered(name).await;
        driver
    }

    pub(super) fn drop_object(&self, file: &str, object: &Value) {
        let text = object.to_string();
        self.node_rig
            .node
            .drop_object(&format!("{file}.json"), &text)
            .unwrap();
    }

    /// Creates the CSIDriver. Its volumes need no attachment, unless these fields say otherwise.
    fn drop_driver(&self, name: &str, spec: Value) {
        let driver = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": name },
            "spec": merged(json!({ "attachRequired": false }), spec),
        });
        self.drop_object(&format!("driver-{name}"), &driver);
    }

    /// A volume of the driver, and a claim of the same name that is bound to it. Answers with the folder of its files.
    pub(super) fn claim(&self, name: &str, spec: Value) -> PathBuf {
        let data = self.driver.create_volume(&handle(name)).unwrap();
        self.drop_claim(name, DRIVER, spec);
        data
    }

    fn drop_claim(&self, name: &str, driver: &str, spec: Value) {
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("pv-{name}") },
            "spec": merged(json!({
                "capacity": { "storage": SIZE },
                "accessModes": ["ReadWriteOnce"],
                "claimRef": { "namespace": "default", "name": name, "uid": format!("uid-{name}") },
                "csi": { "driver": driver, "volumeHandle": handle(name) },
            }), spec),
        });
        let modes = volume["spec"]["accessModes"].clone();
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}") },
            "spec": { "accessModes": modes, "volumeName": format!("pv-{name}"),
                "volumeMode": volume["spec"]["volumeMode"], "resources": { "requests": { "storage": SIZE } } },
            "status": { "phase": "Bound", "accessModes": modes, "capacity": { "storage": SIZE } },
        });
        self.drop_object(&format!("pv-{name}"), &volume);
        self.drop_object(&format!("claim-{name}"), &claim);
    }

    pub(super) fn drop_pod(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let text = pod.to_string();
        self.node_rig
            .node
            .drop_manifest(&format!("{name}.json"), &text)
            .unwrap();
    }

    async fn remove_pod(&self, name: &str) {
        self.node_rig
            .node
            .remove_manifest(&format!("{name}.json"))
            .unwrap();
        self.node_rig.until_gone(name).await;
    }

    /// Starts a pod with this claim, mounted at `/data`.
    async fn run(&self, name: &str, claim: &str) -> Pod {
        self.drop_pod(&pod(name, claimed(claim)));
        self.node_rig.until_running(name).await
    }

    /// What the agent shows of drivers and volumes.
    async fn shown(&self) -> Value {
        self.node_rig.node.admin("/volumes").await.unwrap()
    }

    async fn until_shown(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let mut last = Value::Null;
        let waited = wait_until(CONVERGENCE_TIMEOUT, what, async || {
            last = self.shown().await;
            holds(&last)
        });
        waited
            .await
            .unwrap_or_else(|error| panic!("{error}: {last:#}"));
    }

    async fn until_registered(&self, name: &str) {
        let what = format!("driver {name} is registered");
        self.until_shown(&what, |shown| {
            registered(shown).any(|driver| driver == name)
        })
        .await;
    }

    /// Waits until the driver has nothing staged nor published; it must have recorded no breach of the protocol.
    async fn until_unused(&self) {
        until_unused(&self.driver).await;
    }

    /// Waits until the driver has been asked so often for this, and has done it; answers with the requests.
    async fn until_done(&self, call: &str, count: usize) -> Vec<Value> {
        let mut done = Vec::new();
        let what = format!("the driver has done {call} {count} times");
        let waited = wait_until(CONVERGENCE_TIMEOUT, &what, async || {
            done = self.driver.done(call).unwrap();
            done.len() >= count
        });
        waited
            .await
            .unwrap_or_else(|error| panic!("{error}: {done:#?}"));
        done
    }

    /// Where a pod finds a volume of the driver.
    pub(super) fn target(&self, pod: &Pod, folder: &str) -> PathBuf {
        let pod = self.node_rig.node.root().join("pods").join(uid(pod));
        pod.join("volumes/kubernetes.io~csi")
            .join(folder)
            .join("mount")
    }

    /// Runs a shell's words in a pod's container; answers with what they print.
    async fn sh(&self, pod: &Pod, script: &str) -> String {
        let id = id_of(container(pod, "app").unwrap());
        let cri = self.node_rig.cri().await;
        cri.exec(&id, &["sh", "-c", script]).await.unwrap()
    }
}

async fn driver(node_rig: &NodeRig, dir: &TempDir, name: &str, flags: &[&str]) -> CsiDriver {
    let own = dir.path().join(name);
    let started = CsiDriver::start(name, &own, &node_rig.node.root(), flags).await;
    started.unwrap_or_else(|error| panic!("{error:#}"))
}

async fn until_unused(driver: &CsiDriver) {
    let waited = wait_until(
        CONVERGENCE_TIMEOUT,
        "the driver's volumes are let go of",
        async || driver.in_use().unwrap().is_empty(),
    );
    if let Err(error) = waited.await {
        panic!("{error}: {:#?}", driver.in_use());
    }
    assert_eq!(driver.mounts(), []);
    assert_no_complaint(driver);
}

fn assert_no_complaint(driver: &CsiDriver) {
    let complaints = driver.complaints().unwrap();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// The drivers of the node's `CSINode`.
fn registered(shown: &Value) -> impl Iterator<Item = &str> {
    let drivers = shown["csi_node"]["spec"]["drivers"].as_array();
    let drivers = drivers.into_iter().flatten();
    drivers.filter_map(|driver| driver["name"].as_str())
}

fn handle(claim: &str) -> String {
    format!("h-{claim}")
}

pub(super) fn claimed(claim: &str) -> Value {
    json!({ "persistentVolumeClaim": { "claimName": claim } })
}

/// A pod of one container `app` that serves on, with this volume as `data`, mounted at `/data`.
pub(super) fn pod(name: &str, source: Value) -> Value {
    let volume = merged(json!({ "name": "data" }), source);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "volumes": [volume],
            "containers": [{
                "name": "app", "image": "localhost/oxlet/busybox:1", "command": ["sh", "-c", SERVE_ON],
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }],
        },
    })
}

/// Objects are merged by their fields; everything else is replaced.
fn merged(mut into: Value, from: Value) -> Value {
    match (&mut into, from) {
        (Value::Object(fields), Value::Object(from)) => {
            for (field, value) in from {
                let before = fields.remove(&field).unwrap_or(Value::Null);
                fields.insert(field, merged(before, value));
            }
            into
        }
        (_, from) => from,
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn assert_mounted_once(path: &Path) {
    let mounts = mount_table::mounted_at(path);
    assert_eq!(mounts.len(), 1, "{mounts:?}");
}
