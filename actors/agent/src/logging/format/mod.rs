//! The forms of a line.

mod json;
mod klog_text;
mod quote;
mod terminal;
#[cfg(test)]
mod tests;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::record::LogRecord;

/// Whether a terminal shows colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colours {
    BySeverity,
    None,
}

/// Who reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogForm {
    /// Parsers of klog's text.
    Text,
    /// Parsers of component-base's JSON.
    Json,
    /// A person at a terminal.
    Terminal(Colours),
}

/// Makes lines of records.
#[derive(Debug, Clone)]
pub(super) struct LogFormat {
    pub(super) form: LogForm,
    /// In which text is stamped.
    pub(super) zone: TimeZone,
    /// The agent's process id.
    pub(super) pid: u32,
}

impl LogFormat {
    /// Returns the record as a line, with its end.
    pub(super) fn line(&self, record: &LogRecord<'_>) -> String {
        match self.form {
            LogForm::Text => klog_text::line(record, self.here(record), self.pid),
            LogForm::Json => json::line(record),
            LogForm::Terminal(colours) => terminal::line(record, self.here(record), colours),
        }
    }

    fn here(&self, record: &LogRecord<'_>) -> DateTime {
        self.zone.to_datetime(record.at)
    }
}
