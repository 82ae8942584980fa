//! Parses URLs, and resolves redirects.

use hyper::Uri;
use hyper::http::uri::{Authority, InvalidUri, PathAndQuery, Scheme};

/// A URL that can be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UrlTarget {
    pub(super) secure: bool,
    pub(super) authority: Authority,
    pub(super) path: PathAndQuery,
}

/// Why a text is no URL to fetch.
#[derive(Debug, thiserror::Error)]
pub(super) enum UrlError {
    #[error("it is not a URL")]
    Invalid(#[from] InvalidUri),
    #[error("expected a URL with http or https")]
    Scheme,
    #[error(
        "found a user in the URL, expected that to stand in staticPodURLHeader as Authorization"
    )]
    User,
}

impl UrlTarget {
    pub(super) fn parse(text: &str) -> Result<UrlTarget, UrlError> {
        // A fragment is not sent to the server.
        let text = text.split('#').next().unwrap_or_default();
        let parts = text.parse::<Uri>()?.into_parts();
        let secure = match parts.scheme {
            Some(scheme) if scheme == Scheme::HTTP => false,
            Some(scheme) if scheme == Scheme::HTTPS => true,
            Some(_) | None => return Err(UrlError::Scheme),
        };
        let authority = parts.authority.ok_or(UrlError::Scheme)?;
        if authority.as_str().contains('@') {
            return Err(UrlError::User);
        }
        let path = parts
            .path_and_query
            .unwrap_or(PathAndQuery::from_static("/"));
        Ok(UrlTarget {
            secure,
            authority,
            path,
        })
    }

    /// The target of a `Location` relative to this URL.
    pub(super) fn redirected(&self, location: &str) -> Result<UrlTarget, UrlError> {
        let scheme = if self.secure { "https" } else { "http" };
        let folder = self
            .path
            .path()
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder);
        let absolute = match location {
            "" => format!("{scheme}://{}{}", self.authority, self.path),
            location if location.contains("://") => location.to_owned(),
            location if location.starts_with("//") => format!("{scheme}:{location}"),
            location if location.starts_with('/') => {
                format!("{scheme}://{}{location}", self.authority)
            }
            location if location.starts_with('?') => {
                format!(
                    "{scheme}://{}{}{location}",
                    self.authority,
                    self.path.path()
                )
            }
            location => format!("{scheme}://{}{folder}/{location}", self.authority),
        };
        UrlTarget::parse(&absolute)
    }

    /// The host without brackets, as a resolver expects it.
    pub(super) fn host(&self) -> &str {
        self.authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
    }

    pub(super) fn port(&self) -> u16 {
        self.authority
            .port_u16()
            .unwrap_or(if self.secure { 443 } else { 80 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(target: &UrlTarget) -> String {
        format!(
            "{} {} {} {}",
            target.secure,
            target.host(),
            target.port(),
            target.path
        )
    }

    #[test]
    fn urls_are_taken_apart() {
        let cases = [
            ("http://a", "false a 80 /"),
            ("https://a/b?c#d", "true a 443 /b?c"),
            ("http://[::1]:81/x", "false ::1 81 /x"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(&UrlTarget::parse(text).unwrap()), expected, "{text}");
        }
        for bad in [
            "",
            "ftp://a/",
            "/just/a/path",
            "http://",
            "http://user:secret@a/",
            "http://a b/",
        ] {
            assert!(UrlTarget::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn redirects_lead_where_browsers_go() {
        let from = UrlTarget::parse("http://a:8080/m/pods?x=1").unwrap();
        let cases = [
            ("https://b/n", "true b 443 /n"),
            ("//b/n", "false b 80 /n"),
            ("/n", "false a 8080 /n"),
            ("n", "false a 8080 /m/n"),
            ("?y=2", "false a 8080 /m/pods?y=2"),
        ];
        for (location, expected) in cases {
            assert_eq!(
                shown(&from.redirected(location).unwrap()),
                expected,
                "{location}"
            );
        }
        assert!(from.redirected("file:///etc/passwd").is_err());
    }
}
