//! Which proxy the environment has for a server: HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
//!
//! Upstream: golang.org/x/net/http/httpproxy, by which client-go's default transport goes.

use std::fmt;
use std::net::IpAddr;

use super::{Proxy, ProxyUrlError, without_brackets};

/// The variables that [`ProxyEnvironment::read`] reads; upper case goes before lower case.
pub const VARIABLES: [&str; 6] = [
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
];

/// The environment's proxies, as they are written there; empty where there is none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxyEnvironment {
    /// `HTTPS_PROXY`, for servers with TLS.
    pub https: String,
    /// `HTTP_PROXY`, for servers without.
    pub http: String,
    /// `NO_PROXY`: names, addresses and ranges that are reached without, separated by commas.
    pub none: String,
}

/// Without the addresses, which may have passwords.
impl fmt::Debug for ProxyEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyEnvironment")
            .field("https", &!self.https.is_empty())
            .field("http", &!self.http.is_empty())
            .field("none", &self.none)
            .finish()
    }
}

impl ProxyEnvironment {
    /// Reads the variables, by upper or else by lower case. For programs: tests make it by hand.
    pub fn read() -> ProxyEnvironment {
        let variable = |upper: &str| {
            let names = [upper.to_owned(), upper.to_lowercase()];
            let mut values = names.iter().filter_map(|name| std::env::var(name).ok());
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        ProxyEnvironment {
            https: variable("HTTPS_PROXY"),
            http: variable("HTTP_PROXY"),
            none: variable("NO_PROXY"),
        }
    }

    /// Returns the proxy for a server; none where it is reached directly.
    ///
    /// # Errors
    /// The variable for this server, with what is wrong with its value.
    pub fn proxy(
        &self,
        has_tls: bool,
        host: &str,
        port: u16,
    ) -> Result<Option<Proxy>, (&'static str, ProxyUrlError)> {
        let (name, url) = match has_tls {
            true => ("HTTPS_PROXY", &self.https),
            false => ("HTTP_PROXY", &self.http),
        };
        if url.is_empty() || self.is_direct(host, port) {
            return Ok(None);
        }
        let proxy = match Proxy::parse(url) {
            // Without a scheme it is http, as in 10.0.0.9:3128.
            Err(_) if !url.contains("://") => Proxy::parse(&format!("http://{url}")),
            parsed => parsed,
        };
        proxy.map(Some).map_err(|error| (name, error))
    }

    fn is_direct(&self, host: &str, port: u16) -> bool {
        let host = host.trim_end_matches('.').to_lowercase();
        let ip: Option<IpAddr> = host.parse().ok();
        if host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
            return true;
        }
        let mut entries = self
            .none
            .split(',')
            .map(|entry| entry.trim().to_lowercase());
        entries.any(|entry| matches(&entry, &host, ip, port))
    }
}

/// Whether an entry of NO_PROXY names this host and port.
fn matches(entry: &str, host: &str, ip: Option<IpAddr>, port: u16) -> bool {
    if entry.is_empty() || entry == "*" {
        return entry == "*";
    }
    if let Some(contains) = range(entry) {
        return ip.is_some_and(contains);
    }
    let (name, wanted) = split_port(entry);
    if wanted.is_some_and(|wanted| wanted != port.to_string()) {
        return false;
    }
    let name = without_brackets(name);
    if let Ok(named) = name.parse::<IpAddr>() {
        return ip == Some(named);
    }
    // `*.a` and `.a` are what is beneath a, `a` is a itself too.
    let name = name.strip_prefix('*').unwrap_or(name);
    match name.strip_prefix('.') {
        _ if name.is_empty() => false,
        Some(_) => host.ends_with(name),
        None => host == name || host.ends_with(&format!(".{name}")),
    }
}

/// A range such as 10.0.0.0/8; none if the entry is none.
fn range(entry: &str) -> Option<impl Fn(IpAddr) -> bool> {
    let (base, length) = entry.split_once('/')?;
    let (base, length): (IpAddr, u32) = (base.parse().ok()?, length.parse().ok()?);
    let width = if base.is_ipv4() { 32 } else { 128 };
    (length <= width).then_some(move |ip: IpAddr| {
        ip.is_ipv4() == base.is_ipv4() && {
            let differing = bits(ip) ^ bits(base);
            differing.checked_shr(width - length).unwrap_or(0) == 0
        }
    })
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// The port that an entry ends with, if it does; the colons of a bare IPv6 address are none.
fn split_port(entry: &str) -> (&str, Option<&str>) {
    match entry.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, Some(port)),
        Some(_) | None => (entry, None),
    }
}
