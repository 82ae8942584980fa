//! Any CSI driver, our own or another: what a pod writes, the next one reads.
//!
//! `OXLET_CSI_ENDPOINT=/path/of/csi.sock` names one that runs on this machine, beside the one of these tests. Its
//! volume is made by its own controller; for a driver without one, `OXLET_CSI_VOLUME` is the handle of a volume that
//! exists.

use std::collections::BTreeMap;
use std::ffi::OsString;

use integration::containerd::connect;
use proto::csi;
use proto::csi::controller_client::ControllerClient;
use proto::csi::controller_service_capability::Type;
use proto::csi::controller_service_capability::rpc::Type as Word;
use proto::csi::identity_client::IdentityClient;
use proto::csi::node_client::NodeClient;
use proto::csi::volume_capability::access_mode::Mode;
use proto::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use proto::registration::registration_server::{Registration, RegistrationServer};
use proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use sha2::{Digest, Sha256};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

use super::*;

on_real_runtimes! {
    what_a_pod_writes_the_next_one_reads_with_any_driver,
}

async fn what_a_pod_writes_the_next_one_reads_with_any_driver(on: TestRuntime) {
    let dir = tempfile::tempdir().unwrap();
    let (own, elsewhere) = (dir.path().join("driver"), dir.path().join("elsewhere"));
    let flags = ["--registration=nothing"];
    let driver = CsiDriver::start(DRIVER, &own, &elsewhere, &flags).await;
    let driver = driver.unwrap();
    serves(on, &driver.endpoint()).await;
    until_unused(&driver).await;
    if let Some(endpoint) = std::env::var_os("OXLET_CSI_ENDPOINT") {
        serves(on, &socket(endpoint)).await;
    }
}

fn socket(endpoint: OsString) -> PathBuf {
    let endpoint = endpoint.into_string().unwrap();
    let path = endpoint.strip_prefix("unix://").unwrap_or(&endpoint);
    path.into()
}

/// A driver whose socket is given, and a volume of it.
struct Given {
    name: String,
    node_id: String,
    controller: Option<ControllerClient<Channel>>,
    words: Vec<Word>,
}

/// Registers a driver that runs without a node-driver-registrar.
struct RegistrationService(PluginInfo);

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.0.clone()))
    }

    async fn notify_registration_status(
        &self,
        _: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

async fn serves(on: TestRuntime, endpoint: &Path) {
    let Some(node_rig) = on.start_with(|builder| builder.with_objects()).await else {
        return;
    };
    let given = Given::ask(endpoint).await;
    let registry = node_rig.node.root().join("plugins_registry");
    fs::create_dir_all(&registry).unwrap();
    let listener = UnixListener::bind(registry.join("given-reg.sock")).unwrap();
    let introduction = RegistrationService(PluginInfo {
        r#type: "CSIPlugin".to_owned(),
        name: given.name.clone(),
        endpoint: endpoint.display().to_string(),
        supported_versions: vec!["1.0.0".to_owned()],
    });
    let introduces = Server::builder()
        .add_service(RegistrationServer::new(introduction))
        .serve_with_incoming(UnixListenerStream::new(listener));
    let used = async {
        let volume = given.create().await;
        let context = given.publish(&volume).await;
        drop_objects(&node_rig, &given, &volume, context);
        two_pods(&node_rig).await;
        given.remove(volume).await;
    };
    tokio::select! {
        () = used => {}
        ended = introduces => panic!("nobody introduces the driver: {ended:?}"),
    }
}

async fn two_pods(node_rig: &NodeRig) {
    let run = async |name: &str, script: &str| {
        let text = pod(name, claimed("given")).to_string();
        let file = format!("{name}.json");
        node_rig.node.drop_manifest(&file, &text).unwrap();
        let pod = node_rig.until_running(name).await;
        let id = id_of(container(&pod, "app").unwrap());
        let cri = node_rig.cri().await;
        let said = cri.exec(&id, &["sh", "-c", script]).await.unwrap();
        node_rig.node.remove_manifest(&file).unwrap();
        node_rig.until_gone(name).await;
        said
    };
    run("writer", "echo sesame > /data/word").await;
    assert_eq!(run("reader", "cat /data/word").await, "sesame\n");
    let unused = wait_until(CONVERGENCE_TIMEOUT, "the volume is let go of", async || {
        let shown = node_rig.node.admin("/volumes").await.unwrap();
        let folders = node_rig.node.root().join("plugins/kubernetes.io/csi");
        let mounted = mount_table::mounts()
            .into_iter()
            .any(|mount| mount.point.starts_with(&folders));
        shown["in_use"] == json!([]) && !mounted
    });
    unused.await.unwrap();
}

fn drop_objects(
    node_rig: &NodeRig,
    given: &Given,
    volume: &csi::Volume,
    context: Option<BTreeMap<String, String>>,
) {
    let name = &given.name;
    let object = |file: &str, object: Value| {
        let text = object.to_string();
        node_rig.node.drop_object(&format!("{file}.json"), &text)
    };
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": name },
        "spec": { "attachRequired": context.is_some() },
    });
    object("driver", driver).unwrap();
    if let Some(context) = context {
        let text = format!("{}{name}node", volume.volume_id);
        let digest = Sha256::digest(text.as_bytes());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": format!("csi-{hex}") },
            "spec": { "attacher": name, "nodeName": "node", "source": { "persistentVolumeName": "pv-given" } },
            "status": { "attached": true, "attachmentMetadata": context },
        });
        object("attachment", attachment).unwrap();
    }
    let persistent = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-given" },
        "spec": {
            "capacity": { "storage": SIZE }, "accessModes": ["ReadWriteOnce"],
            "claimRef": { "namespace": "default", "name": "given", "uid": "uid-given" },
            "csi": { "driver": name, "volumeHandle": volume.volume_id, "volumeAttributes": volume.volume_context },
        },
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "given", "namespace": "default", "uid": "uid-given" },
        "spec": { "accessModes": ["ReadWriteOnce"], "volumeName": "pv-given",
            "resources": { "requests": { "storage": SIZE } } },
        "status": { "phase": "Bound" },
    });
    object("volume", persistent).unwrap();
    object("claim", claim).unwrap();
}

