//! The plugins that ship, as one program: `oxlet-plugins NAME`, or a link of that name.
//!
//! Each plugin is a process of its own; one file lets the processes share the pages of its code
//! (`docs/decisions/0021-one-program-of-plugins.md`).

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use runtime_adapter::{Flavour, KeeperProgram};

const NAMES: &str = "network-cni, network-native, runtime-containerd, runtime-crio, runtime-native, storage-csi, \
                     storage-local";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let link = arguments.next().unwrap_or_default();
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| runtime_adapter::is_keeper(&first))
    {
        return runtime_adapter::keep_calls();
    }
    let named = |name: &OsString| serve(Path::new(name).file_name()?.to_str()?);
    match named(&link).or_else(|| named(&arguments.next()?)) {
        Some(end) => end,
        None => {
            eprintln!("oxlet-plugins: expected the name of a plugin first, one of: {NAMES}");
            ExitCode::from(2)
        }
    }
}

/// Serves the plugin of this name to its end; none if there is no such plugin.
fn serve(name: &str) -> Option<ExitCode> {
    let version = env!("CARGO_PKG_VERSION");
    Some(match name {
        "runtime-containerd" => adapter(Flavour::Containerd),
        "runtime-crio" => adapter(Flavour::Crio),
        "network-cni" => sdk::serve(network_cni::info(version), network_native::build_programs),
        "network-native" => sdk::serve(network_native::info(version), network_native::build),
        "runtime-native" => sdk::serve(runtime_native::info(version), runtime_native::build),
        "storage-csi" => sdk::serve(storage_csi::info(version), storage_csi::build),
        "storage-local" => sdk::serve(storage_local::info(version), storage_local::build),
        _ => return None,
    })
}

fn adapter(flavour: Flavour) -> ExitCode {
    let info = runtime_adapter::info(flavour, env!("CARGO_PKG_VERSION"));
    let keeper = KeeperProgram::own();
    sdk::serve(info, move |setup| {
        runtime_adapter::build(flavour, Some(keeper.clone()), setup)
    })
}
