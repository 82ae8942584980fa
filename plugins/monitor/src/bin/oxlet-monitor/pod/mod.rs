//! The pod: everything that the monitor has, and the loop over it.

mod calls;
mod checkpoint;
mod exec;
mod lifecycle;
mod lost;
mod recovery;
mod removal;
mod requests;
mod slots;
mod tell;

use std::collections::BTreeMap;
use std::io;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use monitor::{Exit, Frame, Phase, Refusal, RefusalKind, Reply};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::call::Call;
use crate::cgroup::GroupRemoval;
use crate::client::{Client, PATIENCE_MS, Role};
use crate::clock::now_ms;
use crate::container::Container;
use crate::log::OutputStream;
use crate::process;
use crate::streams::{Channel, Read};
use calls::Purpose;
use exec::{Exec, MAX_EXEC_WAITING};
use lost::LostContainers;

/// The most containers of one pod.
const MAX_CONTAINERS: usize = 256;
/// What is read of one descriptor in one turn, in bytes.
const READ_BYTES: usize = 16 << 10;
/// The most children that are reaped in one turn: a storm of orphans must not keep the log waiting.
const REAPED_AT_ONCE: usize = 256;
/// How many groups of each tree that is being removed are removed in one turn.
const GROUPS_AT_ONCE: u32 = 32;
/// The most ends that are kept while a runtime tells whose they are.
const MAX_UNCLAIMED: usize = 1024;
/// How long no client is let in after one could not be: descriptors or memory are short, and the queue keeps its clients.
const ACCEPT_PAUSE_MS: u64 = 100;

/// Everything of one pod. Containers, processes that are run, and clients have numbers that are never used again.
#[derive(Debug)]
pub(crate) struct Pod {
    folder: PathBuf,
    listener: UnixListener,
    children: UnixStream,
    clients: BTreeMap<u64, Client>,
    containers: BTreeMap<u64, Container>,
    /// Containers whose records are damaged.
    lost: LostContainers,
    execs: BTreeMap<u64, Exec>,
    /// Groups of containers that are over, which are being removed.
    group_removals: Vec<GroupRemoval>,
    /// Running calls of runtimes, by process id.
    calls: BTreeMap<i32, Call<Purpose>>,
    /// Ends of children whose process ids a running call has not told yet.
    unclaimed: BTreeMap<i32, Exit>,
    /// Whether a turn left children unreaped.
    unreaped: bool,
    /// Until when no client is let in, since one could not be.
    accept_pause: Option<u64>,
    next: u64,
    over: bool,
}

/// Whose descriptor it is.
#[derive(Clone, Copy, Debug)]
enum Source {
    Listener,
    Children,
    Client(u64),
    Container(u64, Channel),
    /// The end of a container that a predecessor started.
    Adopted(u64),
    Exec(u64, Channel),
    Call(i32),
}

impl Pod {
    fn empty(folder: PathBuf, listener: UnixListener, children: UnixStream) -> Pod {
        Pod {
            folder,
            listener,
            children,
            clients: BTreeMap::new(),
            containers: BTreeMap::new(),
            lost: LostContainers::new(),
            execs: BTreeMap::new(),
            group_removals: Vec::new(),
            calls: BTreeMap::new(),
            unclaimed: BTreeMap::new(),
            unreaped: false,
            accept_pause: None,
            next: 0,
            over: false,
        }
    }

