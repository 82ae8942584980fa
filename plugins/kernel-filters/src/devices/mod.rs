//! The device rules of an OCI spec (`linux.resources.devices`) as a program of cgroup version 2.

pub(crate) mod attach;
pub(crate) mod program;
pub(crate) mod rule;
