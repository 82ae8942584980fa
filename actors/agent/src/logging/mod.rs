//! The agent's log: one line a record, as parsers of the kubelet's log expect it, or for a person at a terminal.
//!
//! - `text` is klog's form, `json` that of component-base (`logging.format`); a terminal gets a form of its own.
//! - Lines go to standard error; with `splitStream` those that are no errors go to standard output.
//! - A stream that takes no line within a moment loses it, and a later line says how many were lost: a journal that is
//!   full holds up no pod.
//!
//! Upstream: klog v2 (`klog.go`, `internal/serialize`, `textlogger`), component-base/logs/json, component-base/logs/api/v1 (1.36).

mod filter;
mod format;
mod module_pattern;
mod panics;
mod record;
mod stream;
mod subscriber;
#[cfg(test)]
mod tests;
mod time_zone;

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use config::{LogStream as StreamOptions, Logging};

use self::filter::{Directives, LogFilter};
use self::format::{LogForm, LogFormat};
use self::stream::LogStream;
use self::subscriber::{AgentLog, LogStreams};

/// For which a stream may hold up a line before it is lost.
const WRITE_TIMEOUT: Duration = Duration::from_millis(100);

static LOG: OnceLock<Arc<AgentLog>> = OnceLock::new();

/// Starts the log. `OXLET_LOG` overrules the configured verbosity, e.g. `OXLET_LOG=pods::worker=debug,info`.
///
/// # Errors
/// The stream of the log cannot be had: no descriptor is left.
pub fn start(logging: &Logging) -> io::Result<()> {
    let form = form(logging);
    let options = match form {
        LogForm::Json => &logging.options.json,
        LogForm::Text | LogForm::Terminal(_) => &logging.options.text,
    };
    let wanted = std::env::var("OXLET_LOG").unwrap_or_default();
    let directives = Directives::parse(&wanted);
    let refused = directives.is_none() && !wanted.is_empty();
    let log = Arc::new(AgentLog {
        filter: LogFilter::new(logging.verbosity, &logging.vmodule, directives),
        format: LogFormat {
            form,
            zone: time_zone::local(),
            pid: std::process::id(),
        },
        streams: streams(form, options)?,
    });
    // A log that was started already stays.
    if tracing::subscriber::set_global_default(log.clone()).is_ok() {
        drop(LOG.set(log));
        panics::log_panics();
    }
    if refused {
        tracing::warn!("OXLET_LOG is {wanted:?}, expected levels such as pods::worker=debug,info");
    }
    Ok(())
}

/// Changes the verbosity while the agent runs (`/debug/flags/v`).
///
/// # Errors
/// The log has not been started.
pub fn set_verbosity(level: u32) -> Result<(), String> {
    let log = LOG.get().ok_or("the log has not been started")?;
    log.filter.set_verbosity(level);
    Ok(())
}

fn form(logging: &Logging) -> LogForm {
    if logging.format == "json" {
        return LogForm::Json;
    }
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    match io::IsTerminal::is_terminal(&io::stderr()) {
        true if is_plain => LogForm::Terminal(format::Colours::None),
        true => LogForm::Terminal(format::Colours::BySeverity),
        false => LogForm::Text,
    }
}

fn streams(form: LogForm, options: &StreamOptions) -> io::Result<LogStreams> {
    let stream = |descriptor: io::Result<std::os::fd::OwnedFd>| {
        Ok::<_, io::Error>(LogStream::new(descriptor?.into(), WRITE_TIMEOUT))
    };
    let errors = stream(io::stderr().as_fd().try_clone_to_owned())?;
    if !options.split_stream {
        return Ok(LogStreams::one(errors));
    }
    let others = stream(io::stdout().as_fd().try_clone_to_owned())?;
    Ok(match form {
        LogForm::Json => LogStreams::errors_apart(errors, others),
        LogForm::Text | LogForm::Terminal(_) => LogStreams::warnings_apart(errors, others),
    })
}
