//! The claims that are kept, and what is counted of them.

use std::collections::BTreeSet;

use super::*;

fn counts(cache: &ClaimCache) -> Vec<(String, usize)> {
    cache.claims_in_use().into_iter().collect()
}

#[test]
fn a_claim_is_found_by_its_namespace_and_name() {
    let mut cache = ClaimCache::default();
    assert_eq!(cache.get(&key("claim")), None);
    assert_eq!(cache.get(&ClaimKey::new("", "")), None);
    cache.insert(entry("claim", &[], &[]));
    assert_eq!(cache.get(&key("claim")), Some(&entry("claim", &[], &[])));
    assert_eq!(cache.get(&ClaimKey::new("other", "claim")), None);
    cache.remove(&key("strange"));
    cache.remove(&key("claim"));
    assert_eq!(cache.get(&key("claim")), None);
}

#[test]
fn prepared_claims_are_counted_by_driver_and_in_all() {
    let mut cache = ClaimCache::default();
    let count = |name: &str, count| (name.to_owned(), count);
    let unprepared = ClaimEntry {
        preparation: Preparation::Unprepared,
        ..entry("unprepared", &[], &[("test-driver", &[])])
    };
    cache.insert(unprepared);
    assert_eq!(counts(&cache), [count("<any>", 0)]);
    cache.insert(entry("old", &[], &[("test-driver", &[])]));
    assert_eq!(counts(&cache), [count("<any>", 1), count("test-driver", 1)]);
    cache.insert(entry("new", &[], &[("test-driver", &[]), ("other", &[])]));
    let both = [
        count("<any>", 2),
        count("other", 1),
        count("test-driver", 2),
    ];
    assert_eq!(counts(&cache), both);
    cache.remove(&key("old"));
    let rest = [
        count("<any>", 1),
        count("other", 1),
        count("test-driver", 1),
    ];
    assert_eq!(counts(&cache), rest);
}

#[test]
fn a_pod_may_have_to_be_unprepared_while_a_claim_names_it() {
    let empty = ClaimCache::default();
    assert!(!empty.is_referenced(&pod_uid("web")));
    let cache =
        ClaimCache::from_iter([entry("claim", &["web", "db"], &[]), entry("bare", &[], &[])]);
    assert!(cache.is_referenced(&pod_uid("web")));
    assert!(!cache.is_referenced(&pod_uid("other")));
}

#[test]
fn pods_are_found_by_the_devices_that_they_use() {
    let shared = |share: &str| ClaimDevice {
        share: Some(share.to_owned()),
        ..device("dev", &[], &[])
    };
    let cache = ClaimCache::from_iter([
        entry(
            "one",
            &["web"],
            &[("driver", &[shared("a"), device("second", &[], &[])])],
        ),
        entry("two", &["db"], &[("driver", &[shared("b")])]),
        entry(
            "three",
            &["other"],
            &[("strange", &[device("dev", &[], &[])])],
        ),
    ]);
    let with = |name: &str| {
        let devices = BTreeSet::from([("pool".to_owned(), name.to_owned())]);
        cache.pods_with(&"driver".into(), &devices)
    };
    assert_eq!(with("dev"), [pod_uid("db"), pod_uid("web")].into());
    assert_eq!(with("second"), [pod_uid("web")].into());
    assert_eq!(with("other-device"), BTreeSet::new());
}
