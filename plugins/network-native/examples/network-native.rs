//! The network plugin with the standard CNI plugins built in.

use std::process::ExitCode;

fn main() -> ExitCode {
    let version = env!("CARGO_PKG_VERSION");
    sdk::serve(network_native::info(version), network_native::build)
}