    /// Serves until it is shut down.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        while !self.over {
            for source in self.wait()? {
                self.serve(source, &mut buffer);
            }
            self.reap();
            self.expire();
            self.go_on_removing_groups();
            self.finish_execs(&mut buffer);
            self.flush_clients();
        }
        Ok(())
    }

    /// Waits for anything; returns what is ready.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let interests = self.interests();
        let mut fds: Vec<PollFd<'_>> = interests
            .iter()
            .map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags))
            .collect();
        let timeout = self
            .next_deadline()
            .map(|at| at.saturating_sub(now_ms()) + 1);
        let timeout = timeout.map(|ms| Timespec {
            tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ms % 1000).unwrap_or(0) * 1_000_000,
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = interests
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|((source, _, _), _)| *source).collect())
    }

    /// Everything to wait for. Who is not asked for input keeps its data in its own buffers: so a client waits for a
    /// process that does not read, and a process that is run for its client. A container waits for the log alone.
    fn interests(&self) -> Vec<(Source, BorrowedFd<'_>, PollFlags)> {
        let mut all = vec![(Source::Children, self.children.as_fd(), PollFlags::IN)];
        if self.accept_pause.is_none() && self.lets_in() {
            all.push((Source::Listener, self.listener.as_fd(), PollFlags::IN));
        }
        for (number, client) in &self.clients {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, self.takes_input(&client.role));
            flags.set(PollFlags::OUT, client.waiting() > 0);
            all.push((Source::Client(*number), client.stream().as_fd(), flags));
        }
        for (number, container) in &self.containers {
            let number = *number;
            let streams = container.streams.interests(true);
            all.extend(
                streams.map(|(channel, fd, flags)| (Source::Container(number, channel), fd, flags)),
            );
            let adopted = container.adopted.iter();
            all.extend(adopted.map(|fd| (Source::Adopted(number), fd.as_fd(), PollFlags::IN)));
        }
        for (number, exec) in &self.execs {
            let client = exec.client.and_then(|client| self.clients.get(&client));
            let reading =
                exec.is_told() && client.is_none_or(|client| client.waiting() < MAX_EXEC_WAITING);
            let streams = exec.streams.interests(reading);
            all.extend(
                streams.map(|(channel, fd, flags)| (Source::Exec(*number, channel), fd, flags)),
            );
        }
        for (pid, call) in &self.calls {
            all.extend(
                call.output
                    .iter()
                    .map(|fd| (Source::Call(*pid), fd.as_fd(), PollFlags::IN)),
            );
        }
        all
    }

    fn takes_input(&self, role: &Role) -> bool {
        match role {
            Role::Attached(attached) => self
                .containers
                .get(&attached.container)
                .is_none_or(|one| one.streams.has_room()),
            Role::Running(exec) => self
                .execs
                .get(exec)
                .is_none_or(|exec| exec.streams.has_room()),
            Role::Fresh | Role::Asking | Role::Waiting(_) | Role::Subscribed | Role::Leaving => {
                true
            }
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        let clients = self.clients.values().filter_map(|client| client.deadline);
        let calls = self.calls.values().map(|call| call.deadline);
        let execs = self.execs.values().filter_map(|exec| exec.deadline);
        let records = self
            .containers
            .values()
            .filter_map(|container| container.retry);
        let lost = self.lost.values().filter_map(|lost| lost.retry);
        let has_more = self.unreaped || !self.group_removals.is_empty();
        has_more
            .then_some(0)
            .into_iter()
            .chain(self.accept_pause)
            .chain(lost)
            .chain(clients)
            .chain(calls)
            .chain(execs)
            .chain(records)
            .min()
    }

    fn serve(&mut self, source: Source, buffer: &mut [u8]) {
        match source {
            Source::Listener => self.accept(),
            Source::Children => {
                // How many bytes are in it says nothing: children are reaped until there is none.
                while matches!(self.children.read(buffer), Ok(length) if length == buffer.len()) {}
            }
            Source::Client(number) => self.hear(number, buffer),
            Source::Container(number, channel) => self.container_ready(number, channel, buffer),
            Source::Adopted(number) => self.adopted_ended(number),
            Source::Exec(number, channel) => self.exec_ready(number, channel, buffer),
            Source::Call(pid) => {
                if let Some(call) = self.calls.get_mut(&pid) {
                    call.read();
                }
            }
        }
    }

    /// Lets a client in, if it is root.
    fn accept(&mut self) {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                let is_gone = matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::Interrupted
                        | io::ErrorKind::ConnectionAborted
                );
                // The socket stays readable: without a pause the loop would spin.
                self.accept_pause = (!is_gone).then(|| now_ms() + ACCEPT_PAUSE_MS);
                return;
            }
        };
        let is_root = getsockopt(&stream, PeerCredentials).is_ok_and(|peer| peer.uid() == 0);
        if is_root && stream.set_nonblocking(true).is_ok() {
            let number = self.number();
            self.clients
                .insert(number, Client::new(stream, now_ms() + PATIENCE_MS));
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Reads what a client says.
    fn hear(&mut self, number: u64, buffer: &mut [u8]) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        if !matches!(client.read(buffer), Ok(true)) {
            return self.lose(number);
        }
        while let Some(client) = self.clients.get_mut(&number) {
            match client.frame() {
                Ok(Some(frame)) => self.frame(number, &frame),
                Ok(None) => return,
                Err(error) => return self.refuse(number, RefusalKind::Invalid, error.to_string()),
            }
        }
    }

    fn frame(&mut self, number: u64, frame: &Frame) {
        let Some(client) = self.clients.get(&number) else {
            return;
        };
        match client.role.clone() {
            Role::Fresh => self.request(number, frame),
            Role::Attached(attached) => self.attached_says(number, &attached, frame),
            Role::Running(exec) => self.exec_client_says(number, exec, frame),
            Role::Leaving => {}
            Role::Asking | Role::Waiting(_) | Role::Subscribed => {
                self.refuse(
                    number,
                    RefusalKind::Invalid,
                    "expected one call on one connection".to_owned(),
                );
            }
        }
    }

    /// Forgets a client that is gone, or has to go.
    fn lose(&mut self, number: u64) {
        let Some(client) = self.clients.remove(&number) else {
            return;
        };
        match client.role {
            Role::Attached(attached) if attached.stdin => self.attached_left(attached.container),
            Role::Running(exec) => self.exec_client_left(exec),
            Role::Attached(_)
            | Role::Fresh
            | Role::Asking
            | Role::Waiting(_)
            | Role::Subscribed
            | Role::Leaving => {}
        }
    }

    /// Takes in what came out of a container, or puts in what waits.
    fn container_ready(&mut self, number: u64, channel: Channel, buffer: &mut [u8]) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        container.streams.write();
        if channel != Channel::Input {
            self.take_output(number, channel, buffer);
        }
    }

    /// Reads one channel of a container once: first the log, then who is attached.
    fn take_output(&mut self, number: u64, channel: Channel, buffer: &mut [u8]) -> Read {
        let Some(container) = self.containers.get_mut(&number) else {
            return Read::End;
        };
        let read = container.streams.read(channel, buffer);
        let Read::Data(length) = read else {
            return read;
        };
        let stream = match channel {
            Channel::Output(stream) => stream,
            Channel::Terminal | Channel::Input => OutputStream::Stdout,
        };
        let trouble = container.log(stream, &buffer[..length]);
        self.tell_trouble(number, trouble);
        self.pass_on(number, stream, &buffer[..length]);
        read
    }

    /// Reaps children and finds whose end each is.
    fn reap(&mut self) {
        self.unreaped = true;
        for _ in 0..REAPED_AT_ONCE {
            let Some((pid, exit)) = process::reap() else {
                self.unreaped = false;
                break;
            };
            if self.calls.contains_key(&pid) {
                self.call_ended(pid, &exit);
            } else if let Some(number) = self.container_of(pid) {
                self.init_ended(number, exit);
            } else if let Some(number) = self.exec_of(pid) {
                self.exec_ended(number, exit);
            } else if self.unclaimed.len() < MAX_UNCLAIMED
                && self.calls.values().any(|call| call.purpose.makes_process())
            {
                self.unclaimed.insert(pid, exit);
            }
        }
        if !self.calls.values().any(|call| call.purpose.makes_process()) {
            self.unclaimed.clear();
        }
    }

    /// Begins to remove the groups of a container that is over.
    fn remove_groups(&mut self, groups: &[PathBuf]) {
        let removals = groups.iter().filter_map(|group| GroupRemoval::new(group));
        self.group_removals.extend(removals);
    }

    fn go_on_removing_groups(&mut self) {
        self.group_removals
            .retain_mut(|removal| removal.go_on(GROUPS_AT_ONCE));
    }

    fn container_of(&self, pid: i32) -> Option<u64> {
        let is_init = |one: &Container| {
            one.pid() == Some(pid) && one.adopted.is_none() && one.phase() < Phase::Exited
        };
        self.containers
            .iter()
            .find(|(_, one)| is_init(one))
            .map(|(number, _)| *number)
    }

    /// Does what deadlines ask for.
    fn expire(&mut self) {
        let now = now_ms();
        let due = |deadline: Option<u64>| deadline.is_some_and(|deadline| deadline <= now);
        let clients: Vec<u64> = self
            .clients
            .iter()
            .filter(|(_, client)| due(client.deadline))
            .map(|(number, _)| *number)
            .collect();
        clients.into_iter().for_each(|number| self.lose(number));
        self.expire_calls(now);
        self.expire_execs(now);
        self.kill_lost(now);
        self.accept_pause = self.accept_pause.filter(|until| *until > now);
        let records: Vec<u64> = self
            .containers
            .iter()
            .filter(|(_, one)| due(one.retry))
            .map(|(number, _)| *number)
            .collect();
        records
            .into_iter()
            .for_each(|number| self.keep_again(number));
    }

    /// Writes to each client what it takes, and lets go of those that have read everything.
    fn flush_clients(&mut self) {
        let mut gone = Vec::new();
        for (number, client) in &mut self.clients {
            let flushed = client.flush();
            if flushed.is_err() || (client.role == Role::Leaving && client.waiting() == 0) {
                gone.push(*number);
            }
        }
        gone.into_iter().for_each(|number| self.lose(number));
    }

    fn refuse(&mut self, client: u64, kind: RefusalKind, message: String) {
        self.answer(client, &Reply::Refused(Refusal { kind, message }));
    }

    /// Says the last word to a client, if it is still there.
    fn answer(&mut self, client: u64, reply: &Reply) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.finish(reply, now_ms());
        }
    }
}