impl Given {
    async fn ask(endpoint: &Path) -> Self {
        let channel = connect(endpoint);
        let mut identity = IdentityClient::new(channel.clone());
        let info = identity
            .get_plugin_info(csi::GetPluginInfoRequest {})
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", endpoint.display()));
        let mut node = NodeClient::new(channel.clone());
        let node = node.node_get_info(csi::NodeGetInfoRequest {}).await;
        let mut controller = ControllerClient::new(channel);
        let request = csi::ControllerGetCapabilitiesRequest {};
        let capabilities = controller.controller_get_capabilities(request).await;
        let has_controller = capabilities.is_ok();
        let capabilities =
            capabilities.map_or(Vec::new(), |answer| answer.into_inner().capabilities);
        let words = capabilities
            .into_iter()
            .filter_map(|one| one.r#type.map(|Type::Rpc(rpc)| rpc.r#type()));
        Self {
            name: info.into_inner().name,
            node_id: node.unwrap().into_inner().node_id,
            words: words.collect(),
            controller: has_controller.then_some(controller),
        }
    }

    /// The controller, if it can do this.
    fn can(&self, word: Word) -> Option<ControllerClient<Channel>> {
        let controller = self.controller.clone();
        controller.filter(|_| self.words.contains(&word))
    }

    async fn create(&self) -> csi::Volume {
        let Some(mut controller) = self.can(Word::CreateDeleteVolume) else {
            let handle = std::env::var("OXLET_CSI_VOLUME");
            return csi::Volume {
                volume_id: handle.expect("a driver that makes no volumes needs OXLET_CSI_VOLUME"),
                ..Default::default()
            };
        };
        let request = csi::CreateVolumeRequest {
            name: format!("oxlet-test-{}", std::process::id()),
            capacity_range: Some(csi::CapacityRange {
                required_bytes: 64 << 20,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![capability()],
            ..Default::default()
        };
        let answer = controller.create_volume(request).await.unwrap();
        answer.into_inner().volume.unwrap()
    }

    /// None where nothing needs to be attached.
    async fn publish(&self, volume: &csi::Volume) -> Option<BTreeMap<String, String>> {
        let mut controller = self.can(Word::PublishUnpublishVolume)?;
        let request = csi::ControllerPublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id: self.node_id.clone(),
            volume_capability: Some(capability()),
            volume_context: volume.volume_context.clone(),
            ..Default::default()
        };
        let answer = controller.controller_publish_volume(request).await.unwrap();
        Some(answer.into_inner().publish_context)
    }

    async fn remove(&self, volume: csi::Volume) {
        if let Some(mut controller) = self.can(Word::PublishUnpublishVolume) {
            let request = csi::ControllerUnpublishVolumeRequest {
                volume_id: volume.volume_id.clone(),
                node_id: self.node_id.clone(),
                ..Default::default()
            };
            controller
                .controller_unpublish_volume(request)
                .await
                .unwrap();
        }
        if let Some(mut controller) = self.can(Word::CreateDeleteVolume) {
            let request = csi::DeleteVolumeRequest {
                volume_id: volume.volume_id,
                ..Default::default()
            };
            controller.delete_volume(request).await.unwrap();
        }
    }
}

fn capability() -> csi::VolumeCapability {
    let mode = Mode::SingleNodeWriter.into();
    csi::VolumeCapability {
        access_mode: Some(AccessMode { mode }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}
