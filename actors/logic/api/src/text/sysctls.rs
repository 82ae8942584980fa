//! Which kernel settings a pod may have of its own (upstream's pkg/kubelet/sysctl and
//! component-helpers' node/util/sysctl at v1.36).
//!
//! A setting is safe when the kernel keeps it apart for each pod and it has no influence on others; the
//! operator may allow more by name or prefix (`allowedUnsafeSysctls`).

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::pod::PodView;

/// The safe settings, each with the kernel from which on it is kept apart for each pod.
const SAFE: [(&str, KernelVersion); 12] = [
    ("kernel.shm_rmid_forced", KernelVersion::ANY),
    ("net.ipv4.ip_local_port_range", KernelVersion::ANY),
    ("net.ipv4.tcp_syncookies", KernelVersion::ANY),
    ("net.ipv4.ping_group_range", KernelVersion::ANY),
    ("net.ipv4.ip_unprivileged_port_start", KernelVersion::ANY),
    ("net.ipv4.ip_local_reserved_ports", KernelVersion(3, 16)),
    ("net.ipv4.tcp_keepalive_time", KernelVersion(4, 5)),
    ("net.ipv4.tcp_fin_timeout", KernelVersion(4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", KernelVersion(4, 5)),
    ("net.ipv4.tcp_keepalive_probes", KernelVersion(4, 5)),
    ("net.ipv4.tcp_rmem", KernelVersion(4, 15)),
    ("net.ipv4.tcp_wmem", KernelVersion(4, 15)),
];

/// Settings of a namespace by their whole name; `kernel.msg` and `kernel.shm` stand for patterns.
const NAMES: [(&str, KernelNamespace); 11] = [
    ("kernel.domainname", KernelNamespace::Uts),
    ("kernel.msg", KernelNamespace::Ipc),
    ("kernel.msgmax", KernelNamespace::Ipc),
    ("kernel.msgmnb", KernelNamespace::Ipc),
    ("kernel.msgmni", KernelNamespace::Ipc),
    ("kernel.sem", KernelNamespace::Ipc),
    ("kernel.shm", KernelNamespace::Ipc),
    ("kernel.shm_rmid_forced", KernelNamespace::Ipc),
    ("kernel.shmall", KernelNamespace::Ipc),
    ("kernel.shmmax", KernelNamespace::Ipc),
    ("kernel.shmmni", KernelNamespace::Ipc),
];

/// Settings of a namespace by how their name begins.
const PREFIXES: [(&str, KernelNamespace); 3] = [
    ("net.", KernelNamespace::Net),
    ("fs.mqueue.", KernelNamespace::Ipc),
    ("user.", KernelNamespace::User),
];

/// Characters of a sysctl's name: the API's `SysctlMaxLength`.
const MAX_NAME_LENGTH: usize = 253;
const PATTERN: &str = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]";

/// The kernel's major and minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    const ANY: Self = Self(0, 0);

    /// Reads a release such as `6.1.0-18-amd64`.
    pub fn parse(release: &str) -> Option<Self> {
        let end = |c: char| !c.is_ascii_digit() && c != '.';
        let mut numbers = release.trim().split(end).next()?.split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next().map_or(Some(0), |text| text.parse().ok())?;
        Some(Self(major, minor))
    }
}

/// The safe settings of a kernel; of one that is not known, those of every kernel.
pub fn safe_allowlist(kernel: Option<KernelVersion>) -> Vec<&'static str> {
    let kernel = kernel.unwrap_or(KernelVersion::ANY);
    let known = SAFE.iter().filter(|(_, since)| kernel >= *since);
    known.map(|(name, _)| *name).collect()
}

/// The kernel's namespace that a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelNamespace {
    Ipc,
    Net,
    Uts,
    User,
}

impl fmt::Display for KernelNamespace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Ipc => "IPC",
            Self::Net => "Net",
            Self::Uts => "UTS",
            Self::User => "User",
        })
    }
}

/// The namespace of a setting or of a pattern's beginning; none where the whole node shares it.
fn namespace(name: &str) -> Option<KernelNamespace> {
    let named = NAMES.iter().find(|(known, _)| *known == name);
    let begun = || PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix));
    named.or_else(begun).map(|(_, namespace)| *namespace)
}

/// `net.ipv4.x` for `net/ipv4/x`: a name whose first separator is a slash has slashes and dots exchanged.
pub fn dotted(name: &str) -> String {
    let exchanged = |c| match c {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => name.chars().map(exchanged).collect(),
        _ => name.to_owned(),
    }
}

/// Why a pattern of the operator's cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SysctlPatternError {
    #[error(
        "sysctl {pattern:?} must have at most {MAX_NAME_LENGTH} characters and match regex {PATTERN}"
    )]
    Form { pattern: String },
    #[error("the sysctls {name:?} are not known to be namespaced")]
    Shared { name: String },
}

