//! A worker's whole life: plans carried out step by step in a world where anything may happen in between.
//!
//! The laws are asserted in [`world`] at each step: one live instance a container, nothing starts in a
//! pod that ends, init containers in order, app containers after all of them, sidecars end last and in
//! reverse, graces are kept, ephemeral containers run once, policies are followed, and the order of lists
//! means nothing. Here: it always comes to rest, where it should be.

mod events;
mod shape;
mod world;

use proptest::prelude::*;

use self::events::{PodModelEvent, PodModelFault};
use self::shape::{PodShape, shapes};
use self::world::PodModel;
use super::*;

fn events() -> impl Strategy<Value = PodModelEvent> {
    let verdict = prop::sample::select(vec![
        ProbeResult::Success,
        ProbeResult::Failure,
        ProbeResult::Unknown,
    ]);
    let upset = prop_oneof![
        5 => Just(PodModelFault::No),
        1 => (0_usize..6).prop_map(PodModelFault::Refused),
        1 => (0_usize..6).prop_map(PodModelFault::Half),
        1 => (0_usize..6).prop_map(PodModelFault::Exit),
    ];
    prop_oneof![
        10 => upset.prop_map(PodModelEvent::Sync),
        6 => (0_usize..6, 0_i32..4).prop_map(|(n, code)| PodModelEvent::Exit(n, code)),
        1 => (0_usize..6).prop_map(PodModelEvent::Lose),
        4 => (0_usize..6, verdict).prop_map(|(n, verdict)| PodModelEvent::Probe(n, verdict)),
        1 => any::<bool>().prop_map(|with_containers| PodModelEvent::SandboxDies { with_containers }),
        2 => (1_i64..400).prop_map(PodModelEvent::Pass),
        1 => (0_usize..3).prop_map(PodModelEvent::ChangeImage),
        1 => (0_usize..3, 1_u32..4).prop_map(|(n, cpu)| PodModelEvent::Allocate(n, cpu)),
        1 => Just(PodModelEvent::Debug),
        1 => Just(PodModelEvent::CollectGarbage),
        1 => Just(PodModelEvent::RestartAgent),
    ]
}

/// Where a pod that lives on comes to rest: everything that should run runs, with its definition.
fn assert_settled(world: &PodModel) {
    let (pod, runtime) = (&world.pod, &world.runtime);
    let ready = runtime.sandboxes.iter().filter(|s| s.is_ready()).count();
    assert_eq!(ready, 1);
    let mut alive = 0;
    for spec in pod.app_containers() {
        let newest = runtime.newest(&spec.name).unwrap();
        if newest.state == ContainerState::Running {
            alive += 1;
            assert_eq!(
                newest.hash,
                Some(logic_api::pod::hash::container_hash(spec))
            );
        } else {
            assert!(
                !should_start(pod, spec, Some(newest)),
                "{} does not run",
                spec.name
            );
        }
    }
    assert!(alive > 0, "a pod without a running app container is over");
    for spec in pod
        .init_containers()
        .iter()
        .filter(|c| logic_api::pod::is_sidecar(c))
    {
        let newest = runtime.newest(&spec.name).unwrap();
        assert_eq!(newest.state, ContainerState::Running, "{}", spec.name);
    }
    for spec in pod.ephemeral_containers() {
        let newest = runtime.newest(&spec.name).unwrap();
        assert_ne!(newest.state, ContainerState::Created, "{}", spec.name);
    }
}

/// A start that was broken off goes on, even where the policy alone would not start the container again.
#[test]
fn a_replacement_that_was_broken_off_goes_on_in_a_pod_that_never_restarts() {
    let mut world = PodModel::new(&PodShape::of_one_app("Never"));
    let half = PodModelEvent::Sync(PodModelFault::Half(1));
    for event in [
        PodModelEvent::Sync(PodModelFault::No),
        PodModelEvent::ChangeImage(0),
        half,
    ] {
        world.happens(&event);
    }
    world.come_to_rest();
    assert_settled(&world);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_worker_keeps_every_law_and_comes_to_rest(
        shape in shapes(),
        life in prop::collection::vec(events(), 1..50),
        deletion in prop::option::of((prop::collection::vec(events(), 0..8), 0_i64..60, 0_i64..60)),
    ) {
        let mut world = PodModel::new(&shape);
        life.iter().for_each(|event| world.happens(event));
        if let Some((end, first, second)) = deletion {
            world.happens(&PodModelEvent::Delete(first));
            end.iter().for_each(|event| world.happens(event));
            world.happens(&PodModelEvent::Delete(second));
        }
        world.come_to_rest();
        if world.is_ending() {
            prop_assert!(world.runtime.is_stopped());
        } else {
            assert_settled(&world);
            let again = world.sync(PodModelFault::No);
            prop_assert_eq!(steps(&again), [""; 0], "at rest, nothing is left to be done");
        }
    }
}
