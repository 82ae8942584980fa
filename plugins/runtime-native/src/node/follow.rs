//! Monitors followed: what they tell of their containers is taken over; one that died gets a successor.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use monitor::{ContainerStatus, End, Event, Exit, Fact, Monitor, PodStatus};
use proto::cri::ContainerEventType;
use tokio::time::{Instant, timeout};

use super::Node;
use crate::clock;
use crate::error::CallError;
use crate::record::{ContainerPhase, ContainerRecord, ExitRecord, SandboxPhase};

/// Pauses before a monitor is started again: the first is short because its containers are without a parent.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause before a monitor is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long a monitor may be silent until it is asked whether it is there: one that hangs reports no exits.
const MAX_SILENCE: Duration = Duration::from_secs(120);
/// CRI's code of a container of whose end nothing is known; containerd's.
const UNKNOWN_CODE: i32 = 255;

impl Node {
    /// Follows the sandbox's monitor from now on, unless a task does already.
    pub(crate) fn follow(self: &Arc<Node>, sandbox: &str) {
        let mut state = self.state();
        if !state.followed(sandbox) {
            let task = tokio::spawn(follow(Arc::downgrade(self), sandbox.to_owned()));
            state.set_follower(sandbox, task.abort_handle());
        }
    }

    /// Takes over what a monitor knows of all its containers. `known` are those that were made before it was asked:
    /// of them, one that the monitor doesn't have is lost.
    async fn reconcile(&self, known: &BTreeSet<String>, status: PodStatus) {
        let mut lost = known.clone();
        for container in status.containers {
            lost.remove(&container.container);
            self.take_status(&container).await;
        }
        for id in lost {
            // Nobody is the parent of what may run of it.
            if let Err(error) = self.end_processes(&id).await {
                let error = sdk::error_chain(&error);
                tracing::error!(container = id, error, "its monitor has lost it");
            }
            let why = "the monitor has no record of it".to_owned();
            let end = ended_unknown(why);
            self.end(&id, 0, end).await;
        }
    }

    /// Ends what a monitor runs and no record knows: the record was lost, or its removal was broken off.
    pub(super) async fn end_strangers(&self, monitor: &Monitor, status: &PodStatus) {
        for container in &status.containers {
            let id = &container.container;
            let is_known = {
                let state = self.state();
                state.any_container(id).is_some() || state.any_sandbox(id).is_some()
            };
            if is_known {
                continue;
            }
            tracing::error!(container = id, "a container without a record is ended");
            let ended = async {
                self.kill_at(monitor, id).await?;
                Ok::<_, CallError>(monitor.delete(id).await?)
            };
            if let Err(error) = ended.await {
                let error = sdk::error_chain(&error);
                tracing::error!(
                    container = id,
                    error,
                    "a container without a record stays for now"
                );
            }
        }
    }

    /// Takes over what a monitor says of one container.
    pub(crate) async fn take_status(&self, status: &ContainerStatus) {
        let id = &status.container;
        if status.end.is_some() {
            self.pause_ended(id).await;
        }
        if status.started_at > 0 {
            self.started(id, status.pid, status.started_at).await;
        }
        if let Some(end) = &status.end {
            self.end(id, status.started_at, exit_record(end)).await;
        }
    }

    async fn take_event(&self, monitor: &Monitor, event: Event) {
        let id = event.container;
        match event.fact {
            // The time of the start is the one on the monitor's record: a successor of this process reads the same.
            Fact::Started { .. } => {
                let status = monitor.status().await.unwrap_or_default();
                let mut containers = status.containers.iter();
                if let Some(container) = containers.find(|status| status.container == id) {
                    self.take_status(container).await;
                }
            }
            Fact::Exited(end) => {
                self.pause_ended(&id).await;
                self.end(&id, 0, exit_record(&end)).await;
            }
            Fact::Problem(problem) => {
                tracing::warn!(
                    container = id,
                    problem,
                    "something of a container does not work"
                );
            }
            Fact::Created { .. } | Fact::Deleted => {}
        }
    }

    /// A sandbox whose own process has ended is ready no more: its PID namespace is gone. Any other id means nothing here.
    async fn pause_ended(&self, id: &str) {
        let record = self.state().any_sandbox(id);
        let ready = record.filter(|record| record.phase == SandboxPhase::Ready);
        let Some(mut record) = ready else { return };
        record.phase = SandboxPhase::NotReady;
        if let Err(error) = self.keep_sandbox(record).await {
            let error = sdk::error_chain(&error);
            tracing::error!(sandbox = id, error, "a lost sandbox cannot be recorded");
        }
        self.tell(id, id, ContainerEventType::ContainerStoppedEvent);
    }

    /// Notes a start, and tells of it once.
    async fn started(&self, id: &str, pid: Option<i32>, at: i64) {
        let told = {
            let mut state = self.state();
            let entry = state
                .container_mut(id)
                .filter(|entry| entry.record.phase == ContainerPhase::Made);
            let Some(entry) = entry else { return };
            entry.pid = pid.or(entry.pid);
            let first = entry.record.started == 0;
            entry.record.started = at.max(entry.record.created);
            first.then(|| (entry.record.sandbox.clone(), entry.record.started))
        };
        let Some((sandbox, started)) = told else {
            return;
        };
        self.tell(&sandbox, id, ContainerEventType::ContainerStartedEvent);
        // A successor shows it as running before its monitor has answered.
        let (store, container) = (self.container_records.clone(), id.to_owned());
        let noted = self.blocking("noting a container's start", move || {
            Ok(store.note_start(&container, started)?)
        });
        if let Err(error) = noted.await {
            let error = sdk::error_chain(&error);
            tracing::warn!(container = id, error, "a start cannot be noted");
        }
    }

