//! Where the last lines of a log begin.
//!
//! A runtime writes a long line in parts, of which all but the last are marked as partial, and the parts of the two
//! streams' lines come in any order. Upstream counts each part as a line, and so shows the end of a long line alone.

use super::line::{ContainerLogFormat, LogLineStream};

/// How far before the last lines the beginning of a line is looked for whose end is among them. As far again is looked
/// from each part of it that is found, so that a line may be of any length.
const MAX_GAP_BYTES: u64 = 16 << 20;

/// The last lines of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogTail {
    /// The offset to read from.
    pub start: u64,
    /// What begins before this offset belongs to earlier lines, unless it is a part that is shown.
    pub(super) whole_from: u64,
    /// By stream: the offset of the first part of a line that goes on after `whole_from`.
    pub(super) parts: [Option<u64>; 2],
}

impl LogTail {
    /// Whether what is written at this offset is shown.
    pub(super) fn shows(&self, at: u64, stream: LogLineStream, partial: bool) -> bool {
        let is_part = || partial && self.parts[index(stream)].is_some_and(|first| at >= first);
        at >= self.whole_from || is_part()
    }
}

/// Finds the last lines of a log that is read backwards.
#[derive(Debug)]
pub struct TailSearch {
    /// Lines that are still to be found.
    left: u64,
    tail: LogTail,
    phase: SearchPhase,
    streams: [StreamSearch; 2],
    /// The last offset at which something was found.
    found_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchPhase {
    Lines,
    /// All lines are found; those that begin earlier still lack parts.
    Parts,
}

/// What is known of a stream after an offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StreamSearch {
    #[default]
    Silent,
    /// Something of it belongs to the last lines, and its line may begin earlier.
    Open,
    /// Nothing before belongs to them.
    Closed,
}

impl TailSearch {
    /// Bytes of a written line that tell its stream, and whether it is a part: all of one in docker's JSON.
    pub const HEAD_BYTES: usize = super::MAX_LINE_BYTES;

    /// Of a log with this length.
    pub fn new(lines: u64, length: u64) -> TailSearch {
        TailSearch {
            left: lines,
            tail: LogTail {
                start: length,
                whole_from: length,
                parts: [None; 2],
            },
            phase: SearchPhase::Lines,
            streams: [StreamSearch::Silent; 2],
            found_at: length,
        }
    }

    /// Takes what was written before what was taken last: its offset and its first [`Self::HEAD_BYTES`]. True once
    /// nothing before can belong to the last lines.
    pub fn take(&mut self, at: u64, head: &[u8]) -> bool {
        let read = read(head);
        if self.phase == SearchPhase::Lines && !self.is_line_found(at, read) {
            return false;
        }
        self.phase = SearchPhase::Parts;
        if let Some((stream, partial)) = read
            && self.streams[index(stream)] == StreamSearch::Open
        {
            self.find_part(at, stream, partial);
        }
        let is_open = |stream: &StreamSearch| *stream == StreamSearch::Open;
        !self.streams.iter().any(is_open) || self.found_at - at > MAX_GAP_BYTES
    }

    pub fn found(self) -> LogTail {
        self.tail
    }

    /// True if all lines had been found before this one.
    fn is_line_found(&mut self, at: u64, read: Option<(LogLineStream, bool)>) -> bool {
        let ends_line = match read {
            Some((stream, true)) => self.streams[index(stream)] == StreamSearch::Silent,
            Some((_, false)) | None => true,
        };
        if ends_line && self.left == 0 {
            // The line that ends here is not shown, nor what it has before.
            if let Some((stream, true)) = read {
                self.streams[index(stream)] = StreamSearch::Closed;
            }
            return true;
        }
        self.left -= u64::from(ends_line);
        if let Some((stream, _)) = read {
            self.streams[index(stream)] = StreamSearch::Open;
        }
        (self.tail.start, self.tail.whole_from, self.found_at) = (at, at, at);
        false
    }

    fn find_part(&mut self, at: u64, stream: LogLineStream, partial: bool) {
        if !partial {
            self.streams[index(stream)] = StreamSearch::Closed;
            return;
        }
        self.tail.parts[index(stream)] = Some(at);
        (self.tail.start, self.found_at) = (at, at);
    }
}

/// The stream of a written line, and whether its text goes on in the next one of that stream.
fn read(line: &[u8]) -> Option<(LogLineStream, bool)> {
    let format = match line.first() {
        Some(b'{') => ContainerLogFormat::Json,
        _ => ContainerLogFormat::Cri,
    };
    let read = format.read(line)?;
    let partial = match format {
        ContainerLogFormat::Cri => read.partial,
        ContainerLogFormat::Json => read.text.last().is_none_or(|last| *last != b'\n'),
    };
    Some((read.source, partial))
}

fn index(stream: LogLineStream) -> usize {
    match stream {
        LogLineStream::Stdout => 0,
        LogLineStream::Stderr => 1,
    }
}
