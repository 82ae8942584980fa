//! Commands run inside a container. What a command does it does at once; its answer comes in its time.

use cri_server::OutputStream;
use proto::cri::{ExecSyncRequest, ExecSyncResponse};

use crate::node::{CriError, SimulatedNode};
use crate::program::Program;
use crate::program::compile::{self, ProgramRole};
use crate::program::environment::ProgramEnvironment;
use crate::program::interpreter::{Interpreter, ProgramProgress};
use crate::settings::duration::nanos;
use crate::state::{FakeContainer, JournalRecord, Seq};

/// As much of an output is kept; CRI allows no more.
const MOST_OUTPUT: usize = 16 << 20;

/// A command that was run.
#[derive(Debug)]
pub(crate) struct FakeExecResult {
    pub(crate) container: Seq,
    /// Its answer, and when it is due; none if it does not end within its time.
    pub(crate) answer: Option<(ExecSyncResponse, i64)>,
}

/// A command that runs in a container, step by step.
#[derive(Debug)]
pub(crate) struct ExecCommand {
    pub(crate) container: Seq,
    /// The code it ends with in any case.
    pub(crate) ruled: Option<i32>,
    program: Program,
    machine: Interpreter,
}

impl SimulatedNode {
    /// Begins a command in a running container; nothing of it is done yet.
    pub(crate) fn command(&self, id: &str, argv: &[String]) -> Result<ExecCommand, CriError> {
        if argv.is_empty() {
            return Err(CriError::Missing { field: "cmd" });
        }
        let (seq, container) = self.running(id)?;
        let config = container.config();
        let variable = |name: &str| {
            let found = config.envs.iter().rev().find(|env| env.key == name);
            found
                .map(|env| String::from_utf8_lossy(&env.value).into_owned())
                .unwrap_or_default()
        };
        Ok(ExecCommand {
            container: seq,
            ruled: self.tuning(container).exec_exit_code,
            program: compile::program(argv, ProgramRole::Exec, &variable),
            machine: Interpreter::new(self.clock.now()),
        })
    }

    /// Carries a command on as far as it is due by then.
    pub(crate) fn carry(
        &mut self,
        command: &mut ExecCommand,
        until: i64,
        write: &mut dyn FnMut(i64, OutputStream, &str),
    ) -> Result<ProgramProgress, CriError> {
        let seq = command.container;
        let Some(container) = self.state.containers.get(&seq) else {
            return Ok(ProgramProgress::Forever);
        };
        let mut files = container.record.files.clone();
        let mut environment =
            ProgramEnvironment::beside(&mut files, &container.record.config, write);
        let progress = command
            .machine
            .advance(&command.program, until, &mut environment);
        let signals = std::mem::take(&mut environment.signals);
        if files != container.record.files {
            self.commit(JournalRecord::Files { seq, files })?;
        }
        signals
            .into_iter()
            .for_each(|number| self.signal(seq, number));
        Ok(progress)
    }

    /// Runs a command in a running container.
    pub(crate) fn exec(&mut self, request: &ExecSyncRequest) -> Result<FakeExecResult, CriError> {
        let mut command = self.command(&request.container_id, &request.cmd)?;
        let time = u64::try_from(request.timeout).ok().filter(|time| *time > 0);
        let until = time.map_or(i64::MAX, |time| {
            let time = nanos(std::time::Duration::from_secs(time));
            self.clock.now().saturating_add(time)
        });
        let mut response = ExecSyncResponse::default();
        let mut write = |_: i64, stream: OutputStream, text: &str| {
            let to = match stream {
                OutputStream::Stdout => &mut response.stdout,
                OutputStream::Stderr => &mut response.stderr,
            };
            if to.len() + text.len() < MOST_OUTPUT {
                to.extend(text.bytes().chain([b'\n']));
            }
        };
        let answer = match self.carry(&mut command, until, &mut write)? {
            ProgramProgress::Ended(end) => {
                response.exit_code = command.ruled.unwrap_or(end.code);
                Some((response, end.at))
            }
            ProgramProgress::Waits(_) | ProgramProgress::Forever => None,
        };
        Ok(FakeExecResult {
            container: command.container,
            answer,
        })
    }

    /// Finds a container that runs.
    pub(super) fn running(&self, id: &str) -> Result<(Seq, &FakeContainer), CriError> {
        let (seq, container) = self.container(id)?;
        if container.running() {
            return Ok((seq, container));
        }
        Err(CriError::WrongState {
            what: "container",
            id: id.to_owned(),
            state: "not running",
            expected: "running",
        })
    }
}
