//! The registered drivers: their sockets, the version that each speaks, and which socket is called.
//!
//! Mirrors upstream's DRAPluginManager of cm/dra/plugin/dra_plugin_manager.go at v1.36. A driver may have several
//! sockets while one instance takes over from another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use super::names::DriverName;

/// The versions of the DRA node API that a driver may serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NodeService {
    V1,
    V1Beta1,
}

/// Whether a driver's socket is connected now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Connection {
    Connected,
    #[default]
    Disconnected,
}

/// A socket that a driver registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriverEndpoint {
    pub socket: PathBuf,
    pub service: NodeService,
    pub connection: Connection,
}

/// Why a driver cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DriverError {
    #[error("DRA driver name is empty")]
    NoName,
    #[error("DRA driver {0} is not registered")]
    NotRegistered(DriverName),
    #[error("endpoint {} already registered for DRA driver plugin {driver}", socket.display())]
    SocketTaken { driver: DriverName, socket: PathBuf },
    #[error(
        "invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {}: {why}", socket.display()
    )]
    Versions {
        driver: DriverName,
        socket: PathBuf,
        why: VersionFlaw,
    },
}

/// What is wrong with the versions that a driver registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VersionFlaw {
    #[error("empty list of supported gRPC services (aka supported versions)")]
    Empty,
    #[error(
        "none of services supported by the plugin ({}) are supported by the kubelet ({})",
        quoted(.0.iter().map(String::as_str)),
        quoted(NodeService::ALL.map(NodeService::as_str))
    )]
    Unsupported(Vec<String>),
}

/// The drivers that have registered, each with its sockets in the order of their registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverRegistry {
    drivers: BTreeMap<DriverName, Vec<DriverEndpoint>>,
}

/// Which ResourceSlices are deleted: those of this node, of one driver or of all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceSliceSelector {
    pub node: String,
    /// None for all drivers.
    pub driver: Option<DriverName>,
}

impl NodeService {
    const ALL: [Self; 2] = [Self::V1, Self::V1Beta1];

    /// As drivers list it among their versions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1.DRAPlugin",
            Self::V1Beta1 => "v1beta1.DRAPlugin",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|service| service.as_str() == name)
    }
}

impl DriverError {
    /// Returns whether the driver may become usable: it can register later, with other versions, or elsewhere.
    pub fn transient(&self) -> bool {
        match self {
            Self::NotRegistered(_) => true,
            Self::NoName | Self::SocketTaken { .. } | Self::Versions { .. } => false,
        }
    }
}

/// Returns the version that is spoken with a driver: the first of those it lists that we know.
///
/// # Errors
///
/// It lists none, or none that we know.
pub fn validate_driver(
    driver: &DriverName,
    socket: &Path,
    versions: &[String],
) -> Result<NodeService, DriverError> {
    let known = versions
        .iter()
        .find_map(|name| NodeService::from_name(name));
    known.ok_or_else(|| DriverError::Versions {
        driver: driver.clone(),
        socket: socket.to_owned(),
        why: match versions.is_empty() {
            true => VersionFlaw::Empty,
            false => VersionFlaw::Unsupported(versions.to_vec()),
        },
    })
}

impl DriverRegistry {
    /// Takes in a socket of a driver, which is not connected yet.
    ///
    /// # Errors
    ///
    /// The driver has that socket already: one instance does not take another's.
    pub fn add(
        &mut self,
        driver: &DriverName,
        socket: &Path,
        service: NodeService,
    ) -> Result<(), DriverError> {
        let endpoints = self.drivers.entry(driver.clone()).or_default();
        if endpoints.iter().any(|known| known.socket == socket) {
            return Err(DriverError::SocketTaken {
                driver: driver.clone(),
                socket: socket.to_owned(),
            });
        }
        endpoints.push(DriverEndpoint {
            socket: socket.to_owned(),
            service,
            connection: Connection::Disconnected,
        });
        Ok(())
    }

    /// Forgets a socket of a driver. One that is not known is gone already.
    pub fn remove(&mut self, driver: &DriverName, socket: &Path) {
        if let Some(endpoints) = self.drivers.get_mut(driver) {
            endpoints.retain(|known| known.socket != socket);
        }
        self.drivers.retain(|_, endpoints| !endpoints.is_empty());
    }

    /// Takes it that a driver's socket is connected now, or is not.
    pub fn set_connection(&mut self, driver: &DriverName, socket: &Path, connection: Connection) {
        let endpoints = self.drivers.get_mut(driver).into_iter().flatten();
        for endpoint in endpoints.filter(|known| known.socket == socket) {
            endpoint.connection = connection;
        }
    }

    /// The socket that a driver is called at: the last one that is connected, or else the last one.
    ///
    /// # Errors
    ///
    /// The driver has no name, or no socket.
    pub fn get(&self, driver: &DriverName) -> Result<&DriverEndpoint, DriverError> {
        if driver.as_str().is_empty() {
            return Err(DriverError::NoName);
        }
        let endpoints = self.endpoints(driver);
        let connected = endpoints
            .iter()
            .rfind(|endpoint| endpoint.connection == Connection::Connected);
        connected
            .or(endpoints.last())
            .ok_or_else(|| DriverError::NotRegistered(driver.clone()))
    }

    /// Whether a call would reach the driver now.
    pub fn is_usable(&self, driver: &DriverName) -> bool {
        let mut endpoints = self.endpoints(driver).iter();
        endpoints.any(|endpoint| endpoint.connection == Connection::Connected)
    }

    /// All drivers with their sockets.
    pub fn drivers(&self) -> &BTreeMap<DriverName, Vec<DriverEndpoint>> {
        &self.drivers
    }

    fn endpoints(&self, driver: &DriverName) -> &[DriverEndpoint] {
        self.drivers.get(driver).map_or(&[], Vec::as_slice)
    }
}

impl ResourceSliceSelector {
    /// The field selector of the API's deletion of a collection.
    pub fn field_selector(&self) -> String {
        let node = format!("spec.nodeName={}", self.node);
        match &self.driver {
            Some(driver) => format!("spec.driver={driver},{node}"),
            None => node,
        }
    }
}

/// A list as Go prints it with `%q`.
fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("{name:?}")).collect();
    format!("[{}]", names.join(" "))
}
