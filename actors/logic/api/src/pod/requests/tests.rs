//! What pods ask for together.

use k8s_openapi::api::core::v1::PodCondition;
use proptest::prelude::*;

use super::*;
use crate::testing::*;

type RequestPairs<'a> = &'a [(&'a str, &'a str)];

/// A container's requests or limits, and what its status says of it.
#[derive(Clone, Copy, Default)]
struct ContainerRow<'a> {
    spec: RequestPairs<'a>,
    allocated: RequestPairs<'a>,
    actual: RequestPairs<'a>,
    sidecar: bool,
}

fn asks<'a>(spec: RequestPairs<'a>) -> ContainerRow<'a> {
    ContainerRow {
        spec,
        ..ContainerRow::default()
    }
}

fn sidecar<'a>(spec: RequestPairs<'a>) -> ContainerRow<'a> {
    ContainerRow {
        sidecar: true,
        ..asks(spec)
    }
}

fn lists(pairs: RequestPairs<'_>) -> Option<ResourceRequirements> {
    let list = Some(quantities(pairs));
    (!pairs.is_empty()).then(|| ResourceRequirements {
        requests: list.clone(),
        limits: list,
        claims: None,
    })
}

fn made(init: &[ContainerRow<'_>], apps: &[ContainerRow<'_>]) -> Pod {
    let mut pod = pod("p");
    let spec = pod.spec.as_mut().unwrap();
    let mut status = PodStatus::default();
    let container = |index: usize, kind: &str, part: &ContainerRow<'_>| Container {
        resources: lists(part.spec),
        restart_policy: part.sidecar.then(|| "Always".into()),
        ..spec_container(&format!("{kind}{index}"))
    };
    let told = |index: usize, kind: &str, part: &ContainerRow<'_>| ContainerStatus {
        name: format!("{kind}{index}"),
        allocated_resources: (!part.allocated.is_empty()).then(|| quantities(part.allocated)),
        resources: lists(part.actual),
        ..ContainerStatus::default()
    };
    for (index, part) in init.iter().enumerate() {
        let list = spec.init_containers.get_or_insert_default();
        list.push(container(index, "i", part));
        let list = status.init_container_statuses.get_or_insert_default();
        list.push(told(index, "i", part));
    }
    for (index, part) in apps.iter().enumerate() {
        spec.containers.push(container(index, "c", part));
        let list = status.container_statuses.get_or_insert_default();
        list.push(told(index, "c", part));
    }
    pod.status = Some(status);
    pod
}

fn infeasible(mut pod: Pod) -> Pod {
    let status = pod.status.get_or_insert_default();
    status.conditions = Some(vec![PodCondition {
        type_: "PodResizePending".into(),
        reason: Some("Infeasible".into()),
        status: "True".into(),
        ..PodCondition::default()
    }]);
    pod
}

fn assert_same(found: &ResourceAmounts, expected: RequestPairs<'_>, case: &str) {
    let print = |list: &ResourceAmounts| -> Vec<_> {
        let print =
            |(name, amount): (&String, &Quantity)| format!("{name}={}", whole(name, amount));
        list.iter().map(print).collect()
    };
    let expected = read(Some(&quantities(expected)));
    assert_eq!(print(found), print(&expected), "{case}");
}

/// Upstream's TestPodResourceRequests.
#[test]
fn requests_add_up_and_init_containers_count_as_far_as_they_ask_for_more() {
    let one: RequestPairs<'_> = &[("cpu", "1")];
    let cpu = |amount| -> [(&str, &str); 1] { [("cpu", amount)] };
    let (c1, c2, c3, c4, c5) = (cpu("1"), cpu("2"), cpu("3"), cpu("4"), cpu("5"));
    let (c10, c100, c200) = (cpu("10"), cpu("100"), cpu("200"));
    let cases: [(
        &str,
        Vec<ContainerRow<'_>>,
        Vec<ContainerRow<'_>>,
        RequestPairs<'_>,
    ); 6] = [
        (
            "larger init container",
            vec![asks(&c4)],
            vec![asks(one)],
            &[("cpu", "4")],
        ),
        (
            "larger containers",
            vec![asks(&c2)],
            vec![asks(&c2), asks(&c3)],
            &[("cpu", "5")],
        ),
        (
            "sidecar",
            vec![sidecar(&c1)],
            vec![asks(&c1)],
            &[("cpu", "2")],
        ),
        (
            "multiple sidecars",
            vec![sidecar(&c1), sidecar(&c2), sidecar(&c3)],
            vec![asks(&c1)],
            &[("cpu", "7")],
        ),
        (
            "init containers among sidecars",
            vec![
                asks(&c5),
                sidecar(&c1),
                sidecar(&c2),
                asks(&c5),
                sidecar(&c3),
            ],
            vec![asks(&c1)],
            &[("cpu", "8")],
        ),
        (
            "a sidecar beside a large init container",
            vec![sidecar(&c10), asks(&c200)],
            vec![asks(&c100)],
            &[("cpu", "210")],
        ),
    ];
    for (case, init, apps, expected) in cases {
        let pod = made(&init, &apps);
        assert_same(
            &pod_requests(&pod, RequestBasis::Spec, OverheadPolicy::Counted),
            expected,
            case,
        );
    }
}

