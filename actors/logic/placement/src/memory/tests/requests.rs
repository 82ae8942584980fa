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
