//! What holds whatever pods come and go.

use proptest::prelude::*;

use super::*;

/// A pod that comes, or is gone where it asks for nothing: its number, MiB of memory of its init container and its app,
/// huge pages, and the nodes of the hint by the bits of a mask.
type Change = (u8, u64, u64, u64, u8);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = (0..6_u8, 0..3000_u64, 0..5000_u64, 0..3_u64, 0..16_u8);
    prop::collection::vec(change, 1..25)
}

fn pod_of((number, init, app, huge, _): Change) -> Pod {
    let memory = |mib: u64| format!("{}Mi", mib + 1);
    with(
        &format!("pod{number}"),
        vec![asking("init", &memory(init), "")],
        vec![asking("main", &memory(app), &format!("{huge}Gi"))],
    )
}

/// What the pod is assigned, container by container.
fn place(
    manager: &MemoryManager,
    pod: &Pod,
    held: &HeldAssignments,
    hint: TopologyHint,
) -> Result<Assignment, AssignmentError> {
    let mut assigned = Assignment::default();
    let none = Assignment::default();
    let spec = pod.spec.as_ref().unwrap();
    for container in spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
    {
        let own = manager.assign(&request(pod, held, &assigned), container, hint)?;
        assigned.assign(&container.name, own);
        manager.take_over(&request(pod, held, &none), container, &mut assigned);
    }
    Ok(assigned)
}

fn apply(manager: &MemoryManager, held: &mut HeldAssignments, change: Change) {
    let pod = pod_of(change);
    let uid = pod.metadata.uid.as_deref().unwrap().into();
    if change.2 < 1000 {
        held.remove(&uid);
        return;
    }
    let nodes: Vec<u8> = (0..4).filter(|node| change.4 & (1 << node) != 0).collect();
    let hint = match nodes.is_empty() {
        true => ANY,
        false => off(&nodes),
    };
    let placed = place(manager, &pod, held, hint);
    assert_eq!(place(manager, &pod, held, hint), placed, "the same request");
    if let Ok(assigned) = placed {
        held.insert(uid, Arc::new(assigned));
    }
}

fn check(manager: &MemoryManager, held: &HeldAssignments) {
    let state = manager.state(held.values().map(Arc::as_ref));
    let containers = || held.values().flat_map(|own| own.containers.values());
    let blocks = || containers().flat_map(|own| &own.memory);
    for node in state.nodes.values() {
        let huge = node.tables["hugepages-1Gi"].total;
        for (resource, own) in &node.tables {
            let other = if resource == "memory" { huge } else { 0 };
            let sum = own.free + own.reserved + own.system_reserved + other;
            assert_eq!(sum, own.total, "{resource}");
        }
    }
    for resource in ["memory", "hugepages-1Gi"] {
        let taken: u64 = state
            .nodes
            .values()
            .map(|node| node.tables[resource].reserved)
            .sum();
        let own = blocks().filter(|block| block.resource == resource);
        assert_eq!(taken, own.map(|block| block.bytes).sum::<u64>());
    }
    for block in blocks() {
        let others = blocks().filter(|other| other.nodes.intersects(block.nodes));
        others.for_each(|other| assert_eq!(other.nodes, block.nodes));
    }
    assert_eq!(manager.restore(&manager.save(held)).unwrap(), *held);
}

proptest! {
    #[test]
    fn memory_is_free_or_held_and_groups_do_not_overlap(changes in changes()) {
        let manager = managed(&[(4000, 2), (3000, 1), (2000, 0), (4000, 2)]);
        let mut held = HeldAssignments::new();
        for change in changes {
            apply(&manager, &mut held, change);
            check(&manager, &held);
        }
    }
}