/// Upstream's TestPodResourceRequests and TestPodRequestsAndLimitsWithoutOverhead.
#[test]
fn overhead_comes_on_top_of_requests_and_of_limits_that_are_there() {
    let pod = made(&[], &[asks(&[("cpu", "5")])]).spec_with(|spec| {
        spec.overhead = Some(quantities(&[("cpu", "1"), ("memory", "1Gi")]));
    });
    let requests = |overhead| pod_requests(&pod, RequestBasis::Spec, overhead);
    assert_same(&requests(OverheadPolicy::Left), &[("cpu", "5")], "left");
    let both: RequestPairs<'_> = &[("cpu", "6"), ("memory", "1Gi")];
    assert_same(&requests(OverheadPolicy::Counted), both, "counted");
    let limits = pod_limits(&pod, RequestBasis::Spec, OverheadPolicy::Counted);
    assert_same(&limits, &[("cpu", "6")], "limits");
    assert_eq!((request(&pod, CPU), request(&pod, MEMORY)), (6000, 0));
    assert_eq!(request(&pod, PODS), 1);
}

/// Upstream's TestPodResourceRequests, the cases of a resize.
#[test]
#[expect(clippy::too_many_lines, reason = "one table, a row a case")]
fn a_pod_being_resized_counts_with_the_largest_of_what_is_wanted_allocated_and_in_force() {
    fn resized<'a>(
        spec: RequestPairs<'a>,
        allocated: RequestPairs<'a>,
        actual: RequestPairs<'a>,
    ) -> ContainerRow<'a> {
        ContainerRow {
            spec,
            allocated,
            actual,
            sidecar: false,
        }
    }
    let one = |part: ContainerRow<'_>| made(&[], &[part]);
    let plain = one(resized(&[("cpu", "4")], &[], &[("cpu", "2")]));
    let found = |pod: &Pod, basis| pod_requests(pod, basis, OverheadPolicy::Counted);
    assert_same(
        &found(&plain, RequestBasis::Status),
        &[("cpu", "4")],
        "no condition",
    );
    let never = infeasible(plain);
    assert_same(
        &found(&never, RequestBasis::Status),
        &[("cpu", "2")],
        "infeasible",
    );
    assert_same(
        &found(&never, RequestBasis::Spec),
        &[("cpu", "4")],
        "status not asked",
    );
    let under_way = one(resized(&[("cpu", "6")], &[("cpu", "4")], &[("cpu", "2")]));
    let under_way = infeasible(under_way);
    assert_same(
        &found(&under_way, RequestBasis::Status),
        &[("cpu", "4")],
        "under way",
    );
    let three = one(resized(
        &[
            ("cpu", "30m"),
            ("memory", "20M"),
            (EPHEMERAL_STORAGE, "10G"),
        ],
        &[
            ("cpu", "20m"),
            ("memory", "10M"),
            (EPHEMERAL_STORAGE, "30G"),
        ],
        &[
            ("cpu", "10m"),
            ("memory", "30M"),
            (EPHEMERAL_STORAGE, "20G"),
        ],
    ));
    let expected: RequestPairs<'_> = &[
        ("cpu", "30m"),
        ("memory", "30M"),
        (EPHEMERAL_STORAGE, "30G"),
    ];
    assert_same(&found(&three, RequestBasis::Status), expected, "three ways");
    let crossed = made(
        &[],
        &[
            resized(&[("cpu", "1")], &[("cpu", "2")], &[]),
            resized(&[("cpu", "2")], &[("cpu", "1")], &[]),
        ],
    );
    assert_same(
        &found(&crossed, RequestBasis::Status),
        &[("cpu", "3")],
        "sums, not maxima",
    );
    let mut side = resized(&[("cpu", "4")], &[], &[("cpu", "2")]);
    side.sidecar = true;
    let side = made(&[side], &[]);
    assert_same(
        &found(&side, RequestBasis::Status),
        &[("cpu", "4")],
        "sidecar",
    );
    assert_same(
        &found(&infeasible(side), RequestBasis::Status),
        &[("cpu", "2")],
        "sidecar, infeasible",
    );
}

