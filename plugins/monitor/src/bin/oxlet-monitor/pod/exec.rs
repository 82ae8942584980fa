//! Processes that are run in containers: by the runtime's detached `exec`, each with one client.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use monitor::{ExecEnd, Exit, Frame, Phase, Refusal, RefusalKind, Reply, Size, StreamControl};

use super::Pod;
use super::calls::Purpose;
use super::lifecycle::{refusal, system};
use super::slots::MAX_EXECS;
use crate::call::{Inherited, remove_quietly};
use crate::client::Role;
use crate::clock::now_ms;
use crate::container::read_pid;
use crate::log::OutputStream;
use crate::owner;
use crate::process;
use crate::stdio::{output_pipe, resize};
use crate::streams::{Channel, Read, Streams};

/// The most output of a process that waits to be written to its client, in bytes: then the process waits. Less than a
/// subscriber may have waiting, since there may be many processes.
pub(super) const MAX_EXEC_WAITING: usize = 64 << 10;

/// A process that is run.
#[derive(Debug)]
pub(crate) struct Exec {
    /// Whose it is; none once the client is gone, and then it is killed.
    pub(super) client: Option<u64>,
    pub(super) streams: Streams,
    pub(super) deadline: Option<u64>,
    process: Option<i32>,
    exit: Option<Exit>,
    timed_out: bool,
    size: Option<Size>,
    /// What the client still wants to hear of standard output (or the terminal) and of standard error.
    wanted: [u64; 2],
    truncated: bool,
    /// What the runtime reads (the process) and writes (its id).
    files: [PathBuf; 2],
}

impl Exec {
    /// Whether the client knows that it runs, so that its output may follow.
    pub(super) fn is_told(&self) -> bool {
        self.process.is_some()
    }

    /// Returns how much of what came out of a stream is passed on: no more than the client wants of it.
    fn pass(&mut self, stream: OutputStream, length: usize) -> usize {
        let [stdout, stderr] = &mut self.wanted;
        let wanted = match stream {
            OutputStream::Stdout => stdout,
            OutputStream::Stderr => stderr,
        };
        let passed = usize::try_from(*wanted).map_or(length, |wanted| wanted.min(length));
        *wanted -= u64::try_from(passed).unwrap_or(*wanted);
        self.truncated |= passed < length;
        passed
    }

    fn remove_files(&self) {
        self.files.iter().for_each(|file| remove_quietly(file));
    }
}

