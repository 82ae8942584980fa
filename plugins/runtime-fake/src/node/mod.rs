//! The simulated node: one state, one journal, one timer.
//!
//! Calls change it through the methods of [`SimulatedNode`], under one lock that is never held over a wait.
//! **Invariant:** a change is in the journal before it is in the state, and in the state before the
//! call is answered. Steps of a program are the exception: they happen, then they are recorded, so
//! a crash in between may write a log line twice.

mod attach;
mod checkpoint;
mod containers;
mod error;
mod exec;
mod images;
pub(crate) mod metrics;
mod sandboxes;
pub(crate) mod stats;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

pub(crate) use attach::AttachedClient;
use cri_server::{LogWriter, OutputStream};
pub(crate) use error::CriError;
pub(crate) use exec::ExecCommand;
use proto::cri::{ContainerEventResponse, ContainerEventType};
use tokio::sync::{Notify, broadcast, oneshot};

use crate::clock::Clock;
use crate::program::environment::ProgramEnvironment;
use crate::program::interpreter::{ProgramExit, ProgramProgress};
use crate::settings::FakeSettings;
use crate::state::convert;
use crate::state::journal::{JournalError, Recovery, StateJournal};
use crate::state::{ContainerPhase, FakeContainer, FakeState, ImageRecord, JournalRecord, Seq};

/// A subscriber that falls further behind than this loses its stream, so that memory stays bounded.
/// A node may end two containers of each of a thousand pods at once.
const EVENTS: usize = 4096;

/// How long a change waits that could not be recorded.
const RETRY: i64 = 1_000_000_000;

/// Wakes the task that carries programs on when the first of them is due earlier than it knew.
pub(crate) type WakeSignal = Arc<Notify>;

/// The simulated node: its persistent state, and the programs of its containers.
#[derive(Debug)]
pub(crate) struct SimulatedNode {
    pub(crate) state: FakeState,
    pub(crate) clock: Clock,
    settings: FakeSettings,
    journal: StateJournal,
    events: broadcast::Sender<Arc<ContainerEventResponse>>,
    due: BTreeSet<(i64, Seq)>,
    wake: WakeSignal,
    /// Calls that wait for the end of a container.
    waiting: BTreeMap<Seq, Vec<oneshot::Sender<()>>>,
    logs: BTreeMap<Seq, LogWriter>,
    /// Clients that see a container's output.
    attached: BTreeMap<Seq, broadcast::Sender<attach::OutputLine>>,
}

impl SimulatedNode {
    /// Opens the node that a folder holds, or makes a new one.
    pub(crate) fn open(
        dir: &Path,
        settings: FakeSettings,
        clock: Clock,
    ) -> Result<(SimulatedNode, Recovery), JournalError> {
        let (journal, state, recovery) = StateJournal::open(dir)?;
        let clock = clock.not_before(state.latest);
        let mut node = SimulatedNode {
            state,
            clock,
            settings,
            journal,
            events: broadcast::Sender::new(EVENTS),
            due: BTreeSet::new(),
            wake: WakeSignal::default(),
            waiting: BTreeMap::new(),
            logs: BTreeMap::new(),
            attached: BTreeMap::new(),
        };
        if node.state.salt == 0 {
            let salt = clock.now().unsigned_abs().max(1);
            node.commit(JournalRecord::Born { salt })?;
        }
        for setting in node.settings.images.clone() {
            let image = ImageRecord::given(&setting, true);
            if !node.state.images.knows(&image.id) {
                node.commit(JournalRecord::Image(image))?;
            }
        }
        let now = clock.now();
        let containers: Vec<Seq> = node.state.containers.keys().copied().collect();
        containers.into_iter().for_each(|seq| node.turn(seq, now));
        Ok((node, recovery))
    }

