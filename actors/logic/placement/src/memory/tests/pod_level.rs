//! Pods with resources of their own, under the gate `PodLevelResourceManagers`.

use super::super::asked::AskedMemory;
use super::*;

/// Containers by text: `name`, or `name 1Gi` with a request that is its limit; `sidecar name` is a sidecar, and `name
/// 1Gi<2Gi` has a greater limit.
fn containers(texts: &[&str]) -> Vec<Container> {
    let container = |text: &&str| {
        let plain = text.strip_prefix("sidecar ");
        let (name, memory) = plain
            .unwrap_or(text)
            .split_once(' ')
            .unwrap_or((plain.unwrap_or(text), ""));
        let own = match memory.split_once('<') {
            Some((request, limit)) => Container {
                resources: Some(requirements(
                    &[("cpu", "1"), ("memory", request)],
                    &[("cpu", "1"), ("memory", limit)],
                )),
                ..spec_container(name)
            },
            None if memory.is_empty() => Container {
                resources: Some(requirements(&[("cpu", "1")], &[("cpu", "1")])),
                ..spec_container(name)
            },
            None => asking(name, memory, ""),
        };
        match plain {
            Some(_) => sidecar(own),
            None => own,
        }
    };
    texts.iter().map(container).collect()
}

/// A pod with as much memory as a whole, at least and at most.
pub(super) fn whole(memory: (&str, &str), init: &[&str], apps: &[&str]) -> Pod {
    let pod = with("a", containers(init), containers(apps));
    let (requests, limits) = (
        [("cpu", "3"), ("memory", memory.0)],
        [("cpu", "3"), ("memory", memory.1)],
    );
    pod_level(pod, &requests, &limits)
}

/// Upstream's TestValidatePodScopeResources.
#[test]
fn containers_without_memory_of_their_own_find_some_left() {
    const LASTING: &str = "pod rejected, sum of exclusive container memory requests equals pod budget, leaving no memory \
                           for shared containers";
    const INIT: &str =
        "pod rejected, pod has shared init containers but no memory available for them";
    let none: &[&str] = &[];
    for (memory, init, apps, refusal) in [
        ("2Gi", none, &["c1 1Gi", "c2"][..], None),
        ("2Gi", none, &["c1 1Gi", "c2 1Gi"], None),
        ("2Gi", none, &["c1", "c2"], None),
        (
            "6Gi",
            none,
            &["c1 3Gi", "c2 2Gi", "c3 500Gi<1Gi", "c4"],
            None,
        ),
        ("5Gi", none, &["c1 2Gi", "c2 3Gi", "c3"], Some(LASTING)),
        ("2Gi", &["i1 1Gi", "sidecar i2 1Gi"], &["c1"], None),
        ("2Gi", &["sidecar i1 1Gi"], &["c1 1Gi"], None),
        ("2Gi", &["sidecar i1 2Gi", "i2"], none, Some(INIT)),
        ("2Gi", &["i1", "sidecar i2 2Gi"], none, None),
        ("2Gi", &["i1 2Gi", "sidecar i2 2Gi"], none, None),
        (
            "2Gi",
            &["sidecar i1 2Gi", "sidecar i2"],
            none,
            Some(LASTING),
        ),
        ("2Gi", &["sidecar i1 1Gi"], &["c1 1Gi"], None),
    ] {
        let pod = whole((memory, memory), init, apps);
        let asked = AskedMemory {
            pod: &pod,
            pod_level: PodLevelManagers::On,
        };
        let total = asked.of_pod().unwrap();
        let found = asked.leaves_a_shared_pool(&total);
        let refused = found.err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), refusal, "{init:?} {apps:?}");
    }
}

/// Texts between semicolons.
pub(super) fn list(texts: &str) -> Vec<&str> {
    let texts = texts.split("; ");
    texts.filter(|text| !text.is_empty()).collect()
}

