//! A filter is attached to a cgroup of version 2, in the place of those that were attached before.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::devices::program::{DeviceFilter, Instruction};

/// Commands, types and flags of linux/bpf.h.
const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const PROG_DETACH: libc::c_int = 9;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const PROG_QUERY: libc::c_int = 16;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 2;
const REPLACE: u32 = 4;
/// No cgroup has more programs of a type (`BPF_CGROUP_MAX_PROGS`).
const MAX_ATTACHED: u32 = 64;
/// The program calls none of the kernel's functions: none of those that want the GPL.
const LICENSE: &[u8] = b"Apache-2.0\0";

/// Why a cgroup's devices cannot be filtered.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("cgroup {} cannot be opened", .0.display())]
    Open(PathBuf, #[source] io::Error),
    #[error("the kernel does not take the program that filters devices")]
    Load(#[source] io::Error),
    #[error("the programs of cgroup {} cannot be listed", .0.display())]
    Query(PathBuf, #[source] io::Error),
    #[error("devices of cgroup {} cannot be filtered", .0.display())]
    Attach(PathBuf, #[source] io::Error),
    #[error("the filter before cannot be taken from cgroup {}", .0.display())]
    Detach(PathBuf, #[source] io::Error),
}

/// Attaches a filter to a cgroup, whose folder is given. One that was there is replaced in one step; at no time has
/// the cgroup none. Where several were there (systemd may leave its own), the new one is added first: devices are then
/// filtered by all of them until the others are taken away.
pub fn attach(filter: &DeviceFilter, cgroup: &Path) -> Result<(), AttachError> {
    let at = || cgroup.to_owned();
    let folder = File::open(cgroup).map_err(|error| AttachError::Open(at(), error))?;
    let before = attached(folder.as_fd()).map_err(|error| AttachError::Query(at(), error))?;
    let program = load(&filter.instructions).map_err(AttachError::Load)?;
    let (flags, replaced) = match before.as_slice() {
        [one] => (ALLOW_MULTI | REPLACE, Some(one.as_fd())),
        _ => (ALLOW_MULTI, None),
    };
    put(PROG_ATTACH, &folder, program.as_fd(), flags, replaced)
        .map_err(|error| AttachError::Attach(at(), error))?;
    if replaced.is_none() {
        for old in &before {
            put(PROG_DETACH, &folder, old.as_fd(), 0, None)
                .map_err(|error| AttachError::Detach(at(), error))?;
        }
    }
    Ok(())
}

/// The programs that are attached to the cgroup itself, but those that this process may not see: what they refuse
/// stays refused.
fn attached(folder: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut ids = [0_u32; MAX_ATTACHED as usize];
    let mut query = Query {
        target: fd(folder),
        kind: CGROUP_DEVICE,
        ids: address(&raw mut ids),
        count: MAX_ATTACHED,
        ..Query::default()
    };
    bpf(PROG_QUERY, &mut query)?;
    let found = usize::try_from(query.count)
        .unwrap_or_default()
        .min(ids.len());
    let mut programs = Vec::new();
    for id in &ids[..found] {
        match bpf(
            PROG_GET_FD_BY_ID,
            &mut ById {
                id: *id,
                ..ById::default()
            },
        ) {
            Ok(number) => programs.push(owned(number)),
            Err(error) => match error.raw_os_error() {
                // Gone since, or hidden by a security module.
                Some(libc::ENOENT | libc::EPERM | libc::EACCES) => {}
                _ => return Err(error),
            },
        }
    }
    Ok(programs)
}

fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let mut load = Load {
        kind: PROG_TYPE_CGROUP_DEVICE,
        count: u32::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        instructions: address(instructions.as_ptr()),
        license: address(LICENSE.as_ptr()),
        ..Load::default()
    };
    bpf(PROG_LOAD, &mut load).map(owned)
}

fn put(
    command: libc::c_int,
    folder: &File,
    program: BorrowedFd<'_>,
    flags: u32,
    replaced: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut attach = Attach {
        target: fd(folder.as_fd()),
        program: fd(program),
        kind: CGROUP_DEVICE,
        flags,
        replaced: replaced.map(fd).unwrap_or_default(),
    };
    bpf(command, &mut attach).map(|_| ())
}

/// The parts of `union bpf_attr` that are used; the kernel takes each as zero from where it ends.
trait Attributes {}

#[derive(Default)]
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    /// The verifier's words are not asked for.
    log: [u64; 2],
    kernel: u32,
    flags: u32,
}

#[derive(Default)]
#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
    replaced: u32,
}

#[derive(Default)]
#[repr(C)]
struct Query {
    target: u32,
    kind: u32,
    flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
}

#[derive(Default)]
#[repr(C)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

impl Attributes for Load {}
impl Attributes for Attach {}
impl Attributes for Query {}
impl Attributes for ById {}

fn bpf<T: Attributes>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: every part of `bpf_attr` above is plain words, laid out as the kernel's, and lives over the call; the
    // addresses in it are of slices of their callers that do too, with as many elements as are said beside them.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            size_of::<T>(),
        )
    };
    match libc::c_int::try_from(answer) {
        Ok(number) if number >= 0 => Ok(number),
        _ => Err(io::Error::last_os_error()),
    }
}

fn owned(number: libc::c_int) -> OwnedFd {
    // SAFETY: the kernel has just given this descriptor to `bpf`, and nothing else knows it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

fn fd(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::rule::DeviceRule;

    /// The verifier reads every path of the program; it is there on machines with cgroup v1 as well.
    #[test]
    fn the_kernel_takes_every_shape_of_rule() {
        let rule = |allow, kind: &str, access: &str| DeviceRule {
            allow,
            kind: Some(kind.to_owned()),
            major: Some(8),
            minor: (allow).then_some(1),
            access: Some(access.to_owned()),
        };
        for last in ["a", "b", "c"] {
            let rules = [
                rule(false, "a", "rwm"),
                rule(true, "c", "rw"),
                rule(false, "b", "m"),
                rule(true, last, "m"),
            ];
            let filter = DeviceFilter::compile(&rules).unwrap();
            match load(&filter.instructions) {
                Ok(_) => {}
                // Not root: what the verifier says cannot be had.
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => return,
                Err(error) => panic!("{last}: {error}"),
            }
        }
    }
}
