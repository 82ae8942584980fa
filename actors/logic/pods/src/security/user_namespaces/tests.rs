//! Ranges of ids and their records.

use logic_api::linux::IdRange;
use logic_api::testing::*;
use logic_api::types::PodUid;
use proptest::prelude::*;

use super::*;

const UNIT: u32 = 65_536;

fn ids(first: u32, length: u32) -> Option<IdRange> {
    Some(IdRange { first, length })
}

fn uid(name: &str) -> PodUid {
    name.into()
}

/// Upstream's TestUserNsManagerAllocate.
#[test]
fn each_pod_has_a_range_to_itself() {
    for length in [UNIT, 16 * UNIT] {
        let mut pool = IdPool::new(ids(length, length.saturating_mul(200)), length, 110).unwrap();
        let one = pool.allocate(&uid("one")).unwrap();
        let two = pool.allocate(&uid("two")).unwrap();
        assert_eq!((one.length, two.length), (length, length));
        assert_ne!(one.first, two.first);
        assert_eq!(pool.allocate(&uid("one")), Ok(one), "asked again");
        assert!(one.first >= length && one.first.is_multiple_of(length));
        pool.release(&uid("one"));
        pool.release(&uid("one"));
        assert_eq!((pool.of(&uid("one")), pool.pods().count()), (None, 1));
        assert_ne!(
            pool.allocate(&uid("three")),
            Ok(one),
            "a range rests before it is given again"
        );
    }
}

#[test]
fn a_full_pool_says_so_and_what_is_given_back_is_given_again() {
    let mut pool = IdPool::new(ids(UNIT, 2 * UNIT), UNIT, 2).unwrap();
    let one = pool.allocate(&uid("one")).unwrap();
    pool.allocate(&uid("two")).unwrap();
    let full = pool.allocate(&uid("three")).unwrap_err();
    assert_eq!(
        full.to_string(),
        "could not find an empty slot to allocate a user namespace"
    );
    pool.release(&uid("one"));
    assert_eq!(pool.allocate(&uid("three")), Ok(one));
}

/// Upstream's TestMakeUserNsManager.
#[test]
fn a_pool_must_fit_its_ranges_and_its_pods() {
    let cases = [
        (ids(UNIT, 110 * UNIT), UNIT, 110, ""),
        (None, UNIT, 65_535, ""),
        (None, 16 * UNIT, 110, ""),
        (
            None,
            UNIT,
            65_536,
            "kubelet user assigned IDs are not enough to support 65536 pods",
        ),
        (
            ids(0, 110 * UNIT),
            UNIT,
            110,
            "kubelet user assigned ID 0 must be greater or equal to 65536",
        ),
        (
            ids(UNIT + 1, 110 * UNIT),
            UNIT,
            110,
            "kubelet user assigned ID 65537 is not a multiple of 65536",
        ),
        (
            ids(UNIT, 110 * UNIT + 1),
            UNIT,
            110,
            "kubelet user assigned IDs length 7208961 is not a multiple of 65536",
        ),
        (
            ids(UNIT, UNIT),
            UNIT,
            110,
            "kubelet user assigned IDs are not enough to support 110 pods",
        ),
        (
            ids(UNIT, UNIT),
            0,
            1,
            "kubelet user namespace length 0 is not a multiple of 65536",
        ),
        (
            ids(UNIT, UNIT),
            5,
            1,
            "kubelet user namespace length 5 is not a multiple of 65536",
        ),
    ];
    for (ids, length, pods, expected) in cases {
        let told = IdPool::new(ids, length, pods)
            .map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(told, expected, "{ids:?} {length} {pods}");
    }
}

