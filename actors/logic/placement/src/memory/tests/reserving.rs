//! Memory that is reserved for the system, and which managers there can be.

use super::super::amount::MemoryAmounts;
use super::super::reserved::{ReservedMemory, reserved_memory};
use super::*;

type Limits = &'static [(&'static str, &'static str)];

fn amounts(limits: Limits) -> ResourceAmounts {
    let pair = |(name, amount): &(&str, &str)| ((*name).to_owned(), amount.parse().unwrap());
    limits.iter().map(pair).collect()
}

fn reservations(list: &[(i32, Limits)]) -> Vec<MemoryReservation> {
    let reservation = |(node, limits): &(i32, Limits)| MemoryReservation {
        node: *node,
        limits: amounts(limits),
    };
    list.iter().map(reservation).collect()
}

fn reserved(of_node: Limits, list: &[(i32, Limits)]) -> Result<ReservedMemory, String> {
    let machine = machine(&[(10240, 5); 2]);
    let reserved = reserved_memory(&machine, &amounts(of_node), &reservations(list));
    reserved.map_err(|error| error.to_string())
}

/// Upstream's TestValidateReservedMemory and TestGetSystemReservedMemory, those that fail.
#[test]
fn what_nodes_reserve_adds_up_to_what_the_node_reserves() {
    const FIRST: Limits = &[
        ("memory", "12"),
        ("hugepages-2Mi", "70"),
        ("hugepages-1Gi", "13"),
    ];
    const SECOND: Limits = &[("memory", "5"), ("hugepages-2Mi", "7")];
    for (of_node, list, expected) in [
        (
            &[][..],
            &[(0, &[("memory", "12")][..])][..],
            ("12", "memory", "0"),
        ),
        (&[("hugepages-2Mi", "5")], &[], ("0", "hugepages-2Mi", "5")),
        (
            &[("memory", "5")],
            &[(0, &[("memory", "12")])],
            ("12", "memory", "5"),
        ),
        (
            &[
                ("memory", "17"),
                ("hugepages-2Mi", "14"),
                ("hugepages-1Gi", "13"),
            ],
            &[(0, FIRST), (1, SECOND)],
            ("77", "hugepages-2Mi", "14"),
        ),
        (&[], &[(0, &[("memory", "1Gi")])], ("1Gi", "memory", "0")),
        (&[], &[(0, &[("memory", "1024Mi")])], ("1Gi", "memory", "0")),
    ] {
        let (total, resource, value) = expected;
        let expected = format!(
            "the total amount {total:?} of type {resource:?} is not equal to the value {value:?} determined by Node \
             Allocatable feature"
        );
        assert_eq!(reserved(of_node, list), Err(expected));
    }
    let elsewhere = reserved(
        &[("memory", "17")],
        &[(0, &[("memory", "12")]), (2, &[("memory", "5")])],
    );
    let expected = "the reserved memory configuration references a NUMA node 2 that does not exist on this machine";
    assert_eq!(elsewhere.unwrap_err(), expected);
    let fraction = reserved(&[("memory", "1.5")], &[(0, &[("memory", "1.5")])]);
    let expected = "could not covert a variable of type Quantity to int64";
    assert_eq!(fraction.unwrap_err(), expected);
}

/// Upstream's TestValidateReservedMemory, TestConvertPreReserved and TestGetSystemReservedMemory, those that succeed.
#[test]
fn each_node_reserves_what_its_entry_says() {
    const FIRST: Limits = &[
        ("memory", "12"),
        ("hugepages-2Mi", "70"),
        ("hugepages-1Gi", "13"),
    ];
    const SECOND: Limits = &[("memory", "5"), ("hugepages-2Mi", "7")];
    const BOTH: Limits = &[
        ("memory", "17"),
        ("hugepages-2Mi", "77"),
        ("hugepages-1Gi", "13"),
    ];
    for (of_node, list, expected) in [
        (&[][..], &[][..], [&[][..], &[]]),
        (
            &[("memory", "0")],
            &[(0, &[("memory", "0")][..])],
            [&[("memory", 0)], &[]],
        ),
        // What the node reserves of other resources is nothing to memory.
        (&[("cpu", "1")], &[], [&[], &[]]),
        (
            FIRST,
            &[(0, FIRST)],
            [
                &[("memory", 12), ("hugepages-2Mi", 70), ("hugepages-1Gi", 13)],
                &[],
            ],
        ),
        (
            BOTH,
            &[(0, FIRST), (1, SECOND)],
            [
                &[("memory", 12), ("hugepages-2Mi", 70), ("hugepages-1Gi", 13)],
                &[("memory", 5), ("hugepages-2Mi", 7)],
            ],
        ),
        (
            &[("memory", "2Gi")],
            &[(0, &[("memory", "1Gi")]), (1, &[("memory", "1Gi")])],
            [&[("memory", GI)], &[("memory", GI)]],
        ),
    ] {
        let of = |amounts: &[(&str, u64)]| -> MemoryAmounts {
            amounts
                .iter()
                .map(|(name, bytes)| ((*name).to_owned(), *bytes))
                .collect()
        };
        let expected = (0..).map(node).zip(expected.map(of)).collect();
        assert_eq!(reserved(of_node, list), Ok(expected));
    }
}