/// Upstream's TestPodResourceLimits.
#[test]
fn limits_follow_the_same_rules() {
    let limits = |pod: &Pod, basis| pod_limits(pod, basis, OverheadPolicy::Counted);
    let none = made(&[], &[asks(&[]), asks(&[])]);
    assert_same(&limits(&none, RequestBasis::Spec), &[], "no limits");
    let one = made(
        &[asks(&[("cpu", "2")])],
        &[asks(&[("memory", "2")]), asks(&[])],
    );
    let expected: RequestPairs<'_> = &[("cpu", "2"), ("memory", "2")];
    assert_same(&limits(&one, RequestBasis::Spec), expected, "some limits");
    for (spec, actual) in [("1Gi", "2Gi"), ("2Gi", "1Gi")] {
        let (spec, actual) = ([("memory", spec)], [("memory", actual)]);
        let part = ContainerRow {
            spec: &spec,
            actual: &actual,
            ..ContainerRow::default()
        };
        let pod = made(&[], &[part]);
        assert_same(
            &limits(&pod, RequestBasis::Status),
            &[("memory", "2Gi")],
            "scaled",
        );
        assert_same(&limits(&pod, RequestBasis::Spec), &spec, "status not asked");
    }
}

/// Upstream's TestPodLevelResourceRequests and TestIsPodLevelResourcesSet.
#[test]
fn pod_level_amounts_stand_for_what_containers_ask_for() {
    let with = |own: RequestPairs<'_>, apps: &[ContainerRow<'_>]| {
        made(&[], apps).spec_with(|spec| spec.resources = lists(own))
    };
    let cases: [(RequestPairs<'_>, RequestPairs<'_>, RequestPairs<'_>, bool); 6] = [
        (&[], &[("memory", "3Mi")], &[("memory", "3Mi")], false),
        (&[("memory", "2Mi")], &[], &[("memory", "2Mi")], true),
        (
            &[("memory", "2Mi")],
            &[("cpu", "2m")],
            &[("cpu", "2m"), ("memory", "2Mi")],
            true,
        ),
        (
            &[("storage", "2Mi")],
            &[("storage", "3Mi")],
            &[("storage", "3Mi")],
            false,
        ),
        (
            &[("memory", "6Mi"), ("cpu", "8m")],
            &[("memory", "3Mi"), ("cpu", "2m")],
            &[("memory", "6Mi"), ("cpu", "8m")],
            true,
        ),
        (
            &[("cpu", "1"), ("hugepages-2Mi", "10Mi")],
            &[("memory", "4Mi"), ("hugepages-1Gi", "1Gi")],
            &[
                ("cpu", "1"),
                ("memory", "4Mi"),
                ("hugepages-2Mi", "10Mi"),
                ("hugepages-1Gi", "1Gi"),
            ],
            true,
        ),
    ];
    for (own, app, expected, is_set) in cases {
        let pod = with(own, &[asks(app)]);
        let found = pod_requests(&pod, RequestBasis::Spec, OverheadPolicy::Counted);
        assert_same(&found, expected, &format!("{own:?}"));
        assert_eq!(has_pod_level(&pod), is_set, "{own:?}");
    }
}

#[test]
fn nothing_is_less_than_nought() {
    let read = |text: &str| parse(&api::Quantity(text.into())).unwrap();
    let cases = [
        ("2Gi", "512Mi", "1536Mi"),
        ("1", "1500m", "0"),
        ("4", "250m", "3750m"),
    ];
    for (amount, taken, expected) in cases {
        assert_eq!(left(&read(amount), &read(taken)).to_string(), expected);
    }
}

proptest! {
    #[test]
    fn a_pod_asks_for_at_least_what_any_container_of_it_asks_for(
        apps in proptest::collection::vec(0_i64..1000, 0..4),
        init in proptest::collection::vec((0_i64..1000, any::<bool>()), 0..4),
    ) {
        let text = |amount: i64| [("cpu".to_owned(), api::Quantity(format!("{amount}m")))].into();
        let container = |(index, (amount, sidecar)): (usize, (i64, bool))| Container {
            resources: Some(ResourceRequirements { requests: Some(text(amount)), ..Default::default() }),
            restart_policy: sidecar.then(|| "Always".into()),
            ..spec_container(&format!("c{index}"))
        };
        let pod = pod("p").spec_with(|spec| {
            spec.containers = apps.iter().map(|a| (*a, false)).enumerate().map(container).collect();
            spec.init_containers = Some(init.iter().copied().enumerate().map(container).collect());
        });
        let total = request(&pod, CPU);
        let sidecars: i64 = init.iter().filter(|i| i.1).map(|i| i.0).sum();
        prop_assert!(total >= apps.iter().sum::<i64>() + sidecars);
        for (amount, _) in &init {
            prop_assert!(total >= *amount);
        }
        prop_assert!(total <= apps.iter().sum::<i64>() + init.iter().map(|i| i.0).sum::<i64>());
    }
}
