//! Serves a plugin. The contract of every plugin is checked by the suites in `plugins/conformance`.
//!
//! A plugin's `main.rs` is one call:
//!
//! ```no_run
//! async fn build(setup: sdk::Setup) -> Result<sdk::Routes, sdk::Refusal> {
//!     setup.health.healthy();
//!     Ok(sdk::Routes::default()) // add the service of the plugin's kind here
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     let info = sdk::Info {
//!         name: "runtime-example",
//!         version: env!("CARGO_PKG_VERSION"),
//!         kind: sdk::Kind::Runtime,
//!         capabilities: vec![],
//!     };
//!     sdk::serve(info, build)
//! }
//! ```
//!
//! Everything else is the contract in `proto/plugin/v1/base.proto`, and is the same for all: the
//! inherited socket, Info, Configure, Health and Drain, the log on standard error, the end.

mod base;
mod error_chain;
mod gate;
mod health;
mod listen;
mod log;
mod plugin;
mod serve;
mod start;
pub mod testing;

pub use error_chain::error_chain;
pub use health::{Health, Status};
pub use plugin::{Info, Kind, Refusal, Setup};
pub use proto::MAX_OUTPUT_METADATA;
pub use serve::serve;
pub use tonic::service::Routes;

/// The largest message that agent and plugins take from each other; set it on services and clients
/// with `max_decoding_message_size`, whose own default (4 MiB) a list of a thousand pods exceeds.
pub const MESSAGE_LIMIT: usize = 64 << 20;
