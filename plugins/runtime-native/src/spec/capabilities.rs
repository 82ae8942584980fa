//! Capabilities: the default set, `ALL`, additions and drops.

use std::collections::BTreeSet;

use super::{SpecError, SpecInput};

/// Every capability that Linux has, in the order of their numbers.
pub(super) const KNOWN: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// What a container has without a word: containerd's set.
const DEFAULT: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// Returns the names of the capabilities in a mask such as `CapBnd` of `/proc/self/status`.
pub(crate) fn names(mask: u64) -> Vec<&'static str> {
    let held = |number: &usize| mask >> number & 1 == 1;
    let numbers = (0..KNOWN.len()).filter(held);
    numbers.map(|number| KNOWN[number]).collect()
}

/// Returns the container's capabilities: bounding, effective and permitted. Nothing is inheritable or ambient.
pub(super) fn of(input: SpecInput<'_>) -> Result<BTreeSet<&'static str>, SpecError> {
    let all = || input.host.capabilities.iter().copied().collect();
    if input.privileged() {
        return Ok(all());
    }
    let asked = input
        .security()
        .and_then(|context| context.capabilities.clone())
        .unwrap_or_default();
    if !asked.add_ambient_capabilities.is_empty() {
        return Err(SpecError::Unsupported("ambient capabilities"));
    }
    // What the node itself lacks cannot be given by default, as little as by name.
    let default = DEFAULT.into_iter();
    let mut held: BTreeSet<_> = default
        .filter(|name| input.host.capabilities.contains(name))
        .collect();
    let is_all = |name: &String| name.eq_ignore_ascii_case("ALL");
    if asked.add_capabilities.iter().any(is_all) {
        held = all();
    }
    if asked.drop_capabilities.iter().any(is_all) {
        held.clear();
    }
    for name in asked.add_capabilities.iter().filter(|name| !is_all(name)) {
        held.insert(addable(name, input)?);
    }
    for name in asked.drop_capabilities.iter().filter(|name| !is_all(name)) {
        held.remove(known(name)?);
    }
    Ok(held)
}

fn addable(name: &str, input: SpecInput<'_>) -> Result<&'static str, SpecError> {
    let known = known(name)?;
    if input.host.capabilities.contains(&known) {
        return Ok(known);
    }
    Err(SpecError::Unenforceable {
        field: "capability",
        value: name.to_owned(),
        why: "this node's runtime does not have it to give",
    })
}

fn known(name: &str) -> Result<&'static str, SpecError> {
    let upper = name.to_ascii_uppercase();
    let full = match upper.strip_prefix("CAP_") {
        Some(_) => upper,
        None => format!("CAP_{upper}"),
    };
    let found = KNOWN.into_iter().find(|known| *known == full);
    found.ok_or_else(|| SpecError::Invalid {
        field: "capability",
        found: name.to_owned(),
        expected: "the name of one of Linux's capabilities",
    })
}
