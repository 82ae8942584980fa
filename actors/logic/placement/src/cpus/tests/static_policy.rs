//! What the static policy gives to containers, by upstream's cases of policy_static_test.go and cpu_manager_test.go.

use super::*;

const FULL: &[&str] = &["full-pcpus-only"];

fn socket(machine: &CpuMachine, id: u32) -> String {
    machine.sockets()[&SocketId(id)].to_string()
}

/// What one container of a new pod gets while these CPUs are free: none where it has none of its own.
fn given(
    manager: &CpuManager,
    free: &str,
    amounts: &str,
    hint: TopologyHint,
) -> Result<String, String> {
    let pod = pod_of("new", &format!("app {amounts}"));
    let held = all_but(manager, &set(free));
    let assigned = admit(manager, &pod, &held, hint).map_err(|error| error.to_string())?;
    let shared = manager.shared(&with(held, &pod, &assigned));
    let own = assigned
        .containers
        .get("app-0")
        .map(list)
        .unwrap_or_default();
    assert_eq!(set(&own).common(&shared), 0);
    Ok(own)
}

fn not_enough(requested: u32, available: u32) -> Result<&'static str, String> {
    Err(format!(
        "Allocate failed due to not enough cpus available to satisfy request: \
         requested={requested}, available={available}, which is unexpected"
    ))
}

type Case<'a> = (CpuMachine, u32, &'a str, &'a str, Result<&'a str, String>);

fn check(cases: Vec<Case<'_>>, options: &'static [&'static str]) {
    for (machine, reserved, free, amounts, expected) in cases {
        let reserved = (reserved, "");
        let node = Node {
            reserved,
            options,
            ..Node::new(machine)
        };
        let own = given(&node.manager(), free, amounts, anywhere());
        assert_eq!(own, expected.map(str::to_owned), "{amounts} of {free}");
    }
}

/// Upstream's TestStaticPolicyAdd: the cases that no option changes.
#[test]
fn a_container_gets_cpus_that_lie_together_whether_cores_have_to_be_whole_or_not() {
    let machine = four_threads_a_core();
    let all_but_some = machine.cpus().difference(&set("3-7,11")).to_string();
    let (first, second) = (socket(&machine, 0), socket(&machine, 1));
    let cores = "1-2,9,11-13,23,25,35,38,48,51,53-54,61,113,173,233";
    let second_and_a_core = set(&second).union(&set("10,22,34,47")).to_string();
    let more = set("53,61,108,115,173,181,228,235");
    let second_and_more = set(&second_and_a_core).union(&more).to_string();
    for options in [&[][..], FULL] {
        let large = || machine.clone();
        let cases: Vec<Case<'_>> = vec![
            (laptop(), 1, "0-1,4-5", "2", Ok("1,5")),
            (two_sockets(), 1, "0-1,3-11", "6", Ok("1,3,5,7,9,11")),
            (two_sockets(), 1, "0,2-4,6-11", "6", Ok("2-4,8-10")),
            (two_sockets_without_smt(), 1, "0-1,3-7", "4", Ok("4-7")),
            (
                two_sockets_without_smt(),
                1,
                "0-1,3,6-7",
                "4",
                Ok("1,3,6-7"),
            ),
            (two_sockets(), 1, "0-1,3-11", "8", Ok("1,3-5,7,9-11")),
            (laptop(), 1, "0-7", "1/2", Ok("")),
            (laptop(), 1, "0-7", "977m", Ok("")),
            (large(), 0, &all_but_some, "72", Ok(&first)),
            (
                large(),
                0,
                cores,
                "12",
                Ok("1,11,13,23,25,35,38,48,53,113,173,233"),
            ),
            (large(), 0, &second_and_more, "76", Ok(&second_and_a_core)),
        ];
        check(cases, options);
    }
}

/// Upstream's TestStaticPolicyAdd: the cases without options, and TestTopologyAwareAllocateCPUs.
#[test]
fn a_container_gets_threads_of_broken_cores_or_is_refused() {
    let large = four_threads_a_core;
    let cases: Vec<Case<'_>> = vec![
        (laptop(), 1, "0-7", "1", Ok("4")),
        (large(), 0, "10-11,52-53,67", "5", Ok("10-11,52-53,67")),
        (laptop(), 1, "0-7", "8", not_enough(8, 7)),
        (two_sockets(), 1, "0,4-11", "10", not_enough(10, 8)),
        (laptop(), 1, "0,7", "2", not_enough(2, 1)),
        (large(), 0, "10-11,37,52-53,55,67", "76", not_enough(76, 7)),
    ];
    check(cases, &[]);
    for (amounts, hint, expected) in [
        ("2", anywhere(), "0,6"),
        ("2", on(&[0]), "0,6"),
        ("2", on(&[1]), "1,7"),
        ("8", on(&[0]), "0-2,4,6-8,10"),
        ("8", on(&[1]), "0-1,3,5-7,9,11"),
    ] {
        let manager = Node::new(two_sockets()).manager();
        assert_eq!(
            given(&manager, "0-11", amounts, hint).as_deref(),
            Ok(expected)
        );
    }
}

