//! The node's types: a pod's sandboxes and containers as a runtime reports them.
//!
//! Nothing here decides anything. Runtime timestamps are kept to be shown; they are never compared
//! with the local clock, because the runtime may live on another one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A newtype over `String` for each kind of id, so that one kind is never taken for another.
macro_rules! id_type {
    ($(#[doc = $doc:literal] $name:ident),+ $(,)?) => {$(
        #[doc = $doc]
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }

            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str(&self.0)
            }
        }
    )+};
}

id_type! {
    #[doc = "A pod's `metadata.uid`; a static pod's is derived from its manifest."]
    PodUid,
    #[doc = "The runtime's id of one container instance."]
    ContainerId,
    #[doc = "The runtime's id of one pod sandbox."]
    SandboxId,
    #[doc = "What a runtime resolved an image name to."]
    ImageRef,
}

/// A container instance's state, as CRI names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ContainerState {
    Created,
    Running,
    Exited,
    Unknown,
}

impl ContainerState {
    /// The word that upstream's messages use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Unknown => "unknown",
        }
    }
}

/// One container instance as CRI's `ContainerStatus` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeContainer {
    pub id: ContainerId,
    pub sandbox: SandboxId,
    pub name: String,
    /// CRI's `metadata.attempt`: 0 for the first instance of a name.
    pub attempt: u32,
    pub state: ContainerState,
    /// By the runtime's clock.
    pub created_at: Option<Timestamp>,
    /// None while it has not started.
    pub started_at: Option<Timestamp>,
    /// None while it has not ended.
    pub finished_at: Option<Timestamp>,
    /// Of an ended container; 128 and the signal's number after one.
    pub exit_code: i32,
    /// Why it ended, in the runtime's word: `Completed`, `Error`, `OOMKilled`.
    pub reason: String,
    /// More about its end; mostly empty.
    pub message: String,
    /// As the pod names it.
    pub image: String,
    /// As the API's `imageID` shows it.
    pub image_id: String,
    /// From the annotation; absent on a container that no kubelet made.
    pub hash: Option<u64>,
    /// From the annotation `io.kubernetes.container.restartCount`.
    pub restart_count: u32,
    /// Seconds, from the annotation: the grace of a pod whose spec is gone.
    pub termination_grace: Option<u64>,
    /// The definition's preStop hook, from the annotation, as JSON; empty where there is none.
    pub pre_stop: String,
    /// The definition's ports, from the annotation, as JSON; empty where there are none.
    pub ports: String,
    /// What it was made with, from the annotation `oxlet.dev/resources`, as JSON; empty where that is not known. Not
    /// stored: it concerns an instance that runs.
    #[serde(skip)]
    pub resources: String,
    /// Absolute, on the node.
    pub log_path: String,
    /// The resources that the runtime enforces now; none if it does not report them.
    pub enforced: Option<EnforcedResources>,
    /// The user of the first process; none if the runtime does not report it.
    pub user: Option<ContainerUser>,
    /// The effective stop signal (`SIGTERM`); none if the runtime does not report it.
    pub stop_signal: Option<String>,
}

/// CPU and memory of a container as its runtime reports them; zero where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnforcedResources {
    /// In the unit of cgroup version 1: 1024 for one CPU.
    pub cpu_shares: i64,
    /// CFS quota in microseconds for each period.
    pub cpu_quota: i64,
    /// CFS period in microseconds.
    pub cpu_period: i64,
    /// Memory limit in bytes.
    pub memory_limit: i64,
}

/// The identity of a container's first process, by its operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerUser {
    /// None where the runtime leaves it open.
    pub linux: Option<LinuxContainerUser>,
}

/// The identity of a container's first process on Linux.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxContainerUser {
    pub uid: i64,
    pub gid: i64,
    /// Without the group `gid`.
    pub supplemental_groups: Vec<i64>,
}

/// The last result of one probe of a container instance, after its thresholds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum ProbeResult {
    #[default]
    Unknown,
    Success,
    Failure,
}

/// The last results of the probes of one container instance; a probe that the container does not have has succeeded
/// (`logic_pods::probes::initial_health`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerHealth {
    /// Until it succeeds the other two are not run.
    pub startup: ProbeResult,
    /// A failure ends the container.
    pub liveness: ProbeResult,
    /// A failure takes the pod out of its services.
    pub readiness: ProbeResult,
}

/// Which container instance is meant, and where its log is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContainerInstance {
    pub id: ContainerId,
    pub name: String,
    /// Counts from 0.
    pub attempt: u32,
}

