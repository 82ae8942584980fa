//! Kernel parameters, in the namespace of the thread.

use std::fs;
use std::io;

/// Writes `value` into a parameter, `net/ipv4/ip_forward`.
pub(crate) fn write(name: &str, value: &str) -> io::Result<()> {
    fs::write(path(name), value)
}

/// Reads a parameter.
pub(crate) fn read(name: &str) -> io::Result<String> {
    Ok(fs::read_to_string(path(name))?.trim_end().to_owned())
}

/// Writes a parameter unless it is so already: the file system may be read-only then.
pub(crate) fn ensure(name: &str, value: &str) -> io::Result<()> {
    match read(name)? == value {
        true => Ok(()),
        false => write(name, value),
    }
}

fn path(name: &str) -> String {
    format!("/proc/sys/{name}")
}
