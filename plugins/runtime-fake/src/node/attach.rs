//! Attached clients of containers: their output and their input.

use std::sync::Arc;

use cri_server::OutputStream;
use tokio::sync::{broadcast, oneshot};

use crate::node::{CriError, SimulatedNode, write_log};
use crate::program::environment::ProgramEnvironment;
use crate::program::interpreter::ProgramExit;
use crate::program::signal;
use crate::settings::annotations::{PortTarget, SandboxTuning};
use crate::state::{JournalRecord, Seq};

/// A client that is further behind misses lines.
const LINES: usize = 1024;

/// A line of output.
pub(crate) type OutputLine = (OutputStream, Arc<str>);

/// A client attached to a container: the output that it reads.
#[derive(Debug)]
pub(crate) struct AttachedClient {
    pub(crate) output: broadcast::Receiver<OutputLine>,
    /// Resolves when the container has ended.
    pub(crate) ending: oneshot::Receiver<()>,
}

impl SimulatedNode {
    /// Lets a client see what a running container writes from now on.
    pub(crate) fn attach(&mut self, id: &str) -> Result<AttachedClient, CriError> {
        let (seq, _) = self.running(id)?;
        self.attached.retain(|_, to| to.receiver_count() > 0);
        let to = self
            .attached
            .entry(seq)
            .or_insert_with(|| broadcast::Sender::new(LINES));
        let output = to.subscribe();
        Ok(AttachedClient {
            output,
            ending: self.ending(seq),
        })
    }

    /// Tells a container's own program a line. One with an open stdin says it back.
    pub(crate) fn write_stdin(&mut self, id: &str, line: &str) {
        let Some(seq) = self.listening(id) else {
            return;
        };
        let Some(container) = self.state.containers.get(&seq) else {
            return;
        };
        let (at, path) = (self.clock.now(), &container.record.log);
        if let Err(error) = write_log(&mut self.logs, seq, path, at, OutputStream::Stdout, line) {
            tracing::warn!(log = %path, %error, "cannot write container log");
        }
        if let Some(to) = self.attached.get(&seq) {
            // The last attached client has gone; the line is in the log.
            drop(to.send((OutputStream::Stdout, line.into())));
        }
    }

    /// Tells a container's own program that no more comes: one whose stdin opens once ends of it.
    pub(crate) fn hears_no_more(&mut self, id: &str) {
        let once = |seq: &Seq| {
            let container = self.state.containers.get(seq);
            container.is_some_and(|container| container.config().stdin_once)
        };
        if let Some(seq) = self.listening(id).filter(once) {
            let end = ProgramExit {
                at: self.clock.now(),
                code: 0,
                own: true,
            };
            self.end(seq, end);
        }
    }

    /// Sends a container's own program SIGINT.
    pub(crate) fn interrupt(&mut self, id: &str) {
        if let Some(seq) = self.listening(id) {
            self.signal(seq, signal::INT);
        }
    }

    fn listening(&self, id: &str) -> Option<Seq> {
        let (seq, container) = self.running(id).ok()?;
        container.config().stdin.then_some(seq)
    }

    /// Returns what is behind a port of a running pod.
    pub(crate) fn target(&self, id: &str, port: u16) -> Result<PortTarget, CriError> {
        let (_, sandbox) = self.sandbox(id)?;
        if sandbox.record.stopped.is_some() {
            return Err(CriError::WrongState {
                what: "sandbox",
                id: id.to_owned(),
                state: "not ready",
                expected: "ready",
            });
        }
        let ports = SandboxTuning::of(&sandbox.config().annotations)?.ports;
        Ok(ports.get(&port).cloned().unwrap_or(PortTarget::Echo))
    }

    /// Returns the content of a file of a running container.
    pub(crate) fn read_file(&self, id: &str, path: &str) -> Result<Option<String>, CriError> {
        let (_, container) = self.running(id)?;
        let mut files = container.record.files.clone();
        let mut nowhere = |_: i64, _: OutputStream, _: &str| {};
        Ok(
            ProgramEnvironment::beside(&mut files, &container.record.config, &mut nowhere)
                .read(path),
        )
    }

    /// Writes a file of a running container; returns whether there was room for it.
    pub(crate) fn put_file(&mut self, id: &str, path: &str, text: &str) -> Result<bool, CriError> {
        let (seq, container) = self.running(id)?;
        let mut files = container.record.files.clone();
        let mut nowhere = |_: i64, _: OutputStream, _: &str| {};
        let mut environment =
            ProgramEnvironment::beside(&mut files, &container.record.config, &mut nowhere);
        let put = environment.put(path, text, false);
        if files != container.record.files {
            self.commit(JournalRecord::Files { seq, files })?;
        }
        Ok(put)
    }
}