/// Upstream's TestRecordBounds, and the ranges that TestUserNsManagerParseUserNsFile refuses.
#[test]
fn a_recorded_range_is_kept_if_it_can_be_one() {
    let range = |first, length| IdRange { first, length };
    let mut pool = IdPool::new(ids(UNIT, 10 * UNIT), UNIT, 1).unwrap();
    assert_eq!(pool.record(&uid("a"), range(2 * UNIT, UNIT)), Ok(()));
    assert_eq!(
        pool.record(&uid("a"), range(2 * UNIT, UNIT)),
        Ok(()),
        "the same again"
    );
    let cases = [
        (
            "a",
            range(3 * UNIT, UNIT),
            "different user namespace range already used by pod \"a\"",
        ),
        (
            "b",
            range(2 * UNIT, UNIT),
            "range picked for pod \"b\" already taken",
        ),
        ("b", range(0, UNIT), "id 0 is out of range"),
        ("b", range(11 * UNIT, UNIT), "id 720896 is out of range"),
        ("b", range(UNIT, 5), "wrong user namespace length 5"),
        (
            "b",
            range(UNIT + 1, UNIT),
            "wrong user namespace offset specified 65537",
        ),
    ];
    for (pod, range, expected) in cases {
        let told = pool.record(&uid(pod), range).unwrap_err().to_string();
        assert_eq!(told, expected);
    }
    assert_eq!(
        pool.record(&uid("b"), range(10 * UNIT, UNIT)),
        Ok(()),
        "the last one"
    );
}

#[test]
fn a_range_of_an_earlier_configuration_stays_and_is_not_given_to_others() {
    let mut pool = IdPool::new(ids(UNIT, 4 * UNIT), UNIT, 1).unwrap();
    let odd = IdRange {
        first: UNIT + 5,
        length: UNIT,
    };
    pool.adopt(&uid("old"), odd);
    assert_eq!(pool.allocate(&uid("old")), Ok(odd));
    let firsts: Vec<_> = ["a", "b"]
        .map(|pod| pool.allocate(&uid(pod)).unwrap().first / UNIT)
        .into();
    assert_eq!(firsts, [3, 4]);
    assert_eq!(pool.allocate(&uid("c")), Err(PoolError::Full));
    pool.release(&uid("old"));
    assert_eq!(pool.allocate(&uid("c")).unwrap().first, UNIT);
}

