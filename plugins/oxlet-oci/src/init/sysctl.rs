//! Kernel parameters of a container's own namespaces, and no others.

use std::fs::File;
use std::io::{self, Write};

use nix::sched::CloneFlags;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use super::namespaces::Namespaces;
use super::{InitError, cannot};

/// Parameters of IPC namespaces (the `sysctl` check of runc's `configs/validate`).
const OF_IPC: [&str; 8] = [
    "kernel/msgmax",
    "kernel/msgmnb",
    "kernel/msgmni",
    "kernel/sem",
    "kernel/shmall",
    "kernel/shmmax",
    "kernel/shmmni",
    "kernel/shm_rmid_forced",
];

/// Writes parameters; this process is in the namespaces, and the node's procfs shows those of whoever asks.
pub(crate) fn write(
    sysctls: &[(String, String)],
    namespaces: &Namespaces,
) -> Result<(), InitError> {
    if sysctls.is_empty() {
        return Ok(());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let all = openat(CWD, "/proc/sys", flags, Mode::empty()).map_err(cannot("open /proc/sys"))?;
    for (name, value) in sysctls {
        let path = path(name);
        let needed = namespace_of(&path);
        if !needed.is_some_and(|flag| namespaces.has(flag)) {
            return Err(InitError::Refused(format!(
                "sysctl {name:?} is not in a separate kernel namespace"
            )));
        }
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&all, path.as_str(), flags, Mode::empty(), resolve)
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).write_all(value.as_bytes()))
            .map_err(cannot(format!("set sysctl {name}")))?;
    }
    Ok(())
}

/// A parameter's path: dots separate its parts, unless a slash does so first (sysctl.d(5)).
fn path(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(first) if name.as_bytes().get(first) == Some(&b'.') => name
            .chars()
            .map(|letter| match letter {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
        Some(_) | None => name.to_owned(),
    }
}

/// Which namespace a parameter belongs to; `None` if it is the node's.
fn namespace_of(path: &str) -> Option<CloneFlags> {
    if OF_IPC.contains(&path) || path.starts_with("fs/mqueue/") {
        return Some(CloneFlags::CLONE_NEWIPC);
    }
    if path.starts_with("net/") {
        return Some(CloneFlags::CLONE_NEWNET);
    }
    matches!(path, "kernel/domainname" | "kernel/hostname").then_some(CloneFlags::CLONE_NEWUTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_belongs_to_a_namespace_or_to_the_node() {
        for (name, expected_path, expected) in [
            (
                "net.ipv4.tcp_syncookies",
                "net/ipv4/tcp_syncookies",
                Some(CloneFlags::CLONE_NEWNET),
            ),
            (
                "net.ipv4.conf.eth0/1.forwarding",
                "net/ipv4/conf/eth0.1/forwarding",
                Some(CloneFlags::CLONE_NEWNET),
            ),
            (
                "net/ipv4/conf/eth0.1/forwarding",
                "net/ipv4/conf/eth0.1/forwarding",
                Some(CloneFlags::CLONE_NEWNET),
            ),
            (
                "kernel.shmmax",
                "kernel/shmmax",
                Some(CloneFlags::CLONE_NEWIPC),
            ),
            (
                "fs.mqueue.msg_max",
                "fs/mqueue/msg_max",
                Some(CloneFlags::CLONE_NEWIPC),
            ),
            (
                "kernel.domainname",
                "kernel/domainname",
                Some(CloneFlags::CLONE_NEWUTS),
            ),
            ("vm.swappiness", "vm/swappiness", None),
            ("kernel.core_pattern", "kernel/core_pattern", None),
        ] {
            let path = path(name);
            assert_eq!(
                (path.as_str(), namespace_of(&path)),
                (expected_path, expected)
            );
        }
    }
}
