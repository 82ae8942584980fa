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
    let answer = runtime.exec_sync(id, command, within).await;
    let output = answer.map_err(|error| failed(&error, command, within))?;
    let errors = readable(&output.stderr);
    let mut all = readable(&output.stdout);
    all.push_str(&errors);
    Ok(ExecResult {
        exit_code: output.exit_code,
        output: messages::truncate(all, MAX_BODY),
        errors,
    })
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
            ProbeExecError::Runtime(super::grpc::rpc_error_text(*code, message))
        }
        RuntimeError::Interrupted { .. }
        | RuntimeError::Unanswered { .. }
        | RuntimeError::Malformed { .. }
        | RuntimeError::EventsEnded
        | RuntimeError::EventsLost => ProbeExecError::Runtime(error.describe()),
    }
}
