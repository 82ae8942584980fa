//! What of a log is asked for.

use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;

/// Which of a container's streams are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamSelection {
    All,
    Stdout,
    Stderr,
}

/// The query parameters of a log request, unparsed.
#[derive(Debug, Clone, Default)]
pub struct LogQueryFields<'a> {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    /// The old name of `tailLines`, which counts before it; `all` is everything.
    pub tail: Option<&'a str>,
    pub tail_lines: Option<&'a str>,
    pub since_seconds: Option<&'a str>,
    pub since_time: Option<&'a str>,
    pub limit_bytes: Option<&'a str>,
    pub stream: Option<&'a str>,
}

/// Which lines of a log are shown, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerLogOptions {
    /// Goes on as the log grows.
    pub follow: bool,
    /// Of the instance before the current one.
    pub previous: bool,
    /// Begins each line with its time.
    pub timestamps: bool,
    /// So many of the last lines; none is all.
    pub tail: Option<u64>,
    /// At most; none for all.
    pub bytes: Option<u64>,
    /// Lines from this time on; none for all.
    pub since: Option<Timestamp>,
    pub stream: StreamSelection,
}

/// Why a query asks for nothing that could be shown. The texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogOptionsError {
    #[error("{{\"message\": \"Unable to decode query.\"}}")]
    Unreadable,
    #[error("{{\"message\": \"Invalid request.\"}}")]
    Invalid,
    #[error(
        "unable to return the given log stream: {0:?}. Please enable PodLogsQuerySplitStreams feature gate in kubelet"
    )]
    NoSplit(String),
}

impl ContainerLogOptions {
    /// Reads a query. `split` is whether one stream alone may be asked for.
    pub fn read(
        asked: &LogQueryFields<'_>,
        now: Timestamp,
        split: bool,
    ) -> Result<ContainerLogOptions, LogOptionsError> {
        let tail = match asked.tail.filter(|tail| !tail.is_empty()) {
            Some("all") => None,
            Some(tail) => Some(number(tail)?),
            None => asked.tail_lines.map(number).transpose()?,
        };
        let limit = asked.limit_bytes.map(number).transpose()?;
        let seconds = asked.since_seconds.map(number).transpose()?;
        let time = asked.since_time.map(time).transpose()?;
        let is_wrong = tail.is_some_and(|tail| tail < 0)
            || limit.is_some_and(|limit| limit < 1)
            || seconds.is_some_and(|seconds| seconds < 1)
            || (seconds.is_some() && time.is_some());
        let stream = match asked.stream {
            None | Some("All") => StreamSelection::All,
            Some("Stdout") => StreamSelection::Stdout,
            Some("Stderr") => StreamSelection::Stderr,
            Some(_) => return Err(LogOptionsError::Invalid),
        };
        if is_wrong || (stream != StreamSelection::All && tail.is_some()) {
            return Err(LogOptionsError::Invalid);
        }
        if let Some(name) = asked
            .stream
            .filter(|_| stream != StreamSelection::All && !split)
        {
            return Err(LogOptionsError::NoSplit(name.to_owned()));
        }
        let ago = seconds.map(|seconds| {
            let ago = Duration::from_secs(seconds.unsigned_abs());
            now.checked_sub(ago).unwrap_or(Timestamp::MIN)
        });
        Ok(ContainerLogOptions {
            follow: asked.follow,
            previous: asked.previous,
            timestamps: asked.timestamps,
            tail: tail.map(i64::unsigned_abs),
            bytes: limit.map(i64::unsigned_abs),
            since: ago.or(time.flatten()),
            stream,
        })
    }
}

fn number(text: &str) -> Result<i64, LogOptionsError> {
    i64::from_str(text).map_err(|_| LogOptionsError::Unreadable)
}

/// Nothing and `null` are the beginning of time, as older clients write it.
fn time(text: &str) -> Result<Option<Timestamp>, LogOptionsError> {
    match text {
        "" | "null" => Ok(None),
        text => match text.parse() {
            Ok(time) => Ok(Some(time)),
            Err(_) => Err(LogOptionsError::Unreadable),
        },
    }
}
