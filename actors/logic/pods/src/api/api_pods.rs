//! Pods as the API server gives them: which are accepted, and which changes of one cause work.
//!
//! Mirrors `checkAndUpdatePod` of upstream's pkg/kubelet/config/config.go (v1.36), and what its pod workers read from
//! a pod's status: the conditions that other components set.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use logic_api::pod::conditions::is_kubelet_condition;
use logic_api::pod::{CONFIG_MIRROR, CONFIG_SOURCE, PodView};

/// When this node saw the pod first.
const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
/// The longest name of anything.
const NAME: usize = 253;

/// Why a pod cannot be taken; nothing if it can. Names become paths, so they must be plain.
pub fn refused(pod: &Pod, node: &str) -> Option<String> {
    let Some(spec) = &pod.spec else {
        return Some("spec: expected one".to_owned());
    };
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let named = [
        ("metadata.name", pod.name()),
        ("metadata.namespace", pod.namespace()),
        ("metadata.uid", uid),
    ];
    if let Some((field, _)) = named.into_iter().find(|(_, name)| !plain(name)) {
        return Some(format!("{field}: expected a name"));
    }
    if spec.node_name.as_deref() != Some(node) {
        return Some(format!("spec.nodeName: expected {node}"));
    }
    let init = spec.init_containers.iter().flatten();
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let names = init
        .chain(&spec.containers)
        .map(|container| &container.name)
        .chain(ephemeral.map(|container| &container.name));
    for name in names {
        if !plain(name) {
            return Some("spec.containers[].name: expected a name".to_owned());
        }
    }
    let volumes = spec.volumes.iter().flatten();
    let mut volumes = volumes.filter(|volume| !plain(&volume.name));
    volumes
        .next()
        .map(|_| "spec.volumes[].name: expected a name".to_owned())
}

fn plain(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=NAME).contains(&name.len()) && name.bytes().all(fits) && name != "." && name != ".."
}

/// The pod with what this node notes on it: where it comes from, and since when it is known.
pub fn noted(mut pod: Pod, seen: Timestamp) -> Pod {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_SOURCE.to_owned(), "api".to_owned());
    annotations.insert(CONFIG_SEEN.to_owned(), seen.to_string());
    pod
}

/// The newer pod with the older one's note of when it was seen first.
pub fn noted_as(mut pod: Pod, older: &Pod) -> Pod {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    for key in [CONFIG_SOURCE, CONFIG_SEEN] {
        if let Some(value) = older.annotations().get(key) {
            annotations.insert(key.to_owned(), value.clone());
        }
    }
    pod
}

/// Whether two versions of a pod desire the same: they differ only in what this node wrote, or in fields without
/// effect.
pub fn same_desired_state(older: &Pod, newer: &Pod) -> bool {
    let (old, new) = (&older.metadata, &newer.metadata);
    old.uid == new.uid
        && old.deletion_timestamp == new.deletion_timestamp
        && old.deletion_grace_period_seconds == new.deletion_grace_period_seconds
        && old.generation == new.generation
        && older.labels() == newer.labels()
        && of_others(older.annotations()) == of_others(newer.annotations())
        && foreign(older) == foreign(newer)
        && older.spec == newer.spec
}

/// Annotations but for those that are notes of this node.
fn of_others(annotations: &BTreeMap<String, String>) -> Vec<(&String, &String)> {
    let ours = [CONFIG_SOURCE, CONFIG_SEEN, CONFIG_MIRROR];
    let others = annotations.iter();
    others
        .filter(|(key, _)| !ours.contains(&key.as_str()))
        .collect()
}

/// The conditions that other components set: readiness gates wait for them.
fn foreign(pod: &Pod) -> Vec<(&String, &String)> {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let conditions = conditions.flatten();
    let foreign = |condition: &&PodCondition| !is_kubelet_condition(&condition.type_);
    conditions
        .filter(foreign)
        .map(|condition| (&condition.type_, &condition.status))
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;
    use logic_api::testing::{self, PodBuilder, at};

    use super::*;

    fn pod() -> Pod {
        testing::pod("a")
            .app("main")
            .spec_with(|spec| spec.node_name = Some("node".into()))
    }

    fn changed(change: impl FnOnce(&mut Pod)) -> Pod {
        let mut pod = noted(pod(), at(0));
        change(&mut pod);
        pod
    }

    fn condition(of: &str, status: &str) -> impl FnOnce(&mut Pod) {
        let condition = PodCondition {
            type_: of.into(),
            status: status.into(),
            ..PodCondition::default()
        };
        |pod| {
            pod.status = Some(PodStatus {
                conditions: Some(vec![condition]),
                ..PodStatus::default()
            });
        }
    }

    #[test]
    fn a_pod_whose_names_are_no_names_is_refused_by_the_field() {
        let refusal = |change: &dyn Fn(&mut Pod)| refused(&changed(|pod| change(pod)), "node");
        assert_eq!(refusal(&|_| ()), None);
        type ApiPodChange<'a> = &'a dyn Fn(&mut Pod);
        let cases: [(&str, ApiPodChange<'_>); 7] = [
            ("metadata.name", &|pod| pod.metadata.name = None),
            ("metadata.name", &|pod| {
                pod.metadata.name = Some("../x".into())
            }),
            ("metadata.uid", &|pod| pod.metadata.uid = Some("..".into())),
            ("metadata.namespace", &|pod| {
                pod.metadata.namespace = Some(String::new())
            }),
            ("spec.nodeName", &|pod| {
                pod.spec.as_mut().unwrap().node_name = None
            }),
            ("spec.containers", &|pod| {
                pod.spec.as_mut().unwrap().containers[0].name.clear()
            }),
            ("spec", &|pod| pod.spec = None),
        ];
        for (field, change) in cases {
            assert!(refusal(change).unwrap().starts_with(field), "{field}");
        }
    }

    /// Upstream's TestPodUpdateLabels and TestPodUpdateAnnotations.
    #[test]
    fn what_a_user_changes_is_another_wish() {
        let old = noted(pod(), at(0));
        let cases: [&dyn Fn(&mut Pod); 5] = [
            &|pod| {
                drop(
                    pod.metadata
                        .labels
                        .get_or_insert_default()
                        .insert("a".into(), "b".into()),
                )
            },
            &|pod| {
                drop(
                    pod.metadata
                        .annotations
                        .get_or_insert_default()
                        .insert("a".into(), "b".into()),
                )
            },
            &|pod| pod.metadata.deletion_grace_period_seconds = Some(1),
            &|pod| pod.spec.as_mut().unwrap().active_deadline_seconds = Some(1),
            &|pod| condition("example.com/gate", "True")(pod),
        ];
        for (at, change) in cases.iter().enumerate() {
            assert!(!same_desired_state(&old, &changed(change)), "{at}");
        }
    }

    #[test]
    fn what_the_node_writes_itself_is_no_other_wish() {
        let old = noted(pod(), at(0));
        assert!(same_desired_state(
            &old,
            &changed(condition("Ready", "True"))
        ));
        assert!(same_desired_state(&old, &noted(pod(), at(5))));
        let version = |pod: &mut Pod| pod.metadata.resource_version = Some("7".into());
        assert!(same_desired_state(&old, &changed(version)));
        assert!(same_desired_state(&old, &pod()));
    }

    #[test]
    fn a_newer_pod_was_seen_when_the_older_one_was() {
        let newer = noted_as(pod(), &noted(pod(), at(3)));
        assert_eq!(newer, noted(pod(), at(3)));
    }
}
