//! Whose CFS quota is off, by upstream's cases of container_manager_linux_test.go.

use super::*;

fn manager(pod_level: PodLevelManagers, quota: ExclusiveQuota) -> CpuManager {
    let settings = CpuSettings {
        pod_level,
        quota,
        ..defaults()
    };
    CpuManager::new(&settings, laptop()).unwrap()
}

/// Upstream's TestContainerHasExclusiveCPUs.
#[test]
fn a_container_has_no_quota_whose_cpus_are_its_own() {
    let (on, off) = (PodLevelManagers::On, PodLevelManagers::Off);
    for (gate, parts, own, exclusive) in [
        (on, "app 1", "1", true),
        (on, "pod 1, app 1", "1", true),
        (on, "pod 1, app 1", "", false),
        (on, "pod 1, app 500m", "1", false),
        (on, "pod 1, app 1/2", "1", false),
        (on, "pod 1, app", "1", false),
        (off, "pod 1, app 1", "", false),
        (off, "pod 1, app", "", false),
    ] {
        let pod = pod_of("new", parts);
        let container = &pod.app_containers()[0];
        let held = held(&[("new", "app-0", own)]);
        let found = |quota| manager(gate, quota).container_has_no_quota(&pod, container, &held);
        assert_eq!(found(ExclusiveQuota::Off), exclusive, "{parts}");
        assert!(!found(ExclusiveQuota::On), "{parts}");
        let is_exclusive = manager(gate, ExclusiveQuota::On).is_exclusive(&pod, container, &held);
        assert_eq!(is_exclusive, exclusive);
    }
}

/// Upstream's TestPodHasExclusiveCPUs.
#[test]
fn a_pod_has_no_quota_whose_containers_have_none() {
    let (on, off) = (PodLevelManagers::On, PodLevelManagers::Off);
    for (gate, parts, own, expected) in [
        (off, "app", &[][..], false),
        (off, "app 1, app", &[("new", "app-0", "1")], true),
        (off, "init 1, app", &[("new", "init-0", "1")], true),
        (on, "pod 1, app 1", &[("new", "app-0", "1")], true),
        (on, "pod 1, app", &[("new", "app-0", "1")], false),
        (
            on,
            "pod 2, app 1, app",
            &[("new", "app-0", "1"), ("new", "app-1", "2")],
            false,
        ),
        (off, "pod 1, app", &[], false),
    ] {
        let pod = pod_of("new", parts);
        let found = |quota| manager(gate, quota).pod_has_no_quota(&pod, &held(own));
        assert_eq!(found(ExclusiveQuota::Off), expected, "{parts}");
        assert!(!found(ExclusiveQuota::On), "{parts}");
    }
}
