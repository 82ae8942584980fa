//! The one integration test binary: each extra one would link everything again.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "all of a test binary is test"
)]

/// Makes a test of every case for each runtime. `.ci/nextest.toml` knows them by these module names.
macro_rules! on_each_runtime {
    ($($case:ident,)*) => {
        mod fake {
            $(#[tokio::test] async fn $case() { super::$case(super::TestRuntime::Fake).await; })*
        }
        on_real_runtimes! { $($case,)* }
    };
}

/// Makes a test of every case that needs a kernel under its containers.
macro_rules! on_real_runtimes {
    ($($case:ident,)*) => {
        mod containerd {
            $(#[tokio::test] async fn $case() { super::$case(super::TestRuntime::Containerd).await; })*
        }
        mod native {
            $(#[tokio::test] async fn $case() { super::$case(super::TestRuntime::Native).await; })*
        }
    };
}

mod suite {
    mod alone;
    mod bench_smoke;
    mod cluster;
    mod confinement;
    mod console;
    mod csi_driver;
    mod field;
    mod first_steps;
    mod full;
    mod hostile;
    mod metrics;
    mod network;
    mod node_rig;
    mod pods;
    mod resources;
    mod runtime;
    mod take_over;
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
