//! `/logs/`: the system's logs, files and folders beneath one folder, and nothing outside of it.
//!
//! A link is followed only to what is beneath the folder as well: upstream follows every link, so that a pod
//! which may write there could have any file shown. For the same reason no file is a page of its own: what is text is
//! plain text.
//!
//! Upstream: Go's net/http (FileServer).

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::PathBuf;

use futures_util::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, LAST_MODIFIED,
};
use hyper::{HeaderMap, Request, Response, StatusCode};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::journal::{self, SystemLogRequest};
use super::safe_open::{EntryKind, INDEX, OpenedPath, PathContents, found, pieces};
use super::{KubeletHandlers, html, moved};
use crate::http::{HandlerResponse, not_found, text};
use crate::https::conditions::{ConditionOutcome, is_known, part, told};
use crate::https::query::QueryPairs;
use crate::node::KubeletHost;

impl<N: KubeletHost> KubeletHandlers<N> {
    pub(super) async fn system_log(
        &self,
        path: &str,
        request: &Request<Incoming>,
    ) -> HandlerResponse {
        let (headers, query) = (request.headers(), request.uri().query());
        let asked = match self.paths.log_query {
            true => journal::parse_request(path, &QueryPairs::of(query)),
            false => Ok(SystemLogRequest::Path(path.to_owned())),
        };
        let root = self.system_logs.clone();
        match asked {
            Ok(SystemLogRequest::Path(path)) if is_index(&path) => {
                moved(StatusCode::MOVED_PERMANENTLY, "./", query)
            }
            Ok(SystemLogRequest::Path(path)) => {
                match found(root, path.trim_end_matches('/').into()).await {
                    Ok(found) => match beside(&path, found.end) {
                        Some(to) => moved(StatusCode::MOVED_PERMANENTLY, &to, query),
                        None => shown_to_people(found, headers),
                    },
                    Err(error) => refused(&error),
                }
            }
            Ok(SystemLogRequest::File(query)) => {
                let path = within(&query.files.concat());
                let whole = root.join(&path);
                match found(root, path).await {
                    Ok(found) => shown_to_people(found, headers),
                    Err(error) => {
                        let why = format!("stat {}: {}", whole.display(), go_words(&error));
                        let why = format!("{}\n", query.no_file(&why));
                        text(StatusCode::NOT_ACCEPTABLE, why)
                    }
                }
            }
            Ok(SystemLogRequest::Services(query)) => self.services(query, headers),
            Err(answer) => *answer,
        }
    }
}

/// Whether a path names a folder's index file.
fn is_index(path: &str) -> bool {
    path == INDEX
        || path
            .strip_suffix(INDEX)
            .is_some_and(|folder| folder.ends_with('/'))
}

/// The right path of an entry whose path lacks a slash at the end, or has one too many; none if it is right.
fn beside(path: &str, end: EntryKind) -> Option<String> {
    let name = address(path.trim_end_matches('/').rsplit('/').next()?);
    match (end, path.ends_with('/')) {
        (EntryKind::Folder, false) if !path.is_empty() => Some(format!("{name}/")),
        (EntryKind::File, true) => Some(format!("../{name}")),
        (EntryKind::Folder | EntryKind::File, _) => None,
    }
}

fn shown_to_people(found: OpenedPath, headers: &HeaderMap) -> HandlerResponse {
    let changed = found.changed;
    let mut answer = match found.what {
        PathContents::Folder { .. } if is_known(headers, changed) => {
            text(StatusCode::NOT_MODIFIED, "")
        }
        PathContents::Folder { names } => listed(&names),
        PathContents::File { file, length, kind } => match part(headers, length, changed) {
            ConditionOutcome::Whole => sent(file, kind, 0..length),
            ConditionOutcome::Bytes(range) => {
                let last = format!("bytes {}-{}/{length}", range.start, range.end - 1);
                let mut answer = sent(file, kind, range);
                *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
                with_range(answer, last)
            }
            ConditionOutcome::Unchanged => text(StatusCode::NOT_MODIFIED, ""),
            ConditionOutcome::Another => text(StatusCode::PRECONDITION_FAILED, ""),
            ConditionOutcome::NoRange(why) => {
                let answer = text(StatusCode::RANGE_NOT_SATISFIABLE, why);
                return with_range(answer, format!("bytes */{length}"));
            }
        },
    };
    let changed = changed.and_then(told);
    if let Some(Ok(changed)) = changed.map(HeaderValue::try_from) {
        answer.headers_mut().insert(LAST_MODIFIED, changed);
    }
    answer
}

fn with_range(mut answer: HandlerResponse, range: String) -> HandlerResponse {
    let range = HeaderValue::try_from(range).expect("numbers are text");
    answer.headers_mut().insert(CONTENT_RANGE, range);
    answer
}

/// The path of a query's file, which begins at the folder and does not leave it, as upstream's.
fn within(path: &str) -> PathBuf {
    let mut within = PathBuf::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(within.pop()),
            segment => within.push(segment),
        }
    }
    within
}

fn go_words(error: &io::Error) -> String {
    let kind = error.kind();
    match () {
        () if kind == ErrorKind::NotFound => "no such file or directory".to_owned(),
        () if kind == ErrorKind::PermissionDenied => "permission denied".to_owned(),
        () => error.to_string(),
    }
}

fn refused(error: &io::Error) -> HandlerResponse {
    let kind = error.kind();
    if matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory) {
        return not_found();
    }
    if kind == ErrorKind::PermissionDenied {
        return text(StatusCode::FORBIDDEN, "403 Forbidden\n");
    }
    text(
        StatusCode::INTERNAL_SERVER_ERROR,
        "500 Internal Server Error\n",
    )
}

/// A listing, as Go's file server makes it.
fn listed(names: &[String]) -> HandlerResponse {
    let mut page =
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n"
            .to_owned();
    for name in names {
        page.push_str(&format!(
            "<a href=\"{}\">{}</a>\n",
            address(name),
            shown(name)
        ));
    }
    page.push_str("</pre>\n");
    html(page)
}

fn shown(name: &str) -> String {
    name.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&#34;")
        .replace('\'', "&#39;")
}

/// What Go leaves as it is in a path.
const IN_ADDRESSES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/')
    .remove(b':')
    .remove(b'@')
    .remove(b'$')
    .remove(b'+')
    .remove(b'=');

fn address(name: &str) -> String {
    let mut address = String::new();
    // A name that looks like a scheme would lead elsewhere.
    if name
        .split('/')
        .next()
        .is_some_and(|first| first.contains(':'))
    {
        address.push_str("./");
    }
    address.extend(utf8_percent_encode(name, IN_ADDRESSES));
    address
}

/// A part of the file, which may have been longer when it was opened.
fn sent(file: File, kind: &'static str, range: Range<u64>) -> HandlerResponse {
    let length = range.end - range.start;
    let pieces = pieces(file, range).map(|piece| Ok(Frame::data(piece)));
    let mut answer = Response::new(StreamBody::new(pieces).boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_a_query_is_beneath_the_folder_whatever_it_is_called() {
        for (path, inside) in [
            ("/a.log", "a.log"),
            ("a/b", "a/b"),
            ("/../../etc/shadow", "etc/shadow"),
            ("a/../../b", "b"),
            ("//a/./b/", "a/b"),
            ("/", ""),
            ("\\a", "\\a"),
        ] {
            assert_eq!(within(path), PathBuf::from(inside), "{path}");
        }
    }
}
