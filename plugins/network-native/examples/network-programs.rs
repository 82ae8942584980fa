//! The network plugin that runs chains of CNI plugins, as it ships: beside one with them built in.

use std::process::ExitCode;

fn main() -> ExitCode {
    let version = env!("CARGO_PKG_VERSION");
    sdk::serve(network_cni::info(version), network_native::build_programs)
}
