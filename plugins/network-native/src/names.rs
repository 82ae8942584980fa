//! Names that the plugins make of a container's identity, by which each finds what another one made.

use sha2::{Digest, Sha512};

/// Returns the beginning of the SHA-512 of `text` behind a prefix, so long in all.
pub(crate) fn hashed(prefix: &str, text: &str, length: usize) -> String {
    let digest = Sha512::digest(text.as_bytes());
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    let mut name = prefix.to_owned();
    name.extend(digits);
    name.truncate(length);
    name
}

/// A chain of iptables, as long as it takes them.
pub(crate) fn chain(prefix: &str, network: &str, container: &str) -> String {
    hashed(
        &format!("CNI-{prefix}"),
        &format!("{network}{container}"),
        28,
    )
}
