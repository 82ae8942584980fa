//! What can go wrong when a plugin is asked.
//!
//! The texts are upstream's: devicemanager/{manager,endpoint}.go at v1.36.

use thiserror::Error;

/// Why a plugin has not done what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DeviceCallError {
    #[error("unknown Device Plugin {0}")]
    UnknownPlugin(String),
    #[error("endpoint not found in cache for a registered resource: {0}")]
    NoEndpoint(String),
    #[error("endpoint {0} has been stopped")]
    Stopped(String),
    /// Too many calls wait for this plugin.
    #[error("the device plugin of {0} is behind with what it was asked")]
    Busy(String),
    /// The plugin's own error, or why there is no answer of it.
    #[error("{0}")]
    Failed(String),
    #[error("device plugin PreStartContainer rpc failed with err: {0}")]
    PreStart(String),
    #[error("no containers return in allocation response ")]
    NoContainers,
    #[error("failed to write checkpoint file \"kubelet_internal_checkpoint\": {0}")]
    NotKept(String),
    /// The pod's devices were given back meanwhile.
    #[error("the pod has ended")]
    Forgotten,
}

impl DeviceCallError {
    /// The same as the failure of a container's start.
    #[must_use]
    pub fn before_start(self) -> Self {
        match self {
            Self::PreStart(_) => self,
            other @ (Self::UnknownPlugin(_)
            | Self::NoEndpoint(_)
            | Self::Stopped(_)
            | Self::Busy(_)
            | Self::Failed(_)
            | Self::NoContainers
            | Self::NotKept(_)
            | Self::Forgotten) => Self::PreStart(other.to_string()),
        }
    }

    /// Whether the same may succeed later.
    pub fn transient(&self) -> bool {
        match self {
            Self::UnknownPlugin(_) | Self::NoEndpoint(_) | Self::Stopped(_) => true,
            Self::Busy(_) | Self::Failed(_) | Self::PreStart(_) | Self::NotKept(_) => true,
            Self::NoContainers | Self::Forgotten => false,
        }
    }
}
