//! Devices of a device plugin: preferred, given before the first container, prepared before each, and free at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use kernel::Recipient;
use kernel::testing::{Inbox, inbox, run_paused};
use logic_api::testing::yaml::pod;
use logic_placement::NodePlacement;
use logic_placement::devices::{
    ContainerDevices, DeviceCallError, DeviceInventory, DeviceProvider, DraResources, ListedDevice,
    PluginOptions,
};
use logic_placement::topology::{
    NumaMask, NumaTopology, PodLevelManagers, TopologyManager, TopologySettings,
};
use metrics::pods::REJECTIONS;
use metrics::pods::placement::REFUSALS;

use crate::pod_manager::devices::{DevicePlugins, DeviceRequest, HealthInStatus};
use crate::pod_manager::{Msg, NodeChange};
use crate::testing::TestNode;
use crate::worker::tests::phase;

const RESOURCE: &str = "vendor.com/gpu";
const SOON: Duration = Duration::from_secs(5);

fn wanting(name: &str) -> String {
    format!(
        "
metadata: {{name: {name}}}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    resources: {{limits: {{{RESOURCE}: '1'}}}}
"
    )
}

/// A node with three devices, whose plugin has a say in which one is given.
async fn start() -> (TestNode, Inbox<DeviceRequest>) {
    start_with(HealthInStatus::Shown).await
}

async fn start_with(health: HealthInStatus) -> (TestNode, Inbox<DeviceRequest>) {
    start_by(TopologyManager::default(), health).await
}

async fn start_by(
    mut topology: TopologyManager,
    health: HealthInStatus,
) -> (TestNode, Inbox<DeviceRequest>) {
    let provider = DeviceProvider::new(NumaMask::EMPTY, DraResources::Off);
    topology.add_hint_provider(Box::new(provider));
    let (manager, requests) = inbox(16);
    let devices = DevicePlugins::new(Recipient::new(manager, |request| request), health);
    let node = TestNode::with_devices(NodePlacement::from(topology), devices).await;
    tell(&node, "Healthy", &[]);
    (node, requests)
}

/// Tells the pod manager that all devices are of this health, as it changed for these pods.
fn tell(node: &TestNode, health: &str, pods: &[&str]) {
    let mut inventory = DeviceInventory::default();
    let options = PluginOptions {
        preferred_allocation: true,
        ..PluginOptions::default()
    };
    inventory.registered(RESOURCE, options);
    let device = |id: &str| ListedDevice {
        id: id.to_owned(),
        health: health.to_owned(),
        nodes: Vec::new(),
    };
    let listed = ["a", "b", "c"].map(device).into();
    inventory.listed(RESOURCE, listed).unwrap();
    let changed = NodeChange::Devices {
        inventory: inventory.into(),
        pods: pods.iter().map(|pod| (*pod).into()).collect(),
    };
    node.node.pod_manager.tell(Msg::Node(changed)).unwrap();
}

/// Each device that the status shows, with its health.
fn shown(status: &PodStatus) -> Vec<(&str, &str)> {
    let containers = status.container_statuses.iter().flatten();
    let resources = containers.flat_map(|own| own.allocated_resources_status.iter().flatten());
    let devices = resources.flat_map(|resource| resource.resources.iter().flatten());
    devices
        .map(|device| {
            let health = device.health.as_deref();
            (device.resource_id.as_str(), health.unwrap_or_default())
        })
        .collect()
}

/// Brings a pod up with device `b`.
async fn run_with_b(node: &TestNode, requests: &mut Inbox<DeviceRequest>) {
    node.desire(&[pod(&wanting("web"))]);
    prefer(requests, "b").await;
    allocate(requests, "b", Ok(())).await;
    match requests.next(SOON).await {
        Some(DeviceRequest::PreStart {
            container, reply, ..
        }) => {
            assert_eq!(container, "app");
            reply.send(Ok(Some(ContainerDevices::default())));
        }
        other => panic!("{other:?}"),
    }
    node.until("web", phase("Running")).await;
}

/// Answers the question which device the plugin prefers.
async fn prefer(requests: &mut Inbox<DeviceRequest>, id: &str) {
    match requests.next(SOON).await {
        Some(DeviceRequest::Prefer { question, reply }) => {
            assert!(question.available.contains(id), "{question:?}");
            reply.send(Ok([id.to_owned()].into()));
        }
        other => panic!("{other:?}"),
    }
}

/// Answers the allocation of this device.
async fn allocate(
    requests: &mut Inbox<DeviceRequest>,
    id: &str,
    answer: Result<(), DeviceCallError>,
) {
    match requests.next(SOON).await {
        Some(DeviceRequest::Allocate {
            assignment, reply, ..
        }) => {
            let own = &assignment.containers["app"].devices[RESOURCE];
            assert_eq!(*own, [id.to_owned()].into());
            reply.send(answer);
        }
        other => panic!("{other:?}"),
    }
}

