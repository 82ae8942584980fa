//! Hears what every crate logs, and writes what is to be shown.

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::filter::{self, LogFilter};
use super::format::LogFormat;
use super::record::{Caller, FieldValue, LogRecord, Severity};
use super::stream::LogStream;

/// The streams of the log.
#[derive(Debug)]
pub(super) struct LogStreams {
    main: LogStream,
    /// For records below this severity; none where one stream takes all.
    split: Option<(Severity, LogStream)>,
}

impl LogStreams {
    /// One stream takes all.
    pub(super) fn one(stream: LogStream) -> LogStreams {
        LogStreams {
            main: stream,
            split: None,
        }
    }

    /// The first stream takes errors, the other one the rest.
    pub(super) fn errors_apart(errors: LogStream, rest: LogStream) -> LogStreams {
        LogStreams {
            main: errors,
            split: Some((Severity::Error, rest)),
        }
    }

    /// The first stream takes errors and warnings, the other one the rest.
    pub(super) fn warnings_apart(warnings: LogStream, rest: LogStream) -> LogStreams {
        LogStreams {
            main: warnings,
            split: Some((Severity::Warning, rest)),
        }
    }

    fn of(&self, severity: Severity) -> &LogStream {
        match &self.split {
            Some((from, rest)) if severity < *from => rest,
            Some(_) | None => &self.main,
        }
    }
}

/// The log. It knows no spans.
#[derive(Debug)]
pub(super) struct AgentLog {
    pub(super) filter: LogFilter,
    pub(super) format: LogFormat,
    pub(super) streams: LogStreams,
}

impl AgentLog {
    fn write(&self, record: &LogRecord<'_>) {
        let lost_line = |count| self.format.line(&lost(count, record));
        self.streams
            .of(record.severity)
            .write(&self.format.line(record), lost_line);
    }
}

/// What is said of lines that were lost before a record.
fn lost(count: u64, record: &LogRecord<'_>) -> LogRecord<'static> {
    LogRecord {
        at: record.at,
        severity: Severity::Warning,
        verbosity: 0,
        caller: Caller {
            path: file!(),
            line: line!(),
        },
        message: "lines of the log are lost: the stream did not take them".to_owned(),
        fields: vec![("lines", FieldValue::Literal(count.to_string()))],
        error: None,
    }
}

impl Subscriber for AgentLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.filter.shows(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.most())
    }

    fn event(&self, event: &Event<'_>) {
        let verbosity = filter::verbosity(event.metadata());
        self.write(&LogRecord::new(event, kernel::timestamp(), verbosity));
    }

    /// Never called: no span is enabled.
    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
