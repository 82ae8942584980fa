//! What a pod asks for as a whole.

use super::super::asked::AskedMemory;
use super::*;

/// Upstream's Test_getPodRequestedResources.
#[test]
fn a_pod_asks_for_the_most_that_it_needs_at_any_time() {
    let container = |(name, memory, huge): &(&str, u64, u64)| {
        let own = asking("main", &format!("{memory}Gi"), &format!("{huge}Gi"));
        match *name {
            "sidecar" => sidecar(own),
            _ => own,
        }
    };
    for (init, apps, expected) in [
        (
            vec![("", 1, 1), ("", 4, 4)],
            [("", 1, 1), ("", 2, 2)],
            (4, 4),
        ),
        (
            vec![("", 1, 1), ("", 3, 3)],
            [("", 2, 2), ("", 3, 3)],
            (5, 5),
        ),
        (
            vec![("", 1, 1), ("", 3, 4)],
            [("", 2, 1), ("", 3, 2)],
            (5, 4),
        ),
        (
            vec![("sidecar", 2, 2), ("", 4, 4)],
            [("", 1, 1), ("", 2, 2)],
            (6, 6),
        ),
        (
            vec![("sidecar", 2, 2), ("", 4, 4)],
            [("", 2, 2), ("", 3, 3)],
            (7, 7),
        ),
    ] {
        let pod = with(
            "a",
            init.iter().map(container).collect(),
            apps.iter().map(container).collect(),
        );
        let asked = AskedMemory {
            pod: &pod,
            pod_level: PodLevelManagers::Off,
        };
        let expected = [
            ("hugepages-1Gi".to_owned(), expected.1 * GI),
            ("memory".to_owned(), expected.0 * GI),
        ];
        assert_eq!(asked.of_pod().unwrap(), BTreeMap::from(expected));
    }
}

/// Upstream's TestIsContainerQOSGuaranteed (cm/qos). The class of the pod does not count.
#[test]
fn in_a_pod_with_memory_as_a_whole_a_container_has_its_own_where_requests_are_limits() {
    let amounts = [("cpu", "1"), ("memory", "100Mi")];
    let (cpu, memory) = (
        [("cpu", "2"), amounts[1]],
        [amounts[0], ("memory", "200Mi")],
    );
    for (resources, class, expected) in [
        (Some(requirements(&amounts, &amounts)), "Guaranteed", true),
        (Some(requirements(&amounts, &amounts)), "Burstable", true),
        (Some(requirements(&amounts, &cpu)), "Guaranteed", false),
        (Some(requirements(&amounts, &memory)), "Guaranteed", false),
        (None, "Guaranteed", false),
        (None, "BestEffort", false),
        (
            Some(requirements(&amounts[1..], &amounts[1..])),
            "Guaranteed",
            false,
        ),
    ] {
        let container = Container {
            resources,
            ..spec_container("main")
        };
        let whole = with("a", vec![], vec![container.clone()]);
        let mut pod = pod_level(whole, &amounts, &amounts);
        pod.status.get_or_insert_default().qos_class = Some(class.to_owned());
        let asked = AskedMemory {
            pod: &pod,
            pod_level: PodLevelManagers::On,
        };
        let own = asked.of_container(&container).unwrap();
        assert_eq!(!own.is_empty(), expected, "{container:?}");
    }
}
