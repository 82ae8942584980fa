//! Parses URLs, and resolves redirects.

use hyper::Uri;
use hyper::http::uri::{Authority, InvalidUri, PathAndQuery, Scheme};
use logic_api::text::url::{self, UrlParts};

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
    #[error("found a control character in the URL")]
    Control,
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
        let base = UrlParts {
            scheme: scheme.to_owned(),
            authority: self.authority.to_string(),
            path: self.path.to_string(),
        };
        let next = url::resolve(&base, location).ok_or(UrlError::Control)?;
        UrlTarget::parse(&format!(
            "{}://{}{}",
            next.scheme, next.authority, next.path
        ))
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
    fn a_redirect_leads_to_a_url_that_can_be_fetched_or_is_refused() {
        let from = UrlTarget::parse("http://a:8080/m/pods?x=1").unwrap();
        let cases = [
            ("https://b/n", "true b 443 /n"),
            ("//b/n", "false b 80 /n"),
            ("n", "false a 8080 /m/n"),
        ];
        for (location, expected) in cases {
            let next = from.redirected(location).unwrap();
            assert_eq!(shown(&next), expected, "{location}");
        }
        for bad in [
            "file:///etc/passwd",
            "http://user:secret@a/",
            "/n\r\nHost: b",
        ] {
            assert!(from.redirected(bad).is_err(), "{bad}");
        }
    }
}
