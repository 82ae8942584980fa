//! The plugins that make an interface in the pod (upstream's plugins/main).

pub(crate) mod bridge;
pub(crate) mod loopback;
pub(crate) mod ptp;
