//! One line of a log: its time, its stream and its text.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;

/// How a runtime writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerLogFormat {
    /// `2016-10-06T00:17:09.669794202Z stdout P text`
    Cri,
    /// `{"log":"text\n","stream":"stdout","time":"2016-10-06T00:17:09.669794202Z"}`
    Json,
}

/// Where a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLineStream {
    Stdout,
    Stderr,
}

/// A parsed log line.
#[derive(Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// As it stands in the log, with its own offset.
    pub written: Cow<'a, str>,
    /// By the runtime's clock.
    pub at: Timestamp,
    pub source: LogLineStream,
    /// With its end, unless it goes on in the next.
    pub text: Cow<'a, [u8]>,
    /// The text ends here by the log's own word, whatever stands in it.
    pub partial: bool,
}

#[derive(Deserialize)]
struct JsonLine<'a> {
    #[serde(borrow, default)]
    log: Cow<'a, str>,
    #[serde(borrow, default)]
    stream: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
}

impl ContainerLogFormat {
    /// Returns the format that a log's first line is in.
    pub fn of(line: &[u8]) -> Option<ContainerLogFormat> {
        let formats = [ContainerLogFormat::Cri, ContainerLogFormat::Json];
        formats
            .into_iter()
            .find(|format| format.read(line).is_some())
    }

    /// Reads a line with its end; none if it is in another format.
    pub fn read(self, line: &[u8]) -> Option<LogLine<'_>> {
        match self {
            ContainerLogFormat::Cri => cri(line),
            ContainerLogFormat::Json => json(line),
        }
    }
}

fn cri(line: &[u8]) -> Option<LogLine<'_>> {
    let (written, rest) = split_word(line)?;
    let (stream, rest) = split_word(rest)?;
    let (tags, text) = split_word(rest)?;
    let written = std::str::from_utf8(written).ok()?;
    let partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
    let text = match partial {
        true => text.strip_suffix(b"\n").unwrap_or(text),
        false => text,
    };
    Some(LogLine {
        written: Cow::Borrowed(written),
        at: written.parse().ok()?,
        source: source(stream)?,
        text: Cow::Borrowed(text),
        partial,
    })
}

fn json(line: &[u8]) -> Option<LogLine<'_>> {
    let read: JsonLine<'_> = serde_json::from_slice(line).ok()?;
    let text = match read.log {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    };
    Some(LogLine {
        at: read.time.parse().ok()?,
        written: read.time,
        source: source(read.stream.as_bytes())?,
        text,
        partial: false,
    })
}

fn split_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == b' ')?;
    Some((&text[..at], &text[at + 1..]))
}

fn source(name: &[u8]) -> Option<LogLineStream> {
    match name {
        b"stdout" => Some(LogLineStream::Stdout),
        b"stderr" => Some(LogLineStream::Stderr),
        _ => None,
    }
}

/// Returns a time of a log with nine digits of a second and its own offset.
pub fn nine_digits(written: &str) -> String {
    let Some(seconds) = written.get(..19) else {
        return written.to_owned();
    };
    let rest = &written[19..];
    let end = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
    let (fraction, offset) = rest.split_at(end);
    let fraction = fraction.strip_prefix('.').unwrap_or(fraction);
    let fraction = fraction.get(..9).unwrap_or(fraction);
    format!("{seconds}.{fraction:0<9}{offset}")
}