impl Pod {
    pub(super) fn exec(&mut self, client: u64, number: u64, asked: &monitor::Exec) {
        let Some(container) = self.containers.get(&number) else {
            return;
        };
        if container.phase() != Phase::Running {
            return self.wrong_phase(client, number, "run in");
        }
        if self.execs.len() >= MAX_EXECS {
            let message = format!("{MAX_EXECS} processes are run in this pod at a time already");
            return self.refuse(client, RefusalKind::Full, message);
        }
        let id = container.id().to_owned();
        let exec = self.number();
        let Some(container) = self.containers.get(&number) else {
            return;
        };
        let files = [
            container.file("process", exec),
            container.file("exec-pid", exec),
        ];
        let console = self.folder.join(format!("c{exec}"));
        let prepared = prepare(asked, &files[0], &console).and_then(|(streams, inherited)| {
            let user = owner::of_process(&asked.process);
            owner::give(&inherited, user, &container.record.user_ids)?;
            Ok((streams, inherited))
        });
        let (streams, inherited) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                remove_quietly(&files[0]);
                return self.answer(client, &Reply::Refused(system(&error)));
            }
        };
        let paths =
            [&files[0], &files[1], &console].map(|path| path.to_string_lossy().into_owned());
        let args = arguments(&paths, is_terminal(asked), &id);
        self.execs.insert(
            exec,
            Exec {
                client: Some(client),
                streams,
                deadline: asked
                    .timeout_ms
                    .map(|timeout| now_ms().saturating_add(timeout)),
                process: None,
                exit: None,
                timed_out: false,
                size: asked.size,
                wanted: [asked.max_output_bytes.unwrap_or(u64::MAX); 2],
                truncated: false,
                files,
            },
        );
        if let Some(client) = self.clients.get_mut(&client) {
            client.role = Role::Running(exec);
        }
        if let Err(error) = self.call(number, &args, Some(inherited), Purpose::Exec { exec }) {
            self.exec_started(exec, Err(system(&error)));
        }
    }

    /// The runtime has started the process, or not.
    pub(super) fn exec_started(&mut self, number: u64, outcome: Result<String, Refusal>) {
        let Some(exec) = self.execs.get_mut(&number) else {
            return;
        };
        let pid = outcome.and_then(|_| read_pid(&exec.files[1]).map_err(|error| system(&error)));
        exec.remove_files();
        let pid = match pid {
            Ok(pid) => pid,
            Err(refusal) => return self.exec_failed(number, &refusal),
        };
        exec.process = Some(pid);
        exec.exit = self.unclaimed.remove(&pid);
        let terminal = exec.streams.take_terminal();
        if let (Some(size), Some(terminal)) = (exec.size, &exec.streams.terminal) {
            // A size that a terminal does not take is the size it has.
            drop(resize(terminal, size));
        }
        let client = exec.client;
        match (terminal, client) {
            (Ok(()), Some(client)) => {
                if let Some(client) = self.clients.get_mut(&client) {
                    client.say(&Reply::Streaming);
                }
            }
            (Ok(()), None) => self.kill_exec(number),
            (Err(error), _) => {
                self.kill_exec(number);
                self.exec_failed(
                    number,
                    &refusal(RefusalKind::Runtime, format!("terminal: {error}")),
                );
            }
        }
    }

    /// It never ran, or cannot be used. One that timed out meanwhile was killed for that.
    fn exec_failed(&mut self, number: u64, refusal: &Refusal) {
        let Some(exec) = self.execs.get_mut(&number) else {
            return;
        };
        let (client, timed_out) = (exec.client.take(), exec.timed_out);
        if exec.process.is_none() || exec.exit.is_some() {
            self.execs.remove(&number);
        }
        let Some(client) = client else { return };
        if timed_out {
            if let Some(client) = self.clients.get_mut(&client) {
                client.say(&Reply::Streaming);
            }
            let end = ExecEnd {
                exit: Exit::Signal(9),
                timed_out,
                truncated: false,
            };
            return self.answer(client, &Reply::ExecEnded(end));
        }
        self.answer(client, &Reply::Refused(refusal.clone()));
    }

    pub(super) fn exec_of(&self, pid: i32) -> Option<u64> {
        let found = self
            .execs
            .iter()
            .find(|(_, exec)| exec.process == Some(pid) && exec.exit.is_none());
        found.map(|(number, _)| *number)
    }

    pub(super) fn exec_ended(&mut self, number: u64, exit: Exit) {
        if let Some(exec) = self.execs.get_mut(&number) {
            exec.exit = Some(exit);
            exec.deadline = None;
        }
    }

    /// Passes on the rest of what ended processes wrote, as fast as their clients read, and then tells their ends.
    /// Who else holds a pipe may write to it for ever: that is not waited for.
    pub(super) fn finish_execs(&mut self, buffer: &mut [u8]) {
        let ended = self.execs.iter().filter(|(_, exec)| exec.exit.is_some());
        let ended: Vec<u64> = ended.map(|(number, _)| *number).collect();
        for number in ended {
            let outputs = [OutputStream::Stdout, OutputStream::Stderr].map(Channel::Output);
            let empty = outputs
                .into_iter()
                .chain([Channel::Terminal])
                .all(|channel| {
                    loop {
                        match self.pass_exec_output(number, channel, buffer) {
                            Some(Read::Data(_)) => {}
                            Some(Read::Nothing | Read::End) => break true,
                            // Its client is full; the next turn goes on.
                            None => break false,
                        }
                    }
                });
            if empty && let Some(exec) = self.execs.remove(&number) {
                let exit = exec.exit.unwrap_or(Exit::Code(0));
                let end = Reply::ExecEnded(ExecEnd {
                    exit,
                    timed_out: exec.timed_out,
                    truncated: exec.truncated,
                });
                exec.client
                    .into_iter()
                    .for_each(|client| self.answer(client, &end));
            }
        }
    }

    pub(super) fn exec_ready(&mut self, number: u64, channel: Channel, buffer: &mut [u8]) {
        if let Some(exec) = self.execs.get_mut(&number) {
            exec.streams.write();
            // Whatever became of it shows at the next read.
            let _read = self.pass_exec_output(number, channel, buffer);
        }
    }

    /// Reads one channel once and passes it on; none while the client has enough to read.
    fn pass_exec_output(
        &mut self,
        number: u64,
        channel: Channel,
        buffer: &mut [u8],
    ) -> Option<Read> {
        let exec = self.execs.get_mut(&number)?;
        let mut client = exec.client.and_then(|client| self.clients.get_mut(&client));
        if client
            .as_ref()
            .is_some_and(|client| client.waiting() >= MAX_EXEC_WAITING)
        {
            return None;
        }
        let read = exec.streams.read(channel, buffer);
        let stream = match channel {
            Channel::Output(stream) => stream,
            Channel::Terminal | Channel::Input => OutputStream::Stdout,
        };
        if let (Read::Data(length), Some(client)) = (read, &mut client) {
            let passed = exec.pass(stream, length);
            if passed > 0 {
                client.data(stream, &buffer[..passed]);
            }
        }
        Some(read)
    }

    pub(super) fn exec_client_says(&mut self, client: u64, number: u64, frame: &Frame) {
        let Some(exec) = self.execs.get_mut(&number) else {
            return;
        };
        match frame {
            Frame::Input(bytes) => exec.streams.input(bytes),
            Frame::Message(_) => match frame.read() {
                Ok(StreamControl::CloseStdin) => exec.streams.end_input(),
                Ok(StreamControl::Resize(size)) => match &exec.streams.terminal {
                    // A client may resize a terminal that ends at this moment.
                    Some(terminal) => drop(resize(terminal, size)),
                    None => exec.size = Some(size),
                },
                Err(error) => self.drop_exec_client(client, number, error.to_string()),
            },
            Frame::Stdout(_) | Frame::Stderr(_) => {
                self.drop_exec_client(client, number, "expected input, not output".to_owned());
            }
        }
    }

    fn drop_exec_client(&mut self, client: u64, number: u64, why: String) {
        self.refuse(client, RefusalKind::Invalid, why);
        self.exec_client_left(number);
    }

    /// Nobody hears the process any more: it is killed, as by containerd.
    pub(super) fn exec_client_left(&mut self, number: u64) {
        if let Some(exec) = self.execs.get_mut(&number) {
            exec.client = None;
            exec.deadline = None;
            exec.streams.end_input();
            self.kill_exec(number);
        }
    }

    fn kill_exec(&mut self, number: u64) {
        if let Some(exec) = self.execs.get(&number)
            && let (Some(pid), None) = (exec.process, &exec.exit)
        {
            // It is a child that isn't reaped yet; one that is just ending needs no signal.
            drop(process::kill(pid));
        }
    }

    /// Kills the processes that ran longer than they may.
    pub(super) fn expire_execs(&mut self, now: u64) {
        let late = self
            .execs
            .iter()
            .filter(|(_, exec)| exec.deadline.is_some_and(|deadline| deadline <= now));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in late {
            if let Some(exec) = self.execs.get_mut(&number) {
                exec.timed_out = true;
                exec.deadline = None;
            }
            self.kill_exec(number);
            let starting =
                |purpose: &Purpose| matches!(purpose, Purpose::Exec { exec } if *exec == number);
            for call in self
                .calls
                .values_mut()
                .filter(|call| starting(&call.purpose))
            {
                call.deadline = now;
            }
        }
        self.expire_calls(now);
    }
}

/// Writes what the runtime reads, and makes the streams.
fn prepare(asked: &monitor::Exec, file: &Path, console: &Path) -> io::Result<(Streams, Inherited)> {
    fs::write(file, serde_json::to_vec(&asked.process)?)?;
    if is_terminal(asked) {
        return Streams::terminal(console.to_owned());
    }
    Streams::piped(output_pipe()?, output_pipe()?, asked.stdin)
}

/// The OCI command line's arguments; the files are those of the process, its pid and its console.
fn arguments<'a>(
    [process, pid, console]: &'a [String; 3],
    terminal: bool,
    id: &'a str,
) -> Vec<&'a str> {
    let mut args = vec!["exec", "--detach", "--process", process, "--pid-file", pid];
    if terminal {
        args.extend(["--console-socket", console]);
    }
    args.push(id);
    args
}

fn is_terminal(asked: &monitor::Exec) -> bool {
    asked
        .process
        .get("terminal")
        .and_then(serde_json::Value::as_bool)
        .unwrap_or(false)
}
