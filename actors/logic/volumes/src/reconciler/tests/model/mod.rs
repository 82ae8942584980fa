//! A node's whole life: random wishes, releases, failures, hung calls and restarts, over a plugin that only remembers.
//!
//! The laws are asserted in [`node`] at each step. Here: it always comes to rest, where it should be.

mod node;

use proptest::prelude::*;

use self::node::{ModelEvent, ModelFault, ModelNode};

fn events() -> impl Strategy<Value = ModelEvent> {
    let upset = prop_oneof![
        6 => Just(ModelFault::No),
        1 => Just(ModelFault::Refused),
        1 => Just(ModelFault::Half),
        1 => Just(ModelFault::Lost),
        1 => Just(ModelFault::Stuck),
    ];
    prop_oneof![
        6 => (0_usize..3, 0_u8..32, 0_u8..32).prop_map(|(pod, mask, lost)| ModelEvent::DesiredVolume(pod, mask, lost & 4)),
        2 => (0_usize..3, 0_u8..32).prop_map(|(pod, lost)| ModelEvent::Lose(pod, lost)),
        2 => (0_usize..3).prop_map(ModelEvent::Change),
        3 => (0_usize..3).prop_map(ModelEvent::Release),
        2 => (0_usize..3).prop_map(ModelEvent::Finish),
        12 => (0_usize..12, upset).prop_map(|(n, upset)| ModelEvent::End(n, upset)),
        3 => (1_u64..200).prop_map(ModelEvent::Pass),
        2 => Just(ModelEvent::Pods),
        1 => Just(ModelEvent::Bury),
        1 => Just(ModelEvent::Report),
        1 => (0_usize..3).prop_map(ModelEvent::Visit),
        1 => any::<u16>().prop_map(ModelEvent::Restart),
        2 => Just(ModelEvent::List),
        1 => Just(ModelEvent::Retell),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, max_shrink_iters: 20000, ..ProptestConfig::default() })]

    #[test]
    fn the_world_keeps_every_law_and_comes_to_rest(life in prop::collection::vec(events(), 1..80)) {
        let mut node = ModelNode::new();
        life.iter().for_each(|event| node.happens(event));
        node.come_to_rest();
        node.assert_settled();
    }
}
