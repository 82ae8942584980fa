//! Whether a registry's pattern is for an image: `*.example.com:5000/team` and its like.
//!
//! A pattern is a URL without its scheme. Wildcards stand for a part of one label of the host; the path
//! must begin alike; the port must be the same. Mirrors upstream's URLsMatch (keyring.go, v1.36).

use percent_encoding::percent_decode_str;
use thiserror::Error;

/// Why a text is no place of a registry.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LocationError {
    #[error("it holds a control character")]
    Control,
    #[error("{0:?} cannot stand in the name of a host")]
    Host(char),
    #[error("{0:?} is no port")]
    Port(String),
    #[error("{0:?} is no escape of a URL")]
    Escape(String),
}

/// A host, a port and a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageLocation {
    /// With its port, as it was written.
    pub authority: String,
    pub path: String,
}

impl ImageLocation {
    /// Reads a URL without scheme.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        if text.chars().any(char::is_control) {
            return Err(LocationError::Control);
        }
        let text = text.split('#').next().unwrap_or_default();
        let text = text.split('?').next().unwrap_or_default();
        let (authority, path) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        check_host(host)?;
        Ok(Self {
            authority: host.to_owned(),
            path: unescaped(path)?,
        })
    }

    /// The labels of the host, and the port (empty for none).
    fn split(&self) -> (Vec<&str>, &str) {
        let (host, port) = split_port(&self.authority);
        (host.split('.').collect(), port)
    }
}

fn check_host(host: &str) -> Result<(), LocationError> {
    let allowed = |c: char| {
        c.is_ascii_alphanumeric() || !c.is_ascii() || "-_.~!$&'()*+,;=:[]<>\"".contains(c)
    };
    if let Some(wrong) = host.chars().find(|c| !allowed(*c)) {
        return Err(LocationError::Host(wrong));
    }
    let after = host.rfind(']').map_or(0, |at| at + 1);
    match host[after..].rsplit_once(':') {
        Some((_, port)) if !port.bytes().all(|b| b.is_ascii_digit()) => {
            Err(LocationError::Port(port.to_owned()))
        }
        _ => Ok(()),
    }
}

fn unescaped(path: &str) -> Result<String, LocationError> {
    for (at, _) in path.match_indices('%') {
        let escape = &path.as_bytes()[at..path.len().min(at + 3)];
        if escape.len() < 3 || !escape[1..].iter().all(u8::is_ascii_hexdigit) {
            let shown = String::from_utf8_lossy(escape);
            return Err(LocationError::Escape(shown.into_owned()));
        }
    }
    Ok(percent_decode_str(path).decode_utf8_lossy().into_owned())
}

/// A host and its port; what is not clearly a port belongs to the host.
fn split_port(authority: &str) -> (&str, &str) {
    if let Some(rest) = authority.strip_prefix('[') {
        return match rest.split_once("]:") {
            Some((host, port)) => (host, port),
            None => (authority, ""),
        };
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host, port),
        _ => (authority, ""),
    }
}

/// Whether the pattern is for the target; what cannot be read is for nothing.
pub fn matches(pattern: &str, target: &str) -> bool {
    let (Ok(pattern), Ok(target)) = (ImageLocation::parse(pattern), ImageLocation::parse(target))
    else {
        return false;
    };
    let ((labels, port), (target_labels, target_port)) = (pattern.split(), target.split());
    port == target_port
        && labels.len() == target_labels.len()
        && target.path.starts_with(&pattern.path)
        && labels
            .iter()
            .zip(target_labels)
            .all(|(label, target)| label_matches(label, target))
}

/// Whether a label matches the pattern, each `*` standing for any text.
fn label_matches(pattern: &str, label: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == label;
    };
    let Some(mut rest) = label.strip_prefix(head) else {
        return false;
    };
    let mut parts: Vec<&str> = tail.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestURLsMatch.
    #[test]
    fn a_pattern_is_for_equal_ports_equal_labels_and_a_path_that_begins_alike() {
        let cases = [
            ("*.kubernetes.io", "prefix.kubernetes.io", true),
            ("prefix.*.io", "prefix.kubernetes.io", true),
            ("prefix.kubernetes.*", "prefix.kubernetes.io", true),
            ("*-good.kubernetes.io", "prefix-good.kubernetes.io", true),
            ("*.kubernetes.io/blah", "prefix.kubernetes.io/blah", true),
            ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", true),
            (
                "*.kubernetes.io:1111/blah",
                "prefix.kubernetes.io:1111/blah",
                true,
            ),
            (
                "prefix.*.io:1111/foo",
                "prefix.kubernetes.io:1111/foo/bar",
                true,
            ),
            ("*.kubernetes.io", "kubernetes.io", false),
            ("*.*.kubernetes.io", "prefix.kubernetes.io", false),
            ("*.*.kubernetes.io", "kubernetes.io", false),
            ("*kubernetes.io", "a.kubernetes.io", false),
            ("kubernetes.io", "kubernetes.com", false),
            ("k*.io", "sample.io", false),
            (
                "*.kubernetes.io:1234/blah",
                "prefix.kubernetes.io:1111/blah",
                false,
            ),
            (
                "prefix.*.io/foo",
                "prefix.kubernetes.io:1111/foo/bar",
                false,
            ),
            ("a*b*c.io", "aXbYc.io", true),
            ("a*b*c.io", "aXc.io", false),
            ("a*a.io", "a.io", false),
            ("[fd00::1]:5000", "[fd00::1]:5000/a", true),
            ("bad host", "bad host", false),
        ];
        for (pattern, target, expected) in cases {
            assert_eq!(matches(pattern, target), expected, "{pattern} for {target}");
        }
    }

    #[test]
    fn a_wrong_place_is_named_by_its_wrong_part() {
        let wrong = |text: &str| ImageLocation::parse(text).unwrap_err().to_string();
        assert_eq!(wrong("%invalid%"), "'%' cannot stand in the name of a host");
        assert_eq!(wrong("host:port/a"), "\"port\" is no port");
        assert_eq!(wrong("host/%zz"), "\"%zz\" is no escape of a URL");
        assert_eq!(wrong("a\nb"), "it holds a control character");
    }
}
