//! A mount that holds whoever looks at it, for good: one volume hangs, everything else goes on.

mod cluster;
mod node;
mod plugin;
