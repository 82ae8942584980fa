//! One record of the log, as a form gets it.

use std::error::Error;
use std::fmt::{Debug, Write};

use jiff::Timestamp;
use kernel::error_chain;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// How bad a record is. What is said for people who look closely is [`Severity::Info`] with a verbosity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Info,
    Warning,
    Error,
}

impl Severity {
    /// Returns the severity of a level of `tracing`.
    pub(super) fn of(level: Level) -> Severity {
        match level {
            Level::ERROR => Severity::Error,
            Level::WARN => Severity::Warning,
            _ => Severity::Info,
        }
    }
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FieldValue {
    /// Shown in quotes.
    Text(String),
    /// A number, `true` or `false`, as JSON spells it.
    Literal(String),
}

/// Where in the sources a record was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caller<'a> {
    /// Of the source file, with slashes.
    pub(super) path: &'a str,
    /// Counted from one; 0 where it is not known.
    pub(super) line: u32,
}

impl<'a> Caller<'a> {
    /// The file's name; of a `mod.rs` with its folder, without which it would say nothing.
    pub(super) fn file(&self) -> &'a str {
        match self.path.rsplit_once('/') {
            Some((_, "mod.rs")) => self.file_in_folder(),
            Some((_, name)) => name,
            None => self.path,
        }
    }

    /// The file's name behind its folder's.
    pub(super) fn file_in_folder(&self) -> &'a str {
        let slashes = self.path.rmatch_indices('/').map(|(at, _)| at);
        let start = slashes.take(2).nth(1).map_or(0, |at| at + 1);
        &self.path[start..]
    }

    /// The name that patterns of `logging.vmodule` are about: the file's without its ending, of a `mod.rs` its folder's.
    pub(super) fn module(&self) -> &'a str {
        let file = self.file();
        let name = file.strip_suffix("/mod.rs").unwrap_or(file);
        name.strip_suffix(".rs").unwrap_or(name)
    }
}

/// What is logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogRecord<'a> {
    pub(super) at: Timestamp,
    pub(super) severity: Severity,
    /// klog's V; 0 for what is always said.
    pub(super) verbosity: u32,
    pub(super) caller: Caller<'a>,
    pub(super) message: String,
    /// In the order of the call.
    pub(super) fields: Vec<(&'static str, FieldValue)>,
    /// The field `error`, which klog calls `err` and has a place of its own for.
    pub(super) error: Option<String>,
}

impl<'a> LogRecord<'a> {
    /// Reads an event; the verbosity is the filter's.
    pub(super) fn new(event: &Event<'a>, at: Timestamp, verbosity: u32) -> LogRecord<'a> {
        let metadata = event.metadata();
        let mut record = LogRecord {
            at,
            severity: Severity::of(*metadata.level()),
            verbosity,
            caller: Caller {
                path: metadata.file().unwrap_or("???"),
                line: metadata.line().unwrap_or(0),
            },
            message: String::new(),
            fields: Vec::new(),
            error: None,
        };
        event.record(&mut record);
        record
    }

    fn add(&mut self, field: &Field, value: FieldValue) {
        match (field.name(), value) {
            // The message comes first; a field may have its name.
            ("message", FieldValue::Text(text)) if self.message.is_empty() => self.message = text,
            ("error", FieldValue::Text(text)) => self.error = Some(text),
            (name, value) => self
                .fields
                .push((name.strip_prefix("r#").unwrap_or(name), value)),
        }
    }

    fn literal(&mut self, field: &Field, value: impl ToString) {
        self.add(field, FieldValue::Literal(value.to_string()));
    }
}

impl Visit for LogRecord<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        match value.is_finite() {
            true => self.literal(field, value),
            false => self.record_str(field, &value.to_string()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.literal(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.literal(field, value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.literal(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.literal(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.literal(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, FieldValue::Text(value.to_owned()));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.add(field, FieldValue::Text(error_chain(&value)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        if write!(text, "{value:?}").is_err() {
            "a value that cannot be shown".clone_into(&mut text);
        }
        self.add(field, FieldValue::Text(text));
    }
}
