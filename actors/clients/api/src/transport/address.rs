//! Where the server is, by its URL.

use http::Uri;

/// Returns the host, without the brackets of IPv6, and the port of a server's address.
pub(crate) fn place(base: &Uri) -> (String, u16) {
    let usual = match base.scheme_str() {
        Some("https") => 443,
        Some(_) | None => 80,
    };
    let host = without_brackets(base.host().unwrap_or_default());
    (host.to_owned(), base.port_u16().unwrap_or(usual))
}

/// Returns a host as it is without a URL around it: IPv6 has brackets there.
fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}
