//! What each policy makes of the providers' hints.

use super::*;
use crate::topology::policy::single_node_hints;
use crate::topology::policy_options::NumaOrder;
use TopologyPolicy::{BestEffort, None as NoPolicy, Restricted, SingleNumaNode};

type Case = (Vec<ProviderHints>, TopologyHint);

fn assert_merged(
    policy: TopologyPolicy,
    numa: &NumaTopology,
    order: NumaOrder,
    cases: impl IntoIterator<Item = Case>,
) {
    let options = PolicyOptions {
        order,
        ..PolicyOptions::default()
    };
    for (hints, expected) in cases {
        let merged = policy.merge(&hints, numa, options);
        assert_eq!(merged, expected, "{policy:?} {order:?} of {hints:?}");
    }
}

/// Two providers of one resource each.
fn two(one: &[TopologyHint], other: &[TopologyHint]) -> Vec<ProviderHints> {
    vec![
        provider(&[("resource1", one)]),
        provider(&[("resource2", other)]),
    ]
}

/// What every policy but `none` merges alike.
fn common() -> Vec<Case> {
    let unasked = || vec![ProviderHints::new()];
    let also =
        |hints: &[TopologyHint]| [unasked(), vec![provider(&[("resource", hints)])]].concat();
    let either = [on(&[0]), on(&[1])];
    let wide = [on(&[1]), off(&[0, 1])];
    let any = [on(&[0]), on(&[1]), off(&[0, 1])];
    vec![
        (two(&[on(&[0])], &[on(&[0])]), on(&[0])),
        (two(&[on(&[1])], &[on(&[1])]), on(&[1])),
        (also(&[on(&[0])]), on(&[0])),
        (also(&[on(&[1])]), on(&[1])),
        (two(&either, &[on(&[0])]), on(&[0])),
        (two(&either, &[on(&[1])]), on(&[1])),
        (two(&either, &[on(&[0]), off(&[0, 1])]), on(&[0])),
        (two(&wide, &any), on(&[1])),
        (
            vec![provider(&[("resource1", &wide), ("resource2", &any)])],
            on(&[1]),
        ),
    ]
}

/// What `best-effort` and `restricted` merge alike on any machine.
fn unrestricted(numa: &NumaTopology) -> Vec<Case> {
    let all = |preferred| TopologyHint {
        nodes: Some(numa.nodes()),
        preferred,
    };
    let one = |hints: &[TopologyHint]| vec![provider(&[("resource", hints)])];
    let pairs = [on(&[0, 1]), on(&[0, 2])];
    let mut cases = vec![
        (two(&pairs, &pairs), on(&[0, 1])),
        (vec![], all(true)),
        (vec![ProviderHints::new()], all(true)),
        (vec![indifferent()], all(true)),
        (one(&[]), all(false)),
        (one(&[TopologyHint::ANYWHERE]), all(true)),
        (one(&[TopologyHint::NOWHERE]), all(false)),
        (two(&[on(&[0])], &[on(&[1])]), all(false)),
        (two(&[on(&[0])], &[off(&[0])]), off(&[0])),
        (two(&[on(&[1])], &[off(&[1])]), off(&[1])),
        (two(&[on(&[0])], &[on(&[0, 1])]), off(&[0])),
        (two(&[on(&[0]), on(&[1])], &[off(&[0, 1])]), off(&[0])),
        (two(&[on(&[1])], &[on(&[0, 1])]), off(&[1])),
    ];
    // What needs two nodes gets two, whichever they are.
    let wide = [off(&[0, 1, 2, 3]), off(&[0, 1])];
    for pair in [&[0, 1], &[0, 3], &[1, 2], &[2, 3]] {
        cases.push((two(&wide, &[off(pair)]), off(pair)));
    }
    cases
}

/// Resources of which one leaves the choice between sets of two nodes.
fn with_a_choice() -> [Vec<ProviderHints>; 2] {
    let wide = [off(&[0, 1, 2, 3]), off(&[0, 1])];
    let choice = [off(&[1, 2]), off(&[2, 3])];
    let wider = [off(&[1, 2, 3]), off(&[1, 2]), off(&[1, 3]), off(&[2, 3])];
    [two(&wide, &choice), two(&wide, &wider)]
}

/// Upstream's TestPolicyBestEffortMerge and TestPolicyRestrictedMerge.
#[test]
fn resources_are_placed_together_on_as_few_nodes_as_they_need() {
    let numa = four_nodes();
    for policy in [BestEffort, Restricted] {
        let choice = with_a_choice().map(|hints| (hints, off(&[1, 2])));
        let cases = common()
            .into_iter()
            .chain(unrestricted(&numa))
            .chain(choice);
        assert_merged(policy, &numa, NumaOrder::Lowest, cases);
    }
}

/// Upstream's TestPolicyBestEffortMergeClosestNUMA and TestPolicyRestrictedMergeClosestNUMA.
#[test]
fn of_as_many_nodes_the_closest_are_taken_where_that_is_asked_for() {
    let numa = eight_nodes();
    let far = [on(&[0, 4]), on(&[0, 2])];
    let narrow = [on(&[4]), on(&[0, 2])];
    for policy in [BestEffort, Restricted] {
        let choice = with_a_choice().map(|hints| (hints, off(&[2, 3])));
        let closest = [
            (two(&far, &far), on(&[0, 2])),
            (two(&narrow, &narrow), on(&[4])),
        ];
        let cases = common().into_iter().chain(unrestricted(&numa));
        let cases = cases.chain(closest).chain(choice);
        assert_merged(policy, &numa, NumaOrder::Closest, cases);
    }
}

