//! Taints of the node against tolerations of the pod.
//!
//! Mirrors upstream's `FindMatchingUntoleratedTaint` and `ToleratesTaint` at v1.36; its numeric operators
//! are an alpha feature and tolerate nothing.

use k8s_openapi::api::core::v1::{Pod, Taint, Toleration};
use logic_api::pod::PodView;
use logic_resources::qos::{Qos, pod_qos};

/// Whether a taint of the node would evict the pod at once.
pub(super) fn is_evicted_by_taints(pod: &Pod, taints: &[Taint]) -> bool {
    let mut harsh = taints.iter().filter(|taint| taint.effect == "NoExecute");
    harsh.any(|taint| !is_tolerated(pod, taint))
}

/// Whether the pod may come while memory runs short.
pub(super) fn tolerates_memory_pressure(pod: &Pod) -> bool {
    let taint = Taint {
        key: "node.kubernetes.io/memory-pressure".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    pod_qos(pod) != Qos::BestEffort || is_tolerated(pod, &taint)
}

fn is_tolerated(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec().and_then(|spec| spec.tolerations.as_deref());
    let mut tolerations = tolerations.unwrap_or_default().iter();
    tolerations.any(|toleration| tolerates(toleration, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    fn given(text: &Option<String>) -> &str {
        text.as_deref().unwrap_or_default()
    }
    let (effect, key) = (given(&toleration.effect), given(&toleration.key));
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    match given(&toleration.operator) {
        "" | "Equal" => given(&toleration.value) == given(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use logic_api::testing::*;

    use super::*;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint {
            key: key.into(),
            value: Some(value.into()),
            effect: effect.into(),
            time_added: None,
        }
    }

    /// Key, operator, value, effect.
    fn toleration(parts: [&str; 4]) -> Toleration {
        let [key, operator, value, effect] =
            parts.map(|part| (!part.is_empty()).then(|| part.to_owned()));
        Toleration {
            key,
            operator,
            value,
            effect,
            toleration_seconds: None,
        }
    }

    /// Upstream's TestTolerationToleratesTaint.
    #[test]
    fn a_toleration_matches_by_key_value_and_effect_where_it_names_them() {
        let harsh = taint("foo", "bar", "NoExecute");
        let cases = [
            (["foo", "Equal", "bar", "NoExecute"], true),
            (["foo", "", "bar", ""], true),
            (["foo", "Equal", "other", "NoExecute"], false),
            (["foo", "Exists", "", "NoExecute"], true),
            (["foo", "Exists", "", "NoSchedule"], false),
            (["other", "Exists", "", ""], false),
            (["", "Exists", "", ""], true),
            (["foo", "Gt", "1", ""], false),
        ];
        for (parts, expected) in cases {
            assert_eq!(tolerates(&toleration(parts), &harsh), expected, "{parts:?}");
        }
    }

    #[test]
    fn only_a_taint_that_evicts_keeps_a_pod_out() {
        let tolerant = pod("p").spec_with(|spec| {
            spec.tolerations = Some(vec![toleration(["bar", "Exists", "", ""])]);
        });
        let mild = [
            taint("foo", "", "NoSchedule"),
            taint("baz", "", "PreferNoSchedule"),
        ];
        let harsh = [
            taint("foo", "", "NoSchedule"),
            taint("bar", "", "NoExecute"),
        ];
        assert!(!is_evicted_by_taints(&pod("p"), &mild));
        assert!(is_evicted_by_taints(&pod("p"), &harsh));
        assert!(!is_evicted_by_taints(&tolerant, &harsh));
    }
}
