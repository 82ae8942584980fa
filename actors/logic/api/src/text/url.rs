//! Where a reference leads from a URL: for redirects of static pod sources and of HTTP probes.
//!
//! RFC 3986, section 5, as Go's net/url `ResolveReference` does it. A parser of whole URLs would refuse what Go follows
//! (spaces, letters beyond ASCII), so a reference is only taken apart here; its parts are checked by whoever connects.

/// An absolute URL, taken apart as far as a request needs it. It has no fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlParts {
    /// In lower case.
    pub scheme: String,
    /// Host and port, and a user if one is named, as they stand in the URL.
    pub authority: String,
    /// Path and query; empty, or with a slash or a question mark at the start.
    pub path: String,
}

/// Returns the target of `reference` from `base`; none if it holds control characters.
pub fn resolve(base: &UrlParts, reference: &str) -> Option<UrlParts> {
    if reference.bytes().any(|byte| byte.is_ascii_control()) {
        return None;
    }
    let reference = reference.split('#').next().unwrap_or_default();
    let (scheme, rest) = match scheme(reference) {
        Some(scheme) => {
            let rest = reference.split_once("://").map(|(_, rest)| rest);
            (scheme.to_ascii_lowercase(), rest)
        }
        None => (base.scheme.clone(), reference.strip_prefix("//")),
    };
    let Some(rest) = rest else {
        return Some(UrlParts {
            path: beside(&base.path, reference),
            ..base.clone()
        });
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    Some(UrlParts {
        scheme,
        authority: authority.to_owned(),
        path: match path.starts_with('/') {
            true => without_dots(path),
            false => path.to_owned(),
        },
    })
}

/// Returns the scheme of an absolute reference; none for one that is relative.
pub fn scheme(reference: &str) -> Option<&str> {
    let (scheme, _) = reference.split_once("://")?;
    let mut letters = scheme.bytes();
    let is_scheme = letters.next()?.is_ascii_alphabetic()
        && letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme.then_some(scheme)
}

/// Resolves a reference without a host.
fn beside(base: &str, reference: &str) -> String {
    let path = base.split('?').next().unwrap_or_default();
    match reference.chars().next() {
        None => base.to_owned(),
        Some('/') => without_dots(reference),
        Some('?') => format!("{path}{reference}"),
        Some(_) => {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            without_dots(&format!("{folder}/{reference}"))
        }
    }
}

/// Resolves `.` and `..` in a path that begins with a slash, and leaves its query alone.
fn without_dots(reference: &str) -> String {
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (reference, String::new()),
    };
    let mut kept: Vec<&str> = Vec::new();
    let last = path.rsplit('/').next().unwrap_or_default();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let slash = match matches!(last, "." | "..") && !kept.is_empty() {
        true => "/",
        false => "",
    };
    format!("/{}{slash}{query}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn base() -> UrlParts {
        UrlParts {
            scheme: "http".to_owned(),
            authority: "a:8080".to_owned(),
            path: "/m/pods?x=1".to_owned(),
        }
    }

    fn text(parts: &UrlParts) -> String {
        format!("{}://{}{}", parts.scheme, parts.authority, parts.path)
    }

    #[test]
    fn references_lead_where_go_leads_them() {
        let rows = [
            ("https://b/n", "https://b/n"),
            ("HTTPS://b/m/../n", "https://b/n"),
            ("https://b", "https://b"),
            ("https://b?q", "https://b?q"),
            ("//b/n", "http://b/n"),
            ("/n", "http://a:8080/n"),
            ("n", "http://a:8080/m/n"),
            ("n?next=http://b/", "http://a:8080/m/n?next=http://b/"),
            ("../n/./o", "http://a:8080/n/o"),
            ("..", "http://a:8080/"),
            ("../../..", "http://a:8080/"),
            ("n/.", "http://a:8080/m/n/"),
            ("?y=2", "http://a:8080/m/pods?y=2"),
            ("#here", "http://a:8080/m/pods?x=1"),
            ("", "http://a:8080/m/pods?x=1"),
        ];
        for (reference, expected) in rows {
            let found = resolve(&base(), reference).unwrap();
            assert_eq!(text(&found), expected, "{reference}");
        }
        assert_eq!(resolve(&base(), "/n\r\nHost: b"), None);
    }

    proptest! {
        #[test]
        fn only_a_reference_that_names_a_host_leaves_it(reference in "[a-z./?#:]{0,20}") {
            let found = resolve(&base(), &reference).unwrap();
            let names_one = reference.starts_with("//") || scheme(&reference).is_some();
            prop_assert!(names_one || found.authority == base().authority);
            prop_assert!(found.path.is_empty() || found.path.starts_with(['/', '?']));
        }
    }
}
