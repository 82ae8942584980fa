//! Commands run inside a container. What a command does it does at once; its answer comes in its time.

use proto::cri::{ExecSyncRequest, ExecSyncResponse};

use crate::duration::nanos;
use crate::node::{Node, Refusal};
use crate::program::Program;
use crate::program::compile::{self, Role};
use crate::program::machine::{Machine, Progress};
use crate::program::world::{Stream, World};
use crate::state::{Container, Record, Seq};

/// As much of an output is kept; CRI allows no more.
const MOST_OUTPUT: usize = 16 << 20;

/// A command that was run.
#[derive(Debug)]
pub(crate) struct Executed {
    pub(crate) container: Seq,
    /// Its answer, and when it is due; none if it does not end within its time.
    pub(crate) answer: Option<(ExecSyncResponse, i64)>,
}

/// A command that runs in a container, step by step.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) container: Seq,
    /// The code it ends with in any case.
    pub(crate) ruled: Option<i32>,
    program: Program,
    machine: Machine,
}

impl Node {
    /// Begins a command in a running container; nothing of it is done yet.
    pub(crate) fn command(&self, id: &str, argv: &[String]) -> Result<Command, Refusal> {
        if argv.is_empty() {
            return Err(Refusal::Missing { field: "cmd" });
        }
        let (seq, container) = self.running(id)?;
        let config = container.config();
        let variable = |name: &str| {
            let found = config.envs.iter().rev().find(|env| env.key == name);
            found
                .map(|env| String::from_utf8_lossy(&env.value).into_owned())
                .unwrap_or_default()
        };
        Ok(Command {
            container: seq,
            ruled: self.tuning(container).exec_exit_code,
            program: compile::program(argv, Role::Exec, &variable),
            machine: Machine::new(self.clock.now()),
        })
    }

    /// Carries a command on as far as it is due by then.
    pub(crate) fn carry(
        &mut self,
        command: &mut Command,
        until: i64,
        write: &mut dyn FnMut(i64, Stream, &str),
    ) -> Result<Progress, Refusal> {
        let seq = command.container;
        let Some(container) = self.state.containers.get(&seq) else {
            return Ok(Progress::Forever);
        };
        let mut files = container.record.files.clone();
        let mut world = World::beside(&mut files, &container.record.config, write);
        let progress = command.machine.advance(&command.program, until, &mut world);
        let signals = std::mem::take(&mut world.signals);
        if files != container.record.files {
            self.commit(Record::Files { seq, files })?;
        }
        signals
            .into_iter()
            .for_each(|number| self.signal(seq, number));
        Ok(progress)
    }

    /// Runs a command in a running container.
    pub(crate) fn exec(&mut self, request: &ExecSyncRequest) -> Result<Executed, Refusal> {
        let mut command = self.command(&request.container_id, &request.cmd)?;
        let time = u64::try_from(request.timeout).ok().filter(|time| *time > 0);
        let until = time.map_or(i64::MAX, |time| {
            let time = nanos(std::time::Duration::from_secs(time));
            self.clock.now().saturating_add(time)
        });
        let mut response = ExecSyncResponse::default();
        let mut write = |_: i64, stream: Stream, text: &str| {
            let to = match stream {
                Stream::Stdout => &mut response.stdout,
                Stream::Stderr => &mut response.stderr,
            };
            if to.len() + text.len() < MOST_OUTPUT {
                to.extend(text.bytes().chain([b'\n']));
            }
        };
        let answer = match self.carry(&mut command, until, &mut write)? {
            Progress::Ended(end) => {
                response.exit_code = command.ruled.unwrap_or(end.code);
                Some((response, end.at))
            }
            Progress::Waits(_) | Progress::Forever => None,
        };
        Ok(Executed {
            container: command.container,
            answer,
        })
    }

    /// Finds a container that runs.
    pub(super) fn running(&self, id: &str) -> Result<(Seq, &Container), Refusal> {
        let (seq, container) = self.container(id)?;
        if container.running() {
            return Ok((seq, container));
        }
        Err(Refusal::WrongState {
            what: "container",
            id: id.to_owned(),
            state: "not running",
            expected: "running",
        })
    }
}
