//! The history of a pod: what was done and why, when, and how often.

use std::collections::VecDeque;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use logic_api::types::{EventLevel, HistoryEvent};
use serde::{Deserialize, Serialize};
use state::events::{Event, EventType, InvolvedObject, Recorder};

/// Lines kept for each pod: the last hour of a crash loop, in less than 16 KiB.
const MAX_LINES: usize = 64;

/// The answer of `oxctl why POD`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// Namespace and name.
    pub pod: String,
    /// The worker's state.
    pub stage: String,
    /// The runtime that the pod is on; empty where none is declared.
    #[serde(default)]
    pub runtime: String,
    /// Of the pod's status; empty before there is one.
    pub phase: String,
    /// By container name: what it waits for, or what was done last.
    pub containers: Vec<(String, String)>,
    /// The oldest first.
    pub lines: Vec<HistoryLine>,
}

impl Explanation {
    /// The explanation of a pod that may not start yet.
    pub fn deferred(pod: String, why: String) -> Self {
        Explanation {
            pod,
            stage: format!("Deferred: {why}"),
            runtime: String::new(),
            phase: "Pending".to_owned(),
            containers: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// The explanation of a manifest that does not run, or not wholly: nothing of it has a worker.
    pub fn refused(manifest: String, problems: Vec<String>) -> Self {
        let now = kernel::timestamp();
        let lines = problems.into_iter().map(|message| HistoryLine {
            first: now,
            last: now,
            count: 1,
            why: HistoryEvent {
                object: None,
                weight: EventLevel::Warning,
                reason: "InvalidManifest".to_owned(),
                message,
            },
        });
        Explanation {
            pod: manifest,
            stage: "Refused".to_owned(),
            runtime: String::new(),
            phase: String::new(),
            containers: Vec::new(),
            lines: lines.collect(),
        }
    }
}

/// One reason, with the first and last time that it held.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HistoryLine {
    /// When it was first recorded.
    pub first: Timestamp,
    /// When it was last recorded.
    pub last: Timestamp,
    /// How often it was recorded.
    pub count: u32,
    pub why: HistoryEvent,
}

/// The history of one pod.
#[derive(Debug, Default)]
pub(super) struct PodHistory {
    lines: VecDeque<HistoryLine>,
    current: Vec<HistoryEvent>,
}

impl PodHistory {
    /// Records the reasons of a plan: notes are kept here, the rest are events. A reason of the previous plan
    /// is not repeated.
    pub(super) fn tell(
        &mut self,
        pod: &Pod,
        whys: &[HistoryEvent],
        now: Timestamp,
        recorder: &Recorder,
    ) {
        let current = std::mem::replace(&mut self.current, whys.to_vec());
        for why in whys.iter().filter(|why| !current.contains(why)) {
            self.record(pod, why, now, recorder);
        }
    }

    /// Records a note here, or sends an event.
    pub(super) fn record(
        &mut self,
        pod: &Pod,
        why: &HistoryEvent,
        now: Timestamp,
        recorder: &Recorder,
    ) {
        if why.weight == EventLevel::Note {
            return self.note(why, now);
        }
        let r#type = EventType::from(why.weight);
        let object = InvolvedObject::pod(pod, why.object.as_deref());
        recorder.record(now, r#type, object, &why.reason, why.message.clone());
    }

    pub(super) fn note(&mut self, why: &HistoryEvent, now: Timestamp) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.why == *why) {
            line.last = now;
            line.count += 1;
            return;
        }
        if self.lines.len() == MAX_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(HistoryLine {
            first: now,
            last: now,
            count: 1,
            why: why.clone(),
        });
    }

    /// The notes and the events, ordered by time.
    pub(super) fn merge_events(&self, events: Vec<Event>) -> Vec<HistoryLine> {
        let mut lines: Vec<HistoryLine> = self.lines.iter().cloned().collect();
        lines.extend(events.into_iter().map(line));
        lines.sort_by_key(|line| line.last);
        lines
    }
}

fn line(event: Event) -> HistoryLine {
    let container = event
        .object
        .field_path
        .split_once('{')
        .map(|(_, name)| name.trim_end_matches('}').to_owned());
    HistoryLine {
        first: event.first_seen,
        last: event.last_seen,
        count: event.count,
        why: HistoryEvent {
            object: container,
            weight: match event.r#type {
                EventType::Normal => EventLevel::Normal,
                EventType::Warning => EventLevel::Warning,
            },
            reason: event.reason,
            message: event.message,
        },
    }
}

/// The changes of phase and conditions, as lines of the history.
pub(super) fn changes(old: Option<&PodStatus>, new: &PodStatus) -> Vec<HistoryEvent> {
    let was = old.and_then(|old| old.phase.clone()).unwrap_or_default();
    let is = new.phase.clone().unwrap_or_default();
    let phase = (was != is).then(|| note("Phase", format!("{was} -> {is}")));
    let known = |kind: &str| {
        let conditions = old.and_then(|old| old.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions
            .find(|c| c.type_ == kind)
            .map(|c| c.status.clone())
    };
    let conditions = new.conditions.iter().flatten();
    let changed = conditions.filter(|new| known(&new.type_).as_ref() != Some(&new.status));
    let lines = changed.map(|new| {
        let told = [&new.status]
            .into_iter()
            .chain(&new.reason)
            .chain(&new.message)
            .filter(|text| !text.is_empty());
        let told: Vec<&str> = told.map(String::as_str).collect();
        note(&new.type_, told.join(": "))
    });
    phase.into_iter().chain(lines).collect()
}

fn note(reason: &str, message: String) -> HistoryEvent {
    HistoryEvent {
        object: None,
        weight: EventLevel::Note,
        reason: reason.to_owned(),
        message,
    }
}

pub(super) fn containers(status: &PodStatus) -> Vec<(String, String)> {
    let init = status.init_container_statuses.iter().flatten();
    let all = init.chain(status.container_statuses.iter().flatten());
    let line = |status: &k8s_openapi::api::core::v1::ContainerStatus| {
        let state = status.state.clone().unwrap_or_default();
        let waiting = state.waiting.map(|waiting| {
            let reason = waiting.reason.unwrap_or_default();
            match waiting.message {
                Some(message) if !message.is_empty() => format!("waiting: {reason}: {message}"),
                Some(_) | None => format!("waiting: {reason}"),
            }
        });
        let ended = state.terminated.map(|ended| {
            format!(
                "terminated: {}, exit code {}",
                ended.reason.unwrap_or_default(),
                ended.exit_code
            )
        });
        let text = waiting.or(ended).unwrap_or_else(|| "running".to_owned());
        (
            status.name.clone(),
            format!("{text}, {} restarts", status.restart_count),
        )
    };
    let ephemeral = status.ephemeral_container_statuses.iter().flatten();
    all.chain(ephemeral).map(line).collect()
}

/// Records an event about the pod or one of its containers, now.
pub(super) fn event(
    recorder: &Recorder,
    pod: &Pod,
    container: Option<&str>,
    r#type: EventType,
    reason: &str,
    message: String,
) {
    let now = kernel::timestamp();
    recorder.record(
        now,
        r#type,
        InvolvedObject::pod(pod, container),
        reason,
        message,
    );
}
