//! A container's mounts, beside what libcontainer makes of them.

pub(crate) mod propagation;
pub(crate) mod table;
