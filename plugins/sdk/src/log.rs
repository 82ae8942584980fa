//! The log on standard error: JSON lines for the agent, text for a plugin that was started by hand.

use tracing_subscriber::EnvFilter;

/// The reader of the log, which decides its format.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogReader {
    Agent,
    Person,
}

/// Starts logging at the level that `OXLET_LOG` names.
pub(crate) fn start(reader: LogReader) {
    let wanted = std::env::var("OXLET_LOG").unwrap_or_default();
    let filter = EnvFilter::builder().parse(directives(&wanted));
    let refused = filter.as_ref().err().map(ToString::to_string);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new("info")))
        .with_writer(std::io::stderr);
    // The agent stamps the lines itself. A log that was started already stays.
    let started = match reader {
        LogReader::Agent => lines.json().flatten_event(true).without_time().try_init(),
        LogReader::Person => lines.try_init(),
    };
    if let (Ok(()), Some(error)) = (started, refused) {
        tracing::warn!(%error, "OXLET_LOG is {wanted:?}, expected a level such as info or debug; logging info");
    }
}

/// A level alone is the plugin's; what libraries say of each frame, which may be secret, is for a person who names them.
fn directives(wanted: &str) -> String {
    match wanted {
        "" => "info".to_owned(),
        "debug" | "trace" => {
            format!("{wanted},h2=info,hyper=info,hyper_util=info,tonic=info,tower=info")
        }
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_quieter_than_the_plugin_unless_they_are_named() {
        assert_eq!(directives(""), "info");
        for level in ["debug", "trace"] {
            let directives = directives(level);
            assert!(directives.starts_with(&format!("{level},h2=info,")));
            assert!(EnvFilter::builder().parse(directives).is_ok());
        }
        for wanted in ["warn", "h2=debug", "debug,h2=trace"] {
            assert_eq!(directives(wanted), wanted);
        }
    }
}
