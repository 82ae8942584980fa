//! A log, sent to a reader, and followed for as long as it is written.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use hyper::body::Bytes;
use logic_api::types::ContainerId;
use logic_pods::logs::container_logs::{ContainerLogOptions, LogFormatter, LogTail, ReadProgress};
use tokio::sync::mpsc::Sender;

use super::LogWatches;
use super::file::{self, Leads, LogFile};
use crate::node::{KubeletHost, NodeError};

/// Writes come in bursts: the reader waits this long for the burst to end.
const PAUSE: Duration = Duration::from_millis(10);
/// The time between two reads of a log without an event, and between two checks of its container.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A log to send.
#[derive(Debug)]
pub(crate) struct LogRequest {
    pub(crate) path: PathBuf,
    pub(crate) container: ContainerId,
    pub(crate) options: ContainerLogOptions,
}

/// Why the rest of a log cannot be sent. The text is sent in its place.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("failed to open log file {path:?}: {source}")]
    Open { path: PathBuf, source: io::Error },
    #[error("failed to tail {lines} lines of log file {path:?}: {source}")]
    Tail {
        lines: u64,
        path: PathBuf,
        source: io::Error,
    },
    #[error("failed to read log file {path:?}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("failed to get parse function: unsupported log format")]
    Strange,
    #[error("{0}")]
    Container(String),
}

/// The reader has gone.
struct ReaderGone;

/// Why reading ended early.
enum FollowEnd {
    Error(ReadError),
    Left,
    Enough,
}

impl From<ReaderGone> for FollowEnd {
    fn from(_: ReaderGone) -> FollowEnd {
        FollowEnd::Left
    }
}

impl From<ReadError> for FollowEnd {
    fn from(error: ReadError) -> FollowEnd {
        FollowEnd::Error(error)
    }
}

/// Sends a log to its end, or until the reader goes.
pub(crate) async fn send<N: KubeletHost>(
    log: LogRequest,
    node: Rc<N>,
    written: LogWatches,
    to: Sender<Bytes>,
) {
    let mut reading = match LogFollower::begin(log).await {
        Ok(reading) => reading,
        Err(error) => return send_error(&error, &to).await,
    };
    let ended = match reading.show.options().follow {
        true => reading.follow(&*node, &written, &to).await,
        false => reading.once(&to).await,
    };
    if let Err(FollowEnd::Error(error)) = ended {
        send_error(&error, &to).await;
    }
}

async fn send_error(error: &ReadError, to: &Sender<Bytes>) {
    // A reader that has gone needs no error.
    drop(to.send(Bytes::from(error.to_string())).await);
}

struct LogFollower {
    path: PathBuf,
    container: ContainerId,
    file: LogFile,
    at: u64,
    show: LogFormatter,
}

impl LogFollower {
    async fn begin(log: LogRequest) -> Result<LogFollower, ReadError> {
        let path = log.path;
        let file = open(&path).await?;
        let tail = match log.options.tail {
            None => LogTail::default(),
            Some(lines) => file.tail(lines).await.map_err(|source| ReadError::Tail {
                lines,
                path: path.clone(),
                source,
            })?,
        };
        Ok(LogFollower {
            path,
            container: log.container,
            file,
            at: tail.start,
            show: LogFormatter::of_tail(&log.options, tail),
        })
    }

    async fn once(&mut self, to: &Sender<Bytes>) -> Result<(), FollowEnd> {
        self.read_on(to).await?;
        let mut out = Vec::new();
        let next = self.show.finish(&mut out);
        pass(out, to).await?;
        match next {
            ReadProgress::Strange => Err(ReadError::Strange.into()),
            ReadProgress::More | ReadProgress::Enough => Ok(()),
        }
    }

    /// Sends what there is up to the file's end.
    async fn read_on(&mut self, to: &Sender<Bytes>) -> Result<(), FollowEnd> {
        loop {
            let piece = self.file.read(self.at).await;
            let piece = piece.map_err(|source| self.unread(source))?;
            if piece.is_empty() {
                return Ok(());
            }
            self.at += piece.len() as u64;
            let mut out = Vec::new();
            let next = self.show.take(&piece, &mut out);
            drop(piece);
            pass(out, to).await?;
            match next {
                ReadProgress::More => {}
                ReadProgress::Enough => return Err(FollowEnd::Enough),
                ReadProgress::Strange => return Err(ReadError::Strange.into()),
            }
        }
    }

    async fn follow<N: KubeletHost>(
        &mut self,
        node: &N,
        written: &LogWatches,
        to: &Sender<Bytes>,
    ) -> Result<(), FollowEnd> {
        let wake = written.beneath(file::folder(&self.path));
        let wake = wake
            .inspect_err(|error| tracing::debug!("a log is looked at every second: {error}"))
            .ok();
        let mut asked = None;
        loop {
            let heard = wake.as_ref().map(|wake| wake.next());
            self.read_on(to).await?;
            if self.has_rotated(to).await? {
                continue;
            }
            let now = kernel::now();
            let is_due = asked.is_none_or(|at| now.saturating_duration_since(at) >= LOOK_EVERY);
            if is_due {
                asked = Some(now);
                if !self.is_running(node).await? {
                    // Its last words may have come since the end was seen.
                    self.read_on(to).await?;
                    while self.has_rotated(to).await? {
                        self.read_on(to).await?;
                    }
                    return Ok(());
                }
            }
            tokio::select! {
                () = to.closed() => return Err(FollowEnd::Left),
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = async {
                    match heard {
                        Some(heard) => heard.await,
                        None => std::future::pending().await,
                    }
                } => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Goes on with the file that the name leads to now, once this one is read to its end.
    async fn has_rotated(&mut self, to: &Sender<Bytes>) -> Result<bool, FollowEnd> {
        let leads = self.file.led_to_by(self.path.clone(), self.at).await;
        match leads.map_err(|source| self.unread(source))? {
            Leads::Here | Leads::Nowhere => Ok(false),
            Leads::HereEmptied => {
                self.begin_again();
                Ok(true)
            }
            Leads::Elsewhere(next) => {
                self.read_on(to).await?;
                self.file = next;
                self.begin_again();
                Ok(true)
            }
        }
    }

    fn begin_again(&mut self) {
        self.at = 0;
        self.show.another_file();
    }

    /// A container that the runtime has forgotten does not run.
    async fn is_running<N: KubeletHost>(&self, node: &N) -> Result<bool, ReadError> {
        match node.is_running(&self.container).await {
            Ok(is_running) => Ok(is_running),
            Err(NodeError::NotFound(_)) => Ok(false),
            Err(trouble @ (NodeError::Exhausted(_) | NodeError::Failed(_))) => {
                Err(ReadError::Container(trouble.to_string()))
            }
        }
    }

    fn unread(&self, source: io::Error) -> ReadError {
        ReadError::Read {
            path: self.path.clone(),
            source,
        }
    }
}

async fn open(path: &std::path::Path) -> Result<LogFile, ReadError> {
    let opened = LogFile::open(path.to_owned()).await;
    opened.map_err(|source| ReadError::Open {
        path: path.to_owned(),
        source,
    })
}

async fn pass(out: Vec<u8>, to: &Sender<Bytes>) -> Result<(), ReaderGone> {
    match out.is_empty() {
        true => Ok(()),
        false => to.send(out.into()).await.map_err(|_| ReaderGone),
    }
}
