//! The terminal, drawn over at each view.
//!
//! No mode of the terminal is changed: a command that is ended leaves it as it was, with the last view on it.

use std::io;

use rustix::termios::tcgetwinsize;

use crate::agent::AgentError;

/// Of a terminal that does not say.
const DEFAULT_SIZE: (usize, usize) = (24, 80);

/// What was drawn so far.
#[derive(Debug, Default)]
pub(super) struct Screen {
    is_used: bool,
}

impl Screen {
    /// Replaces what the screen shows by as much of the text as it has room for.
    pub(super) fn draw(&mut self, text: &str) -> Result<(), AgentError> {
        let clear = match std::mem::replace(&mut self.is_used, true) {
            true => "",
            false => "\x1b[2J",
        };
        crate::print(&format!("{clear}{}", frame(text, size())))
    }
}

/// Rows and columns, asked for each time: a window changes.
fn size() -> (usize, usize) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
        Ok(_) | Err(_) => DEFAULT_SIZE,
    }
}

/// The text from the upper left corner on, each line over the one that was there, and nothing below it. Lines are cut
/// at the right and at the lower end, whose last line then says how many are missing.
pub(super) fn frame(text: &str, (rows, columns): (usize, usize)) -> String {
    // The cursor stays on a line of its own.
    let room = rows.saturating_sub(1).max(1);
    let count = text.lines().count();
    let mut lines: Vec<String> = text
        .lines()
        .take(room)
        .map(|line| line.chars().take(columns).collect())
        .collect();
    if count > room {
        let hidden = count - room + 1;
        lines.pop();
        lines.push(
            format!("... {hidden} lines more")
                .chars()
                .take(columns)
                .collect(),
        );
    }
    let mut frame = "\x1b[H".to_owned();
    for line in lines {
        frame.push_str(&line);
        frame.push_str("\x1b[K\n");
    }
    frame.push_str("\x1b[J");
    frame
}
