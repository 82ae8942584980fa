//! Kernel parameters of the thread's network namespace.
//!
//! `/proc/sys/net/ipv4` is another folder in each network namespace, but the kernel keeps all of them in one bucket of its
//! cache: looking it up takes longer with every pod on the node. Each thread looks it up once, which is right because no
//! thread changes its namespace after it has used a parameter (`inside`).

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat};

const FAMILIES: [&str; 2] = ["net/ipv4/", "net/ipv6/"];

thread_local! {
    /// The folders of `FAMILIES` in the thread's namespace.
    static FOLDERS: [OnceCell<OwnedFd>; 2] = const { [OnceCell::new(), OnceCell::new()] };
}

/// Writes `value` into a parameter, `net/ipv4/ip_forward`.
pub(crate) fn write(name: &str, value: &str) -> io::Result<()> {
    open(name, OFlags::WRONLY)?.write_all(value.as_bytes())
}

/// Reads a parameter.
pub(crate) fn read(name: &str) -> io::Result<String> {
    let mut value = String::new();
    open(name, OFlags::RDONLY)?.read_to_string(&mut value)?;
    Ok(value.trim_end().to_owned())
}

/// Writes a parameter unless it is so already: the file system may be read-only then.
pub(crate) fn ensure(name: &str, value: &str) -> io::Result<()> {
    match read(name)? == value {
        true => Ok(()),
        false => write(name, value),
    }
}

fn open(name: &str, access: OFlags) -> io::Result<File> {
    let access = access | OFlags::CLOEXEC;
    let open_at = |folder: BorrowedFd<'_>, name: &str| {
        let file = openat(folder, name, access, Mode::empty())?;
        Ok(file.into())
    };
    for (number, family) in FAMILIES.iter().enumerate() {
        if let Some(name) = name.strip_prefix(family) {
            return FOLDERS.with(|folders| open_at(folder(&folders[number], family)?, name));
        }
    }
    open_at(CWD, &format!("/proc/sys/{name}"))
}

fn folder<'a>(known: &'a OnceCell<OwnedFd>, family: &str) -> io::Result<BorrowedFd<'a>> {
    if let Some(folder) = known.get() {
        return Ok(folder.as_fd());
    }
    let path = format!("/proc/sys/{family}");
    let opened = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    Ok(known.get_or_init(|| opened).as_fd())
}
