//! Upstream's tables on the resources that statuses show.

use k8s_openapi::api::core::v1::ResourceRequirements;
use logic_api::types::EnforcedResources;

use super::*;

type ResourcePairs = &'static [(&'static str, &'static str)];

fn resources(requests: ResourcePairs, limits: ResourcePairs) -> ResourceRequirements {
    let list = |list: ResourcePairs| (!list.is_empty()).then(|| quantities(list));
    ResourceRequirements {
        requests: list(requests),
        limits: list(limits),
        claims: None,
    }
}

fn with_resources(resources: &ResourceRequirements) -> Pod {
    pod("p").app_with("c", |c| c.resources = Some(resources.clone()))
}

const ONE: ResourcePairs = &[("cpu", "1"), ("memory", "1Gi")];
const TWO: ResourcePairs = &[("cpu", "2"), ("memory", "2Gi")];
const ONE_WITH_MORE: ResourcePairs = &[
    ("cpu", "1"),
    ("dummy.io/dummy", "1"),
    ("ephemeral-storage", "2Gi"),
    ("memory", "1Gi"),
];
const SMALL: ResourcePairs = &[("cpu", "1m"), ("memory", "100M")];
const GIB: i64 = 1 << 30;

fn enforced(cpu: i64, memory: i64) -> EnforcedResources {
    EnforcedResources {
        cpu_shares: cpu * 1024,
        cpu_quota: cpu * 100_000,
        cpu_period: 100_000,
        memory_limit: memory,
    }
}

/// Upstream's TestConvertToAPIContainerStatusesForResources.
#[test]
fn a_running_container_shows_what_is_enforced_and_what_is_allocated() {
    let one = Some(enforced(1, GIB));
    let least = EnforcedResources {
        cpu_shares: 2,
        cpu_quota: 1000,
        cpu_period: 100_000,
        memory_limit: 0,
    };
    let cases = [
        (resources(ONE, ONE), one, resources(ONE, ONE)),
        (
            resources(ONE_WITH_MORE, ONE_WITH_MORE),
            one,
            resources(ONE_WITH_MORE, ONE_WITH_MORE),
        ),
        (
            resources(&[("memory", "100M")], &[]),
            Some(least),
            resources(&[("memory", "100M")], &[]),
        ),
        (
            resources(SMALL, &[("cpu", "5m")]),
            Some(least),
            resources(SMALL, &[("cpu", "5m")]),
        ),
        (resources(&[], &[]), Some(least), resources(&[], &[])),
        (
            resources(&[("cpu", "0.5")], &[("cpu", "1.5"), ("memory", "1G")]),
            Some(enforced(1, GIB)),
            resources(&[("cpu", "1")], &[("cpu", "1"), ("memory", "1Gi")]),
        ),
        (
            resources(&[("cpu", "100m")], &[]),
            None,
            resources(&[("cpu", "100m")], &[]),
        ),
    ];
    for (allocated, enforced, expected) in cases {
        let mut scene = scene(with_resources(&allocated));
        scene.runtime = scene.runtime.running(&scene.pod, "c");
        scene.runtime.containers[0].enforced = enforced;
        let status = scene.status();
        let c = app(&status, "c");
        assert_eq!(
            c.resources.as_ref(),
            Some(&expected),
            "{allocated:?} {enforced:?}"
        );
        assert_eq!(c.allocated_resources, allocated.requests);
    }
}

/// The rows of upstream's TestConvertToAPIContainerStatusesForResources on pods that change.
#[test]
fn a_container_that_does_not_run_shows_what_is_allocated() {
    for state in [Seen::Created, Seen::Exited] {
        let mut scene = scene(with_resources(&resources(TWO, TWO)));
        scene.runtime = scene.runtime.with(instance(&scene.pod, "c", state));
        scene.runtime.containers[0].enforced = Some(enforced(1, GIB));
        let status = scene.status();
        assert_eq!(
            app(&status, "c").resources,
            Some(resources(TWO, TWO)),
            "{state:?}"
        );
    }
}