    /// Notes an end: on disk, then for all who ask, then to those who wait.
    ///
    /// A disk that refuses the record does not hide the end: the monitor keeps it until the container is removed. Several
    /// may know of one end, the call that stops a pod and the task that follows its monitor: the first one notes it.
    pub(crate) async fn end(&self, id: &str, started: i64, exit: ExitRecord) {
        let alone = self.lock(&record_of(id)).await;
        let record = {
            let mut state = self.state();
            let entry = state
                .container_mut(id)
                .filter(|entry| entry.record.phase == ContainerPhase::Made);
            entry.map(|entry| (ended(&entry.record, started, exit), entry.in_removal))
        };
        let Some((record, in_removal)) = record else {
            return;
        };
        // A record that is removed right now is not to come back.
        let written = match &alone {
            Ok(_) if !in_removal => self.write_container(record.clone()).await,
            Ok(_) | Err(_) => Ok(()),
        };
        if let Some(error) = written.as_ref().err().or(alone.as_ref().err()) {
            tracing::error!(container = id, error = %sdk::error_chain(error), "an exit cannot be recorded");
        }
        let sandbox = record.sandbox.clone();
        {
            let mut state = self.state();
            let entry = state
                .container_mut(id)
                .filter(|entry| entry.record.phase == ContainerPhase::Made);
            let Some(entry) = entry else { return };
            entry.record = record;
            entry.pid = None;
        }
        self.tell(&sandbox, id, ContainerEventType::ContainerStoppedEvent);
        if let Some(entry) = self.state().container_mut(id) {
            entry.ended.send_replace(true);
        }
    }
}

/// The lock on a container's record on the disk. It is held for writing and removing alone, never while a monitor is asked.
pub(crate) fn record_of(id: &str) -> String {
    format!("record of {id}")
}

fn ended(record: &ContainerRecord, started: i64, mut exit: ExitRecord) -> ContainerRecord {
    let mut record = record.clone();
    if record.started == 0 && started > 0 {
        record.started = started.max(record.created);
    }
    exit.finished = exit.finished.max(record.started).max(record.created + 1);
    record.phase = ContainerPhase::Exited(exit);
    record
}

/// Returns an end of which nothing is known but this.
pub(crate) fn ended_unknown(why: String) -> ExitRecord {
    ExitRecord {
        code: UNKNOWN_CODE,
        reason: "Unknown".to_owned(),
        message: why,
        finished: clock::now(),
    }
}

fn exit_record(end: &End) -> ExitRecord {
    let (code, reason, message) = match (&end.exit, end.exit.code()) {
        (Exit::Unknown(why), _) => (UNKNOWN_CODE, "Unknown", why.clone()),
        (_, Some(0)) => (0, "Completed", String::new()),
        (_, Some(code)) if end.oom_killed => (code, "OOMKilled", String::new()),
        (_, code) => (code.unwrap_or(UNKNOWN_CODE), "Error", String::new()),
    };
    ExitRecord {
        code,
        reason: reason.to_owned(),
        message,
        finished: end.finished_at,
    }
}

/// Follows one monitor after the other until the node is gone or the sandbox has none any more.
async fn follow(node: Weak<Node>, sandbox: String) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(alive) = node.upgrade() else { return };
        let Ok(record) = alive.sandbox(&sandbox) else {
            return;
        };
        match alive.launch(&record).await {
            Ok(monitor) => {
                drop(alive);
                let began = Instant::now();
                let is_served = listen(&node, &sandbox, &monitor).await;
                // One that ends again and again, by whatever the pod does, is started less and less often.
                if is_served && began.elapsed() >= LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
            }
            Err(error) => {
                let error = sdk::error_chain(&error);
                tracing::warn!(sandbox, error, "a sandbox is without its monitor");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Takes over what a monitor knows and tells, until it is gone; returns whether it told anything.
async fn listen(node: &Weak<Node>, sandbox: &str, monitor: &Monitor) -> bool {
    let Some(alive) = node.upgrade() else {
        return false;
    };
    let known = {
        let state = alive.state();
        let records = state.records_of(sandbox).into_iter();
        let made = records
            .filter(|record| record.phase == ContainerPhase::Made && record.not_made.is_none());
        made.map(|record| record.id).collect()
    };
    let Ok((status, mut events)) = monitor.events().await else {
        return false;
    };
    alive.reconcile(&known, status).await;
    drop(alive);
    loop {
        match timeout(MAX_SILENCE, events.next()).await {
            Ok(Ok(event)) => {
                let Some(alive) = node.upgrade() else {
                    return false;
                };
                alive.take_event(monitor, event).await;
            }
            Ok(Err(_)) => return true,
            // Nothing happened, or it hangs: whoever launches it next finds out.
            Err(_) => match monitor.status().await {
                Ok(_) => {}
                Err(_) => return true,
            },
        }
    }
}
