//! Spawns the state area: events, checkpoints, user namespaces, statuses.

use std::path::PathBuf;

use kernel::{Addr, ChildSpec, Intensity, Port, Strategy, Supervisor, mailbox};

use crate::assignments::Assignments;
use crate::checkpoints::{self, CheckpointManager};
use crate::events::{self, EventBroadcaster, EventSink, Recorder};
use crate::placement_files::{self, PlacementFiles};
use crate::status::{self, StatusManager};
use crate::user_namespaces::{self, UserNamespaceManager};

/// The addresses of the state area's actors.
#[derive(Debug, Clone)]
pub struct StateAddrs {
    pub events: Addr<events::Msg>,
    pub checkpoints: Addr<checkpoints::Msg>,
    pub placement_files: Addr<placement_files::Msg>,
    pub users: Addr<user_namespaces::Msg>,
    pub statuses: Addr<status::Msg>,
}

impl StateAddrs {
    /// A recorder of events.
    pub fn recorder(&self) -> Recorder {
        Recorder::new(self.events.clone())
    }
}

/// The mailboxes' other ends.
#[derive(Debug)]
pub struct StatePorts {
    events: Port<events::Msg>,
    checkpoints: Port<checkpoints::Msg>,
    placement_files: Port<placement_files::Msg>,
    users: Port<user_namespaces::Msg>,
    statuses: Port<status::Msg>,
}

/// The area's section of the settings.
#[derive(Debug, Clone)]
pub struct StateSettings {
    /// The checkpoint file of the pods' records.
    pub checkpoint: PathBuf,
    /// Upstream's `/var/lib/kubelet`.
    pub root_dir: PathBuf,
    pub users: user_namespaces::Policy,
    /// What pods have to themselves, as the last life or a kubelet left it.
    pub assignments: Assignments,
}

/// What the area sends to; the status manager's peers name the pod manager and the API server.
#[derive(Debug)]
pub struct StatePeers {
    /// Sends events to the API server; none on a standalone node.
    pub events: Option<EventSink>,
    pub statuses: status::Peers,
}

/// The area's mailboxes, so that other areas may be told before its actors run.
pub fn mailboxes() -> (StateAddrs, StatePorts) {
    let (events, events_port) = mailbox(events::MAILBOX);
    let (checkpoints, checkpoints_port) = mailbox(checkpoints::MAILBOX);
    let (placement_files, placement_files_port) = mailbox(placement_files::MAILBOX);
    let (users, users_port) = mailbox(user_namespaces::MAILBOX);
    let (statuses, statuses_port) = mailbox(status::MAILBOX);
    let addrs = StateAddrs {
        events,
        checkpoints,
        placement_files,
        users,
        statuses,
    };
    let ports = StatePorts {
        events: events_port,
        checkpoints: checkpoints_port,
        placement_files: placement_files_port,
        users: users_port,
        statuses: statuses_port,
    };
    (addrs, ports)
}

/// Spawns the area's actors.
pub fn spawn(root: &Supervisor, ports: StatePorts, settings: StateSettings, peers: StatePeers) {
    let group = root.supervisor("state", Strategy::OneForOne, Intensity::MANAGERS);
    let (sink, statuses) = (peers.events, peers.statuses);
    group.spawn(ChildSpec::permanent("events"), ports.events, move || {
        EventBroadcaster::new(sink.clone())
    });
    let (folder, assignments) = (settings.root_dir.clone(), settings.assignments);
    group.spawn(
        ChildSpec::permanent("placement-files"),
        ports.placement_files,
        move || PlacementFiles::new(folder.clone(), assignments.clone()),
    );
    let (file, root_dir) = (settings.checkpoint, settings.root_dir);
    group.spawn(
        ChildSpec::permanent("checkpoints"),
        ports.checkpoints,
        move || CheckpointManager::new(file.clone(), &root_dir),
    );
    let policy = settings.users;
    group.spawn(ChildSpec::permanent("users"), ports.users, move || {
        UserNamespaceManager::new(policy.clone())
    });
    group.spawn(ChildSpec::permanent("status"), ports.statuses, move || {
        StatusManager::new(statuses.clone())
    });
}
