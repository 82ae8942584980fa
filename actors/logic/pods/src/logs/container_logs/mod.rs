//! How a container's log is shown: whose log it is, what a line says, and which lines were requested.
//!
//! A reader holds at most one unfinished line, and its length is bounded.
//!
//! Upstream: staging/src/k8s.io/cri-client/pkg/logs, pkg/kubelet/kubelet_pods.go (1.36).

mod formatter;
pub mod instance;
pub mod line;
mod options;
mod tail;
#[cfg(test)]
mod tests;

pub use self::formatter::{LogFormatter, MAX_LINE_BYTES, ReadProgress};
pub use self::instance::find_instance;
pub use self::options::{ContainerLogOptions, LogOptionsError, LogQueryFields, StreamSelection};
pub use self::tail::{LogTail, TailSearch};
