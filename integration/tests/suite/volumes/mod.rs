//! Volumes on a real agent: those of CSI drivers and the node's own, through kills at every step and mounts that hang.

mod csi;
mod kills;
mod local;
mod stuck;