    pub(crate) fn wake(&self) -> WakeSignal {
        self.wake.clone()
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<ContainerEventResponse>> {
        self.events.subscribe()
    }

    /// Records a change and makes it.
    fn commit(&mut self, record: JournalRecord) -> Result<(), JournalError> {
        self.journal.append(&record)?;
        self.state.apply(record);
        if self.journal.is_mostly_history()
            && let Err(error) = self.journal.compact(&self.state)
        {
            tracing::warn!(%error, "the journal cannot be compacted and grows on");
        }
        Ok(())
    }

    /// Returns the time at which something is made, later than every time that was recorded: no two
    /// attempts are of one age, which under a paused clock they else would be.
    fn stamp(&self) -> i64 {
        self.clock.now().max(self.state.latest.saturating_add(1))
    }

    /// Carries on every program that is due.
    pub(crate) fn catch_up(&mut self) {
        let now = self.clock.now();
        // One slice each: a program that never waits must not starve the others.
        let due: Vec<Seq> = self
            .due
            .range(..=(now, Seq::MAX))
            .map(|(_, seq)| *seq)
            .collect();
        due.into_iter().for_each(|seq| self.turn(seq, now));
    }

    /// Returns when the next program is due.
    pub(crate) fn next_due(&self) -> Option<i64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Carries on one container's program as far as it is due, and records how far it came.
    fn turn(&mut self, seq: Seq, now: i64) {
        let Some(container) = self.state.containers.get_mut(&seq) else {
            return;
        };
        let FakeContainer {
            record, program, ..
        } = container;
        let ContainerPhase::Running { machine, .. } = &mut record.phase else {
            return;
        };
        let (logs, path) = (&mut self.logs, &record.log);
        let attached = self.attached.get(&seq);
        let mut write = |at: i64, stream: OutputStream, text: &str| {
            if let Some(to) = attached {
                // The last attached client has gone; the line is in the log.
                drop(to.send((stream, text.into())));
            }
            if let Err(error) = write_log(logs, seq, path, at, stream, text) {
                tracing::warn!(log = %path, %error, "cannot write container log");
            }
        };
        let mut environment =
            ProgramEnvironment::inside(&mut record.files, &record.config, &mut write);
        let progress = machine.advance(program, now, &mut environment);
        let changed = environment.changed;
        match progress {
            ProgramProgress::Ended(end) => self.end(seq, end),
            ProgramProgress::Waits(at) => self.await_turn(seq, Some(at)),
            ProgramProgress::Forever => self.await_turn(seq, None),
        }
        if changed && let Err(error) = self.record_progress(seq) {
            tracing::error!(%error, "progress of a container cannot be recorded");
        }
    }

    /// Writes down where a running container is. Its steps have been made: there is no way back.
    fn record_progress(&mut self, seq: Seq) -> Result<(), JournalError> {
        let Some(container) = self
            .state
            .containers
            .get(&seq)
            .filter(|container| container.running())
        else {
            return Ok(());
        };
        let phase = container.record.phase.clone();
        let files = container.record.files.clone();
        self.commit(JournalRecord::Phase {
            seq,
            at: self.state.latest,
            phase,
        })?;
        if !files.is_empty() {
            self.commit(JournalRecord::Files { seq, files })?;
        }
        Ok(())
    }

    fn await_turn(&mut self, seq: Seq, at: Option<i64>) {
        let Some(container) = self.state.containers.get_mut(&seq) else {
            return;
        };
        if container.due == at {
            return;
        }
        if let Some(old) = std::mem::replace(&mut container.due, at) {
            self.due.remove(&(old, seq));
        }
        if let Some(at) = at {
            self.due.insert((at, seq));
            if self.due.first() == Some(&(at, seq)) {
                self.wake.notify_one();
            }
        }
    }

    /// Records the end of a container; wakes its waiters and sends the event.
    fn end(&mut self, seq: Seq, end: ProgramExit) {
        let Some(container) = self.state.containers.get(&seq) else {
            return;
        };
        let ContainerPhase::Running { started, .. } = container.record.phase else {
            return;
        };
        let ruled = container
            .program
            .behavior
            .as_ref()
            .and_then(|behavior| behavior.exit_reason.clone())
            .filter(|_| end.own);
        let reason = ruled.unwrap_or_else(|| {
            if end.code == 0 {
                "Completed".into()
            } else {
                "Error".into()
            }
        });
        let phase = ContainerPhase::Exited {
            started,
            finished: end.at,
            code: end.code,
            reason,
            message: "".into(),
        };
        if let Err(error) = self.commit(JournalRecord::Phase {
            seq,
            at: end.at,
            phase,
        }) {
            tracing::error!(%error, "the end of a container cannot be recorded");
            return self.await_turn(seq, Some(self.clock.now().saturating_add(RETRY)));
        }
        self.ended(seq);
    }

    /// Clears up behind a container that does not run any more.
    fn ended(&mut self, seq: Seq) {
        self.await_turn(seq, None);
        self.logs.remove(&seq);
        self.attached.remove(&seq);
        let waiting = self.waiting.remove(&seq).unwrap_or_default();
        // A caller that has gone away is no loss.
        waiting
            .into_iter()
            .for_each(|waiter| waiter.send(()).unwrap_or_default());
        let sandbox = self
            .state
            .containers
            .get(&seq)
            .map(|container| container.record.sandbox);
        self.tell(seq, sandbox, ContainerEventType::ContainerStoppedEvent);
    }

    /// Returns what resolves when the container has ended, or at once if it does not run.
    pub(crate) fn ending(&mut self, seq: Seq) -> oneshot::Receiver<()> {
        let (send, receive) = oneshot::channel();
        if self
            .state
            .containers
            .get(&seq)
            .is_some_and(FakeContainer::running)
        {
            let waiting = self.waiting.entry(seq).or_default();
            waiting.retain(|waiter| !waiter.is_closed());
            waiting.push(send);
        }
        receive
    }

    /// Tells subscribers what happened to a container or sandbox.
    fn tell(&self, seq: Seq, sandbox: Option<Seq>, what: ContainerEventType) {
        if self.events.receiver_count() == 0 {
            return;
        }
        let sandbox = sandbox.and_then(|sandbox| self.state.sandboxes.get(&sandbox));
        let event = ContainerEventResponse {
            container_id: self.state.id(seq),
            container_event_type: what.into(),
            created_at: self.clock.now(),
            pod_sandbox_status: sandbox
                .map(|sandbox| convert::sandbox_status(&self.state, sandbox)),
            containers_statuses: sandbox
                .map(|sandbox| convert::pod_statuses(&self.state, sandbox))
                .unwrap_or_default(),
        };
        // The last subscriber has gone since the count was read.
        drop(self.events.send(Arc::new(event)));
    }
}

fn write_log(
    logs: &mut BTreeMap<Seq, LogWriter>,
    seq: Seq,
    path: &str,
    at: i64,
    stream: OutputStream,
    text: &str,
) -> std::io::Result<()> {
    if path.is_empty() {
        return Ok(());
    }
    let log = match logs.entry(seq) {
        std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
        std::collections::btree_map::Entry::Vacant(closed) => {
            closed.insert(LogWriter::open(Path::new(path))?)
        }
    };
    log.write(at, stream, text)
}

#[cfg(test)]
mod tests {
    use proto::cri::*;

