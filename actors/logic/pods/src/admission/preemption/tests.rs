//! Who goes when a critical pod comes.

use k8s_openapi::api::core::v1::ResourceRequirements;
use logic_api::pod::SYSTEM_CRITICAL_PRIORITY;
use logic_api::testing::*;
use proptest::prelude::*;

use super::*;

/// A pod that asks for so many thousandths of CPU and MiB of memory; a guaranteed one is limited to them.
fn asking(name: &str, amount: i64, priority: Option<i32>, guaranteed: bool) -> Pod {
    let list = quantities(&[
        ("cpu", &format!("{amount}m")),
        ("memory", &format!("{amount}Mi")),
    ]);
    let list = (amount > 0).then_some(list);
    pod(name)
        .app_with("c", |c| {
            c.resources = Some(ResourceRequirements {
                limits: list.clone().filter(|_| guaranteed),
                requests: list,
                claims: None,
            });
        })
        .spec_with(|spec| spec.priority = priority)
}

fn named(name: &str) -> Pod {
    match name {
        "best-effort" => asking(name, 0, None, false),
        "burstable" => asking(name, 100, None, false),
        "high-burstable" => asking(name, 300, None, false),
        "priority-burstable" => asking(name, 200, Some(100), false),
        "guaranteed" => asking(name, 100, None, true),
        "high-guaranteed" => asking(name, 300, None, true),
        "cluster-critical" => asking(name, 100, Some(SYSTEM_CRITICAL_PRIORITY), false),
        "node-critical" => asking(name, 100, Some(SYSTEM_CRITICAL_PRIORITY + 100), false),
        other => panic!("no pod {other}"),
    }
}

/// Thousandths of CPU, MiB of memory, pods.
fn needs(cpu: i64, memory: i64, pods: i64) -> Vec<PreemptionNeed> {
    let rows = [(CPU, cpu), (MEMORY, memory << 20), ("pods", pods)];
    let rows = rows.into_iter().filter(|(_, amount)| *amount > 0);
    rows.map(|(resource, amount)| PreemptionNeed {
        resource: resource.into(),
        amount,
    })
    .collect()
}

/// The new pod, the running pods, what is missing, and the pods to preempt; none where preemption does not help.
type Row = (
    &'static str,
    &'static [&'static str],
    (i64, i64, i64),
    Option<&'static [&'static str]>,
);

const CRITICAL: &str = "cluster-critical";
const ALL: &[&str] = &[
    "best-effort",
    "burstable",
    "high-burstable",
    "guaranteed",
    "high-guaranteed",
];

const ROWS: [Row; 15] = [
    (CRITICAL, &[], (0, 0, 0), Some(&[])),
    (CRITICAL, &[], (0, 0, 1), None),
    (
        CRITICAL,
        &["burstable"],
        (100, 100, 1),
        Some(&["burstable"]),
    ),
    (CRITICAL, &["burstable"], (200, 200, 2), None),
    (
        CRITICAL,
        &["burstable", "best-effort"],
        (0, 0, 1),
        Some(&["best-effort"]),
    ),
    (
        CRITICAL,
        &["burstable", "guaranteed"],
        (0, 0, 1),
        Some(&["burstable"]),
    ),
    (
        CRITICAL,
        &["best-effort", "high-burstable", "burstable"],
        (100, 100, 0),
        Some(&["burstable"]),
    ),
    (
        CRITICAL,
        &["best-effort", "burstable", "high-burstable"],
        (150, 150, 0),
        Some(&["high-burstable"]),
    ),
    (
        CRITICAL,
        ALL,
        (350, 350, 0),
        Some(&["burstable", "high-burstable"]),
    ),
    (
        CRITICAL,
        ALL,
        (0, 550, 0),
        Some(&["high-burstable", "high-guaranteed"]),
    ),
    (
        CRITICAL,
        &[
            "best-effort",
            "high-burstable",
            "guaranteed",
            "high-guaranteed",
        ],
        (0, 350, 0),
        Some(&["guaranteed", "high-burstable"]),
    ),
    (
        "node-critical",
        &["cluster-critical"],
        (100, 0, 0),
        Some(&["cluster-critical"]),
    ),
    (CRITICAL, &["node-critical"], (100, 0, 0), None),
    (
        CRITICAL,
        &["guaranteed", "cluster-critical"],
        (100, 0, 0),
        Some(&["guaranteed"]),
    ),
    (
        CRITICAL,
        &[
            "best-effort",
            "guaranteed",
            "high-burstable",
            "priority-burstable",
        ],
        (0, 500, 0),
        Some(&["high-burstable", "priority-burstable"]),
    ),
];

/// Upstream's TestGetPodsToPreempt.
#[test]
fn as_few_and_small_pods_go_as_possible_the_least_important_class_first() {
    for (coming, others, (cpu, memory, pods), expected) in ROWS {
        let all: Vec<Pod> = others.iter().map(|name| named(name)).collect();
        let all: Vec<&Pod> = all.iter().collect();
        let found = victims(&named(coming), &all, needs(cpu, memory, pods));
        let found = found.ok().map(|pods| {
            let mut names: Vec<_> = pods.iter().map(|pod| pod.name().to_owned()).collect();
            names.sort();
            names
        });
        let expected = expected.map(|names| names.iter().map(|n| (*n).to_owned()).collect());
        assert_eq!(found, expected, "{others:?}");
    }
}

