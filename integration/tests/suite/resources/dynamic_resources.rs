//! Devices of a DRA driver: a pod with a claim of the API has them, from a driver that registers by its socket.
//!
//! containerd 1.6, which CI's machines have, knows no CDI: that the devices reach the containers is seen on the native
//! runtime, and what the runtime is asked for on the fake one.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apiserver::ServerOptions;
use clients::drivers::testing::FakeDriver;
use integration::agent::Cri;
use integration::cluster::Cluster;
use integration::containerd::{Containerd, connect};
use integration::wait_until;
use logic_placement::claims::NodeService;
use proto::cri::ContainerStatusRequest;
use proto::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use proto::pod_resources::{GetPodResourcesRequest, PodResources};
use proto::registration::registration_server::{Registration, RegistrationServer};
use proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::suite::node_rig::{CONVERGENCE_TIMEOUT, SERVE, TestRuntime};

const DRIVER: &str = "gpu.example.com";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// The name that the double gives the device of the claim `gpu`.
const CDI_DEVICE: &str = "vendor.com/gpu=0";

/// Makes a test of every case for the runtimes that know CDI.
macro_rules! on_runtimes_with_cdi {
    ($($case:ident,)*) => {
        mod fake {
            $(#[tokio::test] async fn $case() { super::$case(super::TestRuntime::Fake).await; })*
        }
        mod native {
            $(#[tokio::test] async fn $case() { super::$case(super::TestRuntime::Native).await; })*
        }
    };
}

on_runtimes_with_cdi! {
    a_claim_is_prepared_once_and_undone_once_with_the_agent_killed_in_between,
    a_claim_is_undone_whose_pod_went_while_the_agent_was_down,
}

/// A driver that introduces itself by a socket of its own, beside the one that it serves.
struct RegisteringDriver {
    driver: FakeDriver,
    /// How often an agent has said that it is registered.
    registered: Arc<AtomicUsize>,
    introduction: JoinHandle<()>,
    socket: std::path::PathBuf,
}

struct Introduction {
    endpoint: String,
    registered: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl Registration for Introduction {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec![NodeService::V1.as_str().to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let told = request.into_inner();
        assert!(told.plugin_registered, "{told:?}");
        self.registered.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

impl RegisteringDriver {
    fn start(root: &Path) -> Self {
        let (registry, own) = (root.join("plugins_registry"), root.join("plugins/gpu"));
        for folder in [&registry, &own] {
            fs::create_dir_all(folder).unwrap();
        }
        let endpoint = own.join("dra.sock");
        let driver = FakeDriver::start(&endpoint, NodeService::V1);
        let registered = Arc::<AtomicUsize>::default();
        let introduction = Introduction {
            endpoint: endpoint.display().to_string(),
            registered: registered.clone(),
        };
        let socket = registry.join("gpu-reg.sock");
        let listener = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
        let server = Server::builder().add_service(RegistrationServer::new(introduction));
        let introduction = tokio::spawn(async move {
            server.serve_with_incoming(listener).await.unwrap();
        });
        RegisteringDriver {
            driver,
            registered,
            introduction,
            socket,
        }
    }

    async fn until_registered(&self, times: usize) {
        let what = format!("the driver is registered {times} times");
        let is = async || self.registered.load(Ordering::SeqCst) >= times;
        wait_until(CONVERGENCE_TIMEOUT, &what, is).await.unwrap();
    }

    /// Ends, and takes its introduction away.
    fn end(self) {
        self.introduction.abort();
        fs::remove_file(&self.socket).unwrap();
        self.driver.die();
    }
}

/// A cluster of one node; dropped in this order.
struct ClaimRig {
    cluster: Cluster,
    _containerd: Option<Containerd>,
    /// The runtime's own folder.
    dir: Option<TempDir>,
}

impl ClaimRig {
    /// A node with slices of an earlier driver, before its agent starts.
    async fn prepare(on: TestRuntime) -> Option<ClaimRig> {
        let (dir, containerd, builder) = on.prepare().await?;
        let cluster = Cluster::prepare(builder, ServerOptions::default()).await;
        let rig = ClaimRig {
            cluster: cluster.unwrap(),
            _containerd: containerd,
            dir,
        };
        if let Some(dir) = &rig.dir {
            let spec = json!({
                "cdiVersion": "0.6.0", "kind": "vendor.com/gpu",
                "devices": [{ "name": "0", "containerEdits": { "env": ["GPU=given"] } }],
            });
            fs::create_dir_all(dir.path().join("cdi")).unwrap();
            fs::write(dir.path().join("cdi/gpu.json"), spec.to_string()).unwrap();
        }
        rig.publish_slice("before");
        Some(rig)
    }

    async fn begin(&mut self) {
        self.cluster.node.begin().await.unwrap();
        let ready = self.cluster.until_ready(CONVERGENCE_TIMEOUT).await;
        ready.unwrap();
    }

    fn publish_slice(&self, name: &str) {
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": name },
            "spec": { "driver": DRIVER, "nodeName": "node",
                "pool": { "name": "pool", "generation": 1, "resourceSliceCount": 1 } },
        });
        self.cluster.server.post(SLICES, &slice).unwrap();
    }

    async fn until_no_slices(&self) {
        let none = async || self.cluster.server.list(SLICES).unwrap().is_empty();
        let waited = wait_until(CONVERGENCE_TIMEOUT, "no slice is left", none).await;
        waited.unwrap();
    }

    /// A claim that is allocated to the pod, as the scheduler does it.
    fn allocate(&self, pod: &Value) {
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "gpu" },
            "spec": { "devices": { "requests": [{ "name": "one", "exactly": { "deviceClassName": "gpu" } }] } },
        });
        self.cluster.server.post(CLAIMS, &claim).unwrap();
        let result = json!({ "request": "one", "driver": DRIVER, "pool": "pool", "device": "gpu" });
        let status = json!({ "status": {
            "allocation": { "devices": { "results": [result] } },
            "reservedFor": [{ "resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"] }],
        }});
        let path = format!("{CLAIMS}/gpu/status");
        self.cluster.server.patch(&path, &status).unwrap();
    }

    async fn until_event(&self, reason: &str, words: &str) {
        let what = format!("an event {reason}: {words}");
        let told = async || {
            let events = self.cluster.node.oxctl(&["events", "-o", "json"]).await;
            let events: Value = serde_json::from_str(&events.unwrap()).unwrap();
            let mut events = events.as_array().unwrap().iter();
            events.any(|event| {
                let message = event["message"].as_str().unwrap_or_default();
                event["reason"] == reason && message.contains(words)
            })
        };
        let waited = wait_until(CONVERGENCE_TIMEOUT, &what, told).await;
        waited.unwrap();
    }

    async fn until_pod(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let pod = self.cluster.until_pod("web", CONVERGENCE_TIMEOUT, wanted);
        pod.await.unwrap()
    }

    /// Has the driver tell how its device is, until the pod's status shows it.
    async fn until_health(&self, driver: &FakeDriver, told: (i32, &str), wanted: &Value) {
        let shows = async || {
            // An agent that has just been killed may still be counted.
            if driver.watchers() > 0 {
                driver.report(&[("gpu", told.0, told.1)]);
            }
            let pod = self.cluster.pod("web");
            pod.is_some_and(|pod| health(&pod) == wanted)
        };
        let what = format!("the pod shows {wanted}");
        wait_until(CONVERGENCE_TIMEOUT, &what, shows).await.unwrap();
    }

    /// Whether the container of the pod has the device.
    async fn assert_device(&self, on: TestRuntime, pod: &Value) {
        let id = container_id(pod);
        let id = id.split_once("://").unwrap().1;
        let cri = self.cluster.node.cri().await.unwrap();
        if on == TestRuntime::Fake {
            let asked = asked_of_runtime(&cri, id).await;
            let devices = &asked["config"]["CDI_devices"];
            assert_eq!(*devices, json!([{ "name": CDI_DEVICE }]));
            return;
        }
        let seen = cri.exec(id, &["sh", "-c", "echo $GPU"]).await.unwrap();
        assert_eq!(seen.trim(), "given");
    }

    /// What `oxctl devices` shows.
    async fn devices(&self) -> Value {
        let shown = self.cluster.node.oxctl(&["devices", "-o", "json"]).await;
        serde_json::from_str(&shown.unwrap()).unwrap()
    }

    /// What the pod resources API tells of the pod.
    async fn pod_resources(&self) -> PodResources {
        let root = self.cluster.node.root();
        let channel = connect(&root.join("pod-resources/kubelet.sock"));
        let question = GetPodResourcesRequest {
            pod_name: "web".to_owned(),
            pod_namespace: "default".to_owned(),
        };
        let answer = PodResourcesListerClient::new(channel).get(question).await;
        answer.unwrap().into_inner().pod_resources.unwrap()
    }
}

