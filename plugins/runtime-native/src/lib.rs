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
//! Each with an error that names it: user namespaces of pods on the node's network, a PID namespace shared by a pod's
//! containers where there is no pause program for the machine, mounts with other ids than the pod's, network devices and RDT of
//! CDI files, ambient capabilities, checkpoints, host ports on the node's
//! network that differ from the container's, pods with a network of their own while there is no network plugin. Capabilities,
//! seccomp and AppArmor profiles, huge page and swap limits, unified resources, and recursive read-only mounts are
//! refused where the machine or the handler doesn't have them.
//!
mod apparmor;
mod cdi;
mod cgroups;
mod clock;
mod container;
mod error;
#[doc(hidden)]
pub mod fuzzing;
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
use crate::node::{Features, Node, NodeParts};
use crate::sandbox::network::Network;
use crate::service::ArchiveCalls;
pub use crate::service::{ImageCalls, RuntimeCalls};
use crate::settings::{NativeSettings, Programs};

/// Where containers in user namespaces are set up, without a word of it in the configuration.
const STAGES: &str = "/run/oxlet-native";
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
    let stages = settings.user_namespace_folder.clone();
    let stages = stages.unwrap_or_else(|| STAGES.into());
    let layout = Layout::make(&root, &stages)?;
    let images = images::Store::open(&layout.images(), images::Limits::default())?;
    for damage in images.damage() {
        tracing::error!(path = %damage.path.display(), reason = damage.reason, "a part of the image store is damaged");
    }
    let pool = BlockingPool::new(setup.health.clone(), PLACES);
    let no_user_namespaces = no_user_namespaces(&programs, &layout, &pool).await;
    if let Some(why) = &no_user_namespaces {
        tracing::warn!(
            why,
            "pods of this node have no user namespaces of their own"
        );
    }
    let mut host = settings::host::facts(&settings);
    host.apparmor_default = apparmor::load(host.apparmor).await;
    let parts = NodeParts {
        host,
        driver: settings.cgroup_driver,
        features: features(&programs).await,
        no_user_namespaces,
        programs,
        images,
        registries: settings.registries.clone(),
        ignore_image_volumes: settings.ignore_image_defined_volumes,
        cdi_folders: settings.cdi_folders(),
        network: settings.network.socket.clone().map(Network::at),
        pool,
        boot: record::boot_id()?,
        layout,
    };
    import(&parts.images, &settings, &setup.health).await;
    let (node, lost) = Node::open(parts).await?;
    tokio::spawn(node.clone().sync_records());
    node.resume_removals().await?;
    node.settle(lost).await;
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

/// Tries on the file systems that pods' files are on.
async fn no_user_namespaces(
    programs: &Programs,
    layout: &Layout,
    pool: &BlockingPool,
) -> Option<String> {
    let (monitor, root) = (programs.monitor.clone(), layout.root().to_owned());
    let reached = layout.stages().to_owned();
    let tried = pool.run("trying user namespaces", FEATURES_TIMEOUT, move || {
        Ok(container::staging::reached(&reached)
            .and_then(|()| sandbox::user_namespace::why_not(&monitor, &root)))
    });
    match tried.await {
        Ok(tried) => tried.err(),
        Err(status) => Some(status.message().to_owned()),
    }
}

/// Asks each handler what it can do (`features` of the OCI command line). One that has no such command can do nothing
/// of it.
async fn features(programs: &Programs) -> BTreeMap<String, Features> {
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
        let namespaces = document["linux"]["namespaces"].as_array();
        let has = |words: Option<&Vec<serde_json::Value>>, word| {
            words.is_some_and(|words| words.iter().any(|found| found == word))
        };
        let features = Features {
            recursive_read_only: has(options, "rro"),
            user_namespaces: has(namespaces, "user"),
        };
        able.insert(name.to_owned(), features);
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
