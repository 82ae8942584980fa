//! Builds the probe: one static program without dependencies, which images carry.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/probe");
    let variable = |name: &str| env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"));
    let target = variable("TARGET");
    let program = PathBuf::from(variable("OUT_DIR")).join("probe");
    let mut compiler = Command::new(variable("RUSTC"));
    compiler
        .args(["--edition=2024", "--crate-name=probe", "--target"])
        .arg(&target)
        .args(["-Ctarget-feature=+crt-static", "-Cpanic=abort"])
        .args(["-Copt-level=1", "-Cstrip=symbols", "-o"])
        .arg(&program)
        .arg("src/probe/mod.rs");
    let status = compiler.status().expect("rustc starts");
    assert!(status.success(), "the probe is not built: {status}");
}
