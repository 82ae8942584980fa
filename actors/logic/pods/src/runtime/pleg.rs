//! What changed in the runtime between two relists (upstream's pleg/generic.go at v1.36).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use logic_api::text::go_duration::go_duration;
use logic_api::types::{
    ContainerId, ContainerState, PodUid, RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxId,
    SandboxState,
};
use serde::{Deserialize, Serialize};

/// One thing that happened to one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodEvent {
    pub uid: PodUid,
    pub kind: PodEventKind,
}

/// What changed. The order is the order of a pod's events: ends come before starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PodEventKind {
    ContainerDied {
        id: ContainerId,
        name: String,
        exit_code: i32,
    },
    ContainerRemoved {
        id: ContainerId,
        name: String,
    },
    /// A sandbox came, went, or is no longer ready.
    SandboxChanged {
        id: SandboxId,
    },
    ContainerStarted {
        id: ContainerId,
        name: String,
    },
    /// A container came, not started yet, or its state is not known.
    ContainerChanged {
        id: ContainerId,
        name: String,
    },
}

/// How old the last good relist may be, without an event stream and with one.
pub const THRESHOLD: Duration = Duration::from_secs(180);
pub const THRESHOLD_WITH_EVENTS: Duration = Duration::from_secs(600);

/// Why relists don't come through, as upstream words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlegProblem {
    /// None has ended since the start.
    #[error("pleg has yet to be successful")]
    NotYet,
    #[error(
        "pleg was last seen active {} ago; threshold is {}",
        go_duration(*.ago),
        go_duration(*.threshold)
    )]
    Overdue { ago: Duration, threshold: Duration },
}

/// Whether relists come through: the last good one was so long ago.
pub fn health(last: Option<Duration>, threshold: Duration) -> Result<(), PlegProblem> {
    match last {
        None => Err(PlegProblem::NotYet),
        Some(ago) if ago > threshold => Err(PlegProblem::Overdue { ago, threshold }),
        Some(_) => Ok(()),
    }
}

/// Compares two relists; the result is sorted by pod.
pub fn diff(
    old: &BTreeMap<PodUid, RuntimePod>,
    new: &BTreeMap<PodUid, RuntimePod>,
) -> Vec<PodEvent> {
    let uids: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let none = RuntimePod::default();
    uids.into_iter()
        .flat_map(|uid| {
            let before = old.get(uid).unwrap_or(&none);
            let after = new.get(uid).unwrap_or(&none);
            let kinds = diff_pod(before, after);
            kinds.into_iter().map(|kind| PodEvent {
                uid: uid.clone(),
                kind,
            })
        })
        .collect()
}

/// Takes an event into the last relist, so that the next one doesn't tell what was told already. `removed` is the id of
/// what the event reports as removed. What the event doesn't speak of stays as it was.
pub fn note(last: &mut BTreeMap<PodUid, RuntimePod>, event: &RuntimePod, removed: Option<&str>) {
    let pod = last.entry(event.uid.clone()).or_default();
    for sandbox in &event.sandboxes {
        pod.sandboxes.retain(|known| known.id != sandbox.id);
        // A list has no addresses.
        pod.sandboxes.push(RuntimeSandbox {
            ips: Vec::new(),
            ..sandbox.clone()
        });
    }
    for container in &event.containers {
        pod.containers.retain(|known| known.id != container.id);
        pod.containers.push(container.clone());
    }
    if let Some(removed) = removed {
        pod.sandboxes.retain(|known| known.id.as_str() != removed);
        pod.containers.retain(|known| known.id.as_str() != removed);
    }
    if pod.sandboxes.is_empty() && pod.containers.is_empty() {
        last.remove(&event.uid);
    }
}

