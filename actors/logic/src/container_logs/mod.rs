//! What is shown of a container's log: whose log it is, what a line says, and which lines were asked for.
//!
//! Whoever reads holds one unfinished line at the most, and that is bounded.
//!
//! Upstream: staging/src/k8s.io/cri-client/pkg/logs, pkg/kubelet/kubelet_pods.go (1.36).

pub mod line;
mod options;
mod show;
#[cfg(test)]
mod tests;
mod which;

pub use self::options::{Asked, Options, Stream, Wrong};
pub use self::show::{LONGEST, Next, Show};
pub use self::which::which;
