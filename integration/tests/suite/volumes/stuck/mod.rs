//! A mount that hangs every process that accesses it, for good: one volume hangs, everything else goes on.

mod cluster;
mod node;
mod plugin;