/// What a container was made of, by the fake runtime.
async fn asked_of_runtime(cri: &Cri, id: &str) -> Value {
    let question = ContainerStatusRequest {
        container_id: id.to_owned(),
        verbose: true,
    };
    let answer = cri.runtime().container_status(question).await.unwrap();
    serde_json::from_str(&answer.into_inner().info["info"]).unwrap()
}

/// A pod whose container uses the claim `gpu`.
fn claiming() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
        "spec": {
            "nodeName": "node", "terminationGracePeriodSeconds": 2,
            "resourceClaims": [{ "name": "device", "resourceClaimName": "gpu" }],
            "containers": [{
                "name": "app", "image": "localhost/oxlet/busybox:1", "command": ["sh", "-c", SERVE],
                "resources": { "claims": [{ "name": "device" }] },
            }],
        },
    })
}

fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

fn container_id(pod: &Value) -> String {
    let status = &pod["status"]["containerStatuses"][0];
    status["containerID"].as_str().unwrap().to_owned()
}

/// What the pod's status shows of its device.
fn health(pod: &Value) -> &Value {
    let status = &pod["status"]["containerStatuses"][0];
    &status["allocatedResourcesStatus"][0]["resources"][0]
}

async fn a_claim_is_prepared_once_and_undone_once_with_the_agent_killed_in_between(
    on: TestRuntime,
) {
    let Some(mut rig) = ClaimRig::prepare(on).await else {
        return;
    };
    rig.begin().await;
    rig.until_no_slices().await;
    let driver = RegisteringDriver::start(&rig.cluster.node.root());
    driver.until_registered(1).await;

    // Without its claim the pod waits, and says why.
    let pod = rig.cluster.apply(&claiming()).unwrap();
    let words =
        "Failed to prepare dynamic resources: prepare dynamic resources: fetch ResourceClaim gpu: ";
    rig.until_event("FailedPrepareDynamicResources", words)
        .await;
    assert_eq!(driver.driver.calls(), [""; 0]);
    rig.allocate(&pod);
    let running = rig.until_pod(is_running).await;
    assert_eq!(driver.driver.calls(), ["prepare gpu"]);
    rig.assert_device(on, &running).await;
    let resources = rig.pod_resources().await;
    let claimed = &resources.containers[0].dynamic_resources[0];
    assert_eq!(claimed.claim_name, "gpu");
    assert_eq!(claimed.claim_resources[0].driver_name, DRIVER);
    let names = &claimed.claim_resources[0].cdi_devices;
    assert_eq!(names[0].name, CDI_DEVICE);
    let hot = json!({ "resourceID": CDI_DEVICE, "health": "Unhealthy", "message": "too hot" });
    rig.until_health(&driver.driver, (2, "too hot"), &hot).await;
    let row = json!({ "resource": DRIVER, "id": "pool/gpu", "health": "Unhealthy", "nodes": [],
        "holder": "default/web claim gpu" });
    assert_eq!(rig.devices().await, json!([row]));

    // The agent dies: the driver is registered anew, and nothing is done to the claim.
    rig.cluster.node.kill9().unwrap();
    rig.publish_slice("between");
    rig.begin().await;
    driver.until_registered(2).await;
    rig.until_no_slices().await;
    let well = json!({ "resourceID": CDI_DEVICE, "health": "Healthy" });
    rig.until_health(&driver.driver, (1, ""), &well).await;
    let again = rig.until_pod(is_running).await;
    assert_eq!(container_id(&again), container_id(&running));
    assert_eq!(driver.driver.calls(), [""; 0]);

    rig.cluster.server.delete(&format!("{PODS}/web")).unwrap();
    rig.until_pod(Value::is_null).await;
    assert_eq!(driver.driver.calls(), ["unprepare gpu"]);
    driver.end();
}

async fn a_claim_is_undone_whose_pod_went_while_the_agent_was_down(on: TestRuntime) {
    let Some(mut rig) = ClaimRig::prepare(on).await else {
        return;
    };
    rig.begin().await;
    let driver = RegisteringDriver::start(&rig.cluster.node.root());
    driver.until_registered(1).await;
    let pod = rig.cluster.apply(&claiming()).unwrap();
    rig.allocate(&pod);
    rig.until_pod(is_running).await;
    assert_eq!(driver.driver.calls(), ["prepare gpu"]);
    rig.cluster.node.kill9().unwrap();
    let path = format!("{PODS}/web?gracePeriodSeconds=0");
    rig.cluster.server.delete(&path).unwrap();
    rig.begin().await;
    let undone = async || driver.driver.calls().contains(&"unprepare gpu".to_owned());
    let waited = wait_until(2 * CONVERGENCE_TIMEOUT, "the claim is undone", undone).await;
    waited.unwrap();
    driver.end();
}
