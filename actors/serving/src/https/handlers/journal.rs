//! `/logs/?query=`: the logs of system services, from journalctl or from their own files.
//!
//! journalctl ends with its caller, or at its deadline; nothing of its output is kept but the piece
//! under way.
//!
//! Upstream: pkg/kubelet/kubelet_server_journal.go (1.36).

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::StreamExt;
use hyper::body::Bytes;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use logic_node::log_query::{self, JournalOptions, LogQuery, LogQueryErrors};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::safe_open::{PathContents, found, pieces};
use super::{KubeletHandlers, as_it_comes, no_stream};
use crate::http::{HandlerResponse, text};
use crate::https::query::QueryPairs;
use crate::node::{KubeletHost, NodeError};

/// The deadline of one query.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Queries at a time: each is a process.
pub(super) const QUERIES: usize = 8;
/// Pieces buffered for one reader.
const PIECES: usize = 2;
const PIECE: usize = 16 * 1024;

/// A request for the system's logs.
pub(super) enum SystemLogRequest {
    /// The file or folder at this path.
    Path(String),
    /// A query for a single file.
    File(LogQuery),
    Services(LogQuery),
}

/// Parses the request; a bad query gets its response here.
pub(super) fn parse_request(
    path: &str,
    query: &QueryPairs,
) -> Result<SystemLogRequest, Box<HandlerResponse>> {
    let refused =
        |status: StatusCode, wrongs: &LogQueryErrors| Box::new(text(status, format!("{wrongs}\n")));
    let read = LogQuery::read(query.pairs());
    let read = read.map_err(|wrongs| refused(StatusCode::BAD_REQUEST, &wrongs))?;
    let Some(read) = read else {
        return Ok(SystemLogRequest::Path(path.to_owned()));
    };
    if !path.is_empty() {
        let why = "path not allowed in query mode\n";
        return Err(Box::new(text(StatusCode::NOT_ACCEPTABLE, why)));
    }
    let valid = read.validate();
    valid.map_err(|wrongs| refused(StatusCode::NOT_ACCEPTABLE, &wrongs))?;
    match read.services.is_empty() {
        true => Ok(SystemLogRequest::File(read)),
        false => Ok(SystemLogRequest::Services(read)),
    }
}

impl<N: KubeletHost> KubeletHandlers<N> {
    /// Sends the logs of these services.
    pub(super) fn services(&self, query: LogQuery, headers: &HeaderMap) -> HandlerResponse {
        let Ok(turn) = self.queries.clone().try_acquire_owned() else {
            let why = "maximum number of in-flight requests exceeded".to_owned();
            return no_stream(&NodeError::Exhausted(why));
        };
        let is_packed = headers
            .get(ACCEPT_ENCODING)
            .is_some_and(|how| how == "gzip");
        let (to, from) = mpsc::channel(PIECES);
        let search = JournalQuery {
            program: self.journalctl.clone(),
            folder: self.system_logs.clone(),
            until: kernel::now() + TIMEOUT,
            query,
        };
        let packed = is_packed.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        tokio::task::spawn_local(async move {
            let left = to.clone();
            // The caller may leave at any time; journalctl then ends with it.
            tokio::select! {
                () = left.closed() => {}
                () = search.stream(ChunkWriter { to, packed }) => {}
            }
        });
        let mut answer = as_it_comes(from, turn);
        let plain = HeaderValue::from_static("text/plain;charset=UTF-8");
        answer.headers_mut().insert(CONTENT_TYPE, plain);
        if is_packed {
            let gzip = HeaderValue::from_static("gzip");
            answer.headers_mut().insert(CONTENT_ENCODING, gzip);
        }
        answer
    }
}

/// The writing end of the response.
struct ChunkWriter {
    to: mpsc::Sender<Bytes>,
    packed: Option<GzEncoder<Vec<u8>>>,
}

impl ChunkWriter {
    /// Sends a piece; that the reader has gone is noticed elsewhere.
    async fn write_chunk(&mut self, bytes: impl Into<Vec<u8>>) -> io::Result<()> {
        let mut bytes = bytes.into();
        if let Some(packed) = &mut self.packed {
            packed.write_all(&bytes)?;
            bytes = std::mem::take(packed.get_mut());
        }
        self.pass(bytes).await;
        Ok(())
    }

    async fn end(mut self) {
        if let Some(packed) = self.packed.take()
            && let Ok(bytes) = packed.finish()
        {
            self.pass(bytes).await;
        }
    }

    async fn pass(&self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            drop(self.to.send(bytes.into()).await);
        }
    }
}

/// A query that is being answered.
struct JournalQuery {
    program: PathBuf,
    folder: PathBuf,
    until: Instant,
    query: LogQuery,
}

impl JournalQuery {
    async fn stream(self, mut out: ChunkWriter) {
        if let Err(error) = self.tell(&mut out).await {
            tracing::debug!("a query of logs ends early: {error}");
        }
        out.end().await;
    }

    async fn tell(&self, out: &mut ChunkWriter) -> io::Result<()> {
        let (native, files) = self.split().await;
        if !native.is_empty() {
            self.show(&native, out).await?;
        }
        if files.is_empty() {
            return Ok(());
        }
        if self.query.options != JournalOptions::default() {
            let names = files.join(" ");
            let why = format!(
                "\noptions present and query resolved to log files for [{names}]\ntry without specifying options\n"
            );
            return out.write_chunk(why).await;
        }
        for service in &files {
            if self.left().is_zero() {
                let why = "\ncontext error: context deadline exceeded\n";
                return out.write_chunk(why).await;
            }
            self.show_file(service, out).await?;
        }
        Ok(())
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(kernel::now())
    }

