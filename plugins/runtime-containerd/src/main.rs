//! The runtime plugin for containerd: CRI passed through, what is lacking added.

use std::process::ExitCode;

use runtime_adapter::Flavour;

fn main() -> ExitCode {
    let info = runtime_adapter::info(Flavour::Containerd, env!("CARGO_PKG_VERSION"));
    sdk::serve(info, |setup| {
        runtime_adapter::build(Flavour::Containerd, setup)
    })
}
