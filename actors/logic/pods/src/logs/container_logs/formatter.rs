//! What of a log's lines is shown.

use super::line::{ContainerLogFormat, LogLine, LogLineStream, nine_digits};
use super::options::{ContainerLogOptions, StreamSelection};
use super::tail::LogTail;

/// Cuts a log's bytes into lines and keeps what was asked for. What is unfinished waits, up to a bound.
#[derive(Debug)]
pub struct LogFormatter {
    options: ContainerLogOptions,
    format: Option<ContainerLogFormat>,
    /// Of a line whose end has not come.
    pending: Vec<u8>,
    /// A line that is longer than the bound: its rest belongs to it, shown or not.
    long: Option<OverlongLine>,
    /// The next text begins a line.
    begins: bool,
    remaining: u64,
    /// Lines that may still end.
    lines: Option<u64>,
    tail: LogTail,
    /// The offset in the file of the line that is read.
    at: u64,
}

/// A line of which the beginning is shown already, or left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OverlongLine {
    shown: bool,
    partial: bool,
}

/// Runtimes break lines at 16 KiB; docker's JSON makes at most six bytes of one.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// How reading continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadProgress {
    More,
    /// All that was asked for has been shown.
    Enough,
    /// The first line is in no format that is known.
    Strange,
}

impl LogFormatter {
    pub fn new(options: &ContainerLogOptions) -> LogFormatter {
        LogFormatter {
            format: None,
            pending: Vec::new(),
            long: None,
            begins: true,
            remaining: options.bytes.unwrap_or(u64::MAX),
            lines: options.tail.filter(|_| !options.follow),
            tail: LogTail::default(),
            at: 0,
            options: options.clone(),
        }
    }

    /// Of the last lines of a log, read from [`LogTail::start`] on.
    pub fn of_tail(options: &ContainerLogOptions, tail: LogTail) -> LogFormatter {
        LogFormatter {
            at: tail.start,
            tail,
            ..LogFormatter::new(options)
        }
    }

    pub fn options(&self) -> &ContainerLogOptions {
        &self.options
    }

    /// Takes bytes of the log and adds to `out` what is shown of them.
    pub fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> ReadProgress {
        while !bytes.is_empty() {
            if self.is_done() {
                return ReadProgress::Enough;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |at| at + 1));
            bytes = rest;
            let next = match (self.long, end) {
                (Some(long), _) => self.rest(long, piece, end.is_some(), out),
                (None, Some(_)) if self.pending.is_empty() => self.line(piece, out),
                (None, Some(_)) => {
                    self.pending.extend_from_slice(piece);
                    let line = std::mem::take(&mut self.pending);
                    self.line(&line, out)
                }
                (None, None) => {
                    self.pending.extend_from_slice(piece);
                    self.too_long(out)
                }
            };
            if next != ReadProgress::More {
                return next;
            }
        }
        match self.is_done() {
            true => ReadProgress::Enough,
            false => ReadProgress::More,
        }
    }

    /// Shows a last line that has no end.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> ReadProgress {
        let line = std::mem::take(&mut self.pending);
        match line.is_empty() || self.is_done() {
            true => ReadProgress::Enough,
            false => self.line(&line, out),
        }
    }

    /// Drops an unfinished line: another file begins.
    pub fn another_file(&mut self) {
        self.pending = Vec::new();
        self.long = None;
        self.tail = LogTail::default();
        self.at = 0;
    }

    fn is_done(&self) -> bool {
        self.remaining == 0 || self.lines == Some(0)
    }

    fn line(&mut self, line: &[u8], out: &mut Vec<u8>) -> ReadProgress {
        let Some(format) = self.format.or_else(|| ContainerLogFormat::of(line)) else {
            return ReadProgress::Strange;
        };
        self.format = Some(format);
        if let Some(read) = format.read(line)
            && self.tail.shows(self.at, read.source, goes_on(&read))
        {
            self.text(&read, out);
            self.begins = read.text.is_empty() || !goes_on(&read);
            if !goes_on(&read) {
                self.count_line();
            }
        }
        self.at += line.len() as u64;
        match self.remaining {
            0 => ReadProgress::Enough,
            _ => ReadProgress::More,
        }
    }

    fn count_line(&mut self) {
        self.lines = self.lines.map(|lines| lines.saturating_sub(1));
    }

    fn text(&mut self, line: &LogLine<'_>, out: &mut Vec<u8>) -> bool {
        let is_old = self.options.since.is_some_and(|since| line.at < since);
        let is_other = match (self.options.stream, line.source) {
            (StreamSelection::All, _)
            | (StreamSelection::Stdout, LogLineStream::Stdout)
            | (StreamSelection::Stderr, LogLineStream::Stderr) => false,
            (StreamSelection::Stdout, LogLineStream::Stderr)
            | (StreamSelection::Stderr, LogLineStream::Stdout) => true,
        };
        if is_old || is_other {
            return false;
        }
        if self.options.timestamps && self.begins {
            self.show(nine_digits(&line.written).as_bytes(), out);
            self.show(b" ", out);
        }
        self.show(&line.text, out);
        true
    }

    fn show(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let room = usize::try_from(self.remaining).unwrap_or(usize::MAX);
        let shown = &bytes[..bytes.len().min(room)];
        out.extend_from_slice(shown);
        self.remaining -= shown.len() as u64;
    }

    /// A line beyond the bound is shown as far as it came, and then as it comes. Only CRI's lines can be.
    fn too_long(&mut self, out: &mut Vec<u8>) -> ReadProgress {
        if self.pending.len() < MAX_LINE_BYTES {
            return ReadProgress::More;
        }
        let line = std::mem::take(&mut self.pending);
        let Some(format) = self.format.or_else(|| ContainerLogFormat::of(&line)) else {
            return ReadProgress::Strange;
        };
        self.format = Some(format);
        self.long = Some(OverlongLine {
            shown: false,
            partial: true,
        });
        if let Some(read) = format.read(&line)
            && self.tail.shows(self.at, read.source, read.partial)
        {
            self.long = Some(OverlongLine {
                shown: self.text(&read, out),
                partial: read.partial,
            });
            self.begins = false;
        }
        self.at += line.len() as u64;
        match self.remaining {
            0 => ReadProgress::Enough,
            _ => ReadProgress::More,
        }
    }

    fn rest(
        &mut self,
        long: OverlongLine,
        piece: &[u8],
        ends: bool,
        out: &mut Vec<u8>,
    ) -> ReadProgress {
        if ends {
            self.long = None;
            self.begins = !(long.shown && long.partial);
            if !long.partial {
                self.count_line();
            }
        }
        self.at += piece.len() as u64;
        if long.shown && long.partial {
            self.show(piece.strip_suffix(b"\n").unwrap_or(piece), out);
        } else if long.shown {
            self.show(piece, out);
        }
        match self.remaining {
            0 => ReadProgress::Enough,
            _ => ReadProgress::More,
        }
    }
}

/// Whether the line's text goes on in the next one of its stream: docker's JSON has the line's end in the text.
fn goes_on(line: &LogLine<'_>) -> bool {
    line.text.last().is_none_or(|last| *last != b'\n')
}
