//! Before it enters a container, the program becomes a copy of itself in sealed memory: a process in the container
//! that gets hold of `/proc/PID/exe` (CVE-2019-5736) then has a file that nobody can write, and that is gone soon.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

const NAME: &str = "oxlet-oci";

/// Closes every descriptor but the streams: none of the caller's can leak into a container (CVE-2024-21626).
pub(crate) fn close_inherited() {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let open: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // One of them was the folder's own, which is closed already.
        let _ = nix::unistd::close(fd);
    }
}

/// Goes on as the sealed copy; returns at once when it is that already.
pub(crate) fn become_sealed() -> io::Result<()> {
    let exe = fs::read_link("/proc/self/exe")?;
    if exe
        .as_os_str()
        .as_bytes()
        .starts_with(format!("/memfd:{NAME}").as_bytes())
    {
        return Ok(());
    }
    let memory = File::from(memfd_create(
        NAME,
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?);
    io::copy(&mut File::open("/proc/self/exe")?, &mut &memory)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&memory, seals)?;
    let path = CString::new(format!("/proc/self/fd/{}", memory.as_raw_fd()))?;
    let args: Vec<CString> = std::env::args_os()
        .map(|arg| CString::new(arg.as_bytes()))
        .collect::<Result<_, _>>()?;
    match nix::unistd::execv(&path, &args) {
        Ok(never) => match never {},
        Err(error) => Err(error.into()),
    }
}