/// Upstream's TestPolicySingleNumaNodeMerge.
#[test]
fn a_single_node_is_found_or_nothing_is_preferred() {
    let (anywhere, nowhere) = (TopologyHint::ANYWHERE, TopologyHint::NOWHERE);
    let one = |hints: &[TopologyHint]| vec![provider(&[("resource", hints)])];
    let any = [on(&[0]), on(&[1]), off(&[0, 1])];
    let cases = [
        (vec![], anywhere),
        (vec![ProviderHints::new()], anywhere),
        (vec![indifferent()], anywhere),
        (one(&[]), nowhere),
        (one(&[anywhere]), anywhere),
        (one(&[nowhere]), nowhere),
        (two(&[on(&[0])], &[on(&[1])]), nowhere),
        (two(&[on(&[0])], &[off(&[0])]), nowhere),
        (two(&[on(&[1])], &[off(&[1])]), nowhere),
        (two(&[on(&[0]), on(&[1])], &[off(&[0, 1])]), nowhere),
        (
            vec![provider(&[
                ("resource1", &[on(&[0, 1])]),
                ("resource2", &any),
            ])],
            nowhere,
        ),
        (
            vec![provider(&[("resource1", &any)]), ProviderHints::new()],
            on(&[0]),
        ),
    ];
    let cases = common().into_iter().chain(cases);
    assert_merged(SingleNumaNode, &four_nodes(), NumaOrder::Lowest, cases);
}

/// Of a machine with one node "all nodes" is no constraint either.
#[test]
fn the_only_node_of_a_machine_is_anywhere() {
    let numa = machine(&[&[10]]);
    let hints = vec![provider(&[("resource", &[on(&[0])])])];
    let options = PolicyOptions::default();
    let merged = SingleNumaNode.merge(&hints, &numa, options);
    assert_eq!(merged, TopologyHint::ANYWHERE);
    assert_eq!(BestEffort.merge(&hints, &numa, options), on(&[0]));
}

/// Upstream's TestPolicySingleNumaNodeFilterHints.
#[test]
fn only_preferred_hints_of_one_node_or_of_any_are_left() {
    let (anywhere, nowhere) = (TopologyHint::ANYWHERE, TopologyHint::NOWHERE);
    let wide = [off(&[1, 2]), off(&[0, 1, 2]), off(&[0, 2])];
    for (resources, left) in [
        (vec![], vec![]),
        (
            vec![vec![nowhere], vec![anywhere]],
            vec![vec![], vec![anywhere]],
        ),
        (
            vec![vec![on(&[0]), nowhere], vec![on(&[1]), anywhere]],
            vec![vec![on(&[0])], vec![on(&[1]), anywhere]],
        ),
        (
            vec![vec![on(&[1]), on(&[0]), nowhere], vec![]],
            vec![vec![on(&[1]), on(&[0])], vec![]],
        ),
        (
            vec![
                vec![on(&[0]), on(&[1]), off(&[1, 2]), off(&[0, 1, 2]), nowhere],
                [&wide[..], &[off(&[3])]].concat(),
                wide.to_vec(),
            ],
            vec![vec![on(&[0]), on(&[1])], vec![], vec![]],
        ),
    ] {
        assert_eq!(single_node_hints(resources), left);
    }
}

/// Upstream's TestPolicyNoneMerge.
#[test]
fn without_a_policy_no_hint_counts() {
    let one = |hint| vec![provider(&[("resource", &[hint])])];
    let cases = [vec![], one(on(&[0, 1])), one(off(&[0, 1]))];
    let cases = cases.map(|hints| (hints, TopologyHint::default()));
    assert_merged(NoPolicy, &two_nodes(), NumaOrder::Lowest, cases);
}

/// Upstream's TestPolicyNoneCanAdmitPodResult, TestPolicyBestEffortCanAdmitPodResult,
/// TestPolicyRestrictedCanAdmitPodResult and TestPolicySingleNumaNodeCanAdmitPodResult.
#[test]
fn a_strict_policy_admits_preferred_hints_only() {
    for (policy, unpreferred) in [
        (NoPolicy, true),
        (BestEffort, true),
        (Restricted, false),
        (SingleNumaNode, false),
    ] {
        assert!(policy.admits(TopologyHint::ANYWHERE), "{policy:?}");
        assert_eq!(policy.admits(TopologyHint::NOWHERE), unpreferred);
    }
}

/// Upstream's TestPolicyNoneName and TestPolicyRestrictedName.
#[test]
fn a_policy_has_the_name_of_its_setting() {
    for (policy, name) in [
        (NoPolicy, "none"),
        (BestEffort, "best-effort"),
        (Restricted, "restricted"),
        (SingleNumaNode, "single-numa-node"),
    ] {
        assert_eq!(policy.as_str(), name);
        assert_eq!(TopologyPolicy::from_name(name), Some(policy));
    }
    assert_eq!(TopologyPolicy::from_name("unknown"), None);
}
