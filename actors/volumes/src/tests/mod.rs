//! Invariants of the volume manager: storage plugins in the test's own process that touch no disk, on a paused clock.

mod batches;
mod drivers;
mod growth;
mod in_use;
mod lives;
mod overdue;
mod subpaths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clients::storage::StoragePlugin;
use clients::storage::testing::{FakeStorage, StorageFault};
use k8s_openapi::api::core::v1::Pod;
use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::{
    Addr, AskError, ChildSpec, InjectedFault as ActorFault, Intensity, Recipient, Supervisor,
    mailbox,
};
use logic_api::objects::StaticObjects;
use logic_api::testing::yaml::pod;
use logic_api::types::PodUid;
use logic_pods::PodWorkerConfig;
use logic_resources::container_gc::ContainerGcPolicy;
use logic_resources::node::policy::NodePolicy;
use logic_volumes::resolve::SeLinuxMountPolicy;
use logic_volumes::{MountedVolumes, Subpath, VolumeId};
use state::events::{self, Recorder};
use state::objects::{ObjectStore, StoreWriter};
use state::status::PodResync;
use tempfile::TempDir;
use tonic::Status;

use super::*;

const MOMENT: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
const MOUNT_TIMEOUT: Duration = Duration::from_secs(123);
const NONE: [&str; 0] = [];

/// What the pod manager gets.
#[derive(Debug, strum::IntoStaticStr)]
enum ResyncRequest {
    Resync,
}

/// The volume manager, the plugins, and inboxes as all other neighbours.
struct Rig {
    root: Supervisor,
    manager: Addr<Msg>,
    plugins: FakeStorage,
    store_writer: StoreWriter,
    events: Inbox<events::Msg>,
    resyncs: Inbox<ResyncRequest>,
    host: Inbox<plugin_host::Msg>,
    folder: TempDir,
}

impl Rig {
    async fn start(objects: &str) -> Rig {
        Rig::with(objects, None, |_| {}).await
    }

    /// `before` prepares the plugins.
    async fn with(
        objects: &str,
        stats: Option<Duration>,
        before: impl FnOnce(&FakeStorage),
    ) -> Rig {
        Rig::within(None, objects, stats, before).await
    }

