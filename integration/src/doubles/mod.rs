//! What stands for a part of the node's surroundings: a CSI driver, a DRA driver, a device plugin, logind, systemd, an image registry, a dead file server.

pub mod bus;
mod child_process;
pub mod csi_driver;
pub mod device_plugin;
pub mod dra_driver;
pub mod logind;
pub mod registry;
pub mod stuck_mount;
pub mod systemd;