/// Compares two states of one pod.
pub fn diff_pod(old: &RuntimePod, new: &RuntimePod) -> BTreeSet<PodEventKind> {
    let mut events = BTreeSet::new();
    let (before, after) = (containers(old), containers(new));
    let ids: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for id in ids {
        container_events(before.get(id).copied(), after.get(id).copied(), &mut events);
    }
    let (before, after) = (sandboxes(old), sandboxes(new));
    let ids: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
    let changed = ids.into_iter().filter(|id| before.get(id) != after.get(id));
    events.extend(changed.map(|id| PodEventKind::SandboxChanged { id: id.clone() }));
    events
}

fn container_events(
    before: Option<&RuntimeContainer>,
    after: Option<&RuntimeContainer>,
    events: &mut BTreeSet<PodEventKind>,
) {
    use ContainerState::{Created, Exited, Running, Unknown};
    let Some(seen) = after.or(before) else { return };
    let (id, name, exit_code) = (seen.id.clone(), seen.name.clone(), seen.exit_code);
    let died = PodEventKind::ContainerDied {
        id: id.clone(),
        name: name.clone(),
        exit_code,
    };
    let removed = PodEventKind::ContainerRemoved {
        id: id.clone(),
        name: name.clone(),
    };
    match (before.map(|c| c.state), after.map(|c| c.state)) {
        (old, new) if old == new => {}
        (_, Some(Running)) => {
            events.insert(PodEventKind::ContainerStarted { id, name });
        }
        (_, Some(Exited)) => {
            events.insert(died);
        }
        (_, Some(Created | Unknown)) => {
            events.insert(PodEventKind::ContainerChanged { id, name });
        }
        (Some(Exited), None) => {
            events.insert(removed);
        }
        // Gone between two relists: it must have died first.
        (_, None) => events.extend([died, removed]),
    }
}

fn containers(pod: &RuntimePod) -> BTreeMap<&ContainerId, &RuntimeContainer> {
    pod.containers.iter().map(|c| (&c.id, c)).collect()
}

fn sandboxes(pod: &RuntimePod) -> BTreeMap<&SandboxId, (SandboxState, &[String])> {
    pod.sandboxes
        .iter()
        .map(|s| (&s.id, (s.state, s.ips.as_slice())))
        .collect()
}

#[cfg(test)]
mod tests {
    use logic_api::testing::*;
    use proptest::prelude::*;

    use super::*;

    fn words_of(old: &RuntimePod, new: &RuntimePod) -> Vec<String> {
        let word = |kind: PodEventKind| match kind {
            PodEventKind::ContainerStarted { id, .. } => format!("started {id}"),
            PodEventKind::ContainerDied { id, exit_code, .. } => format!("died {id} {exit_code}"),
            PodEventKind::ContainerRemoved { id, .. } => format!("removed {id}"),
            PodEventKind::ContainerChanged { id, .. } => format!("changed {id}"),
            PodEventKind::SandboxChanged { id } => format!("sandbox {id}"),
        };
        diff_pod(old, new).into_iter().map(word).collect()
    }

    /// Upstream's TestRelisting and its table of generateEvents.
    #[test]
    fn each_change_of_state_is_one_event() {
        use ContainerState::{Created, Exited, Running, Unknown};
        let cases: [(Option<ContainerState>, Option<ContainerState>, &[&str]); 12] = [
            (None, Some(Running), &["started c-0"]),
            (None, Some(Exited), &["died c-0 0"]),
            (None, Some(Created), &["changed c-0"]),
            (Some(Created), Some(Running), &["started c-0"]),
            (Some(Running), Some(Running), &[]),
            (Some(Running), Some(Exited), &["died c-0 0"]),
            (Some(Running), Some(Unknown), &["changed c-0"]),
            (Some(Unknown), Some(Running), &["started c-0"]),
            (Some(Running), None, &["died c-0 0", "removed c-0"]),
            (Some(Unknown), None, &["died c-0 0", "removed c-0"]),
            (Some(Exited), None, &["removed c-0"]),
            (Some(Exited), Some(Exited), &[]),
        ];
        let pod = pod("p").app("c");
        let look = |state: Option<ContainerState>| match state {
            Some(state) => runtime(&pod).with(instance(&pod, "c", state)),
            None => runtime(&pod),
        };
        for (old, new, events) in cases {
            assert_eq!(
                words_of(&look(old), &look(new)),
                events,
                "{old:?} -> {new:?}"
            );
        }
    }

