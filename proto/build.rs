//! Compiles the contracts with protox: no protoc needed.

use std::path::PathBuf;
use std::{env, fs};

/// Contracts whose package has the name of another one's, each with the folder of what is generated.
const NAMESAKES: [(&str, &str); 2] = [
    ("dra_health", "dra/health_v1alpha1/api.proto"),
    ("pods", "pods/v1alpha1/api.proto"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let contracts = [
        "plugin/v1/base.proto",
        "storage/v1/storage.proto",
        "network/v1/network.proto",
        "images/v1/images.proto",
        "cri/v1/api.proto",
        "containerd/events.proto",
        "containerd/tasks.proto",
        "csi/v1/csi.proto",
        "registration/v1/api.proto",
        "podresources/v1/api.proto",
        "podresources/v1alpha1/api.proto",
        "deviceplugin/v1beta1/api.proto",
        "dra/v1/api.proto",
        "dra/v1beta1/api.proto",
    ];
    let namesakes = NAMESAKES.map(|(_, contract)| contract);
    for contract in contracts.iter().chain(&namesakes) {
        println!("cargo:rerun-if-changed={contract}");
    }
    let files = protox::compile(contracts, ["."])?;
    tonic_prost_build::configure()
        .btree_map(".oxlet")
        .btree_map(".csi")
        .btree_map(".v1beta1")
        .compile_fds(files)?;
    for (folder, contract) in NAMESAKES {
        let folder = PathBuf::from(env::var("OUT_DIR")?).join(folder);
        fs::create_dir_all(&folder)?;
        let files = protox::compile([contract], ["."])?;
        tonic_prost_build::configure()
            .out_dir(folder)
            .compile_fds(files)?;
    }
    Ok(())
}