/// Why a pod may not have a setting.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SysctlForbidden {
    #[error("forbidden sysctl: {name:?} not allowed with host {namespace} enabled")]
    OnNode {
        name: String,
        namespace: KernelNamespace,
    },
    #[error("forbidden sysctl: {name:?} not allowlisted")]
    NotAllowed { name: String },
}

impl SysctlForbidden {
    /// The reason of the pod's rejection; its message is this error's text.
    pub const REASON: &str = "SysctlForbidden";
}

/// Which settings pods may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysctlAllowlist {
    names: BTreeMap<String, KernelNamespace>,
    prefixes: BTreeMap<String, KernelNamespace>,
}

impl SysctlAllowlist {
    /// Takes names and patterns; a pattern is a beginning, `*` at its end.
    pub fn new<'a>(
        patterns: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, SysctlPatternError> {
        let mut list = Self::default();
        for pattern in patterns {
            if !is_pattern(pattern) {
                let pattern = pattern.to_owned();
                return Err(SysctlPatternError::Form { pattern });
            }
            let name = dotted(pattern);
            let (name, wanted) = match name.split_once('*') {
                Some((prefix, _)) => (prefix.to_owned(), &mut list.prefixes),
                None => (name, &mut list.names),
            };
            let Some(namespace) = namespace(&name) else {
                return Err(SysctlPatternError::Shared { name });
            };
            wanted.insert(name, namespace);
        }
        Ok(list)
    }

