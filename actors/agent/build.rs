//! Links the agent's programs at a fixed address (`docs/decisions/0030-code-that-is-not-in-use.md`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-no-pie");
}
