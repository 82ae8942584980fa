//! What clients ask, each request handed to who does it.

use std::path::PathBuf;
use std::{fs, io};

use monitor::{
    Attach, Call, Frame, Input, Phase, PodStatus, RefusalKind, Reply, Request, Size, StreamControl,
    VERSION,
};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use serde::Deserialize;

use super::Pod;
use super::calls::Purpose;
use super::lifecycle::system;
use crate::call::remove_quietly;
use crate::cgroup::{GroupKill, find_groups};
use crate::client::{Attached, Role};
use crate::container::{Container, Part};
use crate::stdio::resize;

/// What stands first in every version of a call.
#[derive(Deserialize)]
struct Hello {
    version: u32,
}

impl Pod {
    /// Reads a client's call and begins with it.
    pub(super) fn request(&mut self, client: u64, frame: &Frame) {
        match frame.read() {
            Ok(Hello { version: VERSION }) => {}
            Ok(Hello { version }) => {
                let message =
                    format!("the client speaks version {version}, this monitor speaks {VERSION}");
                return self.refuse(client, RefusalKind::Version, message);
            }
            Err(error) => return self.refuse(client, RefusalKind::Invalid, error.to_string()),
        }
        match frame.read() {
            Ok(Call { request, .. }) => self.begin(client, request),
            Err(error) => {
                let cause = std::error::Error::source(&error)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                self.refuse(client, RefusalKind::Invalid, format!("{error}: {cause}"));
            }
        }
    }

    fn begin(&mut self, client: u64, request: Request) {
        if let Some(asking) = self.clients.get_mut(&client) {
            asking.role = Role::Asking;
            asking.deadline = None;
        }
        let Some(request) = self.about_lost(client, request) else {
            return;
        };
        match request {
            Request::Status => self.answer(client, &Reply::Pod(self.status())),
            Request::Create(create) => self.create(client, *create),
            Request::Start { container } => self.with(client, &container, Pod::start),
            Request::Exec(exec) => {
                self.with(client, &exec.container, |pod, client, number| {
                    pod.exec(client, number, &exec)
                });
            }
            Request::Attach(attach) => {
                self.with(client, &attach.container, |pod, client, number| {
                    pod.attach(client, number, &attach)
                });
            }
            Request::Resize { container, size } => {
                self.with(client, &container, |pod, client, number| {
                    pod.resize(client, number, size)
                });
            }
            Request::Kill { container, signal } => {
                self.with(client, &container, |pod, client, number| {
                    pod.kill(client, number, signal)
                });
            }
            Request::ReopenLog { container } => self.with(client, &container, Pod::reopen_log),
            Request::CloseStdin { container } => self.with(client, &container, Pod::close_stdin),
            Request::Wait { container } => self.with(client, &container, Pod::wait_for_end),
            Request::Events => self.subscribe(client),
            Request::Update {
                container,
                resources,
            } => {
                self.with(client, &container, |pod, client, number| {
                    pod.update(client, number, &resources)
                });
            }
            Request::Checkpoint {
                container,
                images,
                work,
            } => {
                self.with(client, &container, |pod, client, number| {
                    pod.checkpoint(client, number, &images, work)
                });
            }
            Request::Processes { container } => self.with(client, &container, Pod::processes),
            Request::Delete { container } => match self.find(&container) {
                Some(number) => self.delete(client, number),
                None => self.answer(client, &Reply::Done),
            },
            Request::Shutdown => self.shutdown(client),
        }
    }

    /// The number of a container.
    pub(super) fn find(&self, id: &str) -> Option<u64> {
        self.containers
            .iter()
            .find(|(_, container)| container.id() == id)
            .map(|(number, _)| *number)
    }

    fn with(&mut self, client: u64, id: &str, then: impl FnOnce(&mut Pod, u64, u64)) {
        match self.find(id) {
            Some(number) => then(self, client, number),
            None => self.refuse(
                client,
                RefusalKind::NotFound,
                format!("there is no container {id}"),
            ),
        }
    }

    fn status(&self) -> PodStatus {
        let mut containers: Vec<_> = self
            .containers
            .values()
            .map(Container::status)
            .chain(self.lost.values().map(|lost| lost.status.clone()))
            .collect();
        containers.sort_by(|a, b| a.container.cmp(&b.container));
        PodStatus {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            containers,
        }
    }