    use super::*;

    fn pod(name: &str) -> RunPodSandboxRequest {
        let metadata = PodSandboxMetadata {
            name: name.into(),
            namespace: "default".into(),
            uid: "u".into(),
            attempt: 0,
        };
        let config = PodSandboxConfig {
            metadata: Some(metadata),
            ..Default::default()
        };
        RunPodSandboxRequest {
            config: Some(config),
            ..Default::default()
        }
    }

    fn container(sandbox: &str, name: &str, command: &[&str]) -> CreateContainerRequest {
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: name.into(),
                attempt: 0,
            }),
            image: Some(ImageSpec {
                image: "localhost/pause".into(),
                ..Default::default()
            }),
            command: command.iter().map(ToString::to_string).collect(),
            ..Default::default()
        };
        CreateContainerRequest {
            pod_sandbox_id: sandbox.into(),
            config: Some(config),
            sandbox_config: None,
        }
    }

    fn open(dir: &Path, clock: Clock) -> SimulatedNode {
        SimulatedNode::open(dir, FakeSettings::default(), clock)
            .unwrap()
            .0
    }

    #[tokio::test(start_paused = true)]
    async fn a_compacted_journal_holds_every_kind_of_fact() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::start();
        let mut node = open(dir.path(), clock);
        let (a, b) = (
            node.run_sandbox(pod("a")).unwrap(),
            node.run_sandbox(pod("b")).unwrap(),
        );
        node.run_sandbox(pod("gone"))
            .map(|id| node.remove_sandbox(&id))
            .unwrap()
            .unwrap();
        let server = node.create(container(&a, "server", &["server"])).unwrap();
        let ended = node.create(container(&a, "ended", &["exit", "3"])).unwrap();
        let deaf = node
            .create(container(
                &a,
                "deaf",
                &["sh", "-c", "trap '' TERM; sleep 9"],
            ))
            .unwrap();
        node.create(container(&b, "waiting", &[])).unwrap();
        [&server, &ended, &deaf]
            .into_iter()
            .for_each(|id| node.start(id).unwrap());
        let cmd = vec!["touch".into(), "/tmp/x".into()];
        node.exec(&ExecSyncRequest {
            container_id: server,
            cmd,
            timeout: 0,
        })
        .unwrap();
        node.stop_sandbox(&b).unwrap();
        node.pulled("localhost/pulled:1").unwrap();
        node.remove_image("localhost/busybox").unwrap();

        let before: Vec<JournalRecord> = node.state.records().collect();
        drop(node);
        let mut node = open(dir.path(), clock);
        assert_eq!(node.state.records().collect::<Vec<_>>(), before);
        node.journal.compact(&node.state).unwrap();
        drop(node);
        let node = open(dir.path(), clock);
        assert_eq!(node.state.records().collect::<Vec<_>>(), before);
        assert!(node.next_due().is_some());
    }
}
