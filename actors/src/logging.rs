//! The agent's log: one line a record on standard error, as text or JSON (`logging.format`).

use config::Logging;
use tracing_subscriber::EnvFilter;

use crate::settings::log_level;

/// Starts the log. `OXLET_LOG` overrules the configured verbosity, e.g. `OXLET_LOG=actors::worker=debug,info`.
pub fn start(logging: &Logging) {
    let configured = || {
        EnvFilter::new(format!(
            "{},h2=warn,hyper=warn,tower=warn",
            log_level(logging.verbosity)
        ))
    };
    let filter = EnvFilter::try_from_env("OXLET_LOG").unwrap_or_else(|_| configured());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    if logging.format == "json" {
        log.json().init();
    } else {
        log.init();
    }
}