    pub(super) fn wrong_phase(&mut self, client: u64, number: u64, what: &str) {
        let Some(container) = self.containers.get(&number) else {
            return;
        };
        let busy = if container.busy {
            ", and its runtime is at work"
        } else {
            ""
        };
        let message = format!(
            "container {} is {:?}{busy}: it cannot be {what}",
            container.id(),
            container.phase()
        );
        self.refuse(client, RefusalKind::WrongPhase, message);
    }

    pub(super) fn answer_status(&mut self, client: u64, number: u64) {
        if let Some(container) = self.containers.get(&number) {
            let reply = Reply::Container(Box::new(container.status()));
            self.answer(client, &reply);
        }
    }

    fn attach(&mut self, client: u64, number: u64, attach: &Attach) {
        let Some(container) = self.containers.get(&number) else {
            return;
        };
        if container.phase() == Phase::Exited {
            return self.wrong_phase(client, number, "attached to");
        }
        if attach.stdin && container.create().stdin == Input::Closed {
            let message = format!("container {} has no input", container.id());
            return self.refuse(client, RefusalKind::Invalid, message);
        }
        let role = Role::Attached(Attached {
            container: number,
            stdin: attach.stdin,
            stdout: attach.stdout,
            stderr: attach.stderr,
        });
        if self.take_slot(client, role)
            && let Some(client) = self.clients.get_mut(&client)
        {
            client.say(&Reply::Streaming);
        }
    }

    /// What an attached client sends.
    pub(super) fn attached_says(&mut self, client: u64, attached: &Attached, frame: &Frame) {
        let Some(container) = self.containers.get_mut(&attached.container) else {
            return;
        };
        match frame {
            Frame::Input(bytes) if attached.stdin => container.streams.input(bytes),
            Frame::Message(_) => match (frame.read(), &container.streams.terminal) {
                (Ok(StreamControl::CloseStdin), _) => {
                    if attached.stdin {
                        self.attached_left(attached.container);
                    }
                }
                // A client may resize a terminal that ends at this moment.
                (Ok(StreamControl::Resize(size)), Some(terminal)) => drop(resize(terminal, size)),
                (Ok(StreamControl::Resize(_)), None) => {}
                (Err(error), _) => self.refuse(client, RefusalKind::Invalid, error.to_string()),
            },
            Frame::Input(_) | Frame::Stdout(_) | Frame::Stderr(_) => {
                self.refuse(
                    client,
                    RefusalKind::Invalid,
                    "this client attached without input".to_owned(),
                );
            }
        }
    }

    fn resize(&mut self, client: u64, number: u64, size: Size) {
        let Some(container) = self.containers.get(&number) else {
            return;
        };
        let reply = match &container.streams.terminal {
            None => return self.wrong_phase(client, number, "resized without a terminal"),
            Some(terminal) => match resize(terminal, size) {
                Ok(()) => Reply::Done,
                Err(error) => Reply::Refused(system(&error)),
            },
        };
        self.answer(client, &reply);
    }

    fn kill(&mut self, client: u64, number: u64, signal: i32) {
        let Some(container) = self.containers.get(&number) else {
            return;
        };
        match container.phase() {
            Phase::Exited | Phase::Deleting => return self.answer(client, &Reply::Done),
            Phase::Creating => return self.wrong_phase(client, number, "signalled"),
            Phase::Created | Phase::Starting | Phase::Running => {}
        }
        let (id, text) = (container.id().to_owned(), signal.to_string());
        let purpose = Purpose::Kill {
            container: number,
            client,
        };
        if let Err(error) = self.call(number, &["kill", &id, &text], None, purpose) {
            // The pod has used up its process ids or its memory: no program starts, and a signal needs none.
            let sent = self.signal_init(number, signal);
            let reply = sent.map_or_else(|_| Reply::Refused(system(&error)), |()| Reply::Done);
            self.answer(client, &reply);
        }
    }

