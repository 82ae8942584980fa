//! Kubernetes' rules for label keys, label values and a few other names, as flags, files and taints
//! must keep them.

use logic_api::text::names;

pub(crate) const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The labels that a node may give itself under kubernetes.io and k8s.io.
pub(crate) const NODE_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
const NODE_LABEL_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Checks a label key or taint key: an optional DNS prefix and a name.
pub(crate) fn qualified_name(key: &str) -> Result<(), String> {
    first_wrong(key, names::qualified(key))
}

/// Checks a label value; an empty one is fine.
pub(crate) fn label_value(value: &str) -> Result<(), String> {
    first_wrong(value, names::label_value(value))
}

fn first_wrong(text: &str, wrong: Vec<String>) -> Result<(), String> {
    match wrong.into_iter().next() {
        Some(wrong) => Err(format!("{text:?}: {wrong}")),
        None => Ok(()),
    }
}

/// Tells whether a node must not give itself this label: it is in Kubernetes' own namespaces and
/// not among those kept for nodes.
pub(crate) fn reserved_label(key: &str) -> bool {
    let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
    let within = |parent: &str| {
        namespace == parent
            || namespace
                .strip_suffix(parent)
                .is_some_and(|rest| rest.ends_with('.'))
    };
    (within("kubernetes.io") || within("k8s.io"))
        && !NODE_LABELS.contains(&key)
        && !NODE_LABEL_NAMESPACES.iter().any(|parent| within(parent))
}

/// Memory and huge pages: what can be reserved on a NUMA node.
pub(crate) fn is_memory_resource(name: &str) -> bool {
    name == "memory" || name.starts_with("hugepages-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_keep_upstreams_rules() {
        for key in ["a", "a.b/c-d_e", "example.org/Name", "9"] {
            assert_eq!(qualified_name(key), Ok(()), "{key}");
        }
        for key in [
            "",
            "/a",
            "a/",
            "A.b/c",
            "a/b/c",
            "-a",
            "a.",
            "ä",
            &"a".repeat(64),
        ] {
            assert!(qualified_name(key).is_err(), "{key}");
        }
        assert_eq!(label_value(""), Ok(()));
        assert!(label_value("a b").is_err());
    }

    #[test]
    fn kubernetes_own_labels_are_reserved_except_those_of_nodes() {
        for key in [
            "kubernetes.io/role",
            "node-role.kubernetes.io/master",
            "x.k8s.io/a",
        ] {
            assert!(reserved_label(key), "{key}");
        }
        for key in [
            "a",
            "notkubernetes.io/a",
            "kubernetes.io/hostname",
            "foo.node.kubernetes.io/a",
        ] {
            assert!(!reserved_label(key), "{key}");
        }
    }
}
