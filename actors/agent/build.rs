//! Links the agent's programs at a fixed address (`docs/decisions/0030-code-that-is-not-in-use.md`), but for musl, whose
//! static programs move themselves when they start.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|library| library != "musl") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
