//! What is shown of a container's log: whose log it is, what a line says, and which lines were asked for.
//!
//! Whoever reads holds one unfinished line at the most, and that is bounded.
//!
//! Upstream: staging/src/k8s.io/cri-client/pkg/logs, pkg/kubelet/kubelet_pods.go (1.36).

mod formatter;
pub mod instance;
pub mod line;
mod options;
#[cfg(test)]
mod tests;

pub use self::formatter::{LogFormatter, MAX_LINE_BYTES, ReadProgress};
pub use self::instance::find_instance;
pub use self::options::{ContainerLogOptions, LogOptionsError, LogQueryFields, StreamSelection};
