//! Laws of container garbage collection: upstream's tables (kuberuntime_gc_test.go), and what is ours.

use logic_api::testing::bare;
use logic_api::types::{RuntimeSandbox, SandboxState};

use super::*;
use ContainerState::{Created, Exited, Running, Unknown};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
/// Long after everything that was created at some second of the epoch.
const NOW: Timestamp = Timestamp::constant(1_000_000, 0);

/// A container: pod, name, attempt, second of its creation (none for this moment), state.
type Row = (&'static str, &'static str, u32, Option<i64>, ContainerState);

fn node(rows: &[Row]) -> BTreeMap<PodUid, RuntimePod> {
    let mut pods: BTreeMap<PodUid, RuntimePod> = BTreeMap::new();
    for (number, (pod, name, attempt, created, state)) in rows.iter().enumerate() {
        let created = created.map_or(NOW, |second| Timestamp::new(second, 0).unwrap());
        let container = RuntimeContainer {
            attempt: *attempt,
            created_at: Some(created),
            ..bare(&number.to_string(), pod, name, *state)
        };
        let entry = pods.entry((*pod).into()).or_default();
        entry.uid = (*pod).into();
        entry.containers.push(container);
    }
    pods.values_mut().for_each(RuntimePod::sort);
    pods
}

/// As upstream's test has it: `deleted` is gone, `running` goes on, all others have ended.
fn standings(pods: &BTreeMap<PodUid, RuntimePod>) -> Standings {
    let known = pods.keys().filter(|uid| uid.as_str() != "deleted");
    let standing = |uid: &PodUid| match uid.as_str() {
        "running" => PodStanding::Active,
        _ => PodStanding::Ended,
    };
    known.map(|uid| (uid.clone(), standing(uid))).collect()
}

/// The numbers of the rows that stay.
fn remain(rows: &[Row], policy: &ContainerGcPolicy, scope: GcScope, ready: bool) -> Vec<usize> {
    let pods = node(rows);
    let known = standings(&pods);
    let removed = containers(NOW, policy, &pods, ready.then_some(&known), scope);
    let gone: BTreeSet<&str> = removed
        .iter()
        .map(|dead| dead.container.id.as_str())
        .collect();
    assert_eq!(gone.len(), removed.len(), "each is removed once");
    (0..rows.len())
        .filter(|number| !gone.contains(number.to_string().as_str()))
        .collect()
}

fn policy(min_age: Duration, per_container: i32, all: i32) -> ContainerGcPolicy {
    ContainerGcPolicy::new(min_age, per_container, all)
}

/// `count` dead instances of one container, the newest first.
fn dead(pod: &'static str, name: &'static str, count: u32) -> Vec<Row> {
    let row = |attempt: u32| (pod, name, attempt, Some(i64::from(attempt)), Exited);
    (0..count).rev().map(row).collect()
}