    /// Whether a pod that shares these namespaces of the node may have a setting.
    pub fn allows(
        &self,
        name: &str,
        host_network: bool,
        host_ipc: bool,
    ) -> Result<(), SysctlForbidden> {
        let name = dotted(name);
        let mut begun = self.prefixes.iter();
        let found = self.names.get(&name).or_else(|| {
            let prefix = begun.find(|(prefix, _)| name.starts_with(prefix.as_str()));
            prefix.map(|(_, namespace)| namespace)
        });
        match found {
            None => Err(SysctlForbidden::NotAllowed { name }),
            Some(KernelNamespace::Ipc) if host_ipc => {
                let namespace = KernelNamespace::Ipc;
                Err(SysctlForbidden::OnNode { name, namespace })
            }
            Some(KernelNamespace::Net) if host_network => {
                let namespace = KernelNamespace::Net;
                Err(SysctlForbidden::OnNode { name, namespace })
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether a pod may set all of its sysctls. The error names the first forbidden one.
    pub fn admits(&self, pod: &Pod) -> Result<(), SysctlForbidden> {
        let asked = pod.security().and_then(|s| s.sysctls.as_deref());
        let mut asked = asked.unwrap_or_default().iter();
        asked.try_for_each(|s| self.allows(&s.name, pod.host_network(), pod.host_ipc()))
    }
}

/// Whether the text is names between dots or slashes, with at most a star at its end.
fn is_pattern(text: &str) -> bool {
    let (name, star) = match text.strip_suffix('*') {
        Some(name) => (name, true),
        None => (text, false),
    };
    let mut parts = name.split(['.', '/']).rev();
    let last = parts.next().unwrap_or_default();
    let last_is_good = if star {
        last.is_empty() || is_segment(last, "-_")
    } else {
        is_segment(last, "")
    };
    text.len() <= MAX_NAME_LENGTH && last_is_good && parts.all(|part| is_segment(part, ""))
}

/// Small letters, digits, and `-` and `_` between them; `ends` may stand at the end too.
fn is_segment(part: &str, ends: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let good = |c: char| plain(c) || c == '-' || c == '_';
    part.chars().all(good)
        && part.starts_with(plain)
        && part.ends_with(|c| plain(c) || ends.contains(c))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSecurityContext, Sysctl};

    use super::*;
    use crate::testing::*;

    const NEW: Option<KernelVersion> = Some(KernelVersion(6, 1));

    fn list(more: &[&'static str]) -> Result<SysctlAllowlist, SysctlPatternError> {
        let safe = safe_allowlist(NEW).into_iter();
        SysctlAllowlist::new(safe.chain(more.iter().copied()))
    }

    /// Upstream's TestNewAllowlist.
    #[test]
    fn patterns_are_beginnings_within_a_namespace() {
        let good: [&[&str]; 5] = [
            &["kernel.msg*", "kernel.sem"],
            &["kernel/msg*", "kernel/sem"],
            &["net.*"],
            &["net.core.some-*", "net.core.some_*"],
            &[
                "fs.mqueue.*",
                "user.max_pid_namespaces",
                "kernel.domainname",
            ],
        ];
        for patterns in good {
            assert!(list(patterns).is_ok(), "{patterns:?}");
        }
        let bad = [
            " kernel.msg*",
            "kernel.msg* ",
            "net.-",
            "net.*.foo",
            "net.*/foo",
            "foo",
            "foo*",
            "*",
            "",
            "net..x",
            "net.X",
            "fs.file-max",
        ];
        for pattern in bad {
            assert!(SysctlAllowlist::new([pattern]).is_err(), "{pattern:?}");
        }
        let long = format!("net.{}", "x".repeat(250));
        assert!(SysctlAllowlist::new([long.as_str()]).is_err());
        let shared = list(&["vm.swap*"]).unwrap_err().to_string();
        assert_eq!(
            shared,
            r#"the sysctls "vm.swap" are not known to be namespaced"#
        );
    }

    /// Upstream's TestAllowlist.
    #[test]
    fn only_what_is_listed_and_not_the_nodes_own_is_allowed() {
        let list = list(&["kernel.msg*", "kernel.sem", "net.b.*"]).unwrap();
        for name in [
            "kernel.shm_rmid_forced",
            "kernel/shm_rmid_forced",
            "net.ipv4.ip_local_port_range",
            "kernel.msgmax",
            "kernel.sem",
            "kernel/sem",
        ] {
            assert_eq!(list.allows(name, false, false), Ok(()), "{name}");
        }
        let refused = [
            (
                "kernel.shm_rmid_forced",
                false,
                true,
                "not allowed with host IPC enabled",
            ),
            (
                "net.ipv4.ip_local_port_range",
                true,
                false,
                "not allowed with host Net enabled",
            ),
            ("foo", false, false, "not allowlisted"),
            ("net.a.b.c", false, false, "not allowlisted"),
            (
                "net.ipv4.ip_local_port_range.a.b.c",
                false,
                false,
                "not allowlisted",
            ),
            (
                "kernel.msgmax",
                false,
                true,
                "not allowed with host IPC enabled",
            ),
            (
                "kernel.sem",
                false,
                true,
                "not allowed with host IPC enabled",
            ),
            ("net.b.c", true, false, "not allowed with host Net enabled"),
        ];
        for (name, network, ipc, why) in refused {
            let told = list.allows(name, network, ipc).unwrap_err().to_string();
            assert_eq!(told, format!("forbidden sysctl: {name:?} {why}"));
        }
    }

    #[test]
    fn a_pod_is_refused_for_the_first_setting_that_it_may_not_have() {
        let with = |names: &[&str]| {
            let sysctl = |name: &&str| Sysctl {
                name: (*name).into(),
                value: "1".into(),
            };
            let sysctls = Some(names.iter().map(sysctl).collect());
            pod("p").spec_with(|spec| {
                spec.host_network = Some(true);
                spec.security_context = Some(PodSecurityContext {
                    sysctls,
                    ..Default::default()
                });
            })
        };
        let list = list(&[]).unwrap();
        assert_eq!(list.admits(&pod("p")), Ok(()));
        assert_eq!(list.admits(&with(&[])), Ok(()));
        assert_eq!(list.admits(&with(&["kernel.shm_rmid_forced"])), Ok(()));
        let refused = list.admits(&with(&[
            "kernel.shm_rmid_forced",
            "net/ipv4/tcp_rmem",
            "foo",
        ]));
        let namespace = KernelNamespace::Net;
        assert_eq!(
            refused,
            Err(SysctlForbidden::OnNode {
                name: "net.ipv4.tcp_rmem".into(),
                namespace
            })
        );
    }

    /// Upstream's Test_getSafeSysctlAllowlist.
    #[test]
    fn an_old_kernel_has_fewer_safe_settings() {
        let count = |release| safe_allowlist(KernelVersion::parse(release)).len();
        let found = [
            "",
            "3.15.0",
            "3.16",
            "4.5.1-x",
            "4.6",
            "4.15.0-generic",
            "6.18+",
        ]
        .map(count);
        assert_eq!(found, [5, 5, 6, 9, 10, 12, 12]);
        assert_eq!(
            KernelVersion::parse("6.1.0-18-amd64\n"),
            Some(KernelVersion(6, 1))
        );
        assert_eq!(
            (KernelVersion::parse("5"), KernelVersion::parse("x")),
            (Some(KernelVersion(5, 0)), None)
        );
    }

    /// Upstream's TestNormalizeName and TestConvertPodSysctlsVariableToDotsSeparator.
    #[test]
    fn the_first_separator_says_which_one_separates() {
        let cases = [
            ("kernel/shm_rmid_forced", "kernel.shm_rmid_forced"),
            ("kernel.shm_rmid_forced", "kernel.shm_rmid_forced"),
            (
                "net.ipv4.conf.eno2/100.rp_filter",
                "net.ipv4.conf.eno2/100.rp_filter",
            ),
            (
                "net/ipv4/conf/eno2.100/rp_filter",
                "net.ipv4.conf.eno2/100.rp_filter",
            ),
            ("plain", "plain"),
        ];
        for (name, expected) in cases {
            assert_eq!(dotted(name), expected);
        }
    }
}
