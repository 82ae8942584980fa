//! The storage plugin for CSI drivers: `oxlet.storage.v1` in front, `csi.v1` behind.
//!
//! Read in this order: [`drivers`] knows which drivers there are, [`driver`] calls one, [`volumes`] does what the
//! agent asks with its help, [`layout`] and [`data`] are upstream's folders and files on the node.

mod configuration;
mod data;
mod driver;
mod drivers;
mod layout;
mod service;
mod volumes;

use blocking_pool::BlockingPool;
use configuration::Configuration;
use drivers::Registry;
use proto::storage::storage_server::StorageServer;
use sdk::{Info, Kind, Refusal, Routes, Setup};
use service::Service;
use volumes::Volumes;

/// The one kind of volumes that this plugin serves.
const KIND: &str = "csi";
/// Enough for every volume of a busy start; what is stuck is counted apart.
const PLACES: usize = 32;

/// Returns the plugin's answer to `Info`.
pub fn info(version: &'static str) -> Info {
    Info {
        name: "storage-csi",
        version,
        kind: Kind::Storage,
        capabilities: vec![],
    }
}

/// Builds the plugin's services: called by the sdk once the plugin is configured.
pub async fn build(setup: Setup) -> Result<Routes, Refusal> {
    let configuration = Configuration::read(setup.parse()?)?;
    let pool = BlockingPool::new(setup.health.clone(), PLACES);
    let folder = configuration.registration.clone();
    let registry = Registry::start(folder, pool.clone(), setup.health);
    let volumes = Volumes::new(&configuration, pool, registry);
    let service = StorageServer::new(Service::new(volumes))
        .max_decoding_message_size(sdk::MESSAGE_LIMIT)
        .max_encoding_message_size(sdk::MESSAGE_LIMIT);
    Ok(Routes::new(service))
}
