//! A resolver file: its three lines, and whether the node's own leaves room for a cluster's.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{MAX_DOMAIN, MAX_SEARCH_LINE, MAX_SEARCHES};

/// Bytes of a resolver file; a longer one is refused.
pub const MAX_RESOLVER_FILE_BYTES: u64 = 10 << 20;

/// The three lines of a resolver file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolverConfig {
    /// Addresses, in the order in which they are asked.
    pub servers: Vec<String>,
    /// Domains, in the order in which they are tried.
    pub searches: Vec<String>,
    /// As in resolv.conf: `ndots:5`.
    pub options: Vec<String>,
}

/// Why a resolver file cannot be used.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ResolverError {
    #[error("Encountered error while parsing resolv conf file. Error: nameserver list is empty ")]
    NoServer,
}

impl ResolverConfig {
    /// Reads a resolver file; lines it does not know are passed over.
    pub fn parse(text: &str) -> Result<Self, ResolverError> {
        let mut dns = Self::default();
        for line in text
            .split('\n')
            .map(str::trim)
            .filter(|l| !l.starts_with('#'))
        {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let server = words.next().ok_or(ResolverError::NoServer)?;
                    dns.servers.push(server.to_owned());
                }
                // The last one wins; a trailing dot is not part of the name.
                Some("search") => {
                    let domains = words.filter(|word| *word != ".");
                    let bare = |word: &str| word.strip_suffix('.').unwrap_or(word).to_owned();
                    dns.searches = domains.map(bare).collect();
                }
                Some("options") => words.for_each(|option| set_option(&mut dns.options, option)),
                Some(_) | None => {}
            }
        }
        Ok(dns)
    }
}

/// A later value of the same option replaces the earlier one, in its place.
pub(super) fn set_option(options: &mut Vec<String>, option: &str) {
    fn name(text: &str) -> &str {
        text.split_once(':').map_or(text, |(name, _)| name)
    }
    match options.iter_mut().find(|known| name(known) == name(option)) {
        Some(known) => option.clone_into(known),
        None => options.push(option.to_owned()),
    }
}

/// The message of the node's warning event `CheckLimitsForResolvConf` about its resolver file; none where the file is
/// within the limits.
pub fn complaint(path: &str, resolver: &ResolverConfig, cluster_domain: &str) -> Option<String> {
    // A cluster puts three domains of its own before the node's.
    let most = match cluster_domain {
        "" => MAX_SEARCHES,
        _ => MAX_SEARCHES - 3,
    };
    let searches = &resolver.searches;
    if searches.len() > most {
        return Some(format!(
            "Resolv.conf file '{path}' contains search line consisting of more than {most} domains!"
        ));
    }
    if searches.iter().any(|domain| domain.len() > MAX_DOMAIN) {
        return Some(format!(
            "Resolv.conf file {path:?} contains a search path which length is more than allowed {MAX_DOMAIN} chars!"
        ));
    }
    (searches.join(" ").len() > MAX_SEARCH_LINE).then(|| {
        format!(
            "Resolv.conf file '{path}' contains search line which length is more than allowed {MAX_SEARCH_LINE} chars!"
        )
    })
}
