//! Values in the words of Go, in which upstream tells them.

use std::fmt::Write;
use std::num::{IntErrorKind, ParseIntError};

/// A string as `%q` writes it.
pub(super) fn quoted(text: &str) -> String {
    let mut said = String::with_capacity(text.len() + 2);
    said.push('"');
    for c in text.chars() {
        match c {
            '"' => said.push_str("\\\""),
            '\\' => said.push_str("\\\\"),
            '\u{7}' => said.push_str("\\a"),
            '\u{8}' => said.push_str("\\b"),
            '\u{c}' => said.push_str("\\f"),
            '\n' => said.push_str("\\n"),
            '\r' => said.push_str("\\r"),
            '\t' => said.push_str("\\t"),
            '\u{b}' => said.push_str("\\v"),
            c if c.is_ascii_control() => {
                write!(said, "\\x{:02x}", u32::from(c)).expect("a string takes everything");
            }
            c if c.is_control() => {
                write!(said, "\\u{:04x}", u32::from(c)).expect("a string takes everything");
            }
            c => said.push(c),
        }
    }
    said.push('"');
    said
}

/// A list of strings as `%#v` writes it.
pub(super) fn list(texts: &[impl AsRef<str>]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[]string{{{}}}", quoted.join(", "))
}

/// Why a text is no number.
pub(super) fn invalid_number(error: &ParseIntError) -> &'static str {
    let is_much = matches!(
        error.kind(),
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow
    );
    match is_much {
        true => "value out of range",
        false => "invalid syntax",
    }
}
