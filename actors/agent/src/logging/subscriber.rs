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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{PipeReader, Read};
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use config::VModule;
    use jiff::tz::TimeZone;

    use super::super::filter::Directives;
    use super::super::format::LogForm;
    use super::*;

    fn pipe() -> (PipeReader, LogStream) {
        let (reader, writer) = std::io::pipe().unwrap();
        let file = File::from(OwnedFd::from(writer));
        (reader, LogStream::new(file, Duration::ZERO))
    }

    fn log(filter: LogFilter, form: LogForm, streams: LogStreams) -> AgentLog {
        AgentLog {
            filter,
            format: LogFormat {
                form,
                zone: TimeZone::UTC,
                pid: 7,
            },
            streams,
        }
    }

    fn read(mut reader: PipeReader) -> String {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    }

    /// The lines that are shown of a record of each level, without their stamps.
    fn shown(verbosity: u32, modules: &[VModule], directives: &str) -> Vec<&'static str> {
        let (reader, stream) = pipe();
        let directives = Directives::parse(directives);
        let filter = LogFilter::new(verbosity, modules, directives);
        let log = log(filter, LogForm::Json, LogStreams::one(stream));
        tracing::subscriber::with_default(log, || {
            tracing::error!("error");
            tracing::warn!("warn");
            tracing::info!("info");
            tracing::debug!("debug");
            tracing::trace!("trace");
            tracing::error!(target: "kube_client::client", "decoding");
            tracing::warn!(target: "kube_client::client", "a secret");
            tracing::trace_span!("span").in_scope(|| ());
        });
        let text = read(reader);
        let words = [
            "error", "warn", "info", "debug", "trace", "decoding", "a secret",
        ];
        let is_shown = |word: &&str| text.contains(&format!("\"msg\":\"{word}\""));
        let shown: Vec<_> = words.into_iter().filter(is_shown).collect();
        assert_eq!(text.lines().count(), shown.len(), "{text}");
        shown
    }

    #[test]
    fn a_record_is_shown_from_its_verbosity_on() {
        let all = ["error", "warn", "info", "debug", "trace", "decoding"];
        let up_to = |shown: &[&'static str]| [shown, &["decoding"]].concat();
        for verbosity in [0, 1, 2, 3] {
            assert_eq!(shown(verbosity, &[], ""), up_to(&all[..3]), "{verbosity}");
        }
        assert_eq!(shown(4, &[], ""), up_to(&all[..4]));
        for verbosity in [5, 10, u32::MAX] {
            assert_eq!(shown(verbosity, &[], ""), all, "{verbosity}");
        }
    }

    #[test]
    fn a_module_has_a_verbosity_of_its_own() {
        let module = |pattern: &str, verbosity| {
            [VModule {
                file_pattern: pattern.to_owned(),
                verbosity,
            }]
        };
        let debug = ["error", "warn", "info", "debug", "decoding"];
        let trace = ["error", "warn", "info", "debug", "trace", "decoding"];
        let info = ["error", "warn", "info", "decoding"];
        assert_eq!(shown(0, &module("subscriber", 4), ""), debug);
        assert_eq!(shown(0, &module("sub*", 5), ""), trace);
        assert_eq!(shown(0, &module("pleg", 9), ""), info);
        assert_eq!(
            shown(5, &module("subscriber", 0), ""),
            trace,
            "as klog: never less"
        );
    }

    #[test]
    fn the_environment_overrules_verbosities_by_module() {
        let here = module_path!();
        let rows: [(String, &[&str]); 6] = [
            ("warn".to_owned(), &["error", "warn", "decoding"]),
            (
                format!("{here}=debug,error"),
                &["error", "warn", "info", "debug", "decoding"],
            ),
            (
                "agent=trace,agent::logging=error".to_owned(),
                &["error", "decoding"],
            ),
            (
                "agent::log=trace,warn".to_owned(),
                &["error", "warn", "decoding"],
            ),
            (
                "trace".to_owned(),
                &["error", "warn", "info", "debug", "trace", "decoding"],
            ),
            ("off".to_owned(), &[]),
        ];
        for (directives, expected) in rows {
            assert_eq!(shown(0, &[], &directives), expected, "{directives}");
        }
        for malformed in ["", "loud", "agent=loud", "info,,debug"] {
            assert_eq!(Directives::parse(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn a_panic_is_a_record_like_any_other() {
        let (reader, stream) = pipe();
        let filter = LogFilter::new(0, &[], None);
        let log = log(filter, LogForm::Json, LogStreams::one(stream));
        super::super::panics::log_panics();
        let caught = tracing::subscriber::with_default(log, || {
            std::panic::catch_unwind(|| panic!("out of {}", "words"))
        });
        drop(std::panic::take_hook());
        assert!(caught.is_err());
        let record: serde_json::Value = serde_json::from_str(&read(reader)).unwrap();
        assert_eq!(record["msg"], "panicked: out of words");
        let location = record["location"].as_str().unwrap();
        assert!(location.contains("logging/subscriber.rs:"), "{location}");
    }

    /// Upstream's TestZapLoggerStreams, and its splitting of klog's text.
    #[test]
    fn a_split_stream_takes_what_is_no_error_elsewhere() {
        let both = |streams: fn(LogStream, LogStream) -> LogStreams, form| {
            let ((errors, to_errors), (rest, to_rest)) = (pipe(), pipe());
            let filter = LogFilter::new(0, &[], None);
            let log = log(filter, form, streams(to_errors, to_rest));
            tracing::subscriber::with_default(log, || {
                tracing::error!("bad");
                tracing::warn!("worse");
                tracing::info!("good");
            });
            [read(errors), read(rest)].map(|text| text.lines().count())
        };
        assert_eq!(both(LogStreams::errors_apart, LogForm::Json), [1, 2]);
        assert_eq!(both(LogStreams::warnings_apart, LogForm::Text), [2, 1]);
    }

    #[test]
    fn a_record_that_was_lost_is_told_of_in_the_form_of_the_log() {
        let (_, stream) = pipe();
        let log = log(
            LogFilter::new(0, &[], None),
            LogForm::Json,
            LogStreams::one(stream),
        );
        let line = log.format.line(&lost(3, &sample()));
        assert!(
            line.starts_with("{\"ts\":0,\"caller\":\"logging/subscriber.rs:"),
            "{line}"
        );
        assert!(line.ends_with(",\"v\":0,\"lines\":3}\n"), "{line}");
    }

    fn sample() -> LogRecord<'static> {
        LogRecord {
            at: jiff::Timestamp::UNIX_EPOCH,
            severity: Severity::Info,
            verbosity: 0,
            caller: Caller { path: "", line: 0 },
            message: String::new(),
            fields: Vec::new(),
            error: None,
        }
    }
}
