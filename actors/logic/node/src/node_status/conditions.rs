//! The node's conditions.
//!
//! Upstream: `MemoryPressureCondition`, `DiskPressureCondition`, `PIDPressureCondition`, `ReadyCondition` of
//! nodestatus/setters.go, pkg/kubelet/runtime.go (1.36). Four are our own, and only set once they were true:
//! `OxletDegraded` names the degraded parts of the agent, `VolumesStuck` the stuck volumes, `PodsStuck` the ended pods that
//! the runtime does not remove, `ResourcesNotEnforced` what the machine does not let the agent enforce.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use logic_api::pod::requests::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use logic_resources::node::{LocalStorage, Support};

use super::{
    ClockReading, LastRuntimeStatus, NO_CSI_NODE, NodeEvent, NodeStatusFacts, NodeStatusPolicy,
    PartProblem, Pressure, RuntimeCondition, RuntimeStatus,
};

const READY: &str = "Ready";
/// Messages of our own conditions are cut after so many bytes.
const MAX_MESSAGE_BYTES: usize = 1024;

/// A pressure's words: condition, and for yes and no the event, the reason and the message.
struct PressureCondition {
    pressure: Pressure,
    condition: &'static str,
    yes: [&'static str; 3],
    no: [&'static str; 3],
}

const PRESSURES: [PressureCondition; 3] = [
    PressureCondition {
        pressure: Pressure::Memory,
        condition: "MemoryPressure",
        yes: [
            "NodeHasInsufficientMemory",
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
        ],
        no: [
            "NodeHasSufficientMemory",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ],
    },
    PressureCondition {
        pressure: Pressure::Disk,
        condition: "DiskPressure",
        yes: [
            "NodeHasDiskPressure",
            "KubeletHasDiskPressure",
            "kubelet has disk pressure",
        ],
        no: [
            "NodeHasNoDiskPressure",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ],
    },
    PressureCondition {
        pressure: Pressure::Pid,
        condition: "PIDPressure",
        yes: [
            "NodeHasInsufficientPID",
            "KubeletHasInsufficientPID",
            "kubelet has insufficient PID available",
        ],
        no: [
            "NodeHasSufficientPID",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ],
    },
];

pub(super) fn set(
    policy: &NodeStatusPolicy,
    facts: &NodeStatusFacts,
    moment: ClockReading,
    status: &mut NodeStatus,
    told: &mut Vec<NodeEvent>,
) {
    let conditions = status.conditions.get_or_insert_default();
    let was_ready = conditions
        .iter()
        .any(|held| held.type_ == READY && held.status == "True");
    let unknown = match was_ready && facts.is_starting(moment.now) {
        true => Unknown::AsBefore,
        false => Unknown::Counts,
    };
    let ready = not_ready(policy, facts, moment, status, unknown);
    let conditions = status.conditions.get_or_insert_default();
    for words in &PRESSURES {
        let pressed = facts.pressures.contains(&words.pressure);
        if let Some(reason) = press(conditions, words, pressed, moment.wall) {
            told.push(NodeEvent::status(policy, reason));
        }
    }
    own(facts, moment.wall, conditions);
    told.extend(set_ready(policy, ready, moment.wall, conditions));
}

/// As upstream: a condition that stays as it was keeps its reason and message too.
fn press(
    conditions: &mut Vec<NodeCondition>,
    words: &PressureCondition,
    pressed: bool,
    now: Timestamp,
) -> Option<&'static str> {
    let condition = entry(conditions, words.condition);
    condition.last_heartbeat_time = Some(Time(now));
    let (state, [event, reason, message]) = match pressed {
        true => ("True", words.yes),
        false => ("False", words.no),
    };
    if condition.status == state {
        return None;
    }
    *condition = made(words.condition, state, (reason, message), now);
    Some(event)
}

fn entry<'a>(conditions: &'a mut Vec<NodeCondition>, name: &str) -> &'a mut NodeCondition {
    let at = conditions
        .iter()
        .position(|condition| condition.type_ == name);
    let at = at.unwrap_or_else(|| {
        conditions.push(NodeCondition {
            type_: name.to_owned(),
            status: "Unknown".to_owned(),
            ..NodeCondition::default()
        });
        conditions.len() - 1
    });
    &mut conditions[at]
}

