//! What a machine has that a node alone can use.

use std::path::{Path, PathBuf};

use super::StandaloneRuntime;

/// The resolver file of systemd-resolved that names the real servers, and not its own on a loopback address.
pub(super) const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";
/// The machine's resolver file.
pub(super) const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Where networks of pods are looked for, in this order.
const NETWORK_FOLDERS: [&str; 2] = ["/etc/oxlet/net.d", "/etc/cni/net.d"];

/// What the machine has of the things that `--alone` chooses between. Its default is a machine with none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandaloneFacts {
    /// The container daemons whose sockets are there, in the order of preference.
    pub daemons: Vec<StandaloneRuntime>,
    /// Whether systemd is the service manager.
    pub is_systemd: bool,
    /// The text of `/etc/resolv.conf`; none where there is no such file.
    pub resolv_conf: Option<String>,
    /// Whether systemd-resolved has a file of the real servers.
    pub has_resolved: bool,
    /// The first folder that holds a network of pods.
    pub networks: Option<PathBuf>,
}

impl StandaloneFacts {
    /// Looks at the machine; reads a few small files.
    pub(crate) fn detect() -> StandaloneFacts {
        let daemons = [StandaloneRuntime::Containerd, StandaloneRuntime::Crio].into_iter();
        let has_networks = |folder: &PathBuf| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let mut names = entries.map(|entry| entry.path());
            names.any(|path| {
                let kind = path.extension().and_then(|kind| kind.to_str());
                matches!(kind, Some("conf" | "conflist" | "json"))
            })
        };
        StandaloneFacts {
            daemons: daemons
                .filter(|daemon| daemon.socket().is_some_and(|at| Path::new(at).exists()))
                .collect(),
            // As sd_booted(3).
            is_systemd: Path::new("/run/systemd/system").is_dir(),
            resolv_conf: std::fs::read_to_string(RESOLV_CONF).ok(),
            has_resolved: Path::new(RESOLVED).exists(),
            networks: NETWORK_FOLDERS
                .into_iter()
                .map(PathBuf::from)
                .find(has_networks),
        }
    }

    /// The file that pods' resolver settings are made of; empty for none.
    ///
    /// A server on a loopback address is nobody's in a pod's own network: as kubeadm, systemd-resolved's file goes before it.
    pub(super) fn resolver(&self) -> &'static str {
        let Some(text) = &self.resolv_conf else {
            return "";
        };
        let servers = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some("nameserver"))
                .then(|| words.next())
                .flatten()
        });
        let is_loopback = |server: &str| {
            let address = server.parse::<std::net::IpAddr>();
            address.is_ok_and(|address| address.is_loopback())
        };
        let mut servers = servers.peekable();
        let is_local = servers.peek().is_some() && servers.all(is_loopback);
        match is_local && self.has_resolved {
            true => RESOLVED,
            false => RESOLV_CONF,
        }
    }
}
