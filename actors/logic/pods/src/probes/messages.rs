//! Upstream's words about probes.

use std::time::Duration;

use logic_api::text::go_duration::go_duration;

use super::ProbeKind;
use super::result::{ProbeError, ProbeOutcome};

/// The reason of the event about a probe that failed or could not be carried out.
pub const UNHEALTHY: &str = "Unhealthy";
/// The reason of the event about a success with a doubt.
pub const PROBE_WARNING: &str = "ProbeWarning";

/// The longest text of an event: a probe may say ten times as much, and say something else every second.
pub const MAX_EVENT_BYTES: usize = 1024;

/// Reason and message of the event about an outcome; a plain success is none.
pub fn event(
    kind: ProbeKind,
    outcome: &Result<ProbeOutcome, ProbeError>,
) -> Option<(&'static str, String)> {
    let kind = kind.as_str();
    let (reason, message) = match outcome {
        Ok(ProbeOutcome::Success(_)) => return None,
        Ok(ProbeOutcome::Warning(text)) => (PROBE_WARNING, format!("{kind} probe warning: {text}")),
        Ok(ProbeOutcome::Failure(text)) => (UNHEALTHY, format!("{kind} probe failed: {text}")),
        Err(error) => (
            UNHEALTHY,
            format!(
                "{kind} probe errored and resulted in {} state: {error}",
                error.state()
            ),
        ),
    };
    Some((reason, truncate(message, MAX_EVENT_BYTES)))
}

/// At most so many bytes of a text, whole characters.
pub fn truncate(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
    }
    text
}

/// An exec that took too long.
pub fn timed_out(command: &[String], within: Duration) -> String {
    let command = command.join(" ");
    format!(
        "command timed out: {command:?} timed out after {}",
        go_duration(within)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestProbe: what is recorded.
    #[test]
    fn events_say_what_upstream_says() {
        let cases = [
            (Ok(ProbeOutcome::Success("fine".into())), None),
            (
                Ok(ProbeOutcome::Warning("hm".into())),
                Some((PROBE_WARNING, "Liveness probe warning: hm")),
            ),
            (
                Ok(ProbeOutcome::Failure("no".into())),
                Some((UNHEALTHY, "Liveness probe failed: no")),
            ),
            (
                Err(ProbeError::Unknown("lost".into())),
                Some((
                    UNHEALTHY,
                    "Liveness probe errored and resulted in unknown state: lost",
                )),
            ),
            (
                Err(ProbeError::BrokenOff("unexpected EOF".into())),
                Some((
                    UNHEALTHY,
                    "Liveness probe errored and resulted in failure state: unexpected EOF",
                )),
            ),
        ];
        for (outcome, expected) in cases {
            let told = event(ProbeKind::Liveness, &outcome);
            let expected = expected.map(|(reason, message)| (reason, message.to_owned()));
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn a_long_output_is_cut_at_a_whole_character() {
        let outcome = Ok(ProbeOutcome::Failure("é".repeat(MAX_EVENT_BYTES)));
        let (_, message) = event(ProbeKind::Startup, &outcome).unwrap();
        assert!(message.len() <= MAX_EVENT_BYTES && message.len() > MAX_EVENT_BYTES - 2);
    }

    #[test]
    fn a_command_that_takes_too_long_is_named() {
        let command = ["cat".to_owned(), "/a \"b\"".to_owned()];
        assert_eq!(
            timed_out(&command, Duration::from_secs(5)),
            "command timed out: \"cat /a \\\"b\\\"\" timed out after 5s"
        );
    }
}
