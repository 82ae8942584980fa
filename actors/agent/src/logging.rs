//! The agent's log: one line a record on standard error, as text or JSON (`logging.format`).

use std::sync::OnceLock;

use config::Logging;
use tracing_subscriber::EnvFilter;

use crate::settings::log_level;

/// Changes the verbosity of the log that was started.
type VerbositySetter = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

static VERBOSITY: OnceLock<VerbositySetter> = OnceLock::new();

/// Starts the log. `OXLET_LOG` overrules the configured verbosity, e.g. `OXLET_LOG=pods::worker=debug,info`.
pub fn start(logging: &Logging) {
    let filter = EnvFilter::try_from_env("OXLET_LOG")
        .unwrap_or_else(|_| filter(logging.verbosity))
        // kube_client logs answers that it cannot decode, and a Secret may be one.
        .add_directive("kube_client=error".parse().expect("a literal"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    let turn: VerbositySetter = if logging.format == "json" {
        let log = log.json().with_filter_reloading();
        let handle = log.reload_handle();
        log.init();
        Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
    } else {
        let log = log.with_filter_reloading();
        let handle = log.reload_handle();
        log.init();
        Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
    };
    drop(VERBOSITY.set(turn));
}

/// Changes the verbosity while the agent runs (`/debug/flags/v`).
pub fn set_verbosity(level: u32) -> Result<(), String> {
    let turn = VERBOSITY.get().ok_or("the log has not been started")?;
    turn(filter(level))
}

fn filter(verbosity: u32) -> EnvFilter {
    EnvFilter::new(format!(
        "{},h2=warn,hyper=warn,tower=warn,kube_client=error,rustls=warn",
        log_level(verbosity)
    ))
}
