//! Real containers with no daemon: CRI v1 on the image store, the network plugin and the monitors of pods.
//!
//! A sandbox is namespaces pinned by mounts, files and an attachment; it has no process (decision 29). Containers are run
//! by an OCI runtime (`oxlet-oci`, `runc`, any other by a RuntimeClass) below a monitor a pod, which outlives this
//! process. Records on disk say what there is; a successor of this process, killed at any point, adopts all of it.
//!
//! Reading order: `settings` and `layout` (what it is given, where it keeps it), `record` (what is kept), `spec` (from
//! CRI to OCI, pure), `cdi` (devices by the node's files), `sandbox`, `container` and `image` (what calls do), `node` (what
//! they share, how it is recovered), `service` (CRI).
//!
//! # What is refused
//!
//! Each with an error that names it: user namespaces, a PID namespace shared by a pod's containers where there
//! is no pause program for the machine,
//! id-mapped mounts, network devices and RDT of CDI files, ambient capabilities, checkpoints, host ports on the node's
//! network that differ from the container's, pods with a network of their own while there is no network plugin. Capabilities,
//! seccomp and AppArmor profiles, huge page and swap limits, unified resources, and recursive read-only mounts are
//! refused where the machine or the handler doesn't have them.
//!
mod cdi;
mod clock;
mod container;
mod convert;
mod error;
mod image;
mod layout;
mod node;
mod record;
mod sandbox;
mod service;
mod settings;
mod spec;
mod stats;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use blocking_pool::BlockingPool;
use proto::cri::image_service_server::ImageServiceServer;
use proto::cri::runtime_service_server::RuntimeServiceServer;
use proto::images::images_server::ImagesServer;

use crate::layout::Layout;
use crate::node::{Node, NodeParts};
use crate::sandbox::network::Network;
use crate::service::ArchiveCalls;
pub use crate::service::{ImageCalls, RuntimeCalls};
use crate::settings::{NativeSettings, Programs};

/// Threads for files, mounts and namespaces at a time: each is short, unless a disk hangs.
const PLACES: usize = 16;
/// How long an OCI runtime may take to tell what it can do.
const FEATURES_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes the plugin: `sdk::serve` calls this when the agent has configured it.
pub async fn build(setup: sdk::Setup) -> Result<sdk::Routes, sdk::Refusal> {
    let settings: NativeSettings = setup.parse()?;
    let programs = Programs::find(&settings)?;
    let root = settings
        .root
        .clone()
        .unwrap_or_else(|| setup.dir.join("native"));
    let layout = Layout::make(&root)?;
    let images = images::Store::open(&layout.images(), images::Limits::default())?;
    for damage in images.damage() {
        tracing::error!(path = %damage.path.display(), reason = damage.reason, "a part of the image store is damaged");
    }
    let parts = NodeParts {
        host: settings::host::facts(&settings),
        driver: settings.cgroup_driver,
        recursive_read_only: features(&programs).await,
        programs,
        images,
        registries: settings.registries.clone(),
        ignore_image_volumes: settings.ignore_image_defined_volumes,
        cdi_folders: settings.cdi_folders(),
        network: settings.network.socket.clone().map(Network::at),
        pool: BlockingPool::new(setup.health.clone(), PLACES),
        boot: record::boot_id()?,
        layout,
    };
    import(&parts.images, &settings, &setup.health).await;
    let node = Node::open(parts).await?;
    node.settle().await;
    setup.health.attribute("root", root.display().to_string());
    setup.health.healthy();
    Ok(routes(&node))
}

fn routes(node: &Arc<Node>) -> sdk::Routes {
    let runtime = RuntimeServiceServer::new(RuntimeCalls::new(node.clone()))
        .max_decoding_message_size(sdk::MESSAGE_LIMIT);
    let images = ImageServiceServer::new(ImageCalls::new(node.clone()))
        .max_decoding_message_size(sdk::MESSAGE_LIMIT);
    let archives = ImagesServer::new(ArchiveCalls::new(node.clone()))
        .max_decoding_message_size(sdk::MESSAGE_LIMIT);
    sdk::Routes::new(runtime)
        .add_service(images)
        .add_service(archives)
}

/// Takes the configured archives into the store. One that cannot be used is told of, and hides no other.
async fn import(store: &images::Store, settings: &NativeSettings, health: &sdk::Health) {
    let mut failed = Vec::new();
    for archive in &settings.import {
        if let Err(error) = store.import(archive, None, &images::Platform::host()).await {
            let (archive, error) = (archive.display(), sdk::error_chain(&error));
            tracing::error!(%archive, error, "an archive of images cannot be imported");
            failed.push(archive.to_string());
        }
    }
    if !failed.is_empty() {
        health.attribute("not imported", failed.join(", "));
    }
}

/// Asks each handler whether it can make mounts read-only with everything below them (`features` of the OCI command
/// line). One that has no such command can't.
async fn features(programs: &Programs) -> BTreeMap<String, bool> {
    let mut able = BTreeMap::new();
    for (name, path) in programs.handlers() {
        let mut command = tokio::process::Command::new(path);
        command.arg("features").stdin(Stdio::null());
        command.kill_on_drop(true);
        let told = tokio::time::timeout(FEATURES_TIMEOUT, command.output()).await;
        let text = match told {
            Ok(Ok(output)) if output.status.success() => output.stdout,
            Ok(_) | Err(_) => Vec::new(),
        };
        let document: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        let options = document["mountOptions"].as_array();
        let has = options.is_some_and(|options| options.iter().any(|option| option == "rro"));
        able.insert(name.to_owned(), has);
    }
    able
}

/// Returns the plugin's answer to `Info`.
pub fn info(version: &'static str) -> sdk::Info {
    sdk::Info {
        name: "runtime-native",
        version,
        kind: sdk::Kind::Runtime,
        // Its records and its image store have one writer: a successor starts when it has ended.
        capabilities: vec!["container-events", "alone"],
    }
}
