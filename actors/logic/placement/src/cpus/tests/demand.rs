//! How many CPUs containers and pods have to themselves.

use super::*;
use crate::cpus::demand::CpuDemand;

const OFF: CpuDemand = CpuDemand {
    pod_level: PodLevelManagers::Off,
};
const ON: CpuDemand = CpuDemand {
    pod_level: PodLevelManagers::On,
};

/// Upstream's TestPodGuaranteedCPUs.
#[test]
fn a_pod_needs_the_most_that_its_containers_use_at_a_time() {
    for (parts, count) in [
        ("init 0, app 0", 0),
        ("init 0, app 2", 0),
        ("init 2, app 0", 0),
        ("init 2, app 2", 2),
        ("init 5, app 5", 5),
        ("init 2, app 5", 5),
        ("init 5, app 2", 5),
        ("init 2, init 4, app 2, app 4", 6),
        ("sidecar 1, app 1", 2),
        ("init 5, sidecar 1, sidecar 2, sidecar 3, app 1", 7),
        ("init 5, sidecar 1, sidecar 2, init 5, sidecar 3, app 1", 8),
        ("sidecar 10, init 200, app 100", 210),
    ] {
        for demand in [OFF, ON] {
            assert_eq!(demand.of_pod(&pod_of("pod", parts)), count, "{parts}");
        }
    }
    for (parts, count) in [
        ("pod 3, app 1", 3),
        ("pod 2500m, app 1", 0),
        ("pod 2/4, app 1", 0),
    ] {
        assert_eq!(ON.of_pod(&pod_of("pod", parts)), count, "{parts}");
    }
}

#[test]
fn a_container_of_a_pod_with_pod_level_resources_has_to_be_guaranteed_itself() {
    for (parts, off, on) in [
        ("app 2", 2, 2),
        ("app 2/3", 0, 0),
        ("app 1500m", 0, 0),
        ("pod 4, app 2", 2, 2),
        ("pod 4, app 2/3", 2, 0),
        ("pod 2/4, app 2", 0, 0),
    ] {
        let pod = pod_of("pod", parts);
        let container = &pod.app_containers()[0];
        assert_eq!(OFF.of_container(&pod, container), off, "{parts}");
        assert_eq!(ON.of_container(&pod, container), on, "{parts}");
    }
}

/// Upstream's TestValidatePodScopeResources.
#[test]
fn containers_that_share_need_cpus_to_share() {
    let at_start = "pod rejected, pod has shared init containers but no cpus available for them";
    let lasting = "pod rejected, sum of exclusive container cpu requests equals pod budget, \
                   leaving no cpus for shared containers";
    for (parts, refusal) in [
        ("pod 4, app 2, app", None),
        ("pod 4, app 2, app 2", None),
        ("pod 4, app, app", None),
        ("pod 6, app 3, app 2, app 500m/1, app", None),
        ("pod 5, app 3, app 2, app", Some(lasting)),
        ("pod 2, init 1, sidecar 1, app", None),
        ("pod 2, init 2, app 2", None),
        ("pod 2, sidecar 2, init", Some(at_start)),
        ("pod 2, init, sidecar 2", None),
        ("pod 2, sidecar 2, sidecar", Some(lasting)),
        ("pod 2, sidecar 1, app 1", None),
    ] {
        let checked = ON.check_shared_pool(&pod_of("pod", parts));
        assert_eq!(checked.err(), refusal, "{parts}");
    }
}
