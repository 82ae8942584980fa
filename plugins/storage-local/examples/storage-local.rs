//! The storage plugin for what is on the node itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    sdk::serve(
        storage_local::info(env!("CARGO_PKG_VERSION")),
        storage_local::build,
    )
}
