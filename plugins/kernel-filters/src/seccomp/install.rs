//! A filter is installed for this thread and all that it becomes.

use crate::seccomp::program::{Filter, SeccompError};

/// Installs a filter for good. Needs no-new-privileges or CAP_SYS_ADMIN; it changes neither.
pub fn install(filter: &Filter) -> Result<(), SeccompError> {
    let mut instructions = filter.instructions.clone();
    let length =
        u16::try_from(instructions.len()).map_err(|_| SeccompError::TooLong(instructions.len()))?;
    let program = libc::sock_fprog {
        len: length,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: the program and its instructions live over the call, which copies them; no memory of ours is changed.
    let installed = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            filter.flags,
            &raw const program,
        )
    };
    if installed == 0 {
        Ok(())
    } else {
        Err(SeccompError::Install(std::io::Error::last_os_error()))
    }
}