/// Upstream's TestStaticPolicyAdd: a container that is in the state already.
#[test]
fn a_container_keeps_its_cpus_over_a_restart() {
    let pod = pod_of("kept", "app 4");
    let kept = held(&[("kept", "app-0", "2-3,6-7")]);
    // Nothing else is free that would be whole cores: what runs is not judged again.
    let options = FULL;
    let reserved = (1, "");
    let manager = Node {
        reserved,
        options,
        ..Node::new(laptop())
    }
    .manager();
    let others = held(&[("other", "app-0", "1,5")]);
    for held in [kept.clone(), kept.into_iter().chain(others).collect()] {
        let assigned = admit(&manager, &pod, &held, on(&[0])).unwrap();
        assert_eq!(
            shown(&assigned),
            BTreeMap::from([("app-0", "2-3,6-7".to_owned())])
        );
    }
}

/// Upstream's TestStaticPolicyAdd: FullPCPUsOnlyOption; the words are those of TestSMTAlignmentErrorText.
#[test]
fn a_container_gets_whole_cores_or_is_refused_with_its_reason() {
    let multiple = |requested: u32, per_core: u32| {
        format!(
            "SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}"
        )
    };
    let physical = |available: u32, requested: u32| {
        format!(
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = \
             {available}, requested CPUs = {requested}, CPUs per core = 2"
        )
    };
    for (machine, reserved, free, amounts, refusal) in [
        (laptop(), (1, ""), "0-7", "1", multiple(1, 2)),
        (
            four_threads_a_core(),
            (8, ""),
            "0-287",
            "15",
            multiple(15, 4),
        ),
        (
            two_sockets(),
            (2, "1,6"),
            "0,2-5,7-11",
            "10",
            physical(8, 10),
        ),
        (two_sockets(), (2, "0,6"), "", "4", physical(0, 4)),
    ] {
        let manager = Node {
            reserved,
            options: FULL,
            ..Node::new(machine)
        }
        .manager();
        let pod = pod_of("new", &format!("app {amounts}"));
        let held = all_but(&manager, &set(free));
        let refused = admit(&manager, &pod, &held, anywhere()).unwrap_err();
        assert_eq!(
            (refused.reason(), refused.to_string()),
            ("SMTAlignmentError", refusal)
        );
    }
    for reserved in [(2, ""), (2, "0,6")] {
        let manager = Node {
            reserved,
            options: FULL,
            ..Node::new(two_sockets())
        }
        .manager();
        let own = given(&manager, "1-5,7-11", "10", anywhere());
        assert_eq!(own.as_deref(), Ok("1-5,7-11"));
    }
}

/// Upstream's TestStaticPolicyAdd: AlignBySocketOption.
#[test]
fn nodes_of_one_socket_are_as_good_as_one_node_if_sockets_are_aligned() {
    for (options, expected) in [(&["align-by-socket"][..], "2,11"), (&[], "2,21")] {
        let reserved = (1, "");
        let manager = Node {
            reserved,
            options,
            ..Node::new(two_nodes_a_socket())
        }
        .manager();
        let own = given(&manager, "2,11,21-22", "2", on(&[0, 2]));
        assert_eq!(own.as_deref(), Ok(expected));
    }
}

/// Upstream's TestStaticPolicyAddWithResvList and TestCPUManagerAddWithResvList.
#[test]
fn a_reserved_cpu_is_given_to_nobody() {
    for (machine, reserved, free, amounts, expected) in [
        (laptop(), (1, "0"), "0-7", "8", not_enough(8, 7)),
        (laptop(), (2, "0-1"), "0-7", "1", Ok("4")),
        (laptop(), (2, "0-1"), "0-1,4-5", "2", Ok("4-5")),
    ] {
        let manager = Node {
            reserved,
            ..Node::new(machine)
        }
        .manager();
        let own = given(&manager, free, amounts, anywhere());
        assert_eq!(own, expected.map(str::to_owned));
    }
    let four = Even {
        sockets: 1,
        nodes: 1,
        caches: 1,
        cores: 4,
        threads: 1,
    }
    .machine();
    let manager = Node {
        reserved: (1, "0"),
        ..Node::new(four)
    }
    .manager();
    let pod = pod_of("new", "app 2");
    let assigned = admit(&manager, &pod, &HeldAssignments::new(), anywhere()).unwrap();
    let held = with(HeldAssignments::new(), &pod, &assigned);
    assert_eq!(manager.shared(&held), set("0,3"));
}

/// Containers, what each of them has to itself, and what is left for others.
type Reuse = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
);

