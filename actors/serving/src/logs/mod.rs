//! The logs of containers: read, cut to what was asked for, and followed.
//!
//! A reader holds one piece of a file and one unfinished line, both bounded. Files are read beside the actors'
//! thread. What a line is, and what of it is shown, are decisions without files.
//!
//! Upstream: staging/src/k8s.io/cri-client/pkg/logs (1.36).

mod file;
mod follow;
mod line;
mod options;
mod show;
#[cfg(test)]
mod tests;
mod which;
mod written;

pub(crate) use self::follow::{Log, send};
pub(crate) use self::options::{Asked, Options, Wrong};
pub(crate) use self::which::which;
pub(crate) use self::written::Written;
