//! The names that a mounter in a root of its own (`--experimental-mounter-path`) resolves, as the node's pods do.
//!
//! Upstream: pkg/kubelet/network/dns/dns.go (`SetupDNSinContainerizedMounter`), 1.36. The flag's other half is storage-local's.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use config::NodeConfig;
use logic_pods::network::dns::{MAX_RESOLVER_FILE_BYTES, ResolverConfig};

/// The resolver file of a mounter: below the folder in which it lies.
fn resolver_file(mounter: &str) -> PathBuf {
    let folder = mounter.strip_suffix("/mounter").unwrap_or(mounter);
    Path::new(folder).join("rootfs/etc/resolv.conf")
}

/// The cluster's servers, with the node's search domains.
fn resolver_text(servers: &[String], node: Option<&ResolverConfig>) -> String {
    let mut text: String = servers
        .iter()
        .map(|server| format!("nameserver {server}\n"))
        .collect();
    if let Some(node) = node {
        let words = std::iter::once("search").chain(node.searches.iter().map(String::as_str));
        text.push_str(&words.collect::<Vec<_>>().join(" "));
        text.push('\n');
    }
    text
}

fn read(path: &str) -> Result<ResolverConfig, String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let mut file = file.take(MAX_RESOLVER_FILE_BYTES);
    file.read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    ResolverConfig::parse(&text).map_err(|error| error.to_string())
}

/// Writes the mounter's resolver file where there is a mounter. Blocks. As upstream, what goes wrong is logged only: a
/// mounter without a root of its own has no such file.
pub(crate) fn set_up_dns(config: &NodeConfig) {
    let mounter = &config.flags.experimental_mounter_path;
    if mounter.is_empty() {
        return;
    }
    let kubelet = &config.kubelet;
    let node = match kubelet.resolver_config.as_str() {
        "" => None,
        path => match read(path) {
            Ok(node) => Some(node),
            Err(error) => {
                tracing::error!(path, error, "the mounter has no search domains");
                None
            }
        },
    };
    let file = resolver_file(mounter);
    if let Err(error) = fs::write(&file, resolver_text(&kubelet.cluster_dns, node.as_ref())) {
        let file = file.display();
        tracing::error!(%file, %error, "the mounter's resolver file is not written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::testing::load;

    #[test]
    fn a_mounter_asks_the_clusters_servers_with_the_nodes_search_domains() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display();
        let (node, file) = (
            folder.path().join("resolv.conf"),
            folder.path().join("rootfs/etc/resolv.conf"),
        );
        fs::write(
            &node,
            "nameserver 192.0.2.1\nsearch example.org example.net.\n",
        )
        .unwrap();
        let line = format!(
            "--cluster-dns=10.96.0.10 --resolv-conf={} --experimental-mounter-path={root}/mounter",
            node.display()
        );
        // Without a root of its own there is nothing to write.
        set_up_dns(&load(&line));
        assert!(!file.exists());
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        set_up_dns(&load(&line));
        let written = fs::read_to_string(&file).unwrap();
        assert_eq!(
            written,
            "nameserver 10.96.0.10\nsearch example.org example.net\n"
        );
        fs::remove_file(&node).unwrap();
        set_up_dns(&load(&line));
        let written = fs::read_to_string(&file).unwrap();
        assert_eq!(written, "nameserver 10.96.0.10\n");
    }
}