/// Upstream's TestNewManager, TestStaticPolicyNew and TestStaticPolicyName.
#[test]
fn a_manager_has_the_policy_of_its_setting() {
    const ONE: Limits = &[("memory", "1Gi")];
    const TWO: Limits = &[("memory", "2Gi")];
    const UNEQUAL: &str = "the total amount \"3Gi\" of type \"memory\" is not equal to the value \"2Gi\" determined by \
                           Node Allocatable feature";
    const NOTHING: &str = "[memorymanager] you should specify the system reserved memory";
    for (policy, of_node, list, refusal) in [
        ("Static", TWO, &[(0, ONE), (1, ONE)][..], None),
        ("Static", ONE, &[(1, ONE)], None),
        ("Static", TWO, &[(0, ONE), (1, TWO)], Some(UNEQUAL)),
        ("Static", &[], &[], Some(NOTHING)),
        (
            "Static",
            &[("hugepages-1Gi", "1Gi")],
            &[(0, &[("hugepages-1Gi", "1Gi")])],
            Some(NOTHING),
        ),
        ("fake", &[], &[], Some("unknown policy: \"fake\"")),
        ("None", &[], &[], None),
        (
            "BestEffort",
            &[],
            &[],
            Some("policy \"BestEffort\" is not available for platform \"linux\""),
        ),
    ] {
        let settings = MemorySettings {
            policy,
            of_node: &amounts(of_node),
            reservations: &reservations(list),
            pod_level: PodLevelManagers::Off,
        };
        match (
            MemoryManager::new(&settings, &machine(&[(10240, 5); 2])),
            refusal,
        ) {
            (Ok(manager), None) => assert_eq!(manager.policy().as_str(), policy),
            (Err(error), Some(refusal)) => assert_eq!(error.to_string(), refusal),
            (other, _) => panic!("{policy}: {other:?}"),
        }
    }
}

#[test]
fn a_machine_of_too_many_nodes_has_no_static_policy() {
    let machine = machine(&[(1024, 0); 17]);
    let all: Vec<_> = (0..17)
        .map(|node| (node, &[("memory", "1Gi")][..]))
        .collect();
    let settings = MemorySettings {
        policy: "Static",
        of_node: &amounts(&[("memory", "17Gi")]),
        reservations: &reservations(&all),
        pod_level: PodLevelManagers::Off,
    };
    let refused = MemoryManager::new(&settings, &machine).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "unsupported on machines with more than 16 NUMA Nodes"
    );
}

/// Upstream's TestAddContainer, the case without a policy.
#[test]
fn without_a_policy_nobody_gets_memory() {
    let manager = MemoryManager::new(
        &MemorySettings {
            policy: "None",
            of_node: &ResourceAmounts::new(),
            reservations: &[],
            pod_level: PodLevelManagers::On,
        },
        &machine(&[(1024, 1)]),
    );
    let manager = manager.unwrap();
    let (pod, none, nothing) = (
        one("a", "1Gi", "1Gi"),
        HeldAssignments::new(),
        Assignment::default(),
    );
    let request = request(&pod, &none, &nothing);
    assert_eq!(assign(&manager, &pod, &none, ANY), Ok(String::new()));
    assert_eq!(manager.assign_pod(&request, ANY), Ok(Assignment::default()));
    assert_eq!(manager.pod_hints(&request), ProviderHints::new());
    assert!(manager.allocatable().is_empty());
    let saved = manager.save(&none);
    assert_eq!(manager.restore(&saved).unwrap(), none);
    let text = "{\"policyName\":\"None\",\"machineState\":{},\"checksum\":";
    assert!(saved.starts_with(text.as_bytes()));
}

#[test]
fn more_reserved_than_there_is_leaves_nothing_and_wraps_nothing() {
    let mut small = machine(&[(0, 0)]);
    small.get_mut(&node(0)).unwrap().bytes = 1;
    assert!(
        managed_with(&small, PodLevelManagers::Off)
            .allocatable()
            .is_empty()
    );
}
