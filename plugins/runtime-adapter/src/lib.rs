//! The runtime plugins for runtimes that speak CRI themselves: what runtime-containerd and runtime-crio share.
//!
//! CRI is passed through without being decoded: path, headers, body frames and trailers reach the runtime and
//! come back as they are, whatever fields they hold ([`passthrough`]). One connection to the runtime's socket
//! is kept and made again when it is lost; the plugin's health says so ([`backend`]). Calls that create have a connection
//! each and outlive this process ([`creating`]). What a runtime of some
//! version lacks is added, and which that is stands in one table ([`quirks`]). So far that is
//! `GetContainerEvents`, made from containerd's own event stream ([`events`]).

mod backend;
mod configuration;
mod connection;
mod connection_pool;
mod creating;
mod creations;
mod events;
mod exec_output;
mod grpc;
mod left_tasks;
mod passthrough;
mod quirks;
mod relay;

pub use configuration::{AdapterConfiguration, AdapterConfigurationError, Flavour};
use creating::CallKeeper;
pub use creating::{KeeperProgram, is_keeper, keep_calls};
use passthrough::{ImagePassthrough, Passthrough, RuntimePassthrough};
pub use quirks::{EventSource, Quirks, quirks};
use sdk::{Info, Kind, Refusal, Routes, Setup};

/// Returns the answer to `Info` of the plugin for this runtime.
///
/// Info is asked before the runtime is known: an ability that depends on the runtime's settings is not named
/// here but in the health report, as the attribute `container-events`.
pub fn info(flavour: Flavour, version: &'static str) -> Info {
    let (name, capabilities) = match flavour {
        Flavour::Containerd => ("runtime-containerd", vec!["container-events"]),
        Flavour::Crio => ("runtime-crio", vec![]),
    };
    Info {
        name,
        version,
        kind: Kind::Runtime,
        capabilities,
    }
}

/// Builds the plugin's services: called by the sdk once the plugin is configured. With a keeper's program, calls that
/// create outlive the plugin's process.
pub async fn build(
    flavour: Flavour,
    keeper: Option<KeeperProgram>,
    setup: Setup,
) -> Result<Routes, Refusal> {
    let configuration = AdapterConfiguration::read(flavour, setup.parse()?)?;
    let backend = backend::RuntimeBackend::start(configuration, setup.health).await;
    let passthrough = Passthrough::new(backend, CallKeeper::new(keeper));
    Ok(Routes::new(RuntimePassthrough(passthrough.clone()))
        .add_service(ImagePassthrough(passthrough)))
}
