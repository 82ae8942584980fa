//! Memory of init containers is used again.

use super::*;

/// Upstream's TestStaticPolicyAllocateWithInitContainers and TestStaticPolicyAllocateWithRestartableInitContainers. Each
/// container asks for so many GiB of memory and of huge pages.
#[test]
fn later_containers_take_over_memory_of_init_containers_and_none_of_sidecars() {
    type Asked = &'static [(&'static str, u64)];
    let cases: &[(u64, Asked, Asked, &[u64], u64)] = &[
        (
            7680,
            &[("i1", 1), ("i2", 2)],
            &[("m1", 3), ("m2", 4)],
            &[0, 0, 3, 4],
            7,
        ),
        (
            7680,
            &[("i1", 4), ("i2", 3)],
            &[("m1", 2), ("m2", 1)],
            &[0, 1, 2, 1],
            4,
        ),
        (
            7680,
            &[("i1", 7), ("i2", 4)],
            &[("m1", 4), ("m2", 3)],
            &[0, 0, 4, 3],
            7,
        ),
        (
            10240,
            &[("i1", 7), ("i2", 4)],
            &[("m1", 5), ("m2", 2)],
            &[0, 0, 5, 2],
            7,
        ),
        (
            7168,
            &[("i1", 1), ("i2 sidecar", 2), ("i3", 3), ("i4 sidecar", 4)],
            &[("m1", 1)],
            &[0, 2, 0, 4, 1],
            7,
        ),
    ];
    for (memory, init, apps, left, reserved) in cases {
        let container = |(name, gib): &(&str, u64)| {
            let amount = format!("{gib}Gi");
            match name.strip_suffix(" sidecar") {
                Some(name) => sidecar(asking(name, &amount, &amount)),
                None => asking(name, &amount, &amount),
            }
        };
        let containers = |list: Asked| list.iter().map(container).collect();
        let pod = with("a", containers(init), containers(apps));
        let names = init
            .iter()
            .chain(*apps)
            .map(|(name, _)| name.split(' ').next().unwrap());
        let line = |(name, gib): (&str, &u64)| {
            let amount = bytes(gib * GI);
            format!("{name}: 0 hugepages-1Gi {amount} + 0 memory {amount}")
        };
        let expected: Vec<String> = names.zip(*left).map(line).collect();
        let mut held = HeldAssignments::new();
        let machine = [(*memory, 10)];
        assert_eq!(
            admit(managed(&machine), &pod, &mut held),
            Ok(expected.clone())
        );
        let blocks = 2 * left.len();
        let huge = format!("{}+{}", bytes((10 - reserved) * GI), bytes(reserved * GI));
        let memory = format!(
            "{}+{}",
            bytes(memory * MI - reserved * GI),
            bytes(reserved * GI)
        );
        let state_now = format!("0 x{blocks} hugepages-1Gi {huge} memory {memory}");
        assert_eq!(state(&managed(&machine), &held), [state_now.as_str()]);
        // Admitted again, as after a restart, it keeps all of that.
        assert_eq!(admit(managed(&machine), &pod, &mut held), Ok(expected));
        assert_eq!(state(&managed(&machine), &held), [state_now]);
    }
}

/// Upstream's TestStaticPolicyAllocateWithRestartableInitContainers, whose containers have their memory already.
#[test]
fn a_pod_with_sidecars_keeps_what_it_has() {
    let pod = with(
        "a",
        vec![sidecar(asking("init", "1Gi", "1Gi"))],
        vec![asking("main", "1Gi", "1Gi")],
    );
    let mut held = held(&[("a", "init", "0 memory 1Gi"), ("a", "main", "0 memory 1Gi")]);
    let kept = admit(managed(&[(2560, 2)]), &pod, &mut held);
    let expected = ["init: 0 memory 1Gi", "main: 0 memory 1Gi"];
    assert_eq!(kept.unwrap(), expected);
    let state = state(&managed(&[(2560, 2)]), &held);
    assert_eq!(state, ["0 x2 hugepages-1Gi 2Gi+0 memory 512Mi+2Gi"]);
}

/// Upstream's TestAllocateAndAddPodWithInitContainers.
#[test]
fn what_is_left_of_an_init_containers_memory_is_released_when_the_next_container_starts() {
    let pod = with(
        "a",
        vec![
            asking("init", "7Gi", "5Gi"),
            sidecar(asking("beside", "1Gi", "0")),
        ],
        vec![asking("main", "4Gi", "4Gi")],
    );
    let mut held = HeldAssignments::new();
    let machine = [(9728, 5); 2];
    admit(managed(&machine), &pod, &mut held).unwrap();
    let own = held.get_mut(&"a".into()).unwrap();
    let before = own.clone();
    release_ended(Arc::make_mut(own), &pod, "init");
    assert_eq!(*own, before);
    release_ended(Arc::make_mut(own), &pod, "main");
    let expected = [
        "beside: 0 hugepages-1Gi 0 + 0 memory 1Gi",
        "main: 0 hugepages-1Gi 4Gi + 0 memory 4Gi",
    ];
    assert_eq!(show(own), expected);
    let free = [
        "0 x4 hugepages-1Gi 1Gi+4Gi memory 4608Mi+5Gi",
        "1 x0 hugepages-1Gi 5Gi+0 memory 9728Mi+0",
    ];
    assert_eq!(state(&managed(&machine), &held), free);
    // Admitted again, the container that has ended gets nothing, though there were memory for it.
    assert_eq!(admit(managed(&machine), &pod, &mut held).unwrap(), expected);
}

#[test]
fn memory_on_other_nodes_or_of_another_kind_is_not_taken_over() {
    let pod = with(
        "a",
        vec![asking("init", "1Gi", "1Gi")],
        vec![asking("main", "3Gi", "")],
    );
    let mut held = HeldAssignments::new();
    let assigned = admit(managed(&[(2048, 1); 2]), &pod, &mut held);
    // Node 0 is in use alone, so that no group can be made of both.
    assert!(assigned.is_err());
    let assigned = admit(managed(&[(3072, 1)]), &pod, &mut held);
    let expected = [
        "init: 0 hugepages-1Gi 1Gi + 0 memory 0",
        "main: 0 memory 3Gi",
    ];
    assert_eq!(assigned.unwrap(), expected);
}

#[test]
fn what_a_pod_holds_counts_once_when_it_is_admitted_again() {
    let apps = vec![asking("c1", "1Gi", ""), asking("c2", "1Gi", "")];
    let pod = with("a", vec![], apps);
    let mut held = held(&[("a", "c1", "0 memory 1Gi")]);
    let assigned = admit(managed(&[(2048, 0)]), &pod, &mut held);
    assert_eq!(assigned.unwrap(), ["c1: 0 memory 1Gi", "c2: 0 memory 1Gi"]);
}
