//! Commands run inside a container. What a command does it does at once; its answer comes in its time.

use proto::cri::{ExecSyncRequest, ExecSyncResponse};

use crate::duration::nanos;
use crate::node::{Node, Refusal};
use crate::program::compile::{self, Role};
use crate::program::machine::{Machine, Progress};
use crate::program::world::{Stream, World};
use crate::state::{Record, Seq};

/// As much of an output is kept; CRI allows no more.
const MOST_OUTPUT: usize = 16 << 20;

/// A command that was run.
#[derive(Debug)]
pub(crate) struct Executed {
    pub(crate) container: Seq,
    /// Its answer, and when it is due; none if it does not end within its time.
    pub(crate) answer: Option<(ExecSyncResponse, i64)>,
}

impl Node {
    /// Runs a command in a running container.
    pub(crate) fn exec(&mut self, request: &ExecSyncRequest) -> Result<Executed, Refusal> {
        let (seq, container) = self.container(&request.container_id)?;
        if request.cmd.is_empty() {
            return Err(Refusal::Missing { field: "cmd" });
        }
        if !container.running() {
            let id = request.container_id.clone();
            return Err(Refusal::WrongState {
                what: "container",
                id,
                state: "not running",
                expected: "running",
            });
        }
        let ruled = self.tuning(container).exec_exit_code;
        let config = container.config();
        let variable = |name: &str| {
            let found = config.envs.iter().rev().find(|env| env.key == name);
            found
                .map(|env| String::from_utf8_lossy(&env.value).into_owned())
                .unwrap_or_default()
        };
        let program = compile::program(&request.cmd, Role::Exec, &variable);
        let start = self.clock.now();
        let time = u64::try_from(request.timeout).ok().filter(|time| *time > 0);
        let until = time.map_or(i64::MAX, |time| {
            start.saturating_add(nanos(std::time::Duration::from_secs(time)))
        });

        let mut files = container.record.files.clone();
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
        let mut world = World::beside(&mut files, &container.record.config, &mut write);
        let progress = Machine::new(start).advance(&program, until, &mut world);
        let signals = std::mem::take(&mut world.signals);
        if files != container.record.files {
            self.commit(Record::Files { seq, files })?;
        }
        signals
            .into_iter()
            .for_each(|number| self.signal(seq, number));
        let answer = match progress {
            Progress::Ended(end) => {
                response.exit_code = ruled.unwrap_or(end.code);
                Some((response, end.at))
            }
            Progress::Waits(_) | Progress::Forever => None,
        };
        Ok(Executed {
            container: seq,
            answer,
        })
    }
}
