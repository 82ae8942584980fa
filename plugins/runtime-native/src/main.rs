//! The plugin's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    sdk::serve(
        runtime_native::info(env!("CARGO_PKG_VERSION")),
        runtime_native::build,
    )
}
