//! A panic as a record of the log: what the standard library prints of it is no line that a parser knows.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, PanicHookInfo};

/// Logs each panic from now on; with its backtrace where `RUST_BACKTRACE` asks for it.
pub(super) fn log_panics() {
    panic::set_hook(Box::new(log_panic));
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let location = panic.location().map(ToString::to_string);
    let location = location.unwrap_or_default();
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(location, %backtrace, "panicked: {message}");
    } else {
        tracing::error!(location, "panicked: {message}");
    }
}
