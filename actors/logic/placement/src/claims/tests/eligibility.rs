//! Whether a pod may use a claim.

use super::*;
use crate::claims::eligibility::{check_claim, check_owner, is_reserved};

fn pod_named(name: &str, group: Option<&str>) -> Pod {
    read(json!({
        "metadata": {"namespace": "kube-system", "name": name, "uid": name},
        "spec": {"containers": [], "schedulingGroup": group.map(|group| json!({"podGroupName": group}))},
    }))
}

fn owned(namespace: &str, name: &str, owner: Value) -> ResourceClaim {
    read(json!({
        "metadata": {"namespace": namespace, "name": name, "ownerReferences": owner},
        "spec": {},
    }))
}

/// The owner of a claim that a PodGroup got, by the version of its API.
fn group_owner(version: &str) -> Value {
    json!([{
        "apiVersion": version, "kind": "PodGroup", "name": "podGroupOwner", "uid": "g", "controller": true,
    }])
}

#[test]
fn a_claim_of_a_template_belongs_to_the_pod_or_its_group() {
    let pod_owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "podOwner", "uid": "podOwner", "controller": true}]);
    let guest = json!([{"apiVersion": "v1", "kind": "Pod", "name": "podOwner", "uid": "podOwner"}]);
    let of_pod = owned("kube-system", "claimWithOwner", pod_owner.clone());
    let of_none = owned("kube-system", "claimNoOwner", json!([]));
    let of_guest = owned("kube-system", "claimNoOwner", guest);
    let elsewhere = owned("user-namespace", "userClaimWithOwner", pod_owner);
    let of_group = owned(
        "kube-system",
        "groupClaim",
        group_owner("scheduling.k8s.io/v1alpha2"),
    );
    let of_later = owned(
        "kube-system",
        "groupClaim",
        group_owner("scheduling.k8s.io/v25"),
    );
    let of_other_api = owned("kube-system", "groupClaim", group_owner("example.com/v1"));
    let elsewhere_group = owned(
        "user-namespace",
        "groupClaim",
        group_owner("scheduling.k8s.io/v1"),
    );
    let alone = |name| pod_named(name, None);
    let grouped = |group| pod_named("podOwner", Some(group));
    let not_owner = "was not created for Pod kube-system/podOwner (Pod is not owner)";
    let neither = "was not created for Pod kube-system/podOwner (neither Pod nor PodGroup";
    let cases = [
        (alone("podOwner"), &of_pod, GATES, String::new()),
        (
            alone("podNotOwner"),
            &of_pod,
            GATES,
            "ResourceClaim kube-system/claimWithOwner was not created for Pod kube-system/podNotOwner (Pod is not owner)".to_owned(),
        ),
        (alone("podOwner"), &of_none, GATES, format!("ResourceClaim kube-system/claimNoOwner {not_owner}")),
        (alone("podOwner"), &of_guest, GATES, format!("ResourceClaim kube-system/claimNoOwner {not_owner}")),
        (
            alone("podOwner"),
            &elsewhere,
            GATES,
            "ResourceClaim user-namespace/userClaimWithOwner is not in the same namespace as Pod kube-system/podOwner".to_owned(),
        ),
        (grouped("podGroupOwner"), &of_group, GROUPS, String::new()),
        (grouped("podGroupOwner"), &of_later, GROUPS, String::new()),
        (grouped("podGroupOwner"), &of_group, GATES, format!("ResourceClaim kube-system/groupClaim {not_owner}")),
        (alone("podOwner"), &of_group, GROUPS, format!("ResourceClaim kube-system/groupClaim {not_owner}")),
        (
            grouped("podGroupNotOwner"),
            &of_group,
            GROUPS,
            format!("ResourceClaim kube-system/groupClaim {neither} podGroupNotOwner is the owner)"),
        ),
        (
            grouped("podGroupOwner"),
            &of_other_api,
            GROUPS,
            format!("ResourceClaim kube-system/groupClaim {neither} podGroupOwner is the owner)"),
        ),
        (
            grouped("podGroupOwner"),
            &of_none,
            GROUPS,
            format!("ResourceClaim kube-system/claimNoOwner {neither} podGroupOwner is the owner)"),
        ),
        (
            grouped("podGroupOwner"),
            &elsewhere_group,
            GROUPS,
            "ResourceClaim user-namespace/groupClaim is not in the same namespace as Pod kube-system/podOwner".to_owned(),
        ),
    ];
    for (number, (pod, claim, gates, expected)) in cases.into_iter().enumerate() {
        let found = check_owner(&pod, claim, gates).map_err(|error| error.to_string());
        let expected = if expected.is_empty() {
            Ok(())
        } else {
            Err(expected)
        };
        assert_eq!(found, expected, "case {number}");
    }
}

