//! Which system calls a plugin of a kind has no use for: they are refused with `EPERM`, all others pass.
//!
//! Not a list of what is needed: such a list is one of a library's version, and what it lacks is a crash.

use kernel_filters::{Action, Argument, Filter, Operator, Profile, Rule, SeccompError};
use serde::{Deserialize, Serialize};

/// Calls that change the machine, or look into other processes.
const MACHINE: &[&str] = &[
    "acct",
    "add_key",
    "clock_settime",
    "delete_module",
    "finit_module",
    "init_module",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "open_by_handle_at",
    "perf_event_open",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "reboot",
    "request_key",
    "settimeofday",
    "swapoff",
    "swapon",
];
/// Programs loaded into the kernel.
const PROGRAMS: &[&str] = &["bpf"];
/// Mounts and namespaces.
const MOUNTS: &[&str] = &[
    "chroot",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "pivot_root",
    "setns",
    "umount2",
    "unshare",
];

/// The system calls that a process may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SystemCalls {
    /// All of them: no filter.
    All,
    /// Those that no network needs are refused.
    Network,
    /// Those that no volume needs are refused.
    Storage,
    /// Those that a client of a daemon does not need are refused, those for mounts and namespaces as well.
    Client,
}

impl SystemCalls {
    /// The names of the calls that are refused.
    pub fn denied(self) -> Vec<&'static str> {
        let lists: &[&[&str]] = match self {
            Self::All => &[],
            Self::Network => &[MACHINE],
            Self::Storage => &[MACHINE, PROGRAMS],
            Self::Client => &[MACHINE, PROGRAMS, MOUNTS],
        };
        lists.concat()
    }

    /// The filter; none where all pass.
    pub(crate) fn filter(self) -> Result<Option<Filter>, SeccompError> {
        let names: Vec<String> = self.denied().into_iter().map(str::to_owned).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let profile = Profile {
            default_action: Action::Allow,
            default_errno_ret: None,
            // A program of 32 bits gets ENOSYS rather than a signal.
            architectures: ["SCMP_ARCH_X86", "SCMP_ARCH_ARM"]
                .map(str::to_owned)
                .to_vec(),
            flags: Vec::new(),
            listener_path: String::new(),
            listener_metadata: String::new(),
            syscalls: vec![refused(names, Vec::new()), faults_of_the_kernel()],
        };
        Filter::compile(&profile).map(Some)
    }
}

fn refused(names: Vec<String>, args: Vec<Argument>) -> Rule {
    Rule {
        names,
        action: Action::Errno,
        errno_ret: None,
        args,
    }
}

/// Whoever holds up faults of the kernel itself wins its races. A process's own faults are its own, and are what a plugin
/// uses to keep its code small (`kernel/heap`).
fn faults_of_the_kernel() -> Rule {
    const UFFD_USER_MODE_ONLY: u64 = 1;
    let flags = Argument {
        index: 0,
        value: UFFD_USER_MODE_ONLY,
        value_two: 0,
        op: Operator::MaskedEqual,
    };
    refused(vec!["userfaultfd".to_owned()], vec![flags])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_refused_what_the_next_freer_one_is_and_more() {
        use SystemCalls::{All, Client, Network, Storage};
        for (freer, stricter) in [(All, Network), (Network, Storage), (Storage, Client)] {
            let (freer, stricter) = (freer.denied(), stricter.denied());
            assert!(freer.len() < stricter.len());
            assert!(freer.iter().all(|name| stricter.contains(name)));
        }
        assert!(All.filter().unwrap().is_none());
        assert!(Client.filter().unwrap().is_some());
    }
}
