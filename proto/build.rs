//! Compiles the contracts with protox: no protoc needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let contracts = [
        "plugin/v1/base.proto",
        "cri/v1/api.proto",
        "containerd/events.proto",
    ];
    for contract in contracts {
        println!("cargo:rerun-if-changed={contract}");
    }
    let files = protox::compile(contracts, ["."])?;
    tonic_prost_build::configure()
        .btree_map(".oxlet")
        .compile_fds(files)?;
    Ok(())
}
