//! Paths of a pod's fields and how maps are written in the downward API. Mirrors upstream's pkg/fieldpath at v1.36.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Splits a field path with a subscript, such as `metadata.labels['key']`, into path and key.
pub fn subscript(path: &str) -> Option<(&str, &str)> {
    let (field, key) = path.strip_suffix("']")?.split_once("['")?;
    (!field.is_empty()).then_some((field, key))
}

/// `key="value"`, one a line, quoted as Go quotes.
pub fn lines(words: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    for (key, value) in words {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(key);
        out.push('=');
        quote(&mut out, value);
    }
    out
}

fn quote(out: &mut String, value: &str) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => {
                write!(out, "\\x{:02x}", u32::from(c)).expect("writing to a String cannot fail");
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