/// Upstream's TestStaticPolicyAllocatePod. A row is the pod's memory, its init containers and its apps, the hint, the
/// nodes that are taken, and each container's part.
#[test]
fn a_pods_memory_is_divided_among_its_containers() {
    let both = on(&[0, 1]);
    let (sidecar, plain) = ("i1; sidecar i2 1Gi; i3", "i1; sidecar i2; i3");
    let of_sidecar = "c1 1Gi; c2 1Gi; i1 3Gi; i2 1Gi; i3 2Gi";
    let of_plain = "c1 1Gi; c2 2Gi; i1 3Gi; i2 2Gi; i3 3Gi";
    for (memory, init, apps, hint, nodes, expected) in [
        ("1Gi", "", "c1 512Mi", on(&[0]), &[0][..], "c1 512Mi"),
        // The hint is too narrow.
        ("2Gi", "", "c1 1Gi", off(&[1]), &[0, 1], "c1 1Gi"),
        ("2Gi", "", "c1 1Gi", on(&[1]), &[0, 1], "c1 1Gi"),
        ("2Gi", "", "c1; c2", both, &[0, 1], "c1 2Gi; c2 2Gi"),
        (
            "2Gi",
            "",
            "c1 1Gi; c2; c3",
            both,
            &[0, 1],
            "c1 1Gi; c2 1Gi; c3 1Gi",
        ),
        (
            "2Gi",
            "i1 2Gi",
            "c1 1Gi; c2",
            both,
            &[0, 1],
            "c1 1Gi; c2 1Gi; i1 2Gi",
        ),
        ("3Gi", sidecar, "c1 1Gi; c2", both, &[0, 1], of_sidecar),
        ("3Gi", plain, "c1 1Gi; c2", both, &[0, 1], of_plain),
        (
            "2Gi",
            "i1",
            "c1 1Gi; c2",
            both,
            &[0, 1],
            "c1 1Gi; c2 1Gi; i1 2Gi",
        ),
    ] {
        let manager = managed_with(&machine(&[(1536, 0); 2]), PodLevelManagers::On);
        let pod = whole((memory, memory), &list(init), &list(apps));
        let (mut held, nothing) = (HeldAssignments::new(), Assignment::default());
        let assigned = manager.assign_pod(&request(&pod, &held, &nothing), hint);
        let assigned = assigned.unwrap();
        let part = |part: &str| part.replace(' ', &format!(": {} memory ", ids(nodes)));
        let parts: Vec<String> = list(expected).into_iter().map(part).collect();
        assert_eq!(show(&assigned), parts);
        let pool = format!("{} memory {memory}", ids(nodes));
        assert_eq!(show_blocks(&assigned.pod.memory), pool);
        held.insert("a".into(), Arc::new(assigned.clone()));
        let again = manager.assign_pod(&request(&pod, &held, &nothing), ANY);
        assert_eq!(again.as_ref(), Ok(&assigned));
        // Asked container by container, as under another policy, each keeps its part and the pod the whole.
        assert_eq!(admit(manager, &pod, &mut held).unwrap(), parts);
        assert_eq!(*held[&"a".into()], assigned);
    }
}

/// Upstream's TestStaticPolicyAllocatePod, by what is free then.
#[test]
fn a_pods_memory_counts_once_as_a_whole() {
    for (blocks, expected) in [
        (
            "0 memory 1Gi",
            ["0 x1 hugepages-1Gi 0+0 memory 512Mi+1Gi", FREE],
        ),
        (
            "0,1 memory 2Gi",
            [FULL, "0,1 x1 hugepages-1Gi 0+0 memory 1Gi+512Mi"],
        ),
        ("0,1 memory 3Gi", [FULL, FULL]),
    ] {
        let manager = managed_with(&machine(&[(1536, 0); 2]), PodLevelManagers::On);
        let mut held = held(&[("a", "c1", blocks), ("a", "c2", "0 memory 512Mi")]);
        Arc::make_mut(held.get_mut(&"a".into()).unwrap()).pod = resources(blocks);
        assert_eq!(state(&manager, &held), expected);
    }
}

const FREE: &str = "1 x0 hugepages-1Gi 0+0 memory 1536Mi+0";
const FULL: &str = "0,1 x1 hugepages-1Gi 0+0 memory 0+1536Mi";

/// Upstream's TestStaticPolicyAllocatePod, those that get nothing.
#[test]
fn a_pod_gets_nothing_as_a_whole_that_is_not_guaranteed_or_leaves_nothing_to_share() {
    let manager = managed_with(&machine(&[(1536, 0); 2]), PodLevelManagers::On);
    let (none, nothing) = (HeldAssignments::new(), Assignment::default());
    let pod = whole(("2Gi", "2Gi"), &[], &["c1 1Gi", "c2 1Gi", "c3"]);
    let refused = manager
        .assign_pod(&request(&pod, &none, &nothing), ANY)
        .unwrap_err();
    assert_eq!(refused.reason(), "EmptyPodSharedPoolError");
    assert_eq!(
        refused.to_string(),
        "pod rejected, sum of exclusive container memory requests equals pod budget, leaving no memory for shared \
         containers"
    );
    let pod = whole(("1Gi", "2Gi"), &[], &["c1 1Gi", "c2", "c3"]);
    let assigned = manager.assign_pod(&request(&pod, &none, &nothing), ANY);
    assert_eq!(assigned, Ok(nothing));
}

/// Upstream fails such a container for want of a hint.
#[test]
fn by_container_one_without_memory_of_its_own_shares_the_nodes_of_all() {
    let manager = managed_with(&machine(&[(1536, 0); 2]), PodLevelManagers::On);
    let pod = whole(("1Gi", "1Gi"), &[], &["c1 512Mi", "c2"]);
    let assigned = admit(manager, &pod, &mut HeldAssignments::new());
    assert_eq!(assigned.unwrap(), ["c1: 0 memory 512Mi"]);
}
