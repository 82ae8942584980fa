//! Who a static pod is: UID, name, marks.

use super::*;
use crate::types::PodUid;

#[test]
fn uid_is_the_one_that_upstreams_types_and_dump_give() {
    let rows = [
        (
            LEAST,
            "least",
            "2ca1e2a9129a958887625a78bc3f0f5d",
            "f9a27eec1dbd514598dcae6be174f4f9",
        ),
        (
            CONTROL_PLANE,
            "control-plane",
            "5af2d547237c4e8a7b6c58d6b9fb849f",
            "caa1de5920c1ec6d3cd7a63d13795c78",
        ),
        (
            RICH,
            "rich",
            "cbd36a0be82cb60761c7ca88fbbaaeb4",
            "d55f489ad277dc4579ccab22d148de4b",
        ),
        (
            POD_LEVEL,
            "pod-level",
            "9b0b3a1c9c99822fa4804799fdfe1031",
            "d06434adf717374b0ae15af6dc0efd04",
        ),
    ];
    for (text, name, of_file, of_url) in rows {
        for (source, uid) in [(file(name), of_file), (url(), of_url)] {
            let pod = static_pod(
                only(text).unwrap(),
                &source,
                &"node-1".into(),
                Timestamp::UNIX_EPOCH,
            )
            .unwrap();
            assert_eq!(pod.metadata.uid.as_deref(), Some(uid), "{name} {source:?}");
            assert_eq!(
                pod.metadata.annotations.unwrap()["kubernetes.io/config.hash"],
                uid
            );
        }
    }
}

/// The dump of today's fields, and of those that earlier releases had.
#[test]
fn each_release_dumps_the_fields_that_it_has() {
    for text in [LEAST, CONTROL_PLANE, RICH, POD_LEVEL] {
        let mut pod = only(text).unwrap();
        defaults::apply(&mut pod);
        let v1_36 = dump::pod(&pod, KubeletRelease::V1_36);
        let without = |text: &str, field: &str| {
            let cut = text.replacen(field, "", 1);
            assert!(cut.len() < text.len(), "{field}");
            cut
        };
        let v1_35 = without(
            &v1_36,
            " NodeAllocatableResourceClaimStatuses:([]core.NodeAllocatableResourceClaimStatus)<nil>",
        );
        let v1_35 = v1_35.replacen(
            " SchedulingGroup:(*core.PodSchedulingGroup)<nil>}",
            " WorkloadRef:(*core.WorkloadReference)<nil>}",
            1,
        );
        assert_eq!(dump::pod(&pod, KubeletRelease::V1_35), v1_35);
        let v1_34 = without(&v1_35, " WorkloadRef:(*core.WorkloadReference)<nil>");
        let v1_34 = without(
            &v1_34,
            " AllocatedResources:(core.ResourceList)<nil> Resources:(*core.ResourceRequirements)<nil>}",
        );
        assert_eq!(dump::pod(&pod, KubeletRelease::V1_34), v1_34 + "}");
    }
}

#[test]
fn a_pod_that_lives_here_keeps_the_uid_of_the_kubelet_that_made_it() {
    let source = file("control-plane");
    let given = |release| static_pod_uid(only(CONTROL_PLANE).unwrap(), &source, "node-1", release);
    let releases = [
        KubeletRelease::V1_34,
        KubeletRelease::V1_35,
        KubeletRelease::V1_36,
    ];
    let uids = releases.map(given);
    let uid = |residents: &[&str]| {
        let residents = residents.iter().map(|uid| PodUid::from(*uid)).collect();
        let ground = StaticPodContext {
            residents: std::sync::Arc::new(residents),
            ..StaticPodContext::from("node-1")
        };
        let pod = only(CONTROL_PLANE).unwrap();
        let pod = static_pod(pod, &source, &ground, Timestamp::UNIX_EPOCH).unwrap();
        let uid = pod.metadata.uid.unwrap();
        assert_eq!(
            pod.metadata.annotations.unwrap()["kubernetes.io/config.hash"],
            uid
        );
        uid
    };
    assert!(uids[0] != uids[1] && uids[1] != uids[2]);
    assert_eq!(uids[2], "5af2d547237c4e8a7b6c58d6b9fb849f");
    for known in &uids {
        assert_eq!(uid(&[known, "d41d8cd98f00b204e9800998ecf8427e"]), *known);
    }
    // A stranger's directory, none at all, and one that a newer agent has left as well.
    assert_eq!(uid(&["d41d8cd98f00b204e9800998ecf8427e"]), uids[2]);
    assert_eq!(uid(&[]), uids[2]);
    assert_eq!(uid(&[&uids[0], &uids[2]]), uids[2]);
    // A changed manifest is another pod, whatever ran the old one.
    let changed = static_pod_uid(
        only(LEAST).unwrap(),
        &source,
        "node-1",
        KubeletRelease::V1_34,
    );
    assert_eq!(uid(&[&changed]), uids[2]);
}