/// Upstream's TestPodContainerDeviceAllocation and TestDevicePreStartContainer, as far as the pod goes.
#[test]
fn a_container_starts_with_the_device_that_its_plugin_prefers_and_gives_it_back() {
    run_paused(|| async {
        let (node, mut requests) = start().await;
        run_with_b(&node, &mut requests).await;
        let held = node.assignments.held();
        let own = &held[&"web".into()].containers["app"];
        assert_eq!(own.devices[RESOURCE], ["b".to_owned()].into());
        node.desire(&[]);
        node.until_gone("web").await;
        let ended = requests.next(SOON).await;
        assert!(
            matches!(&ended, Some(DeviceRequest::Forget { pod }) if pod.as_str() == "web"),
            "{ended:?}"
        );
        assert!(node.assignments.held().is_empty());
    });
}

/// Upstream's TestUpdateAllocatedResourcesStatus, from the plugin's word to the pod's status.
#[test]
fn a_status_is_written_anew_when_the_health_of_the_pods_device_changes() {
    run_paused(|| async {
        let (node, mut requests) = start().await;
        run_with_b(&node, &mut requests).await;
        let is = |health: &'static str| move |status: &PodStatus| shown(status) == [("b", health)];
        node.until("web", is("Healthy")).await;
        tell(&node, "Unhealthy", &["web"]);
        let status = node.until("web", is("Unhealthy")).await;
        assert!(
            phase("Running")(&status),
            "a pod runs on whatever its device is"
        );
        tell(&node, "Healthy", &["web"]);
        node.until("web", is("Healthy")).await;
    });
}

#[test]
fn no_status_shows_devices_where_the_feature_gate_is_off() {
    run_paused(|| async {
        let (node, mut requests) = start_with(HealthInStatus::Hidden).await;
        run_with_b(&node, &mut requests).await;
        tell(&node, "Unhealthy", &["web"]);
        assert!(requests.next(SOON).await.is_none());
        let status = node.until("web", phase("Running")).await;
        assert_eq!(shown(&status), []);
    });
}

/// Upstream's UnexpectedAdmissionError.
#[test]
fn a_pod_that_its_plugin_refuses_fails_with_the_plugins_words_and_holds_nothing() {
    run_paused(|| async {
        let (node, mut requests) = start().await;
        node.desire(&[pod(&wanting("web"))]);
        prefer(&mut requests, "a").await;
        let refused = DeviceCallError::Failed("out of order".to_owned());
        allocate(&mut requests, "a", Err(refused)).await;
        let failed = |status: &PodStatus| status.phase.as_deref() == Some("Failed");
        let status = node.until("web", failed).await;
        assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
        let message = "Pod was rejected: Allocate failed due to out of order, which is unexpected";
        assert_eq!(status.message.as_deref(), Some(message));
        assert!(!node.exists(&"web".into()).await, "nothing of it was begun");
        assert!(node.assignments.held().is_empty());
    });
}

/// Upstream's Admit: the plugins are called there, and without a policy the topology manager counts no refusal.
#[test]
fn a_pod_that_its_plugin_refuses_counts_as_not_admitted() {
    run_paused(|| async {
        let best_effort = TopologySettings {
            policy: "best-effort",
            scope: "container",
            options: &BTreeMap::new(),
            pod_level: PodLevelManagers::Off,
        };
        let policy = TopologyManager::new(&best_effort, NumaTopology::default()).unwrap();
        for (topology, refusals) in [(TopologyManager::default(), 0), (policy, 1)] {
            let rejected = REJECTIONS.with_label_values(&["UnexpectedAdmissionError"]);
            let before = (rejected.get(), REFUSALS.get());
            let (node, mut requests) = start_by(topology, HealthInStatus::Shown).await;
            node.desire(&[pod(&wanting("web"))]);
            prefer(&mut requests, "a").await;
            let refused = DeviceCallError::Failed("out of order".to_owned());
            allocate(&mut requests, "a", Err(refused)).await;
            node.until("web", phase("Failed")).await;
            let counted = (rejected.get() - before.0, REFUSALS.get() - before.1);
            assert_eq!(counted, (1, refusals));
        }
    });
}

#[test]
fn a_plugin_that_is_asked_holds_up_no_other_pod_and_a_pod_that_goes_is_not_begun() {
    run_paused(|| async {
        let (node, mut requests) = start().await;
        let other = pod("
metadata: {name: other}
spec: {containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]}
");
        node.desire(&[pod(&wanting("web")), other.clone()]);
        let asked = requests.next(SOON).await;
        node.until("other", phase("Running")).await;
        // A set that comes meanwhile asks nothing again.
        node.desire(&[pod(&wanting("web")), other.clone()]);
        node.desire(&[other]);
        match asked {
            Some(DeviceRequest::Prefer { reply, .. }) => reply.send(Ok(["a".to_owned()].into())),
            other => panic!("{other:?}"),
        }
        assert!(requests.next(SOON).await.is_none(), "nothing is allocated");
        assert!(node.assignments.held().is_empty());
    });
}
