//! What holds whatever pods come and go.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// A step: a pod of so many containers comes, or one that runs goes.
#[derive(Clone, Debug)]
enum Step {
    Comes(Vec<(&'static str, u32)>, Option<u32>, u64),
    Goes(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let container = (select(vec!["init", "sidecar", "app"]), 0_u32..9);
    let containers = prop::collection::vec(container, 1..4);
    let comes = (containers, prop::option::of(1_u32..12), 0_u64..16);
    prop_oneof![
        3 => comes.prop_map(|(containers, whole, nodes)| Step::Comes(containers, whole, nodes)),
        1 => (0_usize..8).prop_map(Step::Goes),
    ]
}

fn pod_by(number: usize, containers: &[(&str, u32)], whole: Option<u32>) -> Pod {
    let mut parts: Vec<String> = whole.iter().map(|count| format!("pod {count}")).collect();
    for kinds in [&["init", "sidecar"][..], &["app"]] {
        let some = containers.iter().filter(|(kind, _)| kinds.contains(kind));
        parts.extend(some.map(|(kind, count)| match count {
            0 => (*kind).to_owned(),
            count => format!("{kind} {count}"),
        }));
    }
    pod_of(&format!("pod-{number}"), &parts.join(", "))
}

/// As the topology manager's pod scope does with a hint that it has settled on.
fn assign(
    manager: &CpuManager,
    pod: &Pod,
    held: &HeldAssignments,
    hint: TopologyHint,
) -> Result<Assignment, AssignmentError> {
    let request = AssignmentRequest {
        devices: &crate::devices::DeviceInventory::EMPTY,
        preferences: &crate::devices::DevicePreferences::NONE,
        pod,
        held,
        assigned: &Assignment::default(),
    };
    match pod.spec().is_some_and(|spec| spec.resources.is_some()) {
        true => manager.assign_pod(&request, hint),
        false => admit(manager, pod, held, hint),
    }
}

fn all(assigned: &Assignment) -> CpuSet {
    let own = assigned.containers.values().chain([&assigned.pod]);
    CpuSet::from_numbers(own.flat_map(|own| own.cpus.iter().copied()))
}

proptest! {
    #[test]
    fn a_cpu_belongs_to_one_pod_or_to_all(
        machine in select(vec![two_sockets(), two_nodes_a_socket(), two_kinds_of_cores(), split_caches_with_smt(), three_sockets()]),
        options in select(vec![
            &[][..],
            &["full-pcpus-only"],
            &["distribute-cpus-across-numa"],
            &["distribute-cpus-across-numa", "full-pcpus-only"],
            &["distribute-cpus-across-cores"],
            &["prefer-align-cpus-by-uncorecache"],
            &["strict-cpu-reservation", "align-by-socket"],
        ]),
        steps in prop::collection::vec(step(), 1..12),
    ) {
        let reserved = CpuSet::from_numbers([0, 1]);
        let pod_level = PodLevelManagers::On;
        let cpus = machine.cpus().clone();
        let manager = Node { reserved: (2, "0-1"), options, pod_level, ..Node::new(machine.clone()) }.manager();
        let mut held = HeldAssignments::new();
        for (number, step) in steps.iter().enumerate() {
            let (containers, whole, nodes) = match step {
                Step::Goes(which) => {
                    let uid = held.keys().nth(*which).cloned();
                    uid.map(|uid| held.remove(&uid));
                    continue;
                }
                Step::Comes(containers, whole, nodes) => (containers, whole, nodes),
            };
            let pod = pod_by(number, containers, *whole);
            let nodes: Vec<u8> = (0..4).filter(|node| nodes >> node & 1 != 0).collect();
            let hint = if nodes.is_empty() { anywhere() } else { on(&nodes) };
            let answer = assign(&manager, &pod, &held, hint);
            prop_assert_eq!(&assign(&manager, &pod, &held, hint), &answer);
            let Ok(assigned) = answer else { continue };
            let before: Vec<CpuSet> = held.values().map(|assigned| all(assigned)).collect();
            prop_assert!(before.iter().all(|other| other.common(&all(&assigned)) == 0));
            held = with(held, &pod, &assigned);
            prop_assert_eq!(&assign(&manager, &pod, &held, hint), &Ok(assigned.clone()));
            for (name, own) in &assigned.containers {
                let asked = pod.all_containers().find(|(_, known)| known.name == *name).unwrap().1;
                if let Some(resources) = &asked.resources {
                    let count = resources.requests.as_ref().unwrap()["cpu"].0.clone();
                    prop_assert_eq!(own.cpus.len().to_string(), count);
                }
            }
        }
        let taken = held.values().fold(CpuSet::default(), |taken, assigned| taken.union(&all(assigned)));
        prop_assert_eq!(taken.common(&reserved), 0);
        let shared = manager.shared(&held);
        prop_assert_eq!(shared.common(&taken), 0);
        prop_assert_eq!(shared.union(&taken).union(&reserved), cpus);
    }
}