    #[test]
    fn sandboxes_come_lose_readiness_and_go() {
        let pod = pod("p").app("c");
        let (ready, none) = (runtime(&pod), RuntimePod::default());
        let down = ready.clone().with_sandbox(SandboxState::NotReady);
        for (old, new) in [(&none, &ready), (&ready, &down), (&ready, &none)] {
            assert_eq!(words_of(old, new), ["sandbox s0"]);
        }
    }

    #[test]
    fn what_an_event_has_told_is_no_difference_any_more_and_what_it_has_not_still_is() {
        let pod = pod("p").app("c").app("d");
        let mut whole = runtime(&pod).running(&pod, "c").running(&pod, "d");
        whole.sandboxes[0].ips.clear();
        let mut part = whole.clone();
        part.sandboxes[0].ips = vec!["10.0.0.1".to_owned()];
        part.containers.retain(|container| container.name == "c");
        let mut last = BTreeMap::new();
        note(&mut last, &part, None);
        assert_eq!(words_of(&last[&part.uid], &whole), ["started d-0"]);
        note(&mut last, &whole, None);
        let new = BTreeMap::from([(whole.uid.clone(), whole.clone())]);
        assert_eq!(diff(&last, &new), []);

        let sandbox = RuntimePod {
            containers: Vec::new(),
            ..whole.clone()
        };
        note(&mut last, &sandbox, Some("c-0"));
        assert_eq!(words_of(&last[&whole.uid], &whole), ["started c-0"]);
        let nothing = RuntimePod {
            uid: whole.uid.clone(),
            ..RuntimePod::default()
        };
        for removed in ["d-0", "s0"] {
            note(&mut last, &nothing, Some(removed));
        }
        assert_eq!(last, BTreeMap::new());
    }

    #[test]
    fn events_are_sorted_by_pod() {
        let look = |name: &str| {
            let pod = pod(name).app("c");
            (PodUid::from(name), runtime(&pod).running(&pod, "c"))
        };
        let new = BTreeMap::from([look("b"), look("a")]);
        let events = diff(&BTreeMap::new(), &new);
        let uids: Vec<_> = events.iter().map(|e| e.uid.as_str()).collect();
        assert_eq!(uids, ["a", "a", "b", "b"]);
        assert!(diff(&new, &new).is_empty());
    }

    proptest! {
        #[test]
        fn nothing_changed_means_no_event_and_order_means_nothing(states in prop::collection::vec(0_usize..4, 0..6)) {
            let all = [ContainerState::Created, ContainerState::Running, ContainerState::Exited, ContainerState::Unknown];
            let pod = pod("p").app("c");
            let mut look = runtime(&pod);
            for (index, state) in states.iter().enumerate() {
                let mut container = instance(&pod, "c", all[*state]);
                container.id = format!("c-{index}").into();
                look.containers.push(container);
            }
            let mut turned = look.clone();
            turned.containers.reverse();
            prop_assert!(diff_pod(&look, &turned).is_empty());
        }
    }

    /// Upstream's TestHealthy.
    #[test]
    fn a_relist_that_does_not_come_through_is_told_after_the_threshold() {
        let minutes = |n: u64| Some(Duration::from_secs(60 * n));
        let health = |last, threshold| health(last, threshold).map_err(|why| why.to_string());
        assert_eq!(
            health(None, THRESHOLD),
            Err("pleg has yet to be successful".into())
        );
        assert_eq!(health(minutes(3), THRESHOLD), Ok(()));
        assert_eq!(
            health(minutes(4), THRESHOLD),
            Err("pleg was last seen active 4m0s ago; threshold is 3m0s".into())
        );
        assert_eq!(health(minutes(6), THRESHOLD_WITH_EVENTS), Ok(()));
    }
}