/// Upstream's TestContainerGC.
#[test]
fn dead_containers_go_by_their_number_in_each_container_and_in_all_the_oldest_first() {
    let usual = policy(HOUR, 2, 6);
    let each_of = |pods: &[(&'static str, &'static str)], count| -> Vec<Row> {
        pods.iter()
            .flat_map(|(pod, name)| dead(pod, name, count))
            .collect()
    };
    let young = |attempt| ("foo", "bar", attempt, None, Exited);
    let one =
        |pod, name, attempt: u32, state| (pod, name, attempt, Some(i64::from(attempt)), state);
    let mut last_running = dead("foo", "bar", 3);
    last_running[2].4 = Running;
    let five = [
        ("foo", "bar"),
        ("foo1", "bar1"),
        ("foo2", "bar2"),
        ("foo3", "bar3"),
        ("foo4", "bar4"),
    ];
    let oldest_pods = vec![
        one("foo", "bar", 2, Exited),
        one("foo", "bar", 1, Exited),
        one("foo1", "bar1", 2, Exited),
        one("foo1", "bar1", 1, Exited),
        one("foo2", "bar2", 1, Exited),
        one("foo3", "bar3", 0, Exited),
        one("foo4", "bar4", 1, Exited),
        one("foo5", "bar5", 0, Exited),
        one("foo6", "bar6", 2, Exited),
        one("foo7", "bar7", 1, Exited),
    ];
    let ended = vec![
        one("foo", "bar", 2, Exited),
        one("foo", "bar", 1, Exited),
        one("foo1", "bar1", 2, Exited),
        one("foo1", "bar1", 1, Exited),
        one("running", "bar2", 1, Exited),
        one("foo3", "bar3", 0, Running),
    ];
    let mut deleted = dead("foo", "bar", 2);
    deleted.extend([
        ("deleted", "bar1", 2, None, Exited),
        one("deleted", "bar1", 1, Exited),
        one("deleted", "bar1", 0, Exited),
    ]);
    let pairs = [("foo", "bar"), ("foo1", "baz"), ("foo2", "bar")];
    let cases: [(Vec<Row>, &ContainerGcPolicy, &[usize]); 11] = [
        (dead("foo", "bar", 1), &policy(MINUTE, 1, 0), &[]),
        (dead("foo", "bar", 5), &policy(MINUTE, -1, 4), &[0, 1, 2, 3]),
        (dead("foo", "bar", 3), &policy(MINUTE, -1, -1), &[0, 1, 2]),
        (vec![young(2), young(1), young(0)], &usual, &[0, 1, 2]),
        (dead("foo", "bar", 3), &usual, &[0, 1]),
        (last_running, &usual, &[0, 1, 2]),
        (dead("foo", "bar", 2), &usual, &[0, 1]),
        (each_of(&pairs, 3), &usual, &[0, 1, 3, 4, 6, 7]),
        (each_of(&five, 2), &usual, &[0, 2, 4, 6, 8]),
        (oldest_pods, &usual, &[0, 2, 4, 6, 8, 9]),
        (deleted, &usual, &[0, 1, 2]),
    ];
    for (rows, policy, expected) in cases {
        let found = remain(&rows, policy, GcScope::Excess, true);
        assert_eq!(found, expected, "{rows:?} {policy:?}");
    }
    assert_eq!(remain(&ended, &usual, GcScope::AllUnused, true), [4, 5]);
    let gone = [one("deleted", "bar1", 0, Exited)];
    assert_eq!(remain(&gone, &usual, GcScope::AllUnused, false), [0]);
}

/// Upstream's TestUnknownStateContainerGC: it is stopped before.
#[test]
fn a_container_of_unknown_state_goes_as_one_that_may_run() {
    let pods = node(&[("foo", "bar", 0, Some(0), Unknown)]);
    let known = standings(&pods);
    let none = policy(HOUR, 0, 0);
    let removed = containers(NOW, &none, &pods, Some(&known), GcScope::Excess);
    assert!(removed.len() == 1 && removed[0].is_unknown());
}

/// Upstream removes them: a container that ended for good would then be run again, and one that was just made lost.
#[test]
fn of_a_pod_that_goes_on_the_newest_instance_stays_whatever_the_limits() {
    let none = policy(Duration::ZERO, 0, 0);
    for newest in [Exited, Created, Unknown] {
        let rows = [
            ("running", "a", 1, Some(1), newest),
            ("running", "a", 0, Some(0), Exited),
        ];
        for scope in [GcScope::Excess, GcScope::AllUnused] {
            assert_eq!(remain(&rows, &none, scope, true), [0], "{newest:?}");
        }
    }
    let rows = [
        ("running", "a", 1, Some(1), Running),
        ("running", "a", 0, Some(0), Exited),
    ];
    assert_eq!(remain(&rows, &none, GcScope::Excess, true), [0]);
}

#[test]
fn what_the_pod_manager_keeps_of_a_pod_that_is_gone_stays_until_the_disk_is_short() {
    let pods = node(&dead("kept", "a", 3));
    let known: Standings = [("kept".into(), PodStanding::Kept)].into();
    let usual = ContainerGcPolicy::default();
    let removed = |scope| containers(NOW, &usual, &pods, Some(&known), scope).len();
    assert_eq!(
        (removed(GcScope::Excess), removed(GcScope::AllUnused)),
        (0, 3)
    );
}

#[test]
fn a_worker_keeps_by_number_alone_and_leaves_to_the_collector_what_goes_by_time() {
    assert_eq!(ContainerGcPolicy::default().kept_by_worker(), Some(1));
    assert_eq!(policy(Duration::ZERO, 3, 10).kept_by_worker(), Some(3));
    assert_eq!(policy(Duration::ZERO, -1, 10).kept_by_worker(), None);
    assert_eq!(policy(MINUTE, 1, -1).kept_by_worker(), None);
}

