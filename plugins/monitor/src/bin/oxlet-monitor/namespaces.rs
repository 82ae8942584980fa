//! `oxlet-monitor namespaces [net] [ipc] [uts]`: a user namespace and others that belong to it, held until standard
//! input ends.
//!
//! Only a process of one thread can enter a user namespace, and only from outside of it can all ids be mapped. So the
//! caller and this process take turns, a byte each: this process is in a user namespace; the caller has mapped its ids;
//! this process has made the other namespaces; the caller has pinned them and closes standard input.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};

use nix::sched::{CloneFlags, unshare};

/// Makes the namespaces and waits for the end of standard input.
pub(crate) fn hold(names: impl Iterator<Item = OsString>) -> Result<(), String> {
    let mut flags = CloneFlags::empty();
    for name in names {
        flags |= flag(&name).ok_or_else(|| format!("{name:?} is no namespace's name"))?;
    }
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| format!("no user namespace: {error}"))?;
    let turn = |error: io::Error| format!("the caller is gone: {error}");
    tell().map_err(turn)?;
    io::stdin().read_exact(&mut [0]).map_err(turn)?;
    unshare(flags).map_err(|error| format!("no namespaces: {error}"))?;
    tell().map_err(turn)?;
    let ended = io::copy(&mut io::stdin().lock(), &mut io::sink());
    ended.map(drop).map_err(turn)
}

fn tell() -> io::Result<()> {
    io::stdout().write_all(b".")?;
    io::stdout().flush()
}

fn flag(name: &OsStr) -> Option<CloneFlags> {
    match name.to_str()? {
        "net" => Some(CloneFlags::CLONE_NEWNET),
        "ipc" => Some(CloneFlags::CLONE_NEWIPC),
        "uts" => Some(CloneFlags::CLONE_NEWUTS),
        _ => None,
    }
}
