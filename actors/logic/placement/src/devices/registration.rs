//! What a plugin says when it registers, checked.
//!
//! Mirrors upstream's devicemanager/plugin/v1beta1/{server,handler}.go at v1.36, which lets a socket's name lead out of
//! the folder; here it may not.

use std::path::{Component, Path};

use logic_api::manifest::validate::is_extended_resource;
use thiserror::Error;

/// The only version of the device plugin API.
pub const API_VERSION: &str = "v1beta1";

/// A plugin that asks to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The version of the API that it speaks.
    pub version: String,
    /// Its socket, by its path below the folder of device plugins.
    pub endpoint: String,
    /// The extended resource whose devices it has.
    pub resource: String,
}

/// Why a plugin is not registered. The first two texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistrationError {
    #[error(
        "requested API version {0:?} is not supported by kubelet. Supported version is [{API_VERSION:?}]"
    )]
    Version(String),
    #[error("the ResourceName {0:?} is invalid")]
    ResourceName(String),
    #[error("the endpoint {0:?} names no socket below the folder of device plugins")]
    Endpoint(String),
}

impl RegistrationError {
    /// Never: the plugin says the same again.
    pub fn transient(&self) -> bool {
        match self {
            Self::Version(_) | Self::ResourceName(_) | Self::Endpoint(_) => false,
        }
    }
}

impl Registration {
    /// # Errors
    ///
    /// It is not one that can be.
    pub fn check(&self) -> Result<(), RegistrationError> {
        if self.version != API_VERSION {
            return Err(RegistrationError::Version(self.version.clone()));
        }
        if !is_extended_resource(&self.resource) {
            return Err(RegistrationError::ResourceName(self.resource.clone()));
        }
        let path = Path::new(self.endpoint.trim_start_matches('/'));
        let mut parts = path.components().peekable();
        let stays =
            parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)));
        match stays {
            true => Ok(()),
            false => Err(RegistrationError::Endpoint(self.endpoint.clone())),
        }
    }
}
