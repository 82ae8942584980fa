//! The topology manager by its settings.

use super::*;
use crate::topology::testing::counted;

fn made(
    policy: &str,
    scope: &str,
    options: &[(&str, &str)],
    numa: NumaTopology,
) -> Result<TopologyManager, String> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let settings = TopologySettings {
        policy,
        scope,
        options: &options.iter().map(pair).collect(),
        pod_level: PodLevelManagers::Off,
    };
    TopologyManager::new(&settings, numa).map_err(|error| error.to_string())
}

/// Upstream's TestNewManager.
#[test]
fn a_manager_has_the_policy_of_its_setting() {
    for policy in ["none", "best-effort", "restricted", "single-numa-node"] {
        let manager = made(policy, "container", &[], NumaTopology::default()).unwrap();
        assert_eq!(manager.policy().as_str(), policy);
    }
    let closest = ("prefer-closest-numa-nodes", "true");
    let unknown = ("unknown-option", "true");
    let nodes = |count: usize| machine(&vec![&[][..]; count]);
    let options = "unknown Topology Manager Policy option: \"unknown-option\"";
    for (policy, option, numa, refusal) in [
        ("unknown", None, nodes(1), "unknown policy: \"unknown\""),
        ("best-effort", Some(unknown), nodes(1), options),
        ("restricted", Some(unknown), nodes(1), options),
        (
            "best-effort",
            Some(closest),
            nodes(1),
            "cannot discover NUMA topology: the distances of NUMA node 0 are unknown",
        ),
        (
            "best-effort",
            None,
            nodes(9),
            "unsupported on machines with more than 8 NUMA Nodes",
        ),
    ] {
        let options: Vec<_> = option.into_iter().collect();
        let refused = made(policy, "container", &options, numa).unwrap_err();
        assert_eq!(refused, refusal);
    }
    let allowed = ("max-allowable-numa-nodes", "9");
    assert!(made("best-effort", "container", &[allowed], nodes(9)).is_ok());
    // Without a policy nothing else counts.
    let manager = made("none", "unknown", &[unknown], nodes(9)).unwrap();
    assert_eq!(manager.policy(), TopologyPolicy::None);
}

/// Upstream's initializeMetrics.
#[test]
fn series_of_alignment_are_there_from_the_start_where_there_is_a_policy() {
    for policy in ["best-effort", "restricted", "single-numa-node"] {
        let manager = made(policy, "pod", &[], NumaTopology::default()).unwrap();
        assert_eq!(
            counted(&manager.first_counts()),
            "1 container numa_node alignment, 1 pod numa_node alignment, 1 container numa_node failure, 1 pod numa_node \
             failure"
        );
    }
    assert_eq!(TopologyManager::default().first_counts(), []);
}

/// Upstream's TestManagerScope.
#[test]
fn a_manager_has_the_scope_of_its_setting() {
    for scope in ["container", "pod"] {
        let manager = made("best-effort", scope, &[], NumaTopology::default()).unwrap();
        assert_eq!(manager.scope().as_str(), scope);
    }
    let refused = made("best-effort", "unknown", &[], NumaTopology::default());
    assert_eq!(refused.unwrap_err(), "unknown scope: \"unknown\"");
}

/// Upstream's TestAdmissionErrors (cm/admission): a refusal that has a reason of its own keeps it.
#[test]
fn a_refusal_has_its_reason_and_every_other_failure_is_unexpected() {
    let named = AssignmentError::Refused {
        reason: "SMTAlignmentError",
        message: "no whole cores".to_owned(),
    };
    let level = AssignmentError::PodLevelTopologyAffinity {
        what: "under pod-scope topology manager",
        hints: String::new(),
    };
    for (error, reason, message) in [
        (
            AssignmentError::TopologyAffinity {
                hints: String::new(),
            },
            "TopologyAffinityError",
            "Resources cannot be allocated with Topology locality",
        ),
        (
            level,
            "TopologyAffinityError",
            "Pod Scope pod with pod-level resources failed admission under pod-scope topology \
             manager",
        ),
        (named, "SMTAlignmentError", "no whole cores"),
        (
            AssignmentError::Unexpected("no devices left".to_owned()),
            "UnexpectedAdmissionError",
            "Allocate failed due to no devices left, which is unexpected",
        ),
    ] {
        assert_eq!((error.reason(), &*error.to_string()), (reason, message));
    }
}
