//! Containers of which nothing but the id is known, since their records are damaged.
//!
//! Nobody could say what one of them is, so it must not run on: what is in its groups is killed, it has ended with an
//! unknown code, and its folder stays as it is until it is deleted. The others know nothing of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use monitor::{ContainerStatus, End, Exit, Fact, Phase, RefusalKind, Reply, Request};

use super::Pod;
use crate::cgroup::{GroupKill, find_groups};
use crate::clock::{now_ms, wall};

/// How long until processes are killed again that were still there.
const RETRY_KILL_MS: u64 = 100;
/// How often they are killed by itself; a removal tries again.
const MAX_ROUNDS: u32 = 100;

/// The containers that are set aside, by id.
pub(super) type LostContainers = BTreeMap<String, Lost>;

/// A container that is set aside.
#[derive(Debug)]
pub(super) struct Lost {
    folder: PathBuf,
    kill: GroupKill,
    pub(super) status: ContainerStatus,
    /// When its processes are looked at again; none once there are none.
    pub(super) retry: Option<u64>,
    rounds: u32,
}

impl Lost {
    /// Kills its processes; says so as long as there are some.
    fn kill(&mut self, why: &str) {
        self.rounds += 1;
        let found = self.kill.round();
        self.retry = (found > 0 && self.rounds < MAX_ROUNDS).then(|| now_ms() + RETRY_KILL_MS);
        self.status.problems = vec![why.to_owned()];
        if found > 0 {
            let left = format!("{found} processes were in its groups when they were last killed");
            self.status.problems.push(left);
        }
    }

    fn why(&self) -> String {
        self.status.problems.first().cloned().unwrap_or_default()
    }
}

impl Pod {
    /// Sets a container's folder aside and kills what runs in the container.
    pub(super) fn set_aside(&mut self, folder: PathBuf, why: &str) {
        let Some(id) = folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
        else {
            return;
        };
        let end = End {
            exit: Exit::Unknown(why.to_owned()),
            oom_killed: false,
            finished_at: wall(),
            recorded: true,
        };
        let mut lost = Lost {
            folder,
            kill: GroupKill::new(find_groups(&id)),
            status: ContainerStatus {
                container: id.clone(),
                phase: Phase::Exited,
                pid: None,
                created_at: 0,
                started_at: 0,
                end: Some(end),
                oom_killed: false,
                problems: Vec::new(),
            },
            retry: None,
            rounds: 0,
        };
        lost.kill(why);
        self.lost.insert(id, lost);
    }

    /// Kills again what was not gone.
    pub(super) fn kill_lost(&mut self, now: u64) {
        for lost in self.lost.values_mut() {
            if lost.retry.is_some_and(|retry| retry <= now) {
                let why = lost.why();
                lost.kill(&why);
            }
        }
    }

    /// Answers a request about a container that was set aside; returns the request if it is about no such one.
    pub(super) fn about_lost(&mut self, client: u64, request: Request) -> Option<Request> {
        let Some(id) = request.container().filter(|id| self.lost.contains_key(*id)) else {
            return Some(request);
        };
        let id = id.to_owned();
        match request {
            Request::Delete { .. } => self.delete_lost(client, &id),
            Request::Kill { .. } => self.answer(client, &Reply::Done),
            Request::Processes { .. } => self.answer(client, &Reply::Processes(Vec::new())),
            Request::Wait { .. } => {
                if let Some(lost) = self.lost.get(&id) {
                    let reply = Reply::Container(Box::new(lost.status.clone()));
                    self.answer(client, &reply);
                }
            }
            Request::Create(_) => {
                let message = format!("container {id} is there already, and its record is damaged");
                self.refuse(client, RefusalKind::AlreadyExists, message);
            }
            Request::Start { .. }
            | Request::Exec(_)
            | Request::Attach(_)
            | Request::Resize { .. }
            | Request::ReopenLog { .. }
            | Request::CloseStdin { .. }
            | Request::Update { .. }
            | Request::Checkpoint { .. }
            | Request::Status
            | Request::Events
            | Request::Shutdown => {
                let message = format!("container {id} was ended, since its record is damaged");
                self.refuse(client, RefusalKind::WrongPhase, message);
            }
        }
        None
    }

    /// Removes what is left of a container that was set aside; not while a process is in its groups.
    fn delete_lost(&mut self, client: u64, id: &str) {
        let Some(lost) = self.lost.get_mut(id) else {
            return;
        };
        let found = lost.kill.round();
        if found > 0 {
            let message = format!("{found} processes of container {id} were there, and killed");
            return self.refuse(client, RefusalKind::System, message);
        }
        if let Err(error) = files::remove_tree(&lost.folder) {
            let message = format!("cannot remove {}: {error}", lost.folder.display());
            return self.refuse(client, RefusalKind::System, message);
        }
        let groups = lost.kill.groups().to_vec();
        self.lost.remove(id);
        self.remove_groups(&groups);
        self.tell(id, Fact::Deleted);
        self.answer(client, &Reply::Done);
    }
}