/// Upstream's TestUserNsManagerParseUserNsFile.
#[test]
fn records_are_upstreams_and_malformed_ones_are_refused() {
    let range = IdRange {
        first: 131_072,
        length: UNIT,
    };
    let text = r#"{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}"#;
    assert_eq!(encode_record(range), text);
    assert_eq!(decode_record(text.as_bytes()).unwrap(), Some(range));
    assert_eq!(decode_record(b"").unwrap(), None);
    let one = r#"{"hostId":131072,"containerId":0,"length":65536}"#;
    let other = r#"{"hostId":65536,"containerId":0,"length":65536}"#;
    let rootless = r#"{"hostId":131072,"containerId":1,"length":65536}"#;
    let cases = [
        (
            String::new(),
            String::new(),
            "no more than one mapping allowed.",
        ),
        (
            format!("{one},{other}"),
            format!("{one},{other}"),
            "no more than one mapping allowed.",
        ),
        (
            one.to_owned(),
            String::new(),
            "GID and UID mappings should be identical.",
        ),
        (
            one.to_owned(),
            format!("{one},{one}"),
            "GID and UID mappings should be identical.",
        ),
        (
            one.to_owned(),
            other.to_owned(),
            "GID and UID mapping should be identical",
        ),
        (
            rootless.to_owned(),
            rootless.to_owned(),
            "UID 0 must be mapped",
        ),
    ];
    for (users, groups, expected) in cases {
        let text = format!(r#"{{"uidMappings":[{users}],"gidMappings":[{groups}]}}"#);
        let told = decode_record(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            told,
            format!("invalid user namespace configuration: {expected}")
        );
    }
    for text in ["{", "[]", r#"{"uidMappings":[{"hostId":-1}]}"#, "{}"] {
        let told = decode_record(text.as_bytes()).unwrap_err().to_string();
        assert!(
            told.starts_with("invalid user namespace mappings file: "),
            "{told}"
        );
    }
}

/// Upstream's TestParseGetSubIdsOutput.
#[test]
fn what_getsubids_prints_is_one_range() {
    assert_eq!(
        sub_ids("0: kubelet 65536 2147483648"),
        Ok(ids(65_536, 2_147_483_648).unwrap())
    );
    assert_eq!(
        sub_ids("0: kubelet 65536 2147483648\n"),
        sub_ids("0: kubelet 65536 2147483648")
    );
    let bad = [
        "",
        "\n\n",
        "0: kubelet",
        "0: kubelet 65536 65536 1",
        "0: kubelet -1 5",
        "0: kubelet 5 x",
        "0: kubelet 4294967296 1",
        "0: kubelet 0 99999999999",
        "0: kubelet 1 2\n1: kubelet 3 4",
    ];
    for text in bad {
        assert!(sub_ids(text).is_err(), "{text:?}");
    }
}

/// Upstream's TestGetOrCreateUserNamespaceMappings, its refusals.
#[test]
fn a_runtime_must_be_able_to_give_users() {
    let features = |user_namespaces| HandlerFeatures {
        user_namespaces,
        ..HandlerFeatures::default()
    };
    let handlers: BTreeMap<_, _> = [
        ("good".to_owned(), features(true)),
        ("bad".to_owned(), features(false)),
    ]
    .into();
    let with_default = |able| {
        let mut handlers = handlers.clone();
        handlers.insert(String::new(), features(able));
        handlers
    };
    let text = |handler: &str, handlers: &BTreeMap<_, _>| {
        check_support(handler, handlers).map_or_else(|error| error.to_string(), |()| String::new())
    };
    const RUNTIME: &str =
        "can't set `spec.hostUsers: false`, runtime does not support user namespaces";
    let of = |handler: &str| {
        format!(
            "can't set `spec.hostUsers: false`, RuntimeClass handler {handler:?} does not support user namespaces"
        )
    };
    assert_eq!(text("good", &handlers), "");
    assert_eq!(text("", &with_default(true)), "");
    assert_eq!(text("", &with_default(false)), RUNTIME);
    assert_eq!(
        text("", &handlers),
        format!("{RUNTIME}: the handler \"\" is not known")
    );
    assert_eq!(text("bad", &handlers), of("bad"));
    assert_eq!(
        text("other", &handlers),
        of("other") + ": the handler \"other\" is not known"
    );
    assert_eq!(text("", &BTreeMap::new()), RUNTIME);
    assert_eq!(text("other", &BTreeMap::new()), of("other"));
}

#[test]
fn only_a_pod_that_says_so_wants_users_of_its_own() {
    let with = |users| pod("p").spec_with(|spec| spec.host_users = users);
    let wants = [None, Some(true), Some(false)].map(|users| requests_user_namespace(&with(users)));
    assert_eq!(wants, [false, false, true]);
}

proptest! {
    /// Whatever is asked, recorded and released: no id belongs to two pods, and none is outside the pool.
    #[test]
    fn ranges_never_overlap(steps in prop::collection::vec((0_u8..3, 0_u32..6, 0_u32..9), 0..60)) {
        let mut pool = IdPool::new(ids(2 * UNIT, 5 * UNIT), UNIT, 1).unwrap();
        for (what, pod, slot) in steps {
            let pod = uid(&pod.to_string());
            match what {
                0 => drop(pool.allocate(&pod)),
                1 => drop(pool.record(&pod, IdRange { first: slot * UNIT, length: UNIT })),
                _ => pool.release(&pod),
            }
            let mut firsts: Vec<u32> = (0..6).filter_map(|n: u32| pool.of(&uid(&n.to_string()))).map(|r| r.first).collect();
            prop_assert_eq!(firsts.len(), pool.pods().count());
            firsts.sort_unstable();
            firsts.dedup();
            prop_assert_eq!(firsts.len(), pool.pods().count());
            prop_assert!(firsts.iter().all(|first| (2 * UNIT..7 * UNIT).contains(first)));
        }
    }
}

#[test]
fn the_default_pool_is_all_ids_beyond_the_first_range() {
    let mut pool = IdPool::new(None, UNIT, 110).unwrap();
    assert_eq!(
        pool.allocate(&uid("a")),
        Ok(IdRange {
            first: UNIT,
            length: UNIT
        })
    );
    let last = IdRange {
        first: u32::MAX - UNIT + 1,
        length: UNIT,
    };
    assert_eq!(pool.record(&uid("b"), last), Ok(()));
}
