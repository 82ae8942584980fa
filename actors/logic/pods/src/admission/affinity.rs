//! Whether the node matches the pod's selector and required affinity.
//!
//! Mirrors upstream's component-helpers `nodeaffinity` at v1.36: terms are alternatives, the requirements of a term
//! must all match, an empty term matches nothing, and an invalid one is ignored.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use logic_api::node_selector::selects;
use logic_api::pod::PodView;

type NodeLabels = BTreeMap<String, String>;

pub(super) fn matches(pod: &Pod, node_name: &str, labels: &NodeLabels) -> bool {
    let Some(spec) = pod.spec() else {
        return true;
    };
    let mut selector = spec.node_selector.iter().flatten();
    if !selector.all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| {
        a.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    required.is_none_or(|required| selects(required, node_name, labels))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    };
    use logic_api::testing::*;

    use super::*;

    fn need(key: &str, operator: &str, values: &[&str]) -> NodeSelectorRequirement {
        let values: Vec<String> = values.iter().map(|v| (*v).into()).collect();
        NodeSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: (!values.is_empty()).then_some(values),
        }
    }

    fn term(
        labels: Vec<NodeSelectorRequirement>,
        fields: Vec<NodeSelectorRequirement>,
    ) -> NodeSelectorTerm {
        let some = |list: Vec<_>| (!list.is_empty()).then_some(list);
        NodeSelectorTerm {
            match_expressions: some(labels),
            match_fields: some(fields),
        }
    }

    fn requiring(node_selector_terms: Vec<NodeSelectorTerm>) -> Pod {
        let required = Some(NodeSelector {
            node_selector_terms,
        });
        let node_affinity = Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: required,
            ..NodeAffinity::default()
        });
        pod("p").spec_with(|spec| {
            spec.affinity = Some(Affinity {
                node_affinity,
                ..Affinity::default()
            });
        })
    }

    /// Upstream's TestNodeSelectorRequirementsAsSelector and TestPodMatchesNodeSelectorAndAffinityTerms.
    #[test]
    fn each_operator_has_its_meaning_and_what_cannot_be_read_matches_nothing() {
        let labels = string_map(&[("foo", "bar"), ("cores", "4"), ("word", "x")]);
        let cases = [
            (need("foo", "In", &["bar", "baz"]), true),
            (need("foo", "In", &["baz"]), false),
            (need("none", "In", &["bar"]), false),
            (need("foo", "In", &[]), false),
            (need("foo", "NotIn", &["baz"]), true),
            (need("foo", "NotIn", &["bar"]), false),
            (need("none", "NotIn", &["bar"]), true),
            (need("foo", "NotIn", &[]), false),
            (need("foo", "Exists", &[]), true),
            (need("none", "Exists", &[]), false),
            (need("foo", "Exists", &["bar"]), false),
            (need("none", "DoesNotExist", &[]), true),
            (need("foo", "DoesNotExist", &[]), false),
            (need("cores", "Gt", &["3"]), true),
            (need("cores", "Gt", &["4"]), false),
            (need("cores", "Lt", &["5"]), true),
            (need("cores", "Lt", &["4"]), false),
            (need("word", "Gt", &["3"]), false),
            (need("cores", "Gt", &["many"]), false),
            (need("cores", "Gt", &["1", "2"]), false),
            (need("foo", "invalid-operator", &["bar"]), false),
        ];
        for (requirement, expected) in cases {
            let pod = requiring(vec![term(vec![requirement.clone()], vec![])]);
            assert_eq!(matches(&pod, "n", &labels), expected, "{requirement:?}");
        }
    }

    /// Upstream's TestNodeSelectorMatch and TestPodMatchesNodeSelectorAndAffinityTerms.
    #[test]
    fn terms_are_alternatives_and_what_a_term_says_holds_together() {
        let labels = string_map(&[("foo", "bar"), ("gpu", "a100")]);
        let (good, bad) = (need("foo", "In", &["bar"]), need("foo", "In", &["x"]));
        let name = |name: &str| need("metadata.name", "In", &[name]);
        let not = need("metadata.name", "NotIn", &["n"]);
        let unread = need("foo", "Near", &["bar"]);
        let cases = [
            (vec![], false),
            (vec![term(vec![], vec![])], false),
            (vec![term(vec![good.clone()], vec![])], true),
            (vec![term(vec![good.clone(), bad.clone()], vec![])], false),
            (
                vec![
                    term(vec![bad.clone()], vec![]),
                    term(vec![good.clone()], vec![]),
                ],
                true,
            ),
            (
                vec![
                    term(vec![unread.clone()], vec![]),
                    term(vec![good.clone()], vec![]),
                ],
                true,
            ),
            (vec![term(vec![good.clone(), unread], vec![])], false),
            (vec![term(vec![], vec![name("n")])], true),
            (vec![term(vec![], vec![name("other")])], false),
            (vec![term(vec![], vec![not])], false),
            (vec![term(vec![], vec![name("n"), name("m")])], false),
            (vec![term(vec![good.clone()], vec![name("other")])], false),
            (vec![term(vec![good], vec![name("n")])], true),
            (
                vec![term(vec![bad], vec![]), term(vec![], vec![name("n")])],
                true,
            ),
            (
                vec![term(vec![], vec![need("metadata.name", "In", &["n", "m"])])],
                false,
            ),
            (
                vec![term(vec![], vec![need("metadata.uid", "In", &["n"])])],
                false,
            ),
        ];
        for (terms, expected) in cases {
            let pod = requiring(terms.clone());
            assert_eq!(matches(&pod, "n", &labels), expected, "{terms:?}");
        }
    }

    #[test]
    fn selector_and_affinity_both_have_to_match() {
        let labels = string_map(&[("foo", "bar")]);
        let select = |pod: Pod, value: &str| {
            let selector = Some(string_map(&[("foo", value)]));
            pod.spec_with(|spec| spec.node_selector = selector)
        };
        let met = requiring(vec![term(vec![need("foo", "Exists", &[])], vec![])]);
        assert!(matches(&pod("p"), "n", &labels));
        assert!(matches(&select(pod("p"), "bar"), "n", &labels));
        assert!(!matches(&select(pod("p"), "x"), "n", &labels));
        assert!(matches(&select(met.clone(), "bar"), "n", &labels));
        assert!(!matches(&select(met, "x"), "n", &labels));
        let unmet = requiring(vec![term(vec![need("foo", "DoesNotExist", &[])], vec![])]);
        assert!(!matches(&select(unmet, "bar"), "n", &labels));
    }
}
