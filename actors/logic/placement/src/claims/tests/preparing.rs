//! What is asked of drivers before a pod's containers are made, and what their answers change.

use super::*;

fn needed(claims: Vec<ResourceClaim>) -> Vec<(ClaimReference, ResourceClaim)> {
    let reference = |claim: &ResourceClaim| ClaimReference {
        name: claim.metadata.name.clone().unwrap(),
        origin: ClaimOrigin::Named,
    };
    claims
        .into_iter()
        .map(|claim| (reference(&claim), claim))
        .collect()
}

fn prepared(plan: &PreparePlan, answers: &[(&str, &str, &[ClaimDevice])], cache: &mut ClaimCache) {
    let mut done: BTreeMap<DriverName, BTreeMap<ClaimUid, Vec<ClaimDevice>>> = BTreeMap::new();
    for (driver, claim, devices) in answers {
        let claims = done.entry((*driver).into()).or_default();
        claims.insert(format!("{claim}-uid").into(), devices.to_vec());
    }
    cache.take_prepared(plan, &done);
}

#[test]
fn a_pod_that_may_not_use_a_claim_changes_nothing() {
    let pod = pod_of("web", &["claim"]);
    let mut unallocated = claim_of("claim", &["driver"], &["web"]);
    unallocated.status.as_mut().unwrap().allocation = None;
    let old = ClaimEntry {
        uid: "another-uid".into(),
        ..entry("claim", &["web"], &[("driver", &[])])
    };
    let none = ClaimCache::default();
    let held = ClaimCache::from_iter([old]);
    let cases = [
        (
            claim_of("claim", &["unknown driver"], &["web"]),
            &none,
            "DRA driver unknown driver is not registered",
        ),
        (
            claim_of("claim", &["driver", ""], &["web"]),
            &none,
            "DRA driver name is empty",
        ),
        (
            claim_of("claim", &["driver"], &[]),
            &none,
            "pod web (web-uid) is not allowed to use ResourceClaim claim (claim-uid)",
        ),
        (unallocated, &none, "ResourceClaim claim: not allocated"),
        (
            claim_of("claim", &["driver"], &["web"]),
            &held,
            "old ResourceClaim with same name claim and different UID another-uid still exists (previous pod force-deleted?!)",
        ),
    ];
    for (claim, before, expected) in cases {
        let mut cache = before.clone();
        let good = claim_of("a-good-one", &["driver"], &["web"]);
        let needed = needed(vec![good, claim]);
        let refusal = cache.plan_prepare(&pod, &needed, &registered(&["driver"]), GATES);
        let refusal = refusal.unwrap_err();
        assert_eq!(refusal.to_string(), expected);
        assert!(refusal.transient(), "{expected}");
        assert_eq!(&cache, before, "{expected}");
    }
}

