//! The one integration test binary: each extra one would link everything again.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "all of a test binary is test"
)]

mod suite {
    mod bench_smoke;
    mod cgroup_values;
    mod cgroups;
    mod cluster;
    mod confinement;
    mod containerd_proofs;
    mod csi_driver;
    mod eviction;
    mod fake_proofs;
    mod full;
    mod garbage;
    mod hostile;
    mod images_real;
    mod metrics;
    mod network;
    mod node_rig;
    mod pods;
    mod runtime;
    mod systemd_slices;
    mod take_over;
    mod try_oxlet;
    mod volumes;
}

/// A module file that is not listed above would silently test nothing.
#[test]
fn no_module_of_the_suite_is_forgotten() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite");
    let listed = include_str!("main.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let module = file.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            listed.contains(&format!("    mod {module};")),
            "tests/main.rs does not list {module}"
        );
    }
}