    /// Returns which services journalctl knows, and which it does not.
    async fn split(&self) -> (Vec<String>, Vec<String>) {
        let services = self.query.services.clone();
        let units: Vec<String> = services.iter().map(|name| log_query::unit(name)).collect();
        let known = tokio::time::timeout(self.left(), self.known(&units)).await;
        let known = match known {
            Ok(Ok(known)) => known,
            // If journalctl cannot be asked, no service is known.
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        let judged = services.into_iter().enumerate();
        let (native, files): (Vec<_>, Vec<_>) =
            judged.partition(|(at, _)| known.get(*at).is_some_and(|is_known| *is_known));
        let names = |some: Vec<(usize, String)>| some.into_iter().map(|(_, name)| name).collect();
        (names(native), names(files))
    }

    async fn known(&self, units: &[String]) -> io::Result<Vec<bool>> {
        let (mut child, mut said) = self.run(&log_query::KNOWN.map(str::to_owned))?;
        let longest = units.iter().map(String::len).max().unwrap_or_default();
        let mut known = vec![false; units.len()];
        let (mut window, mut piece) = (Vec::new(), vec![0; PIECE]);
        loop {
            let read = said.read(&mut piece).await?;
            if read == 0 {
                break;
            }
            window.extend_from_slice(&piece[..read]);
            for (unit, is_known) in units.iter().zip(&mut known) {
                let mut places = window.windows(unit.len());
                *is_known = *is_known || places.any(|place| place == unit.as_bytes());
            }
            // A name may go on in the next piece.
            let past = window.len().saturating_sub(longest);
            window.drain(..past);
        }
        match child.wait().await?.success() {
            true => Ok(known),
            false => Err(io::ErrorKind::Other.into()),
        }
    }

    /// Sends what journalctl prints about these services, errors included.
    async fn show(&self, services: &[String], out: &mut ChunkWriter) -> io::Result<()> {
        let Ok((mut child, mut said)) = self.run(&self.query.arguments(services)) else {
            if self.query.options.boot.unwrap_or_default() == 0 {
                let why = "\nerror: journal output not available\n";
                out.write_chunk(why).await?;
            }
            return Ok(());
        };
        let shown = async {
            let mut piece = vec![0; PIECE];
            loop {
                let read = said.read(&mut piece).await?;
                if read == 0 {
                    break;
                }
                out.write_chunk(&piece[..read]).await?;
            }
            child.wait().await.map(drop)
        };
        // At the deadline it is dropped, and so killed.
        let shown = tokio::time::timeout(self.left(), shown).await;
        shown.unwrap_or(Ok(()))
    }

    /// Starts journalctl; its output and its errors come out of one pipe.
    fn run(&self, arguments: &[String]) -> io::Result<(Child, Receiver)> {
        let (said, says) = io::pipe()?;
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(says.try_clone()?)
            .stdout(says)
            .kill_on_drop(true);
        let child = command.spawn()?;
        Ok((child, Receiver::from_owned_fd(said.into())?))
    }

    async fn show_file(&self, service: &str, out: &mut ChunkWriter) -> io::Result<()> {
        for place in log_query::places(service) {
            let found = found(self.folder.clone(), place.into()).await;
            match found.map(|found| found.what) {
                Ok(PathContents::File { file, length, .. }) => {
                    let pieces = pieces(file, 0..length);
                    let mut pieces = std::pin::pin!(pieces);
                    while let Some(piece) = pieces.next().await {
                        if self.left().is_zero() {
                            return Ok(());
                        }
                        out.write_chunk(piece).await?;
                    }
                    return Ok(());
                }
                Ok(PathContents::Folder { .. }) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let why = format!("\nerror getting log for {service}: {error}\n");
                    return out.write_chunk(why).await;
                }
            }
        }
        out.write_chunk(format!("\nlog not found for {service}\n"))
            .await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn journalctl_that_says_no_more_is_ended_at_the_deadline() {
        let run = kernel::system::run(async {
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join("journalctl");
            let script = "#!/bin/sh\n[ \"$1\" = --field ] && echo foo.service && exit\necho $$\nexec sleep 1000\n";
            std::fs::write(&program, script).unwrap();
            std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
            let query = [("query", "foo"), ("query", "own")];
            let search = JournalQuery {
                program,
                folder: folder.path().to_owned(),
                until: kernel::now() + Duration::from_secs(1),
                query: LogQuery::read(query.into_iter()).unwrap().unwrap(),
            };
            let (to, mut from) = mpsc::channel(8);
            search.stream(ChunkWriter { to, packed: None }).await;
            let mut said = Vec::new();
            while let Some(piece) = from.recv().await {
                said.extend_from_slice(&piece);
            }
            let said = String::from_utf8(said).unwrap();
            let (pid, rest) = said.split_once('\n').unwrap();
            let process = format!("/proc/{pid}/stat");
            let state = std::fs::read_to_string(process).unwrap_or_default();
            // Killed, whether or not its end has been collected yet.
            assert!(state.is_empty() || !state.contains("(sleep) S"), "{state}");
            assert_eq!(rest, "\ncontext error: context deadline exceeded\n");
        });
        run.unwrap();
    }
}
