//! Which pods wait, and which change is one: without a server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use logic_api::pod::PodView;
use serde_json::{Value, json};

use super::super::HELD;
use super::super::store::PodStore;
use super::{NODE, kept, names, typed};

const SEEN: Timestamp = Timestamp::UNIX_EPOCH;

struct Case {
    held: PodStore,
    now: Instant,
}

impl Case {
    fn new() -> Case {
        Case {
            held: PodStore::new(NODE.into(), Vec::new()),
            now: kernel::now(),
        }
    }

    fn list(&mut self, pods: &[Value]) {
        let pods = pods.iter().cloned().map(typed).collect();
        self.held.list(pods, self.now, SEEN);
    }

    fn apply(&mut self, pod: Value) {
        self.held.apply(typed(pod), self.now, SEEN);
    }

    fn supply(&mut self, names: &[&str]) {
        let uids = names
            .iter()
            .map(|name| typed(kept(name, 1)).uid())
            .collect();
        self.held.supplied(&uids);
    }

    fn desired_names(&mut self) -> Option<Vec<String>> {
        let desired_names = self.held.desired_pods()?;
        Some(
            names(&desired_names)
                .into_iter()
                .map(str::to_owned)
                .collect(),
        )
    }
}

#[test]
fn the_first_set_is_told_when_it_is_whole() {
    let mut case = Case::new();
    case.list(&[kept("a", 1), kept("b", 1)]);
    assert_eq!(case.desired_names(), None);
    case.supply(&["a"]);
    assert_eq!(
        case.desired_names(),
        None,
        "without b the directory would end what runs of it"
    );
    case.supply(&["a", "b"]);
    assert_eq!(case.desired_names().unwrap(), ["a", "b"]);
}

#[test]
fn a_pod_that_is_never_supplied_begins_after_a_while() {
    let mut case = Case::new();
    case.list(&[kept("a", 1)]);
    assert_eq!(case.held.next_release(), Some(case.now + HELD));
    case.held.release(case.now + HELD);
    assert_eq!(case.desired_names().unwrap(), ["a"]);
}

#[test]
fn a_new_pod_waits_alone() {
    let mut case = Case::new();
    case.list(&[kept("a", 1)]);
    case.supply(&["a"]);
    case.now += Duration::from_secs(1);
    case.apply(kept("b", 2));
    assert_eq!(case.desired_names().unwrap(), ["a"]);
    assert_eq!(names(&case.held.all()), ["a", "b"]);
    case.supply(&["a", "b"]);
    assert_eq!(case.desired_names().unwrap(), ["a", "b"]);
}

#[test]
fn a_pod_that_ends_waits_for_nothing() {
    let mut ended = kept("done", 1);
    ended["status"] = json!({"phase": "Succeeded"});
    let mut ending = kept("ending", 1);
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let mut case = Case::new();
    case.list(&[ended, ending]);
    assert_eq!(case.desired_names().unwrap(), ["done", "ending"]);
    case.apply(kept("new", 2));
    let mut deleted = kept("new", 3);
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    case.apply(deleted);
    assert_eq!(case.desired_names().unwrap(), ["done", "ending", "new"]);
}

#[test]
fn a_second_list_disturbs_nobody() {
    let mut case = Case::new();
    case.list(&[kept("a", 1), kept("b", 1)]);
    let before = case.held.all();
    case.list(&[kept("a", 1), kept("b", 7)]);
    let after = case.held.all();
    assert!(
        before.iter().zip(&after).all(|(a, b)| Arc::ptr_eq(a, b)),
        "b differs by its version alone"
    );
    case.list(&[]);
    assert!(case.held.all().is_empty());
}

#[test]
fn a_status_is_shown_and_no_wish_changes() {
    let mut case = Case::new();
    case.list(&[kept("a", 1)]);
    let before = case.held.all();
    let mut shown = kept("a", 2);
    shown["status"] =
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    case.apply(shown);
    assert!(Arc::ptr_eq(&before[0], &case.held.all()[0]));
    let phase = case.held.shown()[0].status.clone().unwrap().phase;
    assert_eq!(phase.as_deref(), Some("Running"));
}

#[test]
fn a_pod_of_the_same_name_is_another_pod() {
    let mut case = Case::new();
    case.list(&[kept("a", 1)]);
    let mut other = kept("a", 2);
    other["metadata"]["uid"] = "other".into();
    case.apply(other);
    let late = typed(kept("a", 1));
    case.held.delete(&late);
    let all = case.held.all();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].metadata.uid.as_deref(), Some("other"));
}

/// Upstream's TestInvalidPodFiltered, for what makes a pod of the API invalid here.
#[test]
fn a_pod_that_cannot_be_taken_is_named_and_hides_no_other() {
    let mut elsewhere = kept("elsewhere", 1);
    elsewhere["spec"]["nodeName"] = "worker-2".into();
    let mut nameless = kept("nameless", 1);
    nameless["metadata"]["uid"] = "../../etc".into();
    let mut case = Case::new();
    case.list(&[elsewhere, kept("a", 1), nameless]);
    case.supply(&["a"]);
    assert_eq!(case.desired_names().unwrap(), ["a"]);
    let refused = case.held.refused();
    assert_eq!(
        refused,
        [
            "default/elsewhere: spec.nodeName: expected worker-1",
            "default/nameless: metadata.uid: expected a name",
        ]
    );
    case.list(&[kept("a", 1), kept("nameless", 2)]);
    assert!(case.held.refused().is_empty());
}
