//! The clients of what serves the node: the only place of the plugins' wire types.
//!
//! `runtime` and `storage` speak the plugins' contracts, `images` an operator's part of the runtime's, `drivers` what DRA
//! drivers serve, `probe_client` asks containers how they are. They know no actor and decide nothing: what they return is in
//! the types of `logic`.

pub mod drivers;
pub mod images;
#[cfg(any(test, feature = "testing"))]
pub mod in_process;
pub mod probe_client;
mod rpc_error;
pub mod runtime;
pub mod storage;