/// Sandboxes by attempt and whether they are ready, containers by the attempt of their sandbox, the pod's standing.
struct PodRow {
    sandboxes: &'static [(u32, bool)],
    containers: &'static [u32],
    standing: Option<PodStanding>,
}

fn sandbox_node(rows: &[PodRow]) -> (BTreeMap<PodUid, RuntimePod>, Standings) {
    let mut pods = BTreeMap::new();
    let mut known = Standings::new();
    for (number, row) in rows.iter().enumerate() {
        let uid = PodUid::from(number.to_string());
        let id = |attempt: &u32| SandboxId::from(format!("{number}-{attempt}"));
        let sandbox = |(attempt, is_ready): &(u32, bool)| RuntimeSandbox {
            id: id(attempt),
            attempt: *attempt,
            state: match is_ready {
                true => SandboxState::Ready,
                false => SandboxState::NotReady,
            },
            created_at: None,
            ips: Vec::new(),
            host_network: false,
            runtime_handler: String::new(),
        };
        let container = |attempt: &u32| bare("c", id(attempt).as_str(), "a", Exited);
        let mut pod = RuntimePod {
            uid: uid.clone(),
            sandboxes: row.sandboxes.iter().map(sandbox).collect(),
            containers: row.containers.iter().map(container).collect(),
            ..RuntimePod::default()
        };
        pod.sort();
        pods.insert(uid.clone(), pod);
        known.extend(row.standing.map(|standing| (uid, standing)));
    }
    (pods, known)
}

/// Upstream's TestSandboxGC.
#[test]
fn of_a_pod_that_is_known_the_newest_sandbox_stays_and_whatever_is_ready_or_has_a_container() {
    use GcScope::{AllUnused, Excess};
    let row = |sandboxes, containers, standing| PodRow {
        sandboxes,
        containers,
        standing,
    };
    let (active, ended) = (Some(PodStanding::Active), Some(PodStanding::Ended));
    let cases: [(&[PodRow], GcScope, &[&str]); 8] = [
        (&[row(&[(0, false)], &[], None)], Excess, &["0-0"]),
        (&[row(&[(0, true)], &[], None)], Excess, &[]),
        (
            &[
                row(&[(0, true)], &[], active),
                row(&[(0, false)], &[], active),
            ],
            Excess,
            &[],
        ),
        (
            &[row(&[(1, false), (0, false)], &[], active)],
            Excess,
            &["0-0"],
        ),
        (&[row(&[(1, false), (0, false)], &[0], active)], Excess, &[]),
        (
            &[
                row(&[(0, true)], &[], ended),
                row(&[(0, false)], &[], ended),
            ],
            AllUnused,
            &["1-0"],
        ),
        (&[row(&[(0, false)], &[0], active)], Excess, &[]),
        (
            &[
                row(&[(1, true), (0, false)], &[], active),
                row(&[(1, false), (0, false)], &[1], active),
                row(&[(0, false)], &[], None),
            ],
            Excess,
            &["0-0", "1-0", "2-0"],
        ),
    ];
    for (number, (rows, scope, expected)) in cases.into_iter().enumerate() {
        let (pods, known) = sandbox_node(rows);
        let removed = sandboxes(&pods, Some(&known), &BTreeSet::new(), scope);
        let removed: Vec<&str> = removed.into_iter().map(SandboxId::as_str).collect();
        assert_eq!(removed, expected, "case {number}");
    }
}

#[test]
fn a_sandbox_goes_with_the_last_container_in_it_and_none_before_all_pods_are_known() {
    let row = PodRow {
        sandboxes: &[(0, false)],
        containers: &[0],
        standing: None,
    };
    let (pods, known) = sandbox_node(&[row]);
    let gone = ContainerId::from("c");
    let gone: BTreeSet<&ContainerId> = [&gone].into();
    let removed = |known: Option<&Standings>| sandboxes(&pods, known, &gone, GcScope::Excess).len();
    assert_eq!((removed(Some(&known)), removed(None)), (1, 0));
}