/// Upstream's TestAdmissionRequirementsDistance and TestAdmissionRequirementsSubtract.
#[test]
fn a_pod_is_near_as_far_as_it_meets_the_needs() {
    let far = |needs: &[PreemptionNeed], name| distance(needs, &named(name));
    let is = |found: f64, expected: f64| (found - expected).abs() < f64::EPSILON;
    assert!(is(far(&needs(0, 0, 0), "burstable"), 0.0));
    assert!(is(far(&needs(100, 100, 1), "best-effort"), 2.0));
    assert!(is(far(&needs(100, 100, 1), "burstable"), 0.0));
    assert!(is(far(&needs(50, 50, 0), "burstable"), 0.0));
    let left =
        |from: (i64, i64, i64), name| without(&needs(from.0, from.1, from.2), vec![&named(name)]);
    assert_eq!(left((100, 100, 1), "best-effort"), needs(100, 100, 0));
    assert_eq!(left((100, 100, 1), "burstable"), needs(0, 0, 0));
    assert_eq!(left((200, 200, 1), "burstable"), needs(100, 100, 0));
}

/// Upstream's TestSmallerResourceRequest.
#[test]
fn memory_decides_who_is_smaller_before_cpu() {
    let pod = |cpu: &str, memory: &str| {
        let requests = Some(quantities(&[("cpu", cpu), ("memory", memory)]));
        pod("p").app_with("c", |c| {
            c.resources = Some(ResourceRequirements {
                requests,
                ..ResourceRequirements::default()
            });
        })
    };
    let cases = [
        (pod("100m", "50Mi"), pod("0", "0"), false),
        (pod("100m", "50Mi"), pod("100m", "200Mi"), true),
        (pod("100m", "200Mi"), pod("200m", "50Mi"), false),
        (pod("100m", "50Mi"), pod("100m", "50Mi"), true),
    ];
    for (first, second, expected) in cases {
        assert_eq!(is_smaller(&first, &second), expected);
    }
}

/// Upstream's TestHandleAdmissionFailure, the cases without room.
#[test]
fn when_nobody_can_go_the_refusal_says_what_is_missing() {
    let best_effort = named("best-effort");
    let missing = [Insufficient {
        resource: "memory".into(),
        requested: 30,
        used: 25,
        capacity: 50,
    }];
    let refused = make_room(&named("cluster-critical"), &[&best_effort], &missing).unwrap_err();
    assert_eq!(refused.reason, "UnexpectedAdmissionError");
    assert_eq!(
        refused.message,
        "Unexpected error while attempting to recover from admission failure: preemption: error finding \
         a set of pods to preempt: no set of running pods found to reclaim resources: \
         [(res: memory, q: 5), ]"
    );
}

proptest! {
    #[test]
    fn nobody_goes_who_is_as_important_and_nothing_is_missing_then(
        pods in proptest::collection::vec((0_i64..5, any::<bool>(), -1_i32..3), 0..8),
        cpu in 0_i64..600,
        count in 0_i64..4,
    ) {
        let coming = named("cluster-critical");
        let make = |(index, (size, guaranteed, rank)): (usize, &(i64, bool, i32))| {
            let priority = (*rank >= 0).then(|| SYSTEM_CRITICAL_PRIORITY - 1 + rank);
            asking(&format!("p{index}"), size * 100, priority, *guaranteed)
        };
        let pods: Vec<Pod> = pods.iter().enumerate().map(make).collect();
        let all: Vec<&Pod> = pods.iter().collect();
        let needs = needs(cpu, 0, count);
        match victims(&coming, &all, needs.clone()) {
            Ok(gone) => {
                prop_assert!(gone.iter().all(|pod| !pod.is_critical()));
                prop_assert!(without(&needs, gone).is_empty());
            }
            Err(left) => {
                let may_go = all.into_iter().filter(|pod| is_preemptable(&coming, pod)).collect();
                prop_assert_eq!(without(&needs, may_go), left);
            }
        }
    }
}

/// Upstream's TestPreemptable.
#[test]
fn a_critical_pod_goes_before_others_and_a_higher_priority_before_a_lower_one() {
    const UPPER: i32 = SYSTEM_CRITICAL_PRIORITY + 1000;
    let of = |source: Option<&str>, priority: Option<i32>| {
        let mut made = pod("p").spec_with(|spec| spec.priority = priority);
        if let Some(source) = source {
            let annotations = made.metadata.annotations.get_or_insert_default();
            annotations.insert("kubernetes.io/config.source".into(), source.into());
        }
        made
    };
    let file = |priority| of(Some("file"), priority);
    let system = Some(SYSTEM_CRITICAL_PRIORITY);
    let rows = [
        (file(None), of(None, None), true),
        (file(Some(UPPER)), file(system), true),
        (of(Some("api"), Some(UPPER)), file(system), true),
        (file(system), file(Some(UPPER)), false),
        (file(None), file(None), false),
        (file(system), file(system), false),
    ];
    for (at, (coming, going, expected)) in rows.iter().enumerate() {
        assert_eq!(is_preemptable(coming, going), *expected, "{at}");
    }
}
