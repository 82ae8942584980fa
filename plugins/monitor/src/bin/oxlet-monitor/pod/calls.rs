//! Calls of OCI runtimes: what each is for, and who gets its outcome.

use std::io;
use std::path::PathBuf;

use monitor::{Exit, Refusal, Reply};

use super::Pod;
use crate::call::{Call, Inherited, Overdue};

/// What a call is for. Containers, clients and processes that are run are named by number.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// Makes a container.
    Create {
        container: u64,
        client: u64,
        pid_file: PathBuf,
    },
    /// Starts one.
    Start { container: u64, client: u64 },
    /// Looks what became of a start; the client is still owed why it failed, unless a predecessor's client asked.
    Look {
        container: u64,
        owed: Option<(u64, Refusal)>,
    },
    /// Removes what a failed create has left.
    Discard {
        container: u64,
        owed: Option<(u64, Refusal)>,
    },
    /// Removes a container.
    Delete { container: u64, client: Option<u64> },
    /// Sends a signal.
    Kill { container: u64, client: u64 },
    /// Changes limits; the file is what the runtime reads.
    Update { client: u64, file: PathBuf },
    /// Writes a container's state; `work` is `$HOME` of it.
    Checkpoint { client: u64, work: PathBuf },
    /// Lists processes.
    Processes { client: u64 },
    /// Runs a process.
    Exec { exec: u64 },
}

impl Purpose {
    /// Whether the runtime tells by a file which process it has made, so that the process may end before we know it.
    pub(super) fn makes_process(&self) -> bool {
        match self {
            Purpose::Create { .. } | Purpose::Exec { .. } => true,
            Purpose::Start { .. }
            | Purpose::Look { .. }
            | Purpose::Discard { .. }
            | Purpose::Delete { .. }
            | Purpose::Kill { .. }
            | Purpose::Update { .. }
            | Purpose::Checkpoint { .. }
            | Purpose::Processes { .. } => false,
        }
    }
}

impl Pod {
    /// Calls a container's runtime.
    pub(super) fn call(
        &mut self,
        container: u64,
        args: &[&str],
        inherited: Option<Inherited>,
        purpose: Purpose,
    ) -> io::Result<()> {
        let number = self.number();
        let Some(found) = self.containers.get(&container) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let log = found.file("runtime-log", number);
        let home = if let Purpose::Checkpoint { work, .. } = &purpose {
            Some(work.clone())
        } else {
            None
        };
        let handler = &found.create().handler;
        let (pid, call) = Call::start(handler, (args, home), log, inherited, purpose)?;
        self.calls.insert(pid, call);
        Ok(())
    }

    /// A runtime has ended.
    pub(super) fn call_ended(&mut self, pid: i32, exit: &Exit) {
        let Some(mut call) = self.calls.remove(&pid) else {
            return;
        };
        let outcome = call.outcome(exit);
        match call.purpose {
            Purpose::Create {
                container,
                client,
                pid_file,
            } => self.created(container, client, &pid_file, outcome),
            Purpose::Start { container, client } => self.started(container, client, outcome),
            Purpose::Look { container, owed } => self.looked(container, owed, outcome),
            Purpose::Discard { container, owed } => self.discarded(container, owed, outcome),
            Purpose::Delete { container, client } => self.deleted(container, client, outcome),
            Purpose::Kill { container, client } => self.killed(container, client, outcome),
            Purpose::Exec { exec } => self.exec_started(exec, outcome),
            Purpose::Processes { client } => self.listed(client, outcome),
            Purpose::Checkpoint { client, .. } => {
                self.answer(
                    client,
                    &outcome.map_or_else(Reply::Refused, |_| Reply::Done),
                );
            }
            Purpose::Update { client, file } => {
                crate::call::remove_quietly(&file);
                self.answer(
                    client,
                    &outcome.map_or_else(Reply::Refused, |_| Reply::Done),
                );
            }
        }
    }

    /// Kills the calls that are over their deadlines, and gives up those that do not die of it.
    pub(super) fn expire_calls(&mut self, now: u64) {
        let late: Vec<i32> = self
            .calls
            .iter()
            .filter(|(_, call)| call.deadline <= now)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in late {
            let overdue = self.calls.get_mut(&pid).map(|call| call.overdue(pid));
            if overdue == Some(Overdue::GivenUp) {
                self.call_ended(pid, &Exit::Unknown("it does not die".to_owned()));
            }
        }
    }
}
