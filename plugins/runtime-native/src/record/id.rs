//! Ids of sandboxes and containers, and the id of the machine's boot.

use std::fs::{self, File};
use std::io::{self, Read};

/// Returns a new id: 64 random hexadecimal digits, as container runtimes write them. Fails without a random source.
pub(crate) fn new_id() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns what tells this boot of the machine from every other. Fails where `/proc` has no word of it.
pub(crate) fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}
