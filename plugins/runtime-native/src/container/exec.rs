//! Commands run in a container: ExecSync, and the process that Exec streams.

use std::path::Path;
use std::sync::Arc;

use monitor::{Exec, Monitor};
use proto::cri::{ExecSyncRequest, ExecSyncResponse};
use serde_json::Value;

use crate::error::CallError;
use crate::layout::{BUNDLE_FILE, MAX_SPEC_BYTES};
use crate::node::Node;

/// CRI's code of a command of whose end nothing is known.
const UNKNOWN_CODE: i32 = 255;

/// A command that is to be run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<'a> {
    pub(crate) container: &'a str,
    pub(crate) argv: &'a [String],
    pub(crate) terminal: bool,
    pub(crate) stdin: bool,
    pub(crate) timeout_ms: Option<u64>,
}

impl Node {
    /// Runs a command to its end, or to its timeout, at which it is killed; of each output `limit` bytes are answered at most.
    pub(crate) async fn exec_sync(
        self: &Arc<Node>,
        request: ExecSyncRequest,
        limit: usize,
    ) -> Result<ExecSyncResponse, CallError> {
        let seconds = u64::try_from(request.timeout).unwrap_or(0);
        let command = Command {
            container: &request.container_id,
            argv: &request.cmd,
            terminal: false,
            stdin: false,
            timeout_ms: (seconds > 0).then(|| seconds.saturating_mul(1000)),
        };
        let (monitor, exec) = self.command(command).await?;
        let output = monitor.exec_sync(exec, limit).await?;
        if output.end.timed_out {
            return Err(CallError::TooSlow {
                command: request.cmd.join(" "),
                seconds: request.timeout,
            });
        }
        Ok(ExecSyncResponse {
            stdout: output.stdout,
            stderr: output.stderr,
            exit_code: output.end.exit.code().unwrap_or(UNKNOWN_CODE),
        })
    }

    /// Returns the monitor of a running container, and the process as the monitor takes it.
    pub(crate) async fn command(
        self: &Arc<Node>,
        command: Command<'_>,
    ) -> Result<(Monitor, Exec), CallError> {
        if command.argv.first().is_none_or(String::is_empty) {
            return Err(CallError::Missing("the command"));
        }
        let record = self.running(command.container)?;
        let folder = self.parts.layout.bundle(&record.id);
        let bundle = self.blocking("reading a container's bundle", move || {
            let path = folder.join(BUNDLE_FILE);
            let text = files::read_regular(&folder, Path::new(BUNDLE_FILE), MAX_SPEC_BYTES);
            let text = text.map_err(CallError::file("read", &path))?;
            let spec: Value = serde_json::from_slice(&text)
                .map_err(|error| CallError::file("use", path)(error.into()))?;
            Ok(spec)
        });
        let mut spec = bundle.await?;
        let mut process = spec["process"].take();
        process["args"] = command.argv.into();
        process["terminal"] = command.terminal.into();
        if command.terminal {
            add_term(&mut process);
        }
        let sandbox = self.sandbox(&record.sandbox)?;
        let monitor = self.launch(&sandbox).await?;
        let exec = Exec {
            container: record.id,
            process,
            stdin: command.stdin,
            timeout_ms: command.timeout_ms,
            size: None,
            max_output_bytes: None,
        };
        Ok((monitor, exec))
    }

    /// Returns the record of a container that runs; any other is refused.
    pub(crate) fn running(&self, id: &str) -> Result<crate::record::ContainerRecord, CallError> {
        let record = self.container(id)?;
        if record.running() {
            return Ok(record);
        }
        Err(CallError::WrongState {
            what: "container",
            id: id.to_owned(),
            state: "not running",
            expected: "running",
        })
    }
}

/// A command on a terminal of its own has a word for it, unless the container has one.
fn add_term(process: &mut Value) {
    if let Some(env) = process["env"].as_array_mut() {
        let has = |entry: &Value| entry.as_str().is_some_and(|text| text.starts_with("TERM="));
        if !env.iter().any(has) {
            env.push("TERM=xterm".into());
        }
    }
}
