//! Text in quotes, as Go's `strconv.Quote` has it.

use std::fmt::Write;

/// Appends the text in quotes, on one line: what cannot be printed is escaped.
pub(super) fn push_quoted(text: &str, line: &mut String) {
    line.push('"');
    for c in text.chars() {
        let escape = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{b}' => "\\v",
            _ => {
                push_char(c, line);
                continue;
            }
        };
        line.push_str(escape);
    }
    line.push('"');
}

fn push_char(c: char, line: &mut String) {
    let code = u32::from(c);
    let written = match code {
        _ if is_printable(c) => {
            line.push(c);
            return;
        }
        0..0x80 => write!(line, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(line, "\\u{code:04x}"),
        _ => write!(line, "\\U{code:08x}"),
    };
    written.expect("a string takes what is written");
}

/// Whether a character stands for itself; of spaces only ASCII's does.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // Alone, a mark would be escaped.
    let behind_a_letter = format!("a{c}");
    !c.is_whitespace() && behind_a_letter.escape_debug().count() == 2
}
