//! A container's life: created, started, ended, removed. Intents are on disk before deeds, outcomes before words.

use std::path::Path;

use monitor::{
    Create, End, Exit, Fact, Input, Phase, ProcessIdentity, Refusal, RefusalKind, Reply,
};

use super::calls::Purpose;
use super::{MAX_CONTAINERS, Pod};
use crate::call::remove_quietly;
use crate::cgroup;
use crate::clock::wall;
use crate::container::{Container, Part, read_pid};
use crate::direct;
use crate::log::OutputStream;
use crate::record::{Record, make_folder};
use crate::streams::{Channel, Read};

/// The most that is read of a container's outputs at its end, in bytes: all that a pipe holds of each, many times.
/// What others who hold them write later is read as before.
const LAST_BYTES: usize = 1 << 20;

impl Pod {
    pub(super) fn create(&mut self, client: u64, create: Create) {
        if let Err(refusal) = self.may_create(&create) {
            return self.answer(client, &Reply::Refused(refusal));
        }
        let folder = self.folder.join("containers").join(&create.container);
        let number = self.number();
        let mut container = Container::of(folder.clone(), Record::new(create));
        container.busy = true;
        let pid_file = container.file("pid", number);
        let begun = make_folder(&folder)
            .and_then(|()| container.make_streams(self.folder.join(format!("c{number}"))))
            .and_then(|inherited| container.intend(Phase::Creating).map(|()| inherited));
        let inherited = match begun {
            Ok(inherited) => inherited,
            Err(error) => {
                let cleaned = files::remove_tree(&folder)
                    .err()
                    .map(|error| format!("; and not cleaned: {error}"));
                let message = format!(
                    "container {}: {error}{}",
                    container.id(),
                    cleaned.unwrap_or_default()
                );
                return self.refuse(client, RefusalKind::System, message);
            }
        };
        let create = container.create().clone();
        self.containers.insert(number, container);
        let (bundle, pid_path) = (
            create.bundle.to_string_lossy(),
            pid_file.to_string_lossy().into_owned(),
        );
        let console = self
            .folder
            .join(format!("c{number}"))
            .to_string_lossy()
            .into_owned();
        let mut args = vec!["create", "--bundle", &bundle, "--pid-file", &pid_path];
        if create.terminal {
            args.extend(["--console-socket", &console]);
        }
        args.push(&create.container);
        let purpose = Purpose::Create {
            container: number,
            client,
            pid_file,
        };
        if let Err(error) = self.call(number, &args, Some(inherited), purpose) {
            self.discard(number, Some((client, system(&error))));
        }
    }

    fn may_create(&self, create: &Create) -> Result<(), Refusal> {
        let id = &create.container;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.+".contains(c);
        if id.is_empty() || id.len() > 128 || id.starts_with('.') || !id.chars().all(allowed) {
            return Err(refusal(
                RefusalKind::Invalid,
                format!("container id {id:?} is none"),
            ));
        }
        let paths = [
            &create.bundle,
            &create.handler.program,
            &create.handler.root,
        ];
        if let Some(path) = paths
            .into_iter()
            .chain(&create.log)
            .find(|path| !path.is_absolute())
        {
            return Err(refusal(
                RefusalKind::Invalid,
                format!("{} is not an absolute path", path.display()),
            ));
        }
        if self.find(id).is_some() {
            return Err(refusal(
                RefusalKind::AlreadyExists,
                format!("container {id} is there already"),
            ));
        }
        if self.containers.len() >= MAX_CONTAINERS {
            return Err(refusal(
                RefusalKind::Full,
                format!("the pod has {MAX_CONTAINERS} containers"),
            ));
        }
        Ok(())
    }

