//! The server's rules for pods: admission, defaults, grace, subresources, and a minimal scheduler.

pub(crate) mod admission;
pub(crate) mod defaults;
pub(crate) mod deletion;
mod qos;
pub(crate) mod scheduler;
pub(crate) mod subresources;
#[cfg(test)]
mod tests;
pub(crate) mod transitions;

/// Marks what stands for a static pod.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
