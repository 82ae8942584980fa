//! The storage plugin for CSI drivers.

use std::process::ExitCode;

fn main() -> ExitCode {
    sdk::serve(
        storage_csi::info(env!("CARGO_PKG_VERSION")),
        storage_csi::build,
    )
}
