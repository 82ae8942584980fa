//! The logs of containers: read, and followed. What of them is shown is decided elsewhere (`logic_pods::logs::container_logs`).
//!
//! A reader holds one piece of a file and one unfinished line, both bounded. Files are read beside the actors'
//! thread.
//!
//! Upstream: staging/src/k8s.io/cri-client/pkg/logs (1.36).

mod file;
mod follow;
mod log_watch;

pub(crate) use self::follow::{LogRequest, send};
pub(crate) use self::log_watch::LogWatches;
