//! What an error says together with its causes, in one line; the kernel's own, which no plugin builds on.

use std::error::Error;

/// Joins the error and its causes by colons, the outermost first.
///
/// A cause with which the text before it ends already is left out: some libraries print their cause themselves.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&cause| cause.source()) {
        let more = cause.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
    }
    text
}
