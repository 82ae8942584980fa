//! The plugins that are chained to an interface plugin (upstream's plugins/meta).

pub(crate) mod bandwidth;
pub(crate) mod firewall;
pub(crate) mod portmap;
pub(crate) mod tuning;
