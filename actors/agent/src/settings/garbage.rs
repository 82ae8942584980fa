//! The settings of what collects images and containers, and of what watches for memory that ran out.

use std::path::Path;

use config::NodeConfig;
use logic_resources::container_gc::ContainerGcPolicy;
use logic_resources::image_gc::{ImageGcPolicy, KeyedBy};
use logic_resources::node::policy::NodePolicy;
use resources::container_gc::ContainerGcConfig;
use resources::image_gc::ImageGcConfig;
use resources::oom::OomConfig;

/// The gate of images that are told apart by runtime handler.
const BY_HANDLER: &str = "RuntimeClassInImageCriApi";

/// `folder` is the agent's own. Thresholds that make no sense have been refused by validation.
pub(super) fn images(config: &NodeConfig, folder: &Path) -> ImageGcConfig {
    let kubelet = &config.kubelet;
    let policy = ImageGcPolicy::new(
        (
            kubelet.image_gc_high_threshold_percent,
            kubelet.image_gc_low_threshold_percent,
        ),
        kubelet.image_minimum_gc_age.into(),
        kubelet.image_maximum_gc_age.into(),
        match config.gates.enabled(BY_HANDLER) {
            true => KeyedBy::IdAndHandler,
            false => KeyedBy::Id,
        },
    );
    ImageGcConfig {
        policy: policy.unwrap_or_else(|_| ImageGcPolicy::off()),
        node_name: config.node_name.clone(),
        checkpoint: folder.join("images.checkpoint"),
        measure: host::disk_space::read,
    }
}

/// How many dead containers are kept.
pub(super) fn policy(config: &NodeConfig) -> ContainerGcPolicy {
    let flags = &config.flags;
    ContainerGcPolicy::new(
        flags.minimum_container_ttl_duration.as_std(),
        flags.maximum_dead_containers_per_container,
        flags.maximum_dead_containers,
    )
}

pub(super) fn containers(config: &NodeConfig, node: &NodePolicy) -> ContainerGcConfig {
    ContainerGcConfig {
        policy: policy(config),
        period: config.flags.container_gc_period.as_std(),
        node: node.clone(),
    }
}

/// `folder` is the agent's own.
pub(super) fn oom(config: &NodeConfig, folder: &Path) -> OomConfig {
    OomConfig {
        node_name: config.node_name.clone(),
        kmsg: "/dev/kmsg".into(),
        checkpoint: folder.join("oom.checkpoint"),
        boot_id: host::identity::read(Path::new("/"), 0).boot_id,
    }
}