#[test]
fn a_claim_of_a_group_needs_the_gate() {
    let mut pod = pod_of("web", &["claim"]);
    pod.spec.as_mut().unwrap().scheduling_group = read(json!({"podGroupName": "group"}));
    let mut claim = claim_of("claim", &["driver"], &[]);
    let reserved = |name: &str| {
        read(json!([
            {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": name, "uid": "g"},
        ]))
    };
    let plan = |claim: &ResourceClaim, gates| {
        let mut cache = ClaimCache::default();
        let needed = needed(vec![claim.clone()]);
        let plan = cache.plan_prepare(&pod, &needed, &registered(&["driver"]), gates);
        plan.map(|plan| calls(&plan.calls))
            .map_err(|error| error.to_string())
    };
    let refused =
        "pod web (web-uid) is not allowed to use ResourceClaim claim (claim-uid)".to_owned();
    claim.status.as_mut().unwrap().reserved_for = reserved("group");
    assert_eq!(plan(&claim, GROUPS), Ok(vec!["driver: claim".to_owned()]));
    assert_eq!(plan(&claim, GATES), Err(refused.clone()));
    claim.status.as_mut().unwrap().reserved_for = reserved("strange");
    assert_eq!(plan(&claim, GROUPS), Err(refused));
}

#[test]
fn each_driver_is_called_once_with_all_that_is_not_prepared() {
    let pod = pod_of("web", &["new", "both", "old", "empty"]);
    let held = entry("old", &["db"], &[("driver", &[device("dev", &[], &[])])]);
    let mut cache = ClaimCache::from_iter([held]);
    let claims = vec![
        claim_of("new", &["driver"], &["web"]),
        claim_of("both", &["driver", "other"], &["web"]),
        claim_of("old", &["driver"], &["db", "web"]),
        claim_of("empty", &[], &["web"]),
        claim_of("new", &["driver"], &["web"]),
    ];
    let drivers = registered(&["driver", "other"]);
    let plan = cache
        .plan_prepare(&pod, &needed(claims), &drivers, GATES)
        .unwrap();
    assert_eq!(calls(&plan.calls), ["driver: both new", "other: both"]);
    assert_eq!(plan.claims, [key("both"), key("empty"), key("new")].into());
    for claim in ["new", "both", "old", "empty"] {
        let entry = cache.get(&key(claim)).unwrap();
        assert!(entry.pods.contains(&pod_uid("web")), "{claim}");
    }
    assert_eq!(cache.get(&key("old")).unwrap().pods.len(), 2);
    // What no driver has a part in is prepared without any.
    prepared(&plan, &[], &mut cache);
    let preparation = |claim| cache.get(&key(claim)).unwrap().preparation;
    assert_eq!(preparation("empty"), Preparation::Prepared);
    assert_eq!(preparation("new"), Preparation::Unprepared);
}

#[test]
fn a_claim_is_prepared_once_all_its_drivers_have_answered() {
    let pod = pod_of("web", &["claim", "second"]);
    let claims = || {
        needed(vec![
            claim_of("claim", &["driver", "other"], &["web"]),
            claim_of("second", &["driver"], &["web"]),
        ])
    };
    let drivers = registered(&["driver", "other"]);
    let mut cache = ClaimCache::default();
    let plan = cache
        .plan_prepare(&pod, &claims(), &drivers, GATES)
        .unwrap();
    let share = ClaimDevice {
        share: Some("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa".to_owned()),
        ..device("dev", &["gpu"], &["vendor.com/gpu=0"])
    };
    let shared = std::slice::from_ref(&share);
    prepared(
        &plan,
        &[("driver", "claim", shared), ("driver", "second", &[])],
        &mut cache,
    );
    let known = cache.get(&key("claim")).unwrap();
    assert_eq!(known.preparation, Preparation::Unprepared);
    assert_eq!(
        cache.get(&key("second")).unwrap().preparation,
        Preparation::Prepared
    );
    // The other driver failed: both are asked again, and the first one's device is not there twice.
    let again = cache
        .plan_prepare(&pod, &claims(), &drivers, GATES)
        .unwrap();
    assert_eq!(calls(&again.calls), ["driver: claim", "other: claim"]);
    prepared(
        &again,
        &[("driver", "claim", shared), ("other", "claim", &[])],
        &mut cache,
    );
    let expected = entry("claim", &["web"], &[("driver", shared), ("other", &[])]);
    assert_eq!(cache.get(&key("claim")), Some(&expected));
    let done = cache
        .plan_prepare(&pod, &claims(), &drivers, GATES)
        .unwrap();
    assert_eq!(done, PreparePlan::default());
}

#[test]
fn claims_of_extended_resources_and_those_that_no_container_uses_are_prepared() {
    let mut idle = pod_of("web", &["claim"]);
    idle.spec.as_mut().unwrap().containers[0].resources = None;
    for pod in [extended_pod(), idle] {
        let references = needed_claims(&pod, GATES).unwrap();
        let [reference] = references.as_slice() else {
            panic!("one claim: {references:?}");
        };
        let claim = claim_of("claim", &["driver"], &["web"]);
        let needed = [(reference.clone(), claim)];
        let mut cache = ClaimCache::default();
        let plan = cache.plan_prepare(&pod, &needed, &registered(&["driver"]), GATES);
        assert_eq!(calls(&plan.unwrap().calls), ["driver: claim"]);
    }
}

#[test]
fn an_answer_must_be_about_what_was_asked_and_all_of_it() {
    let identity = |name: &str| entry(name, &[], &[]).identity();
    let claims = [identity("a"), identity("b")];
    let rpc = "NodePrepareResources";
    let check = |answer: &[(&str, ClaimAnswer<()>)]| {
        let answer = answer
            .iter()
            .cloned()
            .map(|(claim, said)| (format!("{claim}-uid").into(), said));
        check_answer(rpc, &claims, answer.collect()).map_err(|error| error.to_string())
    };
    assert_eq!(check(&[("a", Ok(())), ("b", Ok(()))]).unwrap().len(), 2);
    let cases = [
        (
            vec![("a", Ok(()))],
            "NodePrepareResources skipped 1 ResourceClaims",
        ),
        (vec![], "NodePrepareResources skipped 2 ResourceClaims"),
        (
            vec![("a", Ok(())), ("b", Ok(())), ("c", Ok(()))],
            "NodePrepareResources returned result for unknown claim UID c-uid",
        ),
        (
            vec![("a", Ok(())), ("b", Err("no such GPU".to_owned()))],
            "NodePrepareResources failed for ResourceClaim b: no such GPU",
        ),
    ];
    for (answer, expected) in cases {
        assert_eq!(check(&answer), Err(expected.to_owned()));
    }
    let call = CallFailure::Call {
        rpc: "NodeUnprepareResources",
        why: "rpc error: code = DeadlineExceeded desc = context deadline exceeded".to_owned(),
    };
    let expected = "NodeUnprepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded";
    assert_eq!(call.to_string(), expected);
}
