//! Whether a redirect of an HTTP probe is followed.
//!
//! Mirrors upstream's RedirectChecker (pkg/probe/http/http.go, v1.36), and what Go's client makes of it.

use logic_api::text::url::{self, UrlParts};

use super::target::{HttpTarget, authority, shown_path};

/// Upstream's and Go's limit.
pub const MAX_REDIRECTS: u32 = 10;

/// What is done with an HTTP response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectDecision {
    /// It is the end, be it a redirect or not.
    Answer,
    Follow(Box<HttpTarget>),
    TooMany,
    /// The location makes no sense.
    Unreadable(String),
}

/// Decides on a response (`status`, `Location`) from `current`, to which `followed` redirects led from `first`.
///
/// A redirect to another host is not followed: a pod must not direct the node's requests elsewhere.
pub fn next(
    first: &HttpTarget,
    current: &HttpTarget,
    (status, location): (u16, Option<&str>),
    followed: u32,
) -> RedirectDecision {
    let leads = matches!(status, 301 | 302 | 303 | 307 | 308);
    let location = match location.filter(|location| leads && !location.is_empty()) {
        Some(location) => location,
        None => return RedirectDecision::Answer,
    };
    let Some(next) = resolved(current, location) else {
        return RedirectDecision::Unreadable(location.to_owned());
    };
    match (next.host == first.host, followed + 1 >= MAX_REDIRECTS) {
        (false, _) => RedirectDecision::Answer,
        (true, true) => RedirectDecision::TooMany,
        (true, false) => RedirectDecision::Follow(Box::new(next)),
    }
}

/// Where a location leads from a target; none if that makes no sense.
fn resolved(from: &HttpTarget, location: &str) -> Option<HttpTarget> {
    let base = UrlParts {
        scheme: from.scheme.clone(),
        authority: from.authority(),
        path: from.path.clone(),
    };
    let next = url::resolve(&base, location)?;
    let (host, port) = host_and_port(&next.authority, &next.scheme)?;
    let path = shown_path(&next.path);
    // A host that the definition names is kept only on a way that does not name another.
    let is_relative = url::scheme(location).is_none();
    Some(HttpTarget {
        url: format!("{}://{}{path}", next.scheme, authority(&host, port)),
        scheme: next.scheme,
        host,
        port,
        path: match path.starts_with('/') {
            true => path,
            false => format!("/{path}"),
        },
        host_header: from.host_header.clone().filter(|_| is_relative),
        headers: from.headers.clone(),
    })
}

fn host_and_port(authority: &str, scheme: &str) -> Option<(String, u16)> {
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let default = if scheme == "https" { 443 } else { 80 };
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':').unwrap_or(rest))
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let port = match port {
        "" => default,
        port => port.parse().ok()?,
    };
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(scheme: &str, host: &str, path: &str) -> HttpTarget {
        HttpTarget {
            scheme: scheme.into(),
            host: host.into(),
            port: 8080,
            path: path.into(),
            url: format!("{scheme}://{}{path}", authority(host, 8080)),
            host_header: Some("named.example".into()),
            headers: vec![("Accept".into(), "*/*".into())],
        }
    }

    fn from_here(status: u16, location: Option<&str>, followed: u32) -> RedirectDecision {
        let here = target("http", "10.0.0.1", "/a/b?c");
        next(&here, &here, (status, location), followed)
    }

    fn url(next: RedirectDecision) -> String {
        if let RedirectDecision::Follow(target) = next {
            return target.url;
        }
        format!("{next:?}")
    }

    /// Upstream's TestHTTPProbeChecker: the statuses that lead on.
    #[test]
    fn only_a_redirect_with_a_location_leads_on() {
        for status in [301, 302, 303, 307, 308] {
            let found = url(from_here(status, Some("/new"), 0));
            assert_eq!(found, "http://10.0.0.1:8080/new", "{status}");
            assert_eq!(from_here(status, None, 0), RedirectDecision::Answer);
        }
        for status in [200, 204, 300, 304, 305, 404, 500] {
            assert_eq!(
                from_here(status, Some("/new"), 0),
                RedirectDecision::Answer,
                "{status}"
            );
        }
    }

    /// Upstream's TestHTTPProbeChecker_NonLocalRedirects.
    #[test]
    fn another_port_of_the_same_host_is_followed_and_another_host_is_not() {
        let cases = [
            ("http://10.0.0.1:9/x", "http://10.0.0.1:9/x"),
            ("https://10.0.0.1/x", "https://10.0.0.1:443/x"),
            ("//10.0.0.1:9", "http://10.0.0.1:9"),
            ("http://0.0.0.0/fail", "Answer"),
            ("//example.com/fail", "Answer"),
            ("http://10.0.0.1:x/", "Unreadable(\"http://10.0.0.1:x/\")"),
            ("d", "http://10.0.0.1:8080/a/d"),
            ("../d/./e", "http://10.0.0.1:8080/d/e"),
            ("..", "http://10.0.0.1:8080/"),
            ("?q", "http://10.0.0.1:8080/a/b?q"),
        ];
        for (location, expected) in cases {
            assert_eq!(
                url(from_here(302, Some(location), 0)),
                expected,
                "{location}"
            );
        }
    }

    /// Upstream's TestHTTPProbeChecker_NonLocalRedirects: the loop.
    #[test]
    fn the_tenth_redirect_is_one_too_many() {
        assert!(matches!(
            from_here(302, Some("/loop"), 8),
            RedirectDecision::Follow(_)
        ));
        assert_eq!(from_here(302, Some("/loop"), 9), RedirectDecision::TooMany);
    }

    /// Upstream's TestHTTPProbeChecker_HostHeaderPreservedAfterRedirect.
    #[test]
    fn the_named_host_goes_along_unless_the_location_names_one() {
        let header = |location| {
            let next = from_here(302, Some(location), 0);
            let RedirectDecision::Follow(target) = next else {
                panic!("{next:?}");
            };
            target.host_header
        };
        assert_eq!(header("/x").as_deref(), Some("named.example"));
        assert_eq!(header("http://10.0.0.1:9/x"), None);
    }

    proptest! {
        #[test]
        fn no_location_leads_to_another_host(location in ".{0,40}") {
            if let RedirectDecision::Follow(target) = from_here(302, Some(&location), 0) {
                prop_assert_eq!(target.host, "10.0.0.1");
                prop_assert!(target.path.starts_with('/'));
            }
        }
    }
}
