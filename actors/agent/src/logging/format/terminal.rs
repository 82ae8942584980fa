//! For a person at a terminal: `22:25:35 WARN  message  key=value  pleg.rs:120`.

use jiff::civil::DateTime;

use super::Colours;
use super::quote::push_quoted;
use crate::logging::record::{FieldValue, LogRecord, Severity};

const RED: &str = "\u{1b}[31m";
const YELLOW: &str = "\u{1b}[33m";
const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// Returns the line of a record that was made at this time of the node.
pub(super) fn line(record: &LogRecord<'_>, at: DateTime, colours: Colours) -> String {
    let (word, colour) = match record.severity {
        Severity::Info => ("INFO ", None),
        Severity::Warning => ("WARN ", Some(YELLOW)),
        Severity::Error => ("ERROR", Some(RED)),
    };
    let mut line = at.strftime("%H:%M:%S ").to_string();
    push_coloured(
        word,
        colour.filter(|_| colours == Colours::BySeverity),
        &mut line,
    );
    line.push(' ');
    push_printable(&record.message, &mut line);
    let error = record.error.as_ref();
    let error = error.map(|error| ("error", FieldValue::Text(error.clone())));
    for (key, value) in error.iter().chain(&record.fields) {
        line.push_str("  ");
        line.push_str(key);
        line.push('=');
        match value {
            FieldValue::Text(text) if text.is_empty() || text.contains(' ') => {
                push_quoted(text, &mut line);
            }
            FieldValue::Text(text) | FieldValue::Literal(text) => push_printable(text, &mut line),
        }
    }
    line.push_str("  ");
    let caller = format!("{}:{}", record.caller.file(), record.caller.line);
    push_coloured(
        &caller,
        (colours == Colours::BySeverity).then_some(DIM),
        &mut line,
    );
    line.push('\n');
    line
}

fn push_coloured(text: &str, colour: Option<&str>, line: &mut String) {
    match colour {
        Some(colour) => line.extend([colour, text, PLAIN]),
        None => line.push_str(text),
    }
}

/// Without quotes; but what a record holds moves no cursor.
fn push_printable(text: &str, line: &mut String) {
    for c in text.chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
}