    pub(super) fn created(
        &mut self,
        number: u64,
        client: u64,
        pid_file: &Path,
        outcome: Result<String, Refusal>,
    ) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        let init = outcome.and_then(|_| read_pid(pid_file).map_err(|error| system(&error)));
        remove_quietly(pid_file);
        let taken = init.and_then(|pid| {
            container
                .streams
                .take_terminal()
                .map(|()| pid)
                .map_err(|error| system(&error))
        });
        let pid = match taken {
            Ok(pid) => pid,
            Err(refusal) => {
                // Whoever asks for the log of a container whose command cannot be run finds an empty one, as with
                // containerd. That it cannot be opened is no other reason.
                if refusal.kind == RefusalKind::Runtime {
                    drop(container.open_log());
                }
                return self.discard(number, Some((client, refusal)));
            }
        };
        let Some(init) = ProcessIdentity::of(pid) else {
            let gone = refusal(
                RefusalKind::Runtime,
                format!("its init {pid} ended at once"),
            );
            return self.discard(number, Some((client, gone)));
        };
        container.busy = false;
        container.record.phase = Phase::Created;
        container.record.process = Some(init);
        container.record.created_at = wall();
        container.record.oom_counter = cgroup::oom_counter(pid);
        let trouble = container.keep();
        let (id, status) = (container.id().to_owned(), container.status());
        self.tell_trouble(number, trouble);
        self.tell(&id, Fact::Created { pid });
        self.answer(client, &Reply::Container(Box::new(status)));
        if let Some(exit) = self.unclaimed.remove(&pid) {
            self.init_ended(number, exit);
        }
    }

    pub(super) fn start(&mut self, client: u64, number: u64) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        if container.busy || container.phase() != Phase::Created {
            return self.wrong_phase(client, number, "started");
        }
        // Not before: a container that never starts leaves no log, by which it would count as a restart.
        if let Err(error) = container.open_log() {
            let message = format!("container {}: {error}", container.id());
            return self.refuse(client, RefusalKind::System, message);
        }
        if let Err(error) = container.intend(Phase::Starting) {
            let message = format!(
                "record of container {} cannot be written, so it isn't started: {error}",
                container.id()
            );
            return self.refuse(client, RefusalKind::System, message);
        }
        container.busy = true;
        match direct::start(container.create()) {
            Ok(true) => return self.started(number, client, Ok(String::new())),
            Ok(false) => {}
            // Whether it was let go is looked up.
            Err(error) => return self.started(number, client, Err(system(&error))),
        }
        let id = container.id().to_owned();
        let purpose = Purpose::Start {
            container: number,
            client,
        };
        if let Err(error) = self.call(number, &["start", &id], None, purpose) {
            self.started(number, client, Err(system(&error)));
        }
    }

    pub(super) fn started(&mut self, number: u64, client: u64, outcome: Result<String, Refusal>) {
        match outcome {
            Ok(_) => {
                self.is_running(number);
                self.answer_status(client, number);
            }
            // Whether it runs nobody but the runtime knows.
            Err(refusal) => self.look(number, Some((client, refusal))),
        }
    }

    /// Asks the runtime what became of a start.
    pub(super) fn look(&mut self, number: u64, owed: Option<(u64, Refusal)>) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        container.busy = true;
        let id = container.id().to_owned();
        let purpose = Purpose::Look {
            container: number,
            owed: owed.clone(),
        };
        if let Err(error) = self.call(number, &["state", &id], None, purpose) {
            self.looked(number, owed, Err(system(&error)));
        }
    }

    pub(super) fn looked(
        &mut self,
        number: u64,
        owed: Option<(u64, Refusal)>,
        outcome: Result<String, Refusal>,
    ) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        let status = outcome.map(|text| oci_status(&text).unwrap_or_default());
        let trouble = match status.as_deref() {
            Ok("running" | "paused") => {
                self.is_running(number);
                // It was started, whatever the call said of itself.
                if let Some((client, _)) = owed {
                    self.answer_status(client, number);
                }
                return;
            }
            Ok("created") => {
                container.record.phase = Phase::Created;
                container.keep()
            }
            Ok(status) => container.trouble(
                Part::Start,
                &format!("the runtime says it is {status:?} after its start"),
            ),
            Err(refusal) => container.trouble(
                Part::Start,
                &format!("whether it runs is unknown: {}", refusal.message),
            ),
        };
        self.tell_trouble(number, trouble);
        self.no_longer_busy(number);
        if let Some((client, refusal)) = owed {
            self.answer(client, &Reply::Refused(refusal));
        }
    }

    fn is_running(&mut self, number: u64) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        container.record.phase = Phase::Running;
        container.record.started_at = wall();
        container.well(Part::Start);
        let trouble = container.keep();
        let (id, pid) = (container.id().to_owned(), container.pid().unwrap_or(0));
        self.tell_trouble(number, trouble);
        self.tell(&id, Fact::Started { pid });
        self.no_longer_busy(number);
    }

    /// A call that decided on the phase is over: an end that was seen meanwhile counts now.
    fn no_longer_busy(&mut self, number: u64) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        container.busy = false;
        if let Some(exit) = container.early.take() {
            self.init_ended(number, exit);
        }
    }

    /// A container's init has ended.
    pub(super) fn init_ended(&mut self, number: u64, exit: Exit) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        if container.busy {
            container.early = Some(exit);
            return;
        }
        self.take_last_output(number);
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        let log_trouble = container.flush_log();
        container.adopted = None;
        let end = End {
            exit,
            oom_killed: container.oom_killed(),
            finished_at: wall(),
            recorded: true,
        };
        container.record.phase = Phase::Exited;
        container.record.end = Some(end.clone());
        let trouble = container.keep();
        let recorded = container.retry.is_none();
        if let Some(end) = &mut container.record.end {
            end.recorded = recorded;
        }
        let id = container.id().to_owned();
        let counter = container.record.oom_counter.clone();
        self.tell_trouble(number, log_trouble);
        self.tell_trouble(number, trouble);
        self.tell(&id, Fact::Exited(End { recorded, ..end }));
        self.tell_end(number);
        // Its end is told first: nobody waits for this.
        if let Some(counter) = counter {
            self.remove_groups(&cgroup::groups_of(&counter, &id));
        }
    }

    /// Reads what the init wrote before it ended: all of it is in the pipes.
    pub(super) fn take_last_output(&mut self, number: u64) {
        let mut buffer = vec![0; super::READ_BYTES];
        let outputs = [OutputStream::Stdout, OutputStream::Stderr].map(Channel::Output);
        for channel in outputs.into_iter().chain([Channel::Terminal]) {
            let mut taken = 0;
            while taken < LAST_BYTES
                && let Read::Data(length) = self.take_output(number, channel, &mut buffer)
            {
                taken += length;
            }
        }
    }

    /// The init that a predecessor started has ended; its parent, which is not the monitor, has its exit code.
    pub(super) fn adopted_ended(&mut self, number: u64) {
        let why = "it ended after the monitor that had started it was dead";
        self.init_ended(number, Exit::Unknown(why.to_owned()));
        // While a call is on, the end is kept, and the descriptor has said all it can.
        if let Some(container) = self.containers.get_mut(&number) {
            container.adopted = None;
        }
    }

    /// Writes a record again that the disk refused.
    pub(super) fn keep_again(&mut self, number: u64) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        if let Some(end) = &mut container.record.end {
            end.recorded = true;
        }
        let trouble = container.keep();
        let recorded = container.retry.is_none();
        if let Some(end) = &mut container.record.end {
            end.recorded = recorded;
        }
        self.tell_trouble(number, trouble);
    }

    pub(super) fn killed(&mut self, number: u64, client: u64, outcome: Result<String, Refusal>) {
        let ended = self
            .containers
            .get(&number)
            .is_none_or(|container| !container.is_alive());
        let reply = match outcome {
            Err(refusal) if !ended => Reply::Refused(refusal),
            Ok(_) | Err(_) => Reply::Done,
        };
        self.answer(client, &reply);
    }

    /// The client with input has left: input that is for one client ends.
    pub(super) fn attached_left(&mut self, number: u64) {
        if let Some(container) = self.containers.get_mut(&number)
            && container.create().stdin == Input::Once
        {
            container.streams.end_input();
        }
    }
}

/// The `status` in an OCI state.
fn oci_status(text: &str) -> Option<String> {
    let state: serde_json::Value = serde_json::from_str(text).ok()?;
    Some(state.get("status")?.as_str()?.to_owned())
}

pub(super) fn refusal(kind: RefusalKind, message: String) -> Refusal {
    Refusal { kind, message }
}

pub(super) fn system(error: &std::io::Error) -> Refusal {
    refusal(RefusalKind::System, error.to_string())
}