#[test]
fn a_claim_is_used_by_those_that_it_is_reserved_for() {
    let pod = |uid: &str| json!({"resource": "pods", "name": uid, "uid": uid});
    let group = |name: &str| json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": name, "uid": name});
    let claim = |reserved: Vec<Value>| -> ResourceClaim {
        read(json!({"metadata": {}, "spec": {}, "status": {"reservedFor": reserved}}))
    };
    let none = claim(vec![]);
    let one = claim(vec![pod("reserved")]);
    let two = claim(vec![pod("reserved"), pod("other")]);
    let one_group = claim(vec![group("group")]);
    let two_groups = claim(vec![group("group"), group("other-group")]);
    let mixed = claim(vec![pod("reserved"), group("group")]);
    let alone = |name| pod_named(name, None);
    let grouped = |group| pod_named("unreserved", Some(group));
    let cases = [
        ("not reserved", alone("unreserved"), &none, GATES, false),
        ("for the pod", alone("reserved"), &one, GATES, true),
        ("for another pod", alone("unreserved"), &one, GATES, false),
        ("for several", alone("reserved"), &two, GATES, true),
        (
            "for several others",
            alone("unreserved"),
            &two,
            GATES,
            false,
        ),
        ("for the group", grouped("group"), &one_group, GROUPS, true),
        (
            "for the group, gate off",
            grouped("group"),
            &one_group,
            GATES,
            false,
        ),
        (
            "for pod and group",
            pod_named("reserved", Some("group")),
            &mixed,
            GROUPS,
            true,
        ),
        (
            "for a pod, not this group",
            grouped("strange"),
            &one,
            GROUPS,
            false,
        ),
        (
            "for several groups",
            grouped("group"),
            &two_groups,
            GROUPS,
            true,
        ),
        (
            "for several other groups",
            grouped("strange"),
            &two_groups,
            GROUPS,
            false,
        ),
        (
            "a pod without a group",
            alone("unreserved"),
            &one_group,
            GROUPS,
            false,
        ),
    ];
    for (case, pod, claim, gates, expected) in cases {
        assert_eq!(is_reserved(&pod, claim, gates), expected, "{case}");
    }
}

#[test]
fn a_claim_is_kept_with_the_drivers_that_it_is_allocated_of() {
    let pod = pod_of("web", &["claim"]);
    let check = |claim: &ResourceClaim| check_claim(&pod, ClaimOrigin::Named, claim, GATES);
    let unprepared = |drivers: &[(&str, &[ClaimDevice])]| ClaimEntry {
        preparation: Preparation::Unprepared,
        ..entry("claim", &[], drivers)
    };
    let one = check(&claim_of("claim", &["driver"], &["web"])).unwrap();
    assert_eq!(one, unprepared(&[("driver", &[])]));
    let twice = check(&claim_of("claim", &["driver", "driver", "other"], &["web"])).unwrap();
    assert_eq!(twice, unprepared(&[("driver", &[]), ("other", &[])]));
    let nothing = check(&claim_of("claim", &[], &["web"])).unwrap();
    assert_eq!(nothing, unprepared(&[]));
    let mut waiting = claim_of("claim", &["driver"], &["web"]);
    waiting.status.as_mut().unwrap().allocation = None;
    let refusal = check(&waiting).unwrap_err();
    assert_eq!(refusal.to_string(), "ResourceClaim claim: not allocated");
}
