//! The network plugin that runs chains of CNI plugins.

use std::process::ExitCode;

fn main() -> ExitCode {
    sdk::serve(
        network_cni::info(env!("CARGO_PKG_VERSION")),
        network_cni::build,
    )
}
