//! The wire contracts: [`plugin`], [`storage`], [`network`] and [`images`] are ours; [`cri`], [`containerd`], [`csi`], [`registration`],
//! [`device_plugin`], [`pod_resources`], [`pod_resources_v1alpha1`], [`pods`], [`dra`], [`dra_v1beta1`] and [`dra_health`] are
//! kept by others.
//!
//! Generated from the `.proto` files of this crate; they are the documentation.

#![allow(
    missing_debug_implementations,
    unreachable_pub,
    deprecated,
    clippy::all,
    clippy::restriction,
    clippy::pedantic,
    reason = "generated code"
)]

/// `oxlet.plugin.v1`: what every plugin serves.
pub mod plugin {
    tonic::include_proto!("oxlet.plugin.v1");
}

/// `oxlet.storage.v1`: what a storage plugin serves beside that.
pub mod storage {
    tonic::include_proto!("oxlet.storage.v1");
}

/// `oxlet.network.v1`: what a network plugin serves beside that.
pub mod network {
    tonic::include_proto!("oxlet.network.v1");
}

/// `oxlet.images.v1`: what a runtime that keeps its images itself serves beside CRI.
pub mod images {
    tonic::include_proto!("oxlet.images.v1");
}

/// `runtime.v1`: the Container Runtime Interface.
pub mod cri {
    tonic::include_proto!("runtime.v1");
}

/// containerd's event stream.
pub mod containerd {
    tonic::include_proto!("containerd.services.events.v1");
}

/// containerd's tasks: the processes of its containers.
pub mod containerd_tasks {
    tonic::include_proto!("containerd.services.tasks.v1");
}

/// `pluginregistration`: how a node plugin, such as a CSI driver, introduces itself.
pub mod registration {
    tonic::include_proto!("pluginregistration");
}

/// `v1beta1`, deviceplugin: the devices of vendors, and what containers need to use them.
pub mod device_plugin {
    tonic::include_proto!("v1beta1");
}

/// `v1`, podresources: which devices, processors and memory containers have for themselves.
pub mod pod_resources {
    tonic::include_proto!("v1");
}

/// `v1alpha1`, podresources: the first version, of devices alone.
pub mod pod_resources_v1alpha1 {
    tonic::include_proto!("v1alpha1");
}

/// `v1alpha1`, pods: the pods of the node with their statuses.
pub mod pods {
    include!(concat!(env!("OUT_DIR"), "/pods/v1alpha1.rs"));
}

/// `k8s.io.kubelet.pkg.apis.dra.v1`: what a DRA driver does for claims on the node.
pub mod dra {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

/// `k8s.io.kubelet.pkg.apis.dra.v1beta1`: the same, as older drivers serve it.
pub mod dra_v1beta1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1beta1");
}

/// `v1alpha1`, dra-health: how a DRA driver's devices are.
pub mod dra_health {
    include!(concat!(env!("OUT_DIR"), "/dra_health/v1alpha1.rs"));
}

/// `csi.v1`: the Container Storage Interface, as a CSI driver serves it.
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// The version of the plugin contract that this tree speaks.
pub const PLUGIN_CONTRACT: u32 = 1;

/// The metadata of ExecSync by which the agent says how many bytes of each output it reads, as a decimal number: a probe
/// reads 10 KiB. A runtime may cut what it answers to that.
pub const MAX_OUTPUT_METADATA: &str = "oxlet-max-output-bytes";