#[test]
fn a_resize_in_progress_shows_what_is_in_force_until_it_is_done() {
    let mut scene = scene(with_resources(&resources(ONE, ONE)));
    scene.runtime = scene.runtime.running(&scene.pod, "c");
    scene.runtime.containers[0].enforced = Some(enforced(1, GIB));
    scene.step();
    scene.pod.spec.as_mut().unwrap().containers[0].resources = Some(resources(TWO, TWO));
    scene.resize.in_progress = true;
    let status = scene.step();
    let c = app(&status, "c");
    assert_eq!(c.resources, Some(resources(ONE, ONE)));
    assert_eq!(c.allocated_resources, Some(quantities(TWO)));
    // A runtime that reports none leaves the last status.
    scene.runtime.containers[0].enforced = None;
    assert_eq!(app(&scene.step(), "c").resources, Some(resources(ONE, ONE)));
    scene.resize.in_progress = false;
    assert_eq!(app(&scene.step(), "c").resources, Some(resources(TWO, TWO)));
}

/// The rows of upstream's Test_generateAPIPodStatus behind InPlacePodLevelResourcesVerticalScaling.
#[test]
fn the_pod_as_a_whole_shows_what_it_is_allocated() {
    let both = || resources(&[("cpu", "300m"), ("memory", "300Mi")], &[]);
    let part = |cpu: &'static str, memory: &'static str| {
        let list = quantities(&[("cpu", cpu), ("memory", memory)]);
        Some(ResourceRequirements {
            requests: Some(list),
            ..ResourceRequirements::default()
        })
    };
    let apps = || {
        pod("p")
            .app_with("a", |c| c.resources = part("100m", "100Mi"))
            .app_with("b", |c| c.resources = part("200m", "200Mi"))
    };
    let cases = [
        (pod("p").app("a"), resources(&[], &[])),
        (apps(), both()),
        (
            apps().spec_with(|spec| spec.resources = Some(both())),
            both(),
        ),
        (
            with_init(apps(), "i", |c| c.resources = part("500m", "1Mi")),
            resources(&[("cpu", "500m"), ("memory", "300Mi")], &[]),
        ),
        (
            apps().spec_with(|spec| {
                spec.resources = Some(resources(ONE, TWO));
                spec.overhead = Some(quantities(&[("cpu", "500m"), ("memory", "1Gi")]));
            }),
            resources(
                &[("cpu", "1500m"), ("memory", "2Gi")],
                &[("cpu", "2500m"), ("memory", "3Gi")],
            ),
        ),
    ];
    for (pod, expected) in cases {
        let status = scene(pod).status();
        assert_eq!(status.resources.as_ref(), Some(&expected));
        assert_eq!(status.allocated_resources, expected.requests);
    }
}

/// Upstream's `convertToAPIPodLevelResourcesStatus` of a running pod: its control group knows CPU and memory alone, and
/// no limit where a container has none.
#[test]
fn a_running_pod_shows_what_its_control_group_has() {
    let run = |pod: Pod| {
        let mut scene = scene(pod);
        scene.pod.status = Some(PodStatus {
            phase: Some("Running".into()),
            ..PodStatus::default()
        });
        scene.status().resources.unwrap()
    };
    let with = |pod: Pod, name: &str, requests: ResourcePairs, limits: ResourcePairs| {
        let wanted = resources(requests, limits);
        pod.app_with(name, |c| c.resources = Some(wanted))
    };
    let one = || with(pod("p"), "a", ONE_WITH_MORE, ONE_WITH_MORE);
    assert_eq!(run(one()), resources(ONE, ONE));
    let both = run(with(one(), "b", &[("cpu", "1")], &[("memory", "1Gi")]));
    let expected = resources(&[("cpu", "2"), ("memory", "2Gi")], &[("memory", "2Gi")]);
    assert_eq!(both.limits, expected.limits, "one CPU is without limit");
    assert_eq!(both.requests.unwrap()["cpu"], quantities(TWO)["cpu"]);
    assert_eq!(run(pod("p").app("a")), resources(&[], &[]));
    let small = with(pod("p"), "a", SMALL, &[]);
    assert_eq!(run(small), resources(&[("memory", "100M")], &[]));
    let whole = one().spec_with(|spec| spec.resources = Some(resources(TWO, TWO)));
    assert_eq!(run(whole), resources(TWO, TWO));
}
