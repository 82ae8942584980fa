//! CPUs that share a last-level cache, by upstream's cases of policy_static_test.go.

use std::collections::BTreeSet;

use super::*;

const PREFER: &[&str] = &["prefer-align-cpus-by-uncorecache"];
const FULL: &[&str] = &["full-pcpus-only", "prefer-align-cpus-by-uncorecache"];
const STRICT: &[&str] = &["strict-cpu-reservation", "prefer-align-cpus-by-uncorecache"];

fn caches(machine: &CpuMachine, assigned: &Assignment) -> BTreeSet<u32> {
    let own = assigned.containers.values();
    let cpus = own.flat_map(|own| own.cpus.iter().copied());
    cpus.map(|cpu| machine.place(cpu).unwrap().cache.0)
        .collect()
}

fn assigned(
    machine: CpuMachine,
    reserved: (u32, &'static str),
    options: &'static [&'static str],
    taken: &str,
    apps: &[u32],
) -> Assignment {
    let manager = Node {
        reserved,
        options,
        ..Node::new(machine)
    }
    .manager();
    let apps: Vec<String> = apps.iter().map(|count| format!("app {count}")).collect();
    let free = manager.allocatable().difference(&set(taken));
    let held = all_but(&manager, &free);
    admit(
        &manager,
        &pod_of("new", &apps.join(", ")),
        &held,
        anywhere(),
    )
    .unwrap()
}

/// Upstream's TestStaticPolicyAddWithUncoreAlignment: the caches that all containers of the pod come from.
#[test]
fn a_pod_comes_from_as_few_caches_as_can_be() {
    let (both, four) = ((8, "0-1,96-97,192-193,288-289"), (4, "0-3"));
    let first_of_both = "0-7,96-103,192-199,288-295";
    let small = (4, "0-1,64-65");
    let dual = (4, "0-1,32-33");
    let sixteen = (4, "0-1,128-129");
    for (machine, reserved, taken, apps, expected) in [
        (epyc(), both, first_of_both, &[16][..], &[1][..]),
        (epyc(), both, first_of_both, &[12, 2], &[1]),
        (epyc(), both, first_of_both, &[2, 12], &[1]),
        (epyc(), both, first_of_both, &[10, 2, 2, 2], &[1]),
        (epyc(), both, "", &[12, 2], &[0, 1]),
        (small_caches_with_smt(), small, "", &[8], &[1]),
        (small_caches_with_smt(), small, "4-7,68-71", &[12], &[0, 2]),
        (small_caches(), four, "8-15,20-23", &[12], &[1, 4, 6]),
        (four_caches_a_socket(), dual, "8-15", &[4, 2], &[0]),
        (four_caches_a_socket(), dual, "8-15", &[4, 4], &[0, 2]),
        (
            sixteen_caches_with_smt(),
            sixteen,
            "8-9,136-137",
            &[12, 12],
            &[0, 1],
        ),
        (
            sixteen_caches_with_smt(),
            sixteen,
            "8-9,136-137",
            &[14, 14],
            &[2, 3],
        ),
        (six_caches_a_node(), four, "", &[48], &[6, 7, 8, 9, 10, 11]),
        (arm_with_sixteen_caches(), four, "", &[8], &[1]),
        (four_caches(), four, "8-11,16-19,24-27", &[8], &[0, 1]),
    ] {
        let assigned = assigned(machine.clone(), reserved, FULL, taken, apps);
        let expected: BTreeSet<u32> = expected.iter().copied().collect();
        assert_eq!(
            caches(&machine, &assigned),
            expected,
            "{apps:?} without {taken}"
        );
    }
}

/// Upstream's TestStaticPolicyAddWithUncoreAlignment: the CPUs of the first container.
#[test]
fn an_odd_number_of_cpus_ends_with_half_a_core() {
    let (small, odd) = ((4, "0-1,64-65"), (3, "0-1,64"));
    let mono = "0-127";
    for (machine, reserved, options, free, count, expected) in [
        (
            sub_numa_clusters(),
            (4, "0-1,120-121"),
            FULL,
            "",
            6,
            "2-4,122-124",
        ),
        (
            two_kinds_of_cores(),
            (2, "0-1"),
            FULL,
            "0-3,8-23",
            6,
            "2-3,8-9,16-17",
        ),
        (
            arm(),
            (2, "0-1"),
            FULL,
            "0-5,10-11,16-17,20-63",
            12,
            "2-5,10-11,16-17,20-23",
        ),
        (four_caches(), (4, "0-3"), FULL, "", 5, "8-12"),
        (small_caches_with_smt(), small, PREFER, "", 3, "2-3,66"),
        (small_caches_with_smt(), odd, PREFER, "", 3, "2,65-66"),
        (small_caches_with_smt(), odd, PREFER, "", 4, "4-5,68-69"),
        (
            small_caches_with_smt(),
            odd,
            PREFER,
            "",
            11,
            "2,4-7,65-66,68-71",
        ),
        (
            sub_numa_clusters(),
            (3, "0-1,120"),
            PREFER,
            mono,
            5,
            "2-3,121-123",
        ),
        (
            sub_numa_clusters(),
            (3, "0-1,120"),
            PREFER,
            mono,
            4,
            "2-3,122-123",
        ),
        (small_caches_with_smt(), small, STRICT, "", 2, "2,66"),
        (
            sub_numa_clusters(),
            (4, "0-1,120-121"),
            STRICT,
            "",
            4,
            "2-3,122-123",
        ),
    ] {
        let taken = match free {
            "" => CpuSet::default(),
            free => machine.cpus().difference(&set(free)),
        };
        let assigned = assigned(machine, reserved, options, &taken.to_string(), &[count]);
        assert_eq!(shown(&assigned)["app-0"], expected, "{count} of {free}");
    }
}