impl RuntimeContainer {
    pub fn instance(&self) -> ContainerInstance {
        ContainerInstance {
            id: self.id.clone(),
            name: self.name.clone(),
            attempt: self.attempt,
        }
    }

    /// Whether it may have a process: a container of unknown state is taken as alive until killed.
    pub fn may_run(&self) -> bool {
        matches!(
            self.state,
            ContainerState::Running | ContainerState::Unknown
        )
    }

    /// Whether it ended with a failure; an unknown exit counts as one, since its success was not observed.
    pub fn failed(&self) -> bool {
        match self.state {
            ContainerState::Exited => self.exit_code != 0,
            ContainerState::Unknown => true,
            ContainerState::Created | ContainerState::Running => false,
        }
    }

    /// Whether its start was broken off with the call that asked for it: it has not run, and its end is no crash. containerd
    /// tells this by the text alone (internal/cri/server/container_start.go).
    pub fn start_was_cancelled(&self) -> bool {
        self.state == ContainerState::Exited
            && self.started_at.is_none()
            && self.reason == "StartError"
            && self.message.contains("context canceled")
    }

    /// Whether it was made and has not run: it is started, under the number that it has.
    pub fn never_ran(&self) -> bool {
        self.state == ContainerState::Created || self.start_was_cancelled()
    }

    pub fn succeeded(&self) -> bool {
        self.state == ContainerState::Exited && self.exit_code == 0
    }
}

/// A sandbox's state, as CRI names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SandboxState {
    Ready,
    NotReady,
}

/// One sandbox as CRI's `PodSandboxStatus` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeSandbox {
    pub id: SandboxId,
    /// Counts from 0.
    pub attempt: u32,
    pub state: SandboxState,
    pub created_at: Option<Timestamp>,
    /// The primary one first; empty on the node's network.
    pub ips: Vec<String>,
    /// It shares the node's network.
    pub host_network: bool,
    /// Empty for the default.
    pub runtime_handler: String,
}

/// All that exists of one pod in the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimePod {
    pub uid: PodUid,
    pub name: String,
    pub namespace: String,
    /// Newest (highest attempt) first.
    pub sandboxes: Vec<RuntimeSandbox>,
    /// Sorted by name, newest attempt first within a name.
    pub containers: Vec<RuntimeContainer>,
}

impl RuntimePod {
    /// Sorts sandboxes and containers into the order that their fields document.
    ///
    /// The order is total, so decisions do not depend on the order of a runtime's lists.
    pub fn sort(&mut self) {
        self.sandboxes.sort_by(|a, b| b.age_key().cmp(&a.age_key()));
        self.containers.sort_by(|a, b| {
            a.name
                .cmp(&b.name)
                .then_with(|| b.age_key().cmp(&a.age_key()))
        });
    }

    /// The newest instance of a container.
    pub fn newest(&self, name: &str) -> Option<&RuntimeContainer> {
        self.instances(name).max_by_key(|c| c.age_key())
    }

    /// Every instance of a container, in the order of the list.
    pub fn instances(&self, name: &str) -> impl Iterator<Item = &RuntimeContainer> {
        self.containers.iter().filter(move |c| c.name == name)
    }

    /// The sandbox of the highest attempt.
    pub fn newest_sandbox(&self) -> Option<&RuntimeSandbox> {
        self.sandboxes.iter().max_by_key(|s| s.age_key())
    }

    /// The ids of its sandboxes and containers.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let sandboxes = self.sandboxes.iter().map(|one| one.id.as_str());
        sandboxes.chain(self.containers.iter().map(|one| one.id.as_str()))
    }

    /// The pod's addresses: those of its newest sandbox while that is ready.
    pub fn ips(&self) -> &[String] {
        match self.newest_sandbox() {
            Some(sandbox) if sandbox.is_ready() => &sandbox.ips,
            _ => &[],
        }
    }

    /// Whether nothing of the pod may still run: what the end of a termination waits for.
    pub fn is_stopped(&self) -> bool {
        !self.containers.iter().any(RuntimeContainer::may_run)
            && !self.sandboxes.iter().any(RuntimeSandbox::is_ready)
    }
}

/// Orders instances by age without trusting any clock but the runtime's own. Of two of one age the smaller id counts as
/// the newer, as upstream has it.
type AgeKey<'a> = (u32, Option<Timestamp>, Reverse<&'a str>);

impl RuntimeContainer {
    fn age_key(&self) -> AgeKey<'_> {
        (self.attempt, self.created_at, Reverse(self.id.as_str()))
    }
}

impl RuntimeSandbox {
    pub fn is_ready(&self) -> bool {
        self.state == SandboxState::Ready
    }

