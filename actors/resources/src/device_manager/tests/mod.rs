//! The device manager on its real sockets, with plugins in the same process and inboxes as peers.

mod allocating;
mod double;
mod garbage;
mod keeping;
mod plugins;
mod speed;

use std::time::Duration;

use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::{Addr, ChildSpec, Intensity, Supervisor, mailbox};

use self::double::{PluginDouble, device, healthy};
use super::*;

const GPU: &str = "domain1.com/gpu";
const NIC: &str = "domain2.com/nic";
const SOON: Duration = Duration::from_millis(500);
/// Longer than any deadline of a call.
const ASK_TIMEOUT: Duration = Duration::from_secs(3600);

#[derive(Debug, strum::IntoStaticStr)]
enum PeerMessage {
    Devices(DevicesChanged),
    Node(NodeDevices),
}

/// An agent's device manager, and its peers.
struct Rig {
    root: Supervisor,
    root_dir: Arc<tempfile::TempDir>,
    addr: Addr<Msg>,
    assigner: Inbox<PeerMessage>,
    node: Inbox<PeerMessage>,
}

impl Rig {
    async fn start() -> Rig {
        Rig::start_in(Arc::new(tempfile::tempdir().unwrap())).await
    }

    async fn start_in(root_dir: Arc<tempfile::TempDir>) -> Rig {
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let ((to_assigner, assigner), (to_node, node)) = (inbox(256), inbox(256));
        let peers = Peers {
            assigners: vec![Recipient::new(to_assigner, PeerMessage::Devices)],
            node: Some(Recipient::new(to_node, PeerMessage::Node)),
            plugins: None,
        };
        let (addr, port) = mailbox(MAILBOX);
        let dir = root_dir.path().to_owned();
        root.spawn(ChildSpec::permanent("device-manager"), port, move || {
            DeviceManager::new(&dir, peers.clone())
        });
        pass(SOON).await;
        Rig {
            root,
            root_dir,
            addr,
            assigner,
            node,
        }
    }

    /// The agent ends in good order, and another one starts.
    async fn restart(self) -> Rig {
        self.root.shutdown().await;
        Rig::start_in(self.root_dir).await
    }

    fn folder(&self) -> PathBuf {
        plugin_folder(self.root_dir.path())
    }

    fn checkpoint(&self) -> PathBuf {
        self.folder().join("kubelet_internal_checkpoint")
    }

    /// A plugin that has registered and listed these devices.
    async fn plugin(&self, resource: &str, ids: &[&str]) -> PluginDouble {
        let name = format!("{}.sock", resource.replace('/', "-"));
        let plugin = PluginDouble::serve(&self.folder(), &name, resource, healthy(ids));
        plugin.register().await.unwrap();
        pass(SOON).await;
        plugin
    }

    /// The numbers of devices that the node was told last, if it was told any: capacity, allocatable, removed.
    fn told(&mut self) -> Option<NodeDevices> {
        let told = self.node.drain().into_iter().next_back()?;
        match told {
            PeerMessage::Node(devices) => Some(devices),
            PeerMessage::Devices(_) => None,
        }
    }

    /// Capacity and allocatable of a resource, as the node was told last.
    fn counts(&mut self, resource: &str) -> Option<(usize, usize)> {
        let told = self.told()?;
        Some((*told.capacity.get(resource)?, told.allocatable[resource]))
    }

    /// The pods whose status is to be written anew, of all that was told.
    fn changed_pods(&mut self) -> BTreeSet<PodUid> {
        let told = self.assigner.drain().into_iter();
        let pods = told.map(|message| match message {
            PeerMessage::Devices(news) => news.pods,
            PeerMessage::Node(_) => BTreeSet::new(),
        });
        pods.flatten().collect()
    }

    async fn allocate(
        &self,
        pod: &str,
        devices: &[(&str, &str, &[&str])],
    ) -> Result<(), DeviceCallError> {
        let (pod, assignment) = (pod.into(), assignment(devices));
        let message = |reply| Msg::Allocate {
            pod,
            assignment,
            reply,
        };
        self.addr.ask(ASK_TIMEOUT, message).await.unwrap()
    }

    async fn pre_start(
        &self,
        pod: &str,
        container: &str,
    ) -> Result<Option<ContainerDevices>, DeviceCallError> {
        let (pod, container) = (pod.into(), container.to_owned());
        let message = |reply| Msg::PreStart {
            pod,
            container,
            reply,
        };
        self.addr.ask(ASK_TIMEOUT, message).await.unwrap()
    }

    async fn prefer(&self, available: &[&str], size: usize) -> Result<BTreeSet<String>, String> {
        let question = PreferenceQuestion {
            resource: GPU.to_owned(),
            available: ids(available),
            must_include: BTreeSet::new(),
            size,
        };
        let message = |reply| Msg::Prefer { question, reply };
        self.addr.ask(ASK_TIMEOUT, message).await.unwrap()
    }

    async fn held(&self) -> HeldAssignments {
        self.addr
            .ask(ASK_TIMEOUT, |reply| Msg::Held { reply })
            .await
            .unwrap()
    }

    async fn forget(&self, pod: &str) {
        self.addr.tell(Msg::Forget { pod: pod.into() }).unwrap();
        pass(Duration::from_secs(10)).await;
    }

    async fn snapshot(&self) -> serde_json::Value {
        let tree = self.root.tree().await;
        tree.children[0].snapshot.clone()
    }
}

fn ids(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// Devices of containers: the container, the resource, the ids.
fn assignment(devices: &[(&str, &str, &[&str])]) -> Arc<Assignment> {
    let mut assignment = Assignment::default();
    for (container, resource, devices) in devices {
        let mut own = assignment.containers.remove(*container).unwrap_or_default();
        own.devices.insert((*resource).to_owned(), ids(devices));
        assignment.containers.insert((*container).to_owned(), own);
    }
    Arc::new(assignment)
}

/// What one pod holds, and nobody else anything.
fn only(pod: &str, devices: &[(&str, &str, &[&str])]) -> HeldAssignments {
    [(pod.into(), assignment(devices))].into()
}