#[test]
fn uid_depends_on_node_path_and_content_and_on_nothing_else() {
    let uid = |pod: &Value, source: &ManifestSource, node: &str, seen| {
        let pod = only(&pod.to_string()).unwrap();
        static_pod(pod, source, &node.into(), seen)
            .unwrap()
            .metadata
            .uid
            .unwrap()
    };
    let now = Timestamp::UNIX_EPOCH;
    let first = uid(&base(), &file("a"), "n", now);
    assert_eq!(first, uid(&base(), &file("a"), "n", Timestamp::MAX));
    assert_ne!(first, uid(&base(), &file("b"), "n", now));
    assert_ne!(first, uid(&base(), &file("a"), "m", now));
    assert_ne!(first, uid(&base(), &url(), "n", now));
    assert_eq!(
        uid(&base(), &url(), "n", now),
        uid(&base(), &url(), "m", now)
    );
    assert_ne!(
        first,
        uid(&with("/spec/hostname", json!("h")), &file("a"), "n", now)
    );
    assert_eq!(
        uid(&with("/metadata/uid", json!("12345")), &file("a"), "n", now),
        "12345"
    );
}

#[test]
fn static_pod_is_named_placed_and_marked_as_upstream_does() {
    let pod = run(only(LEAST).unwrap()).unwrap();
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(pod.metadata.name.as_deref(), Some("least-node-1"));
    assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(
        annotations["kubernetes.io/config.seen"],
        "1970-01-01T00:00:00Z"
    );
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Pending"));
    let spec = pod.spec.unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("node-1"));
    let tolerations = serde_json::to_value(spec.tolerations).unwrap();
    assert_eq!(
        tolerations,
        json!([{"operator": "Exists", "effect": "NoExecute"}])
    );

    let pod = static_pod(
        only(LEAST).unwrap(),
        &url(),
        &"node-1".into(),
        Timestamp::UNIX_EPOCH,
    )
    .unwrap();
    assert_eq!(
        pod.metadata.annotations.unwrap()["kubernetes.io/config.source"],
        "http"
    );
    assert_eq!(pod.spec.unwrap().tolerations, None);
}

#[test]
fn a_toleration_for_some_time_becomes_one_for_ever() {
    let held = json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]);
    let pod = run(only(&with("/spec/tolerations", held).to_string()).unwrap()).unwrap();
    let tolerations = serde_json::to_value(pod.spec.unwrap().tolerations).unwrap();
    assert_eq!(
        tolerations,
        json!([{"operator": "Exists", "effect": "NoExecute"}])
    );
}

#[test]
fn static_pod_name_generate() {
    // TestStaticPodNameGenerate; a node's own name in capitals is refused as upstream refuses it.
    let named = |node: &str| {
        static_pod(
            only(LEAST).unwrap(),
            &file("m"),
            &node.into(),
            Timestamp::UNIX_EPOCH,
        )
    };
    assert_eq!(
        named("node1").unwrap().metadata.name.as_deref(),
        Some("least-node1")
    );
    for node in ["Node1", "NODE1"] {
        let error = named(node).unwrap_err().to_string();
        let start =
            format!("spec.nodeName: Invalid value: \"{node}\": a lowercase RFC 1123 subdomain");
        assert!(error.starts_with(&start), "{error}");
        assert!(!error.contains("metadata.name"), "{error}");
    }
    let mut named_so = only(LEAST).unwrap();
    named_so.metadata.name = Some("static-pod1-NODE1".to_owned());
    let error = run(named_so).unwrap_err().to_string();
    assert!(error.starts_with("metadata.name: Invalid value"), "{error}");
}

#[test]
fn decode_single_pod_termination_grace_period_seconds() {
    let pod =
        run(only(&with("/spec/terminationGracePeriodSeconds", json!(-1)).to_string()).unwrap())
            .unwrap();
    assert_eq!(pod.spec.unwrap().termination_grace_period_seconds, Some(1));
}

#[test]
fn with_its_gate_off_a_static_pod_may_refer_to_objects_that_the_node_has() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: c, image: i, envFrom: [{configMapRef: {name: m}}]}";
    let made = |references| {
        let ground = StaticPodContext {
            references,
            ..StaticPodContext::from("node-1")
        };
        static_pod(
            only(text).unwrap(),
            &file("m"),
            &ground,
            Timestamp::UNIX_EPOCH,
        )
    };
    assert!(matches!(
        made(ApiReferences::Refused),
        Err(ManifestError::ApiReference {
            resource: "configmaps"
        })
    ));
    assert!(made(ApiReferences::Allowed).is_ok());
}
