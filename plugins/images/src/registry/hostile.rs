//! What the fuzz targets have read: a registry's answers, and the operator's files.

use std::path::Path;

use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, Uri};

use super::auth::{parameter, scopes};
use super::hosts::hosts;
use super::transport::{seconds, target};
use super::words::Words;
use crate::reference::Reference;

/// Reads `input` as an error's body, a challenge, a redirect and a pause; panics where a bound is not kept.
pub(crate) fn read_answer(input: &[u8]) {
    for kind in ["application/json", "text/plain", "text/html"] {
        let words = Words::read(kind, input).to_string();
        assert!(words.chars().count() <= 600, "words have a bound");
        assert!(!words.contains(char::is_control), "words are one line");
    }
    if let Ok(text) = str::from_utf8(input) {
        drop(parameter(text, "realm"));
        assert!(
            (1..=16).contains(&scopes(text, "a/b").len()),
            "scopes have a bound"
        );
        let day = std::time::Duration::from_secs(86_400);
        assert!(seconds(text).is_none_or(|wait| wait <= day));
    }
    if let Ok(location) = HeaderValue::from_bytes(input) {
        let headers = HeaderMap::from_iter([(LOCATION, location)]);
        let from = Uri::from_static("https://registry.test/v2/a/b/blobs/c");
        if let Ok(next) = target(&from, &headers) {
            let is_web = matches!(next.scheme_str(), Some("http" | "https"));
            assert!(is_web && next.host().is_some(), "{next} can be asked");
        }
    }
}

/// Reads the files of a registry; panics where the registry itself would never be asked.
pub(crate) fn read_hosts(certs: &Path, reference: &Reference) {
    if let Ok(hosts) = hosts(Some(certs), reference) {
        assert!(hosts.last().is_some_and(|host| host.trusted));
    }
}