fn made(name: &str, state: &str, words: (&str, &str), now: Timestamp) -> NodeCondition {
    NodeCondition {
        type_: name.to_owned(),
        status: state.to_owned(),
        reason: Some(words.0.to_owned()),
        message: Some(words.1.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// Puts a condition in whose words may change while its state stays; whether the state changed.
fn put(conditions: &mut Vec<NodeCondition>, mut new: NodeCondition) -> bool {
    let held = conditions.iter_mut().find(|held| held.type_ == new.type_);
    match held {
        None => {
            conditions.push(new);
            false
        }
        Some(held) => {
            let same = held.status == new.status;
            if same {
                new.last_transition_time = held.last_transition_time.clone();
            }
            *held = new;
            !same
        }
    }
}

fn own(facts: &NodeStatusFacts, now: Timestamp, conditions: &mut Vec<NodeCondition>) {
    let named = |(name, why): (&String, &String)| format!("{name}: {why}");
    let degraded: Vec<String> = facts.degraded.iter().map(named).collect();
    let rows = [
        (
            "OxletDegraded",
            ("ManagersFailing", "ManagersWork"),
            &degraded,
        ),
        (
            "VolumesStuck",
            ("VolumesHang", "NoVolumeHangs"),
            &facts.stuck,
        ),
        (
            "PodsStuck",
            ("PodsNotRemoved", "NoPodIsStuck"),
            &facts.stuck_pods,
        ),
        (
            "ResourcesNotEnforced",
            ("MachineRefuses", "ResourcesEnforced"),
            &facts.unenforced,
        ),
    ];
    for (name, (bad, good), list) in rows {
        let there = conditions.iter().any(|held| held.type_ == name);
        if list.is_empty() && !there {
            continue;
        }
        let mut text = list.join("; ");
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        let condition = match list.is_empty() {
            true => made(name, "False", (good, "all is well again"), now),
            false => made(name, "True", (bad, &text), now),
        };
        put(conditions, condition);
    }
}

fn set_ready(
    policy: &NodeStatusPolicy,
    not_ready: Option<String>,
    now: Timestamp,
    conditions: &mut Vec<NodeCondition>,
) -> Option<NodeEvent> {
    let (condition, event) = match &not_ready {
        None => {
            let words = ("KubeletReady", "kubelet is posting ready status");
            (made(READY, "True", words, now), "NodeReady")
        }
        Some(why) => {
            let words = ("KubeletNotReady", why.as_str());
            (made(READY, "False", words, now), "NodeNotReady")
        }
    };
    put(conditions, condition).then(|| NodeEvent::status(policy, event))
}

/// Whether what is not known yet keeps the node from being ready.
///
/// Upstream's first sync of the node's status waits for the runtime's, so that a restart tells no NotReady; here the
/// facts come one by one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// It was ready in an earlier life, which stands until there is evidence.
    AsBefore,
    Counts,
}

/// Everything that keeps the node from being ready, in upstream's words and order.
fn not_ready(
    policy: &NodeStatusPolicy,
    facts: &NodeStatusFacts,
    moment: ClockReading,
    status: &NodeStatus,
    unknown: Unknown,
) -> Option<String> {
    let waits = unknown == Unknown::AsBefore;
    let no_evidence = waits && facts.runtime.is_none();
    let mut why = Vec::new();
    if !no_evidence {
        why.extend(runtime_state(facts, moment));
    }
    for (name, problem) in &facts.unhealthy {
        match problem {
            PartProblem::NotYet(_) if waits => {}
            PartProblem::NotYet(text) | PartProblem::Failing(text) => {
                why.push(format!("{name} is not healthy: {text}"));
            }
        }
    }
    if let Some(LastRuntimeStatus { runtime, .. }) = &facts.runtime {
        why.extend(unmet("container runtime not ready", runtime.ready.as_ref()));
    }
    if !no_evidence {
        why.extend(network_problem(facts));
    }
    let is_awaited = |why: &&String| waits && why.as_str() == NO_CSI_NODE;
    why.extend(facts.storage.iter().filter(|why| !is_awaited(why)).cloned());
    why.extend(facts.shutdown.clone());
    why.extend(missing(policy.local_storage, status.capacity.as_ref()));
    aggregate(why)
}

fn runtime_state(facts: &NodeStatusFacts, moment: ClockReading) -> Option<String> {
    match &facts.runtime {
        None | Some(LastRuntimeStatus { ready_at: None, .. }) => {
            Some("container runtime status check may not have completed yet".to_owned())
        }
        Some(heard) if !heard.is_up(moment.now) => Some("container runtime is down".to_owned()),
        Some(_) => None,
    }
}

fn network_problem(facts: &NodeStatusFacts) -> Option<String> {
    match &facts.runtime {
        None => Some("network state unknown".to_owned()),
        Some(LastRuntimeStatus { runtime, .. }) => runtime.network_problem(),
    }
}

impl RuntimeStatus {
    /// Why the runtime's network is not ready, in upstream's words; none where it is.
    pub fn network_problem(&self) -> Option<String> {
        unmet("container runtime network not ready", self.network.as_ref())
    }
}

fn unmet(what: &str, condition: Option<&RuntimeCondition>) -> Option<String> {
    match condition {
        None => Some(format!("{what}: <nil>")),
        Some(condition) if condition.state == Support::Yes => None,
        Some(RuntimeCondition {
            name,
            reason,
            message,
            ..
        }) => Some(format!(
            "{what}: {name}=false reason:{reason} message:{message}"
        )),
    }
}

fn missing<T>(storage: LocalStorage, capacity: Option<&BTreeMap<String, T>>) -> Option<String> {
    let lacks = |name: &&str| !capacity.is_some_and(|list| list.contains_key(*name));
    let storage = (storage == LocalStorage::Counted).then_some(EPHEMERAL_STORAGE);
    let needed = [CPU, MEMORY, PODS].into_iter().chain(storage);
    let missing: Vec<&str> = needed.filter(lacks).collect();
    (!missing.is_empty()).then(|| {
        let list = missing.join(", ");
        format!("missing node capacity for resources: {list}")
    })
}

/// One as it is, several in brackets, each once.
fn aggregate(mut why: Vec<String>) -> Option<String> {
    let mut seen = std::collections::BTreeSet::new();
    why.retain(|text| seen.insert(text.clone()));
    match why.len() {
        0 => None,
        1 => why.pop(),
        _ => Some(format!("[{}]", why.join(", "))),
    }
}