    /// Signals a container's first process without its OCI runtime; SIGKILL goes to every process of its groups.
    fn signal_init(&self, number: u64, signal: i32) -> io::Result<()> {
        let container = self.containers.get(&number);
        let signal = Signal::from_named_raw(signal).ok_or(Errno::INVAL)?;
        if signal == Signal::KILL
            && let Some(container) = container
        {
            GroupKill::new(find_groups(container.id())).round();
        }
        match container.and_then(Container::open_init) {
            Some(init) => Ok(pidfd_send_signal(init, signal)?),
            // It has ended meanwhile.
            None => Ok(()),
        }
    }

    fn reopen_log(&mut self, client: u64, number: u64) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        let reopened = match &mut container.log {
            Some(log) => log.reopen(),
            None => container.open_log(),
        };
        if reopened.is_ok() {
            container.well(Part::Log);
        }
        let reply = reopened.map_or_else(|error| Reply::Refused(system(&error)), |()| Reply::Done);
        self.answer(client, &reply);
    }

    fn close_stdin(&mut self, client: u64, number: u64) {
        if let Some(container) = self.containers.get_mut(&number) {
            container.streams.end_input();
        }
        self.answer(client, &Reply::Done);
    }

    fn wait_for_end(&mut self, client: u64, number: u64) {
        if self
            .containers
            .get(&number)
            .is_some_and(|container| container.phase() == Phase::Exited)
        {
            return self.answer_status(client, number);
        }
        self.take_slot(client, Role::Waiting(number));
    }

    fn subscribe(&mut self, client: u64) {
        let status = Reply::Pod(self.status());
        if self.take_slot(client, Role::Subscribed)
            && let Some(client) = self.clients.get_mut(&client)
        {
            client.say(&status);
        }
    }

    fn update(&mut self, client: u64, number: u64, resources: &serde_json::Value) {
        let next = self.number();
        let Some(container) = self.containers.get(&number) else {
            return;
        };
        if !matches!(
            container.phase(),
            Phase::Created | Phase::Starting | Phase::Running
        ) {
            return self.wrong_phase(client, number, "updated");
        }
        let (id, file) = (container.id().to_owned(), container.file("resources", next));
        let path = file.to_string_lossy().into_owned();
        let purpose = Purpose::Update {
            client,
            file: file.clone(),
        };
        let written = fs::write(&file, resources.to_string());
        let called = written.and_then(|()| {
            self.call(
                number,
                &["update", "--resources", &path, &id],
                None,
                purpose,
            )
        });
        if let Err(error) = called {
            remove_quietly(&file);
            self.answer(client, &Reply::Refused(system(&error)));
        }
    }

    fn processes(&mut self, client: u64, number: u64) {
        let Some(container) = self.containers.get(&number) else {
            return;
        };
        // The runtime lists what is in the groups, and those of a container that is over go with the last of its processes.
        let has_no_group = |counter: &PathBuf| counter.parent().is_some_and(|it| !it.exists());
        let counter = container.record.oom_counter.as_ref();
        if container.phase() == Phase::Exited && counter.is_some_and(has_no_group) {
            return self.answer(client, &Reply::Processes(Vec::new()));
        }
        let id = container.id().to_owned();
        let purpose = Purpose::Processes { client };
        if let Err(error) = self.call(number, &["ps", "--format", "json", &id], None, purpose) {
            self.answer(client, &Reply::Refused(system(&error)));
        }
    }

    pub(super) fn listed(&mut self, client: u64, outcome: Result<String, monitor::Refusal>) {
        let reply = match outcome.map(|text| serde_json::from_str::<Option<Vec<i32>>>(&text)) {
            Ok(Ok(pids)) => Reply::Processes(pids.unwrap_or_default()),
            Ok(Err(error)) => Reply::Refused(super::lifecycle::refusal(
                RefusalKind::Runtime,
                format!("the runtime's list of processes is none: {error}"),
            )),
            Err(refusal) => Reply::Refused(refusal),
        };
        self.answer(client, &reply);
    }

    fn shutdown(&mut self, client: u64) {
        if let Some(id) = self.lost.keys().next() {
            let message = format!("container {id} is still here, and its record is damaged");
            return self.refuse(client, RefusalKind::WrongPhase, message);
        }
        if let Some(container) = self.containers.values().next() {
            let message = format!(
                "container {} is still here, of {}",
                container.id(),
                self.containers.len()
            );
            return self.refuse(client, RefusalKind::WrongPhase, message);
        }
        self.answer(client, &Reply::Done);
        self.over = true;
    }
}
