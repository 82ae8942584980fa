//! Ids of sandboxes and containers, and the id of the machine's boot.

use std::fs::{self, File};
use std::io::{self, Read};

/// The digits of an id.
const ID_LENGTH: usize = 64;

/// Returns a new id: 64 random hexadecimal digits, as container runtimes write them. Fails without a random source.
pub(crate) fn new_id() -> io::Result<String> {
    let mut bytes = [0; ID_LENGTH / 2];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether a text is such an id.
pub(crate) fn is_id(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == ID_LENGTH && text.bytes().all(is_digit)
}

/// Returns what tells this boot of the machine from every other. Fails where `/proc` has no word of it.
pub(crate) fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}
