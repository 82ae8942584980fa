//! Pods with pod-level resources, by upstream's cases of policy_static_test.go.

use super::*;

fn assign(
    manager: &CpuManager,
    pod: &Pod,
    held: &HeldAssignments,
) -> Result<Assignment, AssignmentError> {
    let request = AssignmentRequest {
        devices: &crate::devices::DeviceInventory::EMPTY,
        preferences: &crate::devices::DevicePreferences::NONE,
        pod,
        held,
        assigned: &Assignment::default(),
    };
    manager.assign_pod(&request, anywhere())
}

fn manager() -> CpuManager {
    Node {
        reserved: (1, "0"),
        pod_level: PodLevelManagers::On,
        ..Node::new(two_sockets())
    }
    .manager()
}

/// Upstream's TestStaticPolicyAllocatePod: what each container runs on, and what is left for others.
#[test]
fn a_pod_is_given_cpus_as_a_whole_and_divides_them() {
    for (parts, expected, shared) in [
        ("pod 2, app 1", &[("app-0", "2")][..], "0-1,3-7,9-11"),
        ("pod 1, app", &[("app-0", "6")], "0-5,7-11"),
        (
            "pod 3, app 1, app 1, app",
            &[("app-0", "6"), ("app-1", "2"), ("app-2", "8")],
            "0-1,3-5,7,9-11",
        ),
        (
            "pod 2, init 1, init 1, app 1, app 1",
            &[
                ("init-0", "2"),
                ("init-1", "2"),
                ("app-2", "2"),
                ("app-3", "8"),
            ],
            "0-1,3-7,9-11",
        ),
        (
            "pod 3, init, sidecar 1, init, app 1, app",
            &[
                ("init-0", "2,6,8"),
                ("sidecar-1", "6"),
                ("init-2", "2,8"),
                ("app-3", "2"),
                ("app-4", "8"),
            ],
            "0-1,3-5,7,9-11",
        ),
        (
            "pod 3, init, sidecar, init, app 1, app",
            &[
                ("init-0", "2,6,8"),
                ("sidecar-1", "2,8"),
                ("init-2", "2,6,8"),
                ("app-3", "6"),
                ("app-4", "2,8"),
            ],
            "0-1,3-5,7,9-11",
        ),
        ("pod 2/1, app 1", &[("app-0", "0-11")], "0-11"),
    ] {
        let (manager, pod) = (manager(), pod_of("new", parts));
        let assigned = assign(&manager, &pod, &HeldAssignments::new()).unwrap();
        let held = with(HeldAssignments::new(), &pod, &assigned);
        for (container, cpus) in expected {
            assert_eq!(
                manager.affinity(&pod, container, &held),
                set(cpus),
                "{parts}"
            );
        }
        assert_eq!(manager.shared(&held), set(shared), "{parts}");
        // What is not one of the pod's own containers runs with everybody else.
        assert_eq!(manager.affinity(&pod, "debug", &held), set(shared));
        // Asked again it keeps them.
        assert_eq!(assign(&manager, &pod, &held), Ok(assigned));
    }
}

/// Upstream's TestStaticPolicyAllocatePod: an empty shared pool; SMT alignment is of the whole pod.
#[test]
fn a_pod_whose_containers_would_share_nothing_is_refused() {
    let empty = "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no \
                 cpus for shared containers";
    let smt = "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2";
    for (parts, options, reason, message) in [
        (
            "pod 2, app 1, app 1, app",
            &[][..],
            "EmptyPodSharedPoolError",
            empty,
        ),
        (
            "pod 3, app 1",
            &["full-pcpus-only"],
            "SMTAlignmentError",
            smt,
        ),
    ] {
        let node = Node {
            options,
            pod_level: PodLevelManagers::On,
            ..Node::new(two_sockets())
        };
        let refused = assign(
            &node.manager(),
            &pod_of("new", parts),
            &HeldAssignments::new(),
        );
        let refused = refused.unwrap_err();
        assert_eq!((refused.reason(), &*refused.to_string()), (reason, message));
    }
}

/// Upstream's Allocate and AllocatePod with the gate closed.
#[test]
fn a_pod_with_pod_level_resources_is_left_alone_without_the_gate() {
    let manager = Node::new(two_sockets()).manager();
    let (pod, none) = (pod_of("new", "pod 2, app 1"), HeldAssignments::new());
    assert_eq!(
        admit(&manager, &pod, &none, anywhere()),
        Ok(Assignment::default())
    );
    assert_eq!(assign(&manager, &pod, &none), Ok(Assignment::default()));
}

/// Container by container, a pod with pod-level resources has its guaranteed containers' CPUs alone.
#[test]
fn containers_of_such_a_pod_are_given_their_own_where_the_scope_is_the_container() {
    let (manager, pod) = (manager(), pod_of("new", "pod 4, app 2, app"));
    let assigned = admit(&manager, &pod, &HeldAssignments::new(), on(&[1])).unwrap();
    assert_eq!(
        shown(&assigned),
        BTreeMap::from([("app-0", "1,7".to_owned())])
    );
}