const REUSE: &[Reuse] = &[
    ("app 2", &[("app-0", "0,4")], "1-3,5-7"),
    ("init 100m, app 4", &[("app-1", "0-1,4-5")], "2-3,6-7"),
    (
        "init 4, app 4",
        &[("init-0", "0-1,4-5"), ("app-1", "0-1,4-5")],
        "2-3,6-7",
    ),
    (
        "init 6, app 4",
        &[("init-0", "0-2,4-6"), ("app-1", "0-1,4-5")],
        "3,7",
    ),
    (
        "init 2, app 4",
        &[("init-0", "0,4"), ("app-1", "0-1,4-5")],
        "2-3,6-7",
    ),
    (
        "init 2, init 2, app 2",
        &[("init-0", "0,4"), ("init-1", "0,4"), ("app-2", "0,4")],
        "1-3,5-7",
    ),
    (
        "init 4, init 4, app 2",
        &[
            ("init-0", "0-1,4-5"),
            ("init-1", "0-1,4-5"),
            ("app-2", "0,4"),
        ],
        "2-3,6-7",
    ),
    (
        "init 2, init 2, app 4",
        &[("init-0", "0,4"), ("init-1", "0,4"), ("app-2", "0-1,4-5")],
        "2-3,6-7",
    ),
    (
        "init 2, init 4, app 6",
        &[
            ("init-0", "0,4"),
            ("init-1", "0-1,4-5"),
            ("app-2", "0-2,4-6"),
        ],
        "3,7",
    ),
    (
        "init 2, init 4, app 2, app 2",
        &[
            ("init-0", "0,4"),
            ("init-1", "0-1,4-5"),
            ("app-2", "0,4"),
            ("app-3", "1,5"),
        ],
        "2-3,6-7",
    ),
    (
        "init 4, app 2",
        &[("init-0", "0-1,4-5"), ("app-1", "0,4")],
        "2-3,6-7",
    ),
    (
        "sidecar 4, app 2",
        &[("sidecar-0", "0-1,4-5"), ("app-1", "2,6")],
        "3,7",
    ),
];

/// Upstream's TestCPUManagerAdd, TestCPUManagerAddWithInitContainers, TestStaticPolicyReuseCPUs and
/// TestStaticPolicyDoNotReuseCPUs.
#[test]
fn containers_use_the_cpus_of_init_containers_again_but_not_those_of_sidecars() {
    for (parts, expected, shared) in REUSE {
        for options in [&[][..], FULL] {
            let manager = Node {
                options,
                ..Node::new(laptop())
            }
            .manager();
            let pod = pod_of("new", parts);
            let assigned = admit(&manager, &pod, &HeldAssignments::new(), anywhere()).unwrap();
            let expected = expected
                .iter()
                .map(|(name, own)| (*name, (*own).to_owned()));
            assert_eq!(shown(&assigned), expected.collect(), "{parts}");
            let held = with(HeldAssignments::new(), &pod, &assigned);
            assert_eq!(manager.shared(&held), set(shared), "{parts}");
        }
    }
}

/// With whole cores only, upstream counts what an init container has had as gone, and refuses the container after it.
#[test]
fn cpus_that_are_used_again_are_whole_cores_as_well() {
    let manager = Node {
        options: FULL,
        ..Node::new(laptop())
    }
    .manager();
    let pod = pod_of("new", "init 6, app 6");
    let assigned = admit(&manager, &pod, &HeldAssignments::new(), anywhere()).unwrap();
    let own = "0-2,4-6".to_owned();
    assert_eq!(
        shown(&assigned),
        BTreeMap::from([("init-0", own.clone()), ("app-1", own)])
    );
}

/// Upstream's TestStaticPolicyRemove and TestCPUManagerRemove: what is held no longer is everybody's.
#[test]
fn what_a_container_gives_back_is_shared_unless_its_siblings_have_it() {
    let manager = Node::new(laptop()).manager();
    for (left, shared) in [
        (&[][..], "0-7"),
        (&[("pod", "app-1", "4-7")], "0-3"),
        (&[("pod", "app-1", "2,4")], "0-1,3,5-7"),
        (&[("pod", "init-0", "0-3"), ("pod", "app-1", "0-1")], "4-7"),
    ] {
        assert_eq!(manager.shared(&held(left)), set(shared));
    }
}

/// Upstream's TestReconcileState: the CPUs that each container is to run on.
#[test]
fn a_container_runs_on_its_own_cpus_or_on_those_of_everybody() {
    let pod = pod_of("mixed", "init 2, app 2, app");
    let held = held(&[
        ("mixed", "init-0", "1-2"),
        ("mixed", "app-1", "1-2"),
        ("other", "app-0", "6"),
    ]);
    let reserved = (1, "0");
    for (options, rest) in [(&[][..], "0,3-5,7"), (&["strict-cpu-reservation"], "3-5,7")] {
        let manager = Node {
            reserved,
            options,
            ..Node::new(laptop())
        }
        .manager();
        for (container, cpus) in [
            ("init-0", "1-2"),
            ("app-1", "1-2"),
            ("app-2", rest),
            ("debug", rest),
        ] {
            assert_eq!(
                manager.affinity(&pod, container, &held),
                set(cpus),
                "{container}"
            );
        }
        assert_eq!(manager.shared(&held), set(rest));
    }
}
