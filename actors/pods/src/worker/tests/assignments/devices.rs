//! Devices of a device plugin: preferred, given before the first container, prepared before each, and free at the end.

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
use logic_placement::topology::{NumaMask, TopologyManager};

use crate::pod_manager::devices::{DevicePlugins, DeviceRequest};
use crate::pod_manager::{Msg, NodeChange};
use crate::testing::TestNode;
use crate::worker::tests::{container, phase};

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
    let mut topology = TopologyManager::default();
    let provider = DeviceProvider::new(NumaMask::EMPTY, DraResources::Off);
    topology.add_hint_provider(Box::new(provider));
    let (manager, requests) = inbox(16);
    let devices = DevicePlugins::new(Recipient::new(manager, |request| request)).showing_health();
    let node = TestNode::with_devices(NodePlacement::from(topology), devices).await;
    let mut inventory = DeviceInventory::default();
    let options = PluginOptions {
        preferred_allocation: true,
        ..PluginOptions::default()
    };
    inventory.registered(RESOURCE, options);
    let device = |id: &str| ListedDevice {
        id: id.to_owned(),
        health: "Healthy".to_owned(),
        nodes: Vec::new(),
    };
    let listed = ["a", "b", "c"].map(device).into();
    inventory.listed(RESOURCE, listed).unwrap();
    let changed = NodeChange::Devices {
        inventory: inventory.into(),
        pods: [].into(),
    };
    node.node.pod_manager.tell(Msg::Node(changed)).unwrap();
    (node, requests)
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
        node.desire(&[pod(&wanting("web"))]);
        prefer(&mut requests, "b").await;
        allocate(&mut requests, "b", Ok(())).await;
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
        let shown = node.statuses().await[&"web".into()].clone();
        let shown = &container(&shown, "app").allocated_resources_status;
        let shown = &shown.as_ref().unwrap()[0];
        assert_eq!(shown.name, RESOURCE);
        let device = &shown.resources.as_ref().unwrap()[0];
        assert_eq!(
            (&*device.resource_id, device.health.as_deref()),
            ("b", Some("Healthy"))
        );
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