    /// With an API server whose actors these are, or without one.
    async fn within(
        cluster: Option<ApiPeers>,
        objects: &str,
        stats: Option<Duration>,
        before: impl FnOnce(&FakeStorage),
    ) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let plugins = FakeStorage::start();
        before(&plugins);
        let (supply, objects) = ObjectStore::new(parsed(objects));
        let (events, recorded) = inbox(4096);
        let (workers, resyncs) = inbox(16);
        let (hosted, host) = inbox(16);
        let rules = PodWorkerConfig {
            policy: logic_pods::pod_actions::PodActionPolicy::default(),
            facts: Arc::default(),
            container_gc_period: Duration::ZERO,
            container_gc: ContainerGcPolicy::default(),
            node: NodePolicy {
                node_name: "edge".to_owned(),
                root_dir: folder.path().join("root"),
                ..NodePolicy::default()
            },
        };
        let peers = Peers {
            storage: plugins.storage(),
            hosts: StoragePlugin::ALL
                .map(|plugin| (plugin.name().to_owned(), hosted.clone()))
                .into(),
            objects,
            resync: Recipient::new(workers, |PodResync| ResyncRequest::Resync),
            recorder: Recorder::new(events),
            rules: Arc::new(rules),
            cluster,
        };
        let policy = Policy {
            resync: Duration::from_secs(60),
            stats,
            selinux: SeLinuxMountPolicy::Off,
            health: VolumeHealthPolicy::Ignored,
        };
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (keeper, port) = mailbox(MAILBOX);
        root.spawn(ChildSpec::permanent("volumes"), port, move || {
            VolumeManager::new(policy.clone(), peers.clone())
        });
        pass(MOMENT).await;
        Rig {
            root,
            manager: keeper,
            plugins,
            store_writer: supply,
            events: recorded,
            resyncs,
            host,
            folder,
        }
    }

    /// Requests a pod's volumes in a task of its own, which returns the answer.
    fn want(&self, pod: &Arc<Pod>) -> tokio::task::JoinHandle<MountReply> {
        let (keeper, pod) = (self.manager.clone(), pod.clone());
        tokio::task::spawn_local(async move {
            let wish = |reply| Msg::Mount {
                pod,
                within: MOUNT_TIMEOUT,
                reply,
            };
            keeper.ask(MOUNT_TIMEOUT * 2, wish).await
        })
    }

    async fn mounted(&self, pod: &Arc<Pod>) -> MountedVolumes {
        self.want(pod).await.unwrap().unwrap().unwrap()
    }

    fn release(
        &self,
        uid: &str,
    ) -> tokio::task::JoinHandle<Result<Result<(), NotReleased>, AskError>> {
        let (keeper, uid) = (self.manager.clone(), PodUid::from(uid));
        tokio::task::spawn_local(async move {
            let wish = |reply| Msg::Release {
                uid,
                within: MOUNT_TIMEOUT,
                reply,
            };
            keeper.ask(MOUNT_TIMEOUT * 2, wish).await
        })
    }

    fn pods(&self, uids: &[&str]) {
        let uids = uids.iter().map(|uid| PodUid::from(*uid)).collect();
        self.manager.tell(Msg::Pods(uids)).unwrap();
    }

    /// Replaces the objects; an unchanged one keeps its `Arc`.
    fn set_objects(&self, text: &str) {
        let mut objects = parsed(text);
        objects.succeed(&self.store_writer.borrow());
        self.store_writer.send_replace(Arc::new(objects));
    }

    async fn view(&self) -> VolumesView {
        self.manager.ask(SECOND, Msg::view).await.unwrap()
    }

    async fn rows(&self) -> Vec<String> {
        let rows = self.view().await.volumes.into_iter();
        rows.map(|row| format!("{} {} {}", row.pod, row.volume, row.state))
            .collect()
    }

    /// The plugins' calls without those that only read.
    fn calls(&self) -> Vec<String> {
        let looks = ["list", "release-subpaths", "stats"];
        let mut calls = self.plugins.calls();
        calls.retain(|call| !looks.iter().any(|look| call.starts_with(look)));
        calls
    }

    /// Reasons and messages of the events since the last call.
    fn texts(&mut self) -> Vec<String> {
        let text = |msg| {
            let events::Msg::Record(event) = msg else {
                panic!("{msg:?}");
            };
            format!("{} {}: {}", event.object.name, event.reason, event.message)
        };
        self.events.drain().into_iter().map(text).collect()
    }

    fn assert_serial(&self) {
        assert_eq!(self.plugins.overlaps(), NONE);
    }
}

type MountReply = Result<Result<MountedVolumes, NotMounted>, AskError>;

fn parsed(text: &str) -> StaticObjects {
    let parsed = logic_api::objects::parse(text.as_bytes());
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    parsed.objects
}

fn config_map(name: &str, value: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{k: {value}}}}}\n---\n"
    )
}

/// A pod whose one container mounts each of these volumes.
fn pod_with(name: &str, volumes: &[(&str, &str)]) -> Arc<Pod> {
    let mounts = volumes
        .iter()
        .map(|(name, _)| format!("{{name: {name}, mountPath: /{name}}}"));
    let volumes = volumes
        .iter()
        .map(|(name, source)| format!("{{name: {name}, {source}}}"));
    pod(&format!(
        "
metadata: {{name: {name}}}
spec:
  containers: [{{name: app, image: localhost/busybox, volumeMounts: [{}]}}]
  volumes: [{}]
",
        mounts.collect::<Vec<_>>().join(", "),
        volumes.collect::<Vec<_>>().join(", ")
    ))
}

const EMPTY_DIR: (&str, &str) = ("e", "emptyDir: {}");
const CONFIG_MAP: (&str, &str) = ("c", "configMap: {name: cfg}");
