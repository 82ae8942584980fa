//! System calls that a container's init needs and that neither rustix nor nix has in a safe form: one function each,
//! safe to call, with the reason beside its `unsafe`.

mod mount;
mod process;
mod scheduling;

pub use mount::{MountAttributes, Propagation, set_mount_attributes};
pub use process::{
    ChildFlags, Forked, close_on_exec_from, fork, join_session_keyring, reset_signals,
    session_keyring_permissions, set_keyring_permissions,
};
pub use scheduling::{IoClass, Scheduling, set_io_priority, set_scheduling};

use std::io;

/// Turns the answer of a system call into a result.
fn checked(answer: libc::c_long) -> io::Result<libc::c_long> {
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer)
    }
}
