//! `/logs/`: the system's logs, files and folders beneath one folder, and nothing outside of it.
//!
//! A link is followed only to what is beneath the folder as well: upstream follows every link, so that a pod
//! which may write there could have any file shown.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::journal::{self, Asked};
use super::{Open, html};
use crate::http::{Answer, not_found, text};
use crate::https::query::Query;
use crate::node::Node;

const PIECE: usize = 32 * 1024;
const WITHIN: Duration = Duration::from_secs(30);
/// A folder of more entries is shown in part.
const ENTRIES: usize = 10_000;

/// What a path leads to.
pub(super) enum Found {
    File { file: File, length: u64 },
    Folder { names: Vec<String> },
}

impl<N: Node> Open<N> {
    pub(super) async fn system_log(
        &self,
        path: &str,
        query: &Query,
        headers: &HeaderMap,
    ) -> Answer {
        let asked = match self.paths.log_query {
            true => journal::asked(path, query),
            false => Ok(Asked::Path(path.to_owned())),
        };
        let root = self.system_logs.clone();
        match asked {
            Ok(Asked::Path(path)) => match found(root, path.into()).await {
                Ok(found) => shown_to_people(found),
                Err(error) => refused(&error),
            },
            Ok(Asked::File(query)) => {
                let path = within(&query.files.concat());
                let whole = root.join(&path);
                match found(root, path).await {
                    Ok(found) => shown_to_people(found),
                    Err(error) => {
                        let why = format!("stat {}: {}", whole.display(), go_words(&error));
                        let why = format!("{}\n", query.no_file(&why));
                        text(StatusCode::NOT_ACCEPTABLE, why)
                    }
                }
            }
            Ok(Asked::Services(query)) => self.services(query, headers),
            Err(answer) => *answer,
        }
    }
}

fn shown_to_people(found: Found) -> Answer {
    match found {
        Found::File { file, length } => sent(file, length),
        Found::Folder { names } => listed(&names),
    }
}

/// Opens what a path beneath a folder leads to.
pub(super) async fn found(root: PathBuf, wanted: PathBuf) -> io::Result<Found> {
    let found = tokio::task::spawn_blocking(move || find(&root, &wanted));
    match tokio::time::timeout(WITHIN, found).await {
        Ok(Ok(found)) => found,
        Ok(Err(_)) | Err(_) => Err(ErrorKind::TimedOut.into()),
    }
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

fn refused(error: &io::Error) -> Answer {
    let kind = error.kind();
    if kind == ErrorKind::NotFound {
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

fn find(root: &Path, wanted: &Path) -> io::Result<Found> {
    let root = root.canonicalize()?;
    let there = root.join(wanted).canonicalize()?;
    let outside = || io::Error::from(ErrorKind::NotFound);
    let beneath = there.strip_prefix(&root).map_err(|_| outside())?;
    let folder = File::open(&root)?;
    let name = match beneath.as_os_str().is_empty() {
        true => Path::new("."),
        false => beneath,
    };
    // No link may have come in between.
    let opened: OwnedFd = rustix::fs::openat2(
        &folder,
        name,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )?;
    let file = File::from(opened);
    let meta = file.metadata()?;
    match () {
        () if meta.is_file() => Ok(Found::File {
            length: meta.len(),
            file,
        }),
        () if meta.is_dir() => Ok(Found::Folder {
            names: names(&file)?,
        }),
        () => Err(outside()),
    }
}

fn names(folder: &File) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)?.take(ENTRIES) {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        let slash = match entry.file_type().is_dir() {
            true => "/",
            false => "",
        };
        if !matches!(&*name, "." | "..") {
            names.push(format!("{name}{slash}"));
        }
    }
    names.sort();
    Ok(names)
}

/// As Go's file server lists.
fn listed(names: &[String]) -> Answer {
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

fn address(name: &str) -> String {
    let mut address = String::new();
    // What looks like a scheme would lead elsewhere.
    if name
        .split('/')
        .next()
        .is_some_and(|first| first.contains(':'))
    {
        address.push_str("./");
    }
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => address.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'~' | b'/' | b':' | b'@' | b'$' | b'+' | b'=' => {
                address.push(char::from(byte));
            }
            other => address.push_str(&format!("%{other:02X}")),
        }
    }
    address
}

/// The file as long as it was when it was opened.
fn sent(file: File, length: u64) -> Answer {
    let pieces = pieces(file, length).map(|piece| Ok(Frame::data(piece)));
    let mut answer = Response::new(StreamBody::new(pieces).boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    answer
}

/// The bytes of a file, up to this length.
pub(super) fn pieces(file: File, length: u64) -> impl Stream<Item = Bytes> + Send + 'static {
    let state = (Arc::new(file), 0_u64);
    futures_util::stream::unfold(state, move |(file, at)| async move {
        let left = usize::try_from(length - at).unwrap_or(usize::MAX);
        if left == 0 {
            return None;
        }
        let reader = Arc::clone(&file);
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE.min(left)];
            let read = reader.read_at(&mut piece, at)?;
            piece.truncate(read);
            io::Result::Ok(piece)
        });
        match tokio::time::timeout(WITHIN, read).await {
            Ok(Ok(Ok(piece))) if !piece.is_empty() => {
                let next = at + piece.len() as u64;
                Some((Bytes::from(piece), (file, next)))
            }
            _ => None,
        }
    })
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
