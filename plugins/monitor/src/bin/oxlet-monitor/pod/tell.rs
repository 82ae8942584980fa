//! What clients are told beside answers: facts, output, ends.

use monitor::{Event, Fact, Phase, Refusal, RefusalKind, Reply};

use super::Pod;
use crate::client::{Attached, MAX_WAITING, Role};
use crate::clock::{now_ms, wall};
use crate::log::OutputStream;

impl Pod {
    /// Tells every subscriber what happened. One that has not read for long is dropped.
    pub(super) fn tell(&mut self, container: &str, fact: Fact) {
        let event = Event {
            container: container.to_owned(),
            at: wall(),
            fact,
        };
        let reply = Reply::Event(event);
        for client in self
            .clients
            .values_mut()
            .filter(|client| client.role == Role::Subscribed)
        {
            client.say(&reply);
            if client.waiting() > MAX_WAITING {
                client.finish(&too_slow("facts"), now_ms());
            }
        }
    }

    /// Tells a trouble of a container, if there is a new one.
    pub(super) fn tell_trouble(&mut self, number: u64, trouble: Option<String>) {
        let id = self
            .containers
            .get(&number)
            .map(|container| container.id().to_owned());
        if let (Some(id), Some(trouble)) = (id, trouble) {
            self.tell(&id, Fact::Problem(trouble));
        }
    }

    /// Passes output on to whoever is attached; a client that reads too slowly is dropped with a word.
    pub(super) fn pass_on(&mut self, number: u64, stream: OutputStream, bytes: &[u8]) {
        let mut inputs_left = 0;
        for client in self.clients.values_mut() {
            let Role::Attached(attached) = &client.role else {
                continue;
            };
            if attached.container != number || !attached.hears(stream) {
                continue;
            }
            let with_input = attached.stdin;
            client.data(stream, bytes);
            if client.waiting() > MAX_WAITING {
                client.finish(&too_slow("output"), now_ms());
                inputs_left += usize::from(with_input);
            }
        }
        (0..inputs_left).for_each(|_| self.attached_left(number));
    }

    /// Tells those who wait for a container's end, or are attached to it, that this is it.
    pub(super) fn tell_end(&mut self, number: u64) {
        let Some(container) = self.containers.get(&number) else {
            return;
        };
        let ended = match container.phase() {
            Phase::Exited => Reply::Container(Box::new(container.status())),
            Phase::Creating
            | Phase::Created
            | Phase::Starting
            | Phase::Running
            | Phase::Deleting => {
                let message = format!("container {} is removed", container.id());
                Reply::Refused(Refusal {
                    kind: RefusalKind::NotFound,
                    message,
                })
            }
        };
        for client in self.clients.values_mut() {
            let concerned = match &client.role {
                Role::Waiting(waited) => *waited == number,
                Role::Attached(attached) => attached.container == number,
                Role::Fresh
                | Role::Asking
                | Role::Subscribed
                | Role::Running(_)
                | Role::Leaving => false,
            };
            if concerned {
                client.finish(&ended, now_ms());
            }
        }
    }
}

impl Attached {
    fn hears(&self, stream: OutputStream) -> bool {
        match stream {
            OutputStream::Stdout => self.stdout,
            OutputStream::Stderr => self.stderr,
        }
    }
}

fn too_slow(what: &str) -> Reply {
    let message = format!("{what} of more than {MAX_WAITING} bytes waited to be read: dropped");
    Reply::Refused(Refusal {
        kind: RefusalKind::Full,
        message,
    })
}
