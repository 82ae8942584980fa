//! The plugin's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    sdk::serve(runtime_fake::info(), runtime_fake::build)
}
