//! component-base's JSON: `{"ts":1764195935012.345,"caller":"runtime/pleg.rs:120","msg":"message","v":0,"key":"value"}`.
//!
//! Upstream: component-base/logs/json/json.go, with zap's and zapr's encoders.

use serde_json::Value;

use crate::logging::record::{FieldValue, LogRecord, Severity};

const NANOS_PER_MILLI: i128 = 1_000_000;

/// Returns the line of a record. An error has no `v`, and its cause as `err` behind the other fields.
pub(super) fn line(record: &LogRecord<'_>) -> String {
    let caller = format!("{}:{}", record.caller.file_in_folder(), record.caller.line);
    let mut line = format!("{{\"ts\":{}", millis(record.at.as_nanosecond()));
    push("caller", &text(&caller), &mut line);
    push("msg", &text(&record.message), &mut line);
    if record.severity != Severity::Error {
        push("v", &record.verbosity.to_string(), &mut line);
    }
    for (key, value) in &record.fields {
        match value {
            FieldValue::Text(value) => push(key, &text(value), &mut line),
            FieldValue::Literal(value) => push(key, value, &mut line),
        }
    }
    if let Some(error) = &record.error {
        push("err", &text(error), &mut line);
    }
    line.push_str("}\n");
    line
}

fn push(key: &str, value: &str, line: &mut String) {
    line.push(',');
    line.push_str(&text(key));
    line.push(':');
    line.push_str(value);
}

fn text(value: &str) -> String {
    Value::from(value).to_string()
}

/// Milliseconds since 1970 with the fraction that there is.
fn millis(nanos: i128) -> String {
    let (millis, fraction) = (
        nanos.div_euclid(NANOS_PER_MILLI),
        nanos.rem_euclid(NANOS_PER_MILLI),
    );
    let digits = format!("{millis}.{fraction:06}");
    digits
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}
