//! A node's whole life: random wishes, releases, failures, hung calls and restarts, over a plugin that only remembers.
//!
//! The laws are asserted in [`node`] at each step. Here: it always comes to rest, where it should be.

mod node;

use proptest::prelude::*;

use self::node::{Event, Node, Upset};

fn events() -> impl Strategy<Value = Event> {
    let upset = prop_oneof![
        6 => Just(Upset::No),
        1 => Just(Upset::Refused),
        1 => Just(Upset::Half),
        1 => Just(Upset::Lost),
        1 => Just(Upset::Stuck),
    ];
    prop_oneof![
        6 => (0_usize..3, 0_u8..32, 0_u8..32).prop_map(|(pod, mask, lost)| Event::Wish(pod, mask, lost & 4)),
        2 => (0_usize..3, 0_u8..32).prop_map(|(pod, lost)| Event::Lose(pod, lost)),
        2 => (0_usize..3).prop_map(Event::Change),
        3 => (0_usize..3).prop_map(Event::Release),
        2 => (0_usize..3).prop_map(Event::Finish),
        12 => (0_usize..12, upset).prop_map(|(n, upset)| Event::End(n, upset)),
        3 => (1_u64..200).prop_map(Event::Pass),
        2 => Just(Event::Pods),
        1 => Just(Event::Bury),
        1 => Just(Event::Report),
        1 => (0_usize..3).prop_map(Event::Visit),
        1 => any::<u16>().prop_map(Event::Restart),
        2 => Just(Event::List),
        1 => Just(Event::Retell),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, max_shrink_iters: 20000, ..ProptestConfig::default() })]

    #[test]
    fn the_world_keeps_every_law_and_comes_to_rest(life in prop::collection::vec(events(), 1..80)) {
        let mut node = Node::new();
        life.iter().for_each(|event| node.happens(event));
        node.come_to_rest();
        node.assert_settled();
    }
}
