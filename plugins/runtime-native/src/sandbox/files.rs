//! The files of a sandbox that its containers see in `/etc`.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

use proto::cri::{DnsConfig, PodSandboxConfig};

/// The longest file of the node that is copied.
const MAX_NODE_FILE_BYTES: u64 = 1 << 20;

/// The files that the containers of a pod share, and can write to.
pub(crate) const SHARED_FILES: [&str; 3] = ["hosts", "hostname", "resolv.conf"];

/// Writes `hosts`, `hostname` and `resolv.conf` into the sandbox's folder.
pub(crate) fn write(folder: &Path, config: &PodSandboxConfig, node: &str) -> io::Result<()> {
    let hostname = match config.hostname.as_str() {
        "" => node,
        named => named,
    };
    fs::write(folder.join("hostname"), format!("{hostname}\n"))?;
    fs::write(folder.join("hosts"), of_node("/etc/hosts")?)?;
    let resolv_conf = match &config.dns_config {
        Some(dns) => resolv_conf(dns)?,
        None => of_node("/etc/resolv.conf")?,
    };
    fs::write(folder.join("resolv.conf"), resolv_conf)
}

/// Gives the files to a user and a group: a pod's own root.
pub(crate) fn give(folder: &Path, (user, group): (u32, u32)) -> io::Result<()> {
    SHARED_FILES
        .iter()
        .try_for_each(|file| chown(folder.join(file), Some(user), Some(group)))
}

/// Returns a file of the node; empty if there is none.
fn of_node(path: &str) -> io::Result<String> {
    match fs::metadata(path) {
        Ok(meta) if meta.len() > MAX_NODE_FILE_BYTES => Err(io::Error::other(format!(
            "{path} has {} bytes, expected at most {MAX_NODE_FILE_BYTES}",
            meta.len()
        ))),
        Ok(_) => fs::read_to_string(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// Returns the file that a pod's DNS configuration means (`man 5 resolv.conf`).
pub(crate) fn resolv_conf(dns: &DnsConfig) -> io::Result<String> {
    let all = [&dns.servers, &dns.searches, &dns.options];
    let mut words = all.into_iter().flatten();
    if let Some(word) = words.find(|word| word.contains(char::is_whitespace)) {
        let why = format!("dns_config has {word:?}, expected words without white space");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text += &format!("search {}\n", dns.searches.join(" "));
    }
    for server in &dns.servers {
        text += &format!("nameserver {server}\n");
    }
    if !dns.options.is_empty() {
        text += &format!("options {}\n", dns.options.join(" "));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dns(servers: &[&str], searches: &[&str], options: &[&str]) -> DnsConfig {
        let own = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        DnsConfig {
            servers: own(servers),
            searches: own(searches),
            options: own(options),
        }
    }

    #[test]
    fn a_dns_configuration_becomes_a_resolv_conf() {
        let text = resolv_conf(&dns(
            &["10.0.0.10", "fd00::a"],
            &["a.b", "c"],
            &["ndots:5", "rotate"],
        ));
        assert_eq!(
            text.unwrap(),
            "search a.b c\nnameserver 10.0.0.10\nnameserver fd00::a\noptions ndots:5 rotate\n"
        );
        assert_eq!(resolv_conf(&dns(&[], &[], &[])).unwrap(), "");
    }

    #[test]
    fn a_word_cannot_bring_a_line_of_its_own() {
        assert!(resolv_conf(&dns(&["1.1.1.1\nnameserver 6.6.6.6"], &[], &[])).is_err());
    }
}
