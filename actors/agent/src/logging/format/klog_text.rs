//! klog's text: `I1126 22:25:35.012345    4711 pleg.rs:120] "message" key="value"`.
//!
//! Upstream: klog v2's `internal/buffer`, `internal/serialize` and `textlogger`.

use std::fmt::Write;

use jiff::civil::DateTime;

use super::quote::push_quoted;
use crate::logging::record::{FieldValue, LogRecord, Severity};

/// Returns the line of a record that was made at this time of the node, by this process.
pub(super) fn line(record: &LogRecord<'_>, at: DateTime, pid: u32) -> String {
    let letter = match record.severity {
        Severity::Info => 'I',
        Severity::Warning => 'W',
        Severity::Error => 'E',
    };
    let mut line = String::with_capacity(160);
    write!(
        line,
        "{letter}{} {pid:>7} {}:{}] ",
        at.strftime("%m%d %H:%M:%S.%6f"),
        record.caller.file(),
        record.caller.line,
    )
    .expect("a string takes what is written");
    push_quoted(&record.message, &mut line);
    if let Some(error) = &record.error {
        push_text("err", error, &mut line);
    }
    for (key, value) in &record.fields {
        match value {
            FieldValue::Text(text) => push_text(key, text, &mut line),
            FieldValue::Literal(text) => {
                push_key(key, &mut line);
                line.push_str(text);
            }
        }
    }
    line.push('\n');
    line
}

fn push_key(key: &str, line: &mut String) {
    line.push(' ');
    line.push_str(key);
    line.push('=');
}

/// Several lines keep theirs, indented by a tab between `<` and `>`.
fn push_text(key: &str, text: &str, line: &mut String) {
    push_key(key, line);
    if !text.contains('\n') {
        return push_quoted(text, line);
    }
    line.push_str("<\n");
    for part in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        line.push('\t');
        line.push_str(part);
        line.push('\n');
    }
    line.push_str(" >");
}
