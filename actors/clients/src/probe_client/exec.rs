//! Runs commands in containers, for exec probes and hooks.

use std::time::Duration;

use logic_api::types::ContainerId;
use logic_pods::probes::messages;
use tonic::Code;

use super::MAX_BODY;
use crate::runtime::{RuntimeClient, RuntimeError};

/// A command that ran to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecResult {
    /// Of the command.
    pub exit_code: i32,
    /// Standard output, then standard error; the first [`MAX_BODY`] bytes.
    pub output: String,
    /// Standard error alone; its first [`MAX_BODY`] bytes.
    pub errors: String,
}

/// Why a command did not run to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeExecError {
    /// The command did not end before its deadline.
    #[error("{0}")]
    Timeout(String),
    /// The runtime could not run the command.
    #[error("{0}")]
    Runtime(String),
}

/// Runs `command` in the container, until `within` has passed.
///
/// # Errors
/// [`ProbeExecError::Timeout`] counts as a failure, [`ProbeExecError::Runtime`] leaves the result unknown, as
/// upstream.
pub async fn run(
    runtime: &RuntimeClient,
    id: &ContainerId,
    command: &[String],
    within: Duration,
) -> Result<ExecResult, ProbeExecError> {
    let answer = runtime
        .exec_sync_bounded(id, command, within, MAX_BODY)
        .await;
    let output = answer.map_err(|error| failed(&error, command, within))?;
    Ok(result(output.exit_code, &output.stdout, &output.stderr))
}

fn result(exit_code: i32, stdout: &[u8], stderr: &[u8]) -> ExecResult {
    let errors = readable(stderr);
    let mut all = readable(stdout);
    all.push_str(&errors);
    ExecResult {
        exit_code,
        output: messages::truncate(all, MAX_BODY),
        errors,
    }
}

fn readable(bytes: &[u8]) -> String {
    let kept = &bytes[..bytes.len().min(MAX_BODY)];
    String::from_utf8_lossy(kept).into_owned()
}

fn failed(error: &RuntimeError, command: &[String], within: Duration) -> ProbeExecError {
    match error {
        RuntimeError::Refused {
            code: Code::DeadlineExceeded,
            ..
        }
        | RuntimeError::Unanswered {
            source: plugin_host::CallError::Deadline { .. },
            ..
        } => ProbeExecError::Timeout(messages::timed_out(command, within)),
        RuntimeError::Refused { code, message, .. } => {
            ProbeExecError::Runtime(crate::rpc_error::rpc_error_text(*code, message))
        }
        RuntimeError::Interrupted { .. }
        | RuntimeError::Unanswered { .. }
        | RuntimeError::Malformed { .. }
        | RuntimeError::EventsEnded
        | RuntimeError::EventsLost => ProbeExecError::Runtime(error.describe()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestNewExecInContainer, and the limit of pkg/probe/exec.
    #[test]
    fn of_an_output_only_the_beginning_is_read() {
        let of = |stdout: &str, stderr: &str| {
            let result = result(3, stdout.as_bytes(), stderr.as_bytes());
            assert_eq!(result.exit_code, 3);
            (result.output, result.errors)
        };
        assert_eq!(of("foo", ""), ("foo".to_owned(), String::new()));
        assert_eq!(of("foo", "bad"), ("foobad".to_owned(), "bad".to_owned()));
        let long = "logs-123".repeat(128 * 20);
        let begin = &long[..MAX_BODY];
        assert_eq!(of(&long, "bad"), (begin.to_owned(), "bad".to_owned()));
        assert_eq!(of("", &long), (begin.to_owned(), begin.to_owned()));
    }
}
