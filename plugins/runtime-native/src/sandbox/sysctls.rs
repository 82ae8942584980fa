//! Sysctls of a pod: checked against its namespaces before anything is written. Pure.

use std::collections::{BTreeMap, HashMap};

use super::namespaces::OwnNamespaces;

/// Sysctls of an IPC namespace (`man 7 ipc_namespaces`).
const OF_IPC: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
];

/// Why a sysctl is not set.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum SysctlError {
    #[error("sysctl {0:?} is no name of a sysctl")]
    Name(String),
    #[error("sysctl {0:?} is of the whole node: only those of a pod's own namespaces can be set")]
    OfNode(String),
    #[error("sysctl {name:?} cannot be set: the pod uses the node's {namespace} namespace")]
    Shared {
        name: String,
        namespace: &'static str,
    },
}

/// Returns the files below `/proc/sys` and their values.
pub(crate) fn files(
    asked: &HashMap<String, String>,
    own: OwnNamespaces,
) -> Result<Vec<(String, String)>, SysctlError> {
    let sorted: BTreeMap<_, _> = asked.iter().collect();
    sorted
        .into_iter()
        .map(|(name, value)| {
            let dotted = dotted(name)?;
            check(&dotted, own)?;
            Ok((file(&dotted), value.clone()))
        })
        .collect()
}

/// Returns the name with dots between its parts, as sysctl(8) reads it: the first separator of a name is its own.
fn dotted(name: &str) -> Result<String, SysctlError> {
    let swap = name.find(['.', '/']).map(|at| name.as_bytes()[at]) == Some(b'/');
    let dotted = if swap { swapped(name) } else { name.to_owned() };
    let sound = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/".contains(&byte);
        !part.is_empty() && !part.starts_with('/') && part.bytes().all(plain)
    };
    if dotted.split('.').count() < 2 || !dotted.split('.').all(sound) || dotted.contains("//") {
        return Err(SysctlError::Name(name.to_owned()));
    }
    Ok(dotted)
}

fn swapped(name: &str) -> String {
    let swap = |letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swap).collect()
}

fn file(dotted: &str) -> String {
    swapped(dotted)
}

fn check(name: &str, own: OwnNamespaces) -> Result<(), SysctlError> {
    let (has, namespace) = if name.starts_with("net.") {
        (own.network, "network")
    } else if OF_IPC.contains(&name) || name.starts_with("fs.mqueue.") {
        (own.ipc, "IPC")
    } else {
        return Err(SysctlError::OfNode(name.to_owned()));
    };
    if has {
        return Ok(());
    }
    Err(SysctlError::Shared {
        name: name.to_owned(),
        namespace,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: OwnNamespaces = OwnNamespaces {
        user: false,
        network: true,
        ipc: true,
        uts: true,
    };

    fn one(name: &str, own: OwnNamespaces) -> Result<Vec<(String, String)>, SysctlError> {
        files(&HashMap::from([(name.to_owned(), "1".to_owned())]), own)
    }

    #[test]
    fn sysctls_of_the_pods_namespaces_become_files() {
        for (name, file) in [
            ("net.ipv4.ip_forward", "net/ipv4/ip_forward"),
            ("net/ipv4/ip_forward", "net/ipv4/ip_forward"),
            (
                "net.ipv4.conf.eth0/100.rp_filter",
                "net/ipv4/conf/eth0.100/rp_filter",
            ),
            ("kernel.shmmax", "kernel/shmmax"),
            ("fs.mqueue.msg_max", "fs/mqueue/msg_max"),
        ] {
            assert_eq!(
                one(name, ALL),
                Ok(vec![(file.to_owned(), "1".to_owned())]),
                "{name}"
            );
        }
    }

    #[test]
    fn a_sysctl_of_the_node_is_refused() {
        for name in ["kernel.panic", "vm.swappiness", "fs.file-max", "kernel.shm"] {
            assert_eq!(one(name, ALL), Err(SysctlError::OfNode(name.to_owned())));
        }
    }

    #[test]
    fn a_sysctl_of_a_shared_namespace_is_refused() {
        let host = OwnNamespaces {
            user: false,
            network: false,
            ipc: false,
            uts: false,
        };
        for name in ["net.ipv4.ip_forward", "kernel.shmmax", "fs.mqueue.msg_max"] {
            assert!(matches!(one(name, host), Err(SysctlError::Shared { .. })));
        }
    }

    #[test]
    fn a_name_cannot_lead_out_of_its_folder() {
        for name in [
            "",
            "net",
            "net..ipv4",
            "net/../kernel/panic",
            "net./../../x.y",
            "net.ipv4.a//b",
            "net.\0.x",
        ] {
            assert!(
                matches!(one(name, ALL), Err(SysctlError::Name(_))),
                "{name}"
            );
        }
    }
}
