//! What is asked of drivers once a pod is gone.

use std::collections::BTreeSet;

use super::*;

fn undone(answers: &[(&str, &str)]) -> BTreeMap<DriverName, BTreeMap<ClaimUid, ()>> {
    let mut undone: BTreeMap<DriverName, BTreeMap<ClaimUid, ()>> = BTreeMap::new();
    for (driver, claim) in answers {
        let claims = undone.entry((*driver).into()).or_default();
        claims.insert(format!("{claim}-uid").into(), ());
    }
    undone
}

#[test]
fn drivers_undo_a_claim_once_its_last_pod_is_gone() {
    let shared = entry("shared", &["web", "db"], &[("driver", &[])]);
    let own = entry("own", &["web"], &[("driver", &[]), ("other", &[])]);
    let empty = entry("empty", &["web"], &[]);
    let mut cache = ClaimCache::from_iter([shared, own, empty]);
    let claims = [
        key("shared"),
        key("own"),
        key("own"),
        key("empty"),
        key("strange"),
    ];
    let plan = cache.plan_unprepare(&pod_uid("web"), &claims);
    assert_eq!(calls(&plan.calls), ["driver: own", "other: own"]);
    let rest = entry("shared", &["db"], &[("driver", &[])]);
    assert_eq!(cache.get(&key("shared")), Some(&rest));
    // The pod stays on its claim until that is done.
    assert!(cache.is_referenced(&pod_uid("web")));
    cache.take_unprepared(&plan, &undone(&[("driver", "own"), ("other", "own")]));
    assert_eq!(cache.get(&key("own")), None);
    assert_eq!(cache.get(&key("empty")), None);
    assert!(!cache.is_referenced(&pod_uid("web")));
}

#[test]
fn a_claim_that_a_driver_did_not_undo_is_asked_for_again() {
    let own = entry("own", &["web"], &[("driver", &[]), ("other", &[])]);
    let second = entry("second", &["web"], &[("driver", &[])]);
    let mut cache = ClaimCache::from_iter([own, second]);
    let claims = [key("own"), key("second")];
    let plan = cache.plan_unprepare(&pod_uid("web"), &claims);
    cache.take_unprepared(&plan, &undone(&[("driver", "own"), ("driver", "second")]));
    assert_eq!(cache.get(&key("second")), None);
    let again = cache.plan_unprepare(&pod_uid("web"), &claims);
    assert_eq!(calls(&again.calls), ["driver: own", "other: own"]);
}

#[test]
fn a_pod_that_never_used_a_claim_leaves_it_to_those_that_do() {
    let mut cache = ClaimCache::from_iter([entry("claim", &["db"], &[("driver", &[])])]);
    let before = cache.clone();
    let plan = cache.plan_unprepare(&pod_uid("web"), &[key("claim")]);
    assert_eq!(plan, UnpreparePlan::default());
    assert_eq!(cache, before);
}

#[test]
fn pods_that_are_gone_are_found_with_their_claims() {
    let cache = ClaimCache::from_iter([
        entry("one", &["web", "gone"], &[]),
        entry("two", &["gone"], &[]),
        entry("three", &["web"], &[]),
    ]);
    let inactive = |active: &[&str]| {
        let active: BTreeSet<PodUid> = active.iter().map(|pod| pod_uid(pod)).collect();
        cache.inactive(&active)
    };
    let gone = InactivePod {
        pod: pod_uid("gone"),
        claims: [key("one"), key("two")].into(),
    };
    assert_eq!(inactive(&["web"]), [gone]);
    assert_eq!(inactive(&["web", "gone"]), []);
    assert_eq!(inactive(&[]).len(), 2);
}