    fn age_key(&self) -> AgeKey<'_> {
        (self.attempt, self.created_at, Reverse(self.id.as_str()))
    }
}

/// Which list of the pod spec a container stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ContainerKind {
    /// Sidecars (restartable init containers) among them.
    Init,
    App,
    Ephemeral,
}

/// A pod's or container's `restartPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "Always" => Some(Self::Always),
            "OnFailure" => Some(Self::OnFailure),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }

    pub fn restarts(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// Why a container waits: becomes `state.waiting` of its status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WaitingReason {
    /// One word, as in the container's status: `CrashLoopBackOff`.
    pub reason: String,
    /// A sentence for users.
    pub message: String,
}

/// Why the whole pod is failed by decree: rejected, past its deadline, evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodFailure {
    /// One word, as in the pod's status: `Evicted`.
    pub reason: String,
    /// A sentence for users.
    pub message: String,
    /// The message of the condition `DisruptionTarget`, where the node itself ends the pod: by eviction, preemption or
    /// shutdown; none otherwise.
    pub disruption: Option<String>,
    /// What the operator is told beside the message (`oxctl why`); none where that says it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The annotations of the event.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Whether a reason is an event for the user, and of which type, or only an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EventLevel {
    /// Log line and `oxctl why` only.
    Note,
    /// An event of type Normal.
    Normal,
    /// An event of type Warning.
    Warning,
}

/// One reason behind a plan: an event, a log line, and the answer of `oxctl why`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HistoryEvent {
    /// The container it is about; none for the pod.
    pub object: Option<String>,
    /// How much it matters to users.
    pub weight: EventLevel,
    /// One word, as in an event.
    pub reason: String,
    /// A sentence for users.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, bare, sandbox};

    /// Upstream's TestPodSandboxByCreatedThenID.
    #[test]
    fn sandboxes_are_sorted_by_attempt_then_time_then_id() {
        let made = |id: &str, attempt: u32, created: i64| RuntimeSandbox {
            id: id.into(),
            created_at: Some(at(created)),
            ..sandbox(attempt, SandboxState::Ready)
        };
        let sorted = |list: &[(&str, u32, i64)]| {
            let mut pod = RuntimePod {
                sandboxes: list.iter().map(|(id, n, at)| made(id, *n, *at)).collect(),
                ..RuntimePod::default()
            };
            pod.sort();
            let first = pod.sandboxes.first().map(|s| &s.id);
            assert_eq!(first, pod.newest_sandbox().map(|s| &s.id));
            let ids = pod.sandboxes.iter().map(|s| s.id.as_str().to_owned());
            ids.collect::<Vec<String>>()
        };
        assert_eq!(sorted(&[]), [""; 0]);
        assert_eq!(sorted(&[("one", 3, 0)]), ["one"]);
        let by_attempt = [("c", 0, 0), ("a", 2, 0), ("b", 1, 0)];
        assert_eq!(sorted(&by_attempt), ["a", "b", "c"]);
        let by_time = [("old", 5, -600), ("new", 5, 0), ("mid", 5, -300)];
        assert_eq!(sorted(&by_time), ["new", "mid", "old"]);
        let by_id = [("z", 1, 0), ("a", 1, 0), ("m", 1, 0)];
        assert_eq!(sorted(&by_id), ["a", "m", "z"]);
        let mixed = [
            ("c1", 0, 0),
            ("a2", 2, -1200),
            ("b3", 1, 0),
            ("group-b", 1, 0),
            ("group-a", 1, 0),
        ];
        assert_eq!(sorted(&mixed), ["a2", "b3", "group-a", "group-b", "c1"]);
    }

    /// Upstream's TestContainerByCreatedThenID, whose containers differ in nothing else.
    #[test]
    fn instances_of_a_container_are_sorted_by_time_then_id() {
        let list = [
            ("old-2", -3600),
            ("new-1", 0),
            ("group-b", 0),
            ("group-a", 0),
            ("old-1", -3600),
            ("mid", -600),
        ];
        let made = |(id, created): &(&str, i64)| RuntimeContainer {
            created_at: Some(at(*created)),
            ..bare(id, "s", "c", ContainerState::Exited)
        };
        let mut pod = RuntimePod {
            containers: list.iter().map(made).collect(),
            ..RuntimePod::default()
        };
        pod.sort();
        let ids: Vec<&str> = pod.containers.iter().map(|c| c.id.as_str()).collect();
        let expected = ["group-a", "group-b", "new-1", "mid", "old-1", "old-2"];
        assert_eq!(ids, expected);
        assert_eq!(pod.newest("c").unwrap().id.as_str(), "group-a");
    }
}
