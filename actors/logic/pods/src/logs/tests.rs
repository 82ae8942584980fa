//! Laws of the files of container logs.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn policy(files: usize) -> LogRotationPolicy {
    LogRotationPolicy {
        files,
        ..LogRotationPolicy::default()
    }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn tidied(files: usize, list: &[&str]) -> LogCleanup {
    let files_of = LogFiles {
        log: "0.log",
        names: &names(list),
        fresh: &BTreeSet::new(),
        compressing: None,
    };
    tidy(&files_of, &policy(files))
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn settings_become_a_policy() {
    let policy = |size, files, workers| {
        let policy = LogRotationPolicy::new(size, files, workers, Duration::from_secs(3));
        (policy.limit, policy.files, policy.workers)
    };
    assert_eq!(policy("10Mi", 5, 1), (Some(10 * MIB), 5, 1));
    assert_eq!(policy("1k", 2, 7), (Some(1000), 2, 7));
    assert_eq!(policy("-1", 5, 1), (None, 5, 1));
    assert_eq!(policy("lots", -1, -1), (Some(10 * MIB), 2, 1));
}

/// Upstream's TestGetAllLogs.
#[test]
fn a_logs_files_are_found_oldest_first() {
    let found = find(
        "test-log",
        &names(&[
            "test-log.11111111-111111.gz",
            "test-log",
            "test-log.00000000-000000.gz",
            "test-log.19900322-000000.gz",
            "test-log.19900322-111111.gz",
            "test-log.19880620-000000",
            "test-log.19880620-000000.gz",
            "test-log.19880620-111111.gz",
            "test-log.20180101-000000",
            "test-log.20180101-000000.tmp",
            "test-log-2",
        ]),
    );
    let expected = [
        "test-log.00000000-000000.gz",
        "test-log.11111111-111111.gz",
        "test-log.19880620-000000.gz",
        "test-log.19880620-111111.gz",
        "test-log.19900322-000000.gz",
        "test-log.19900322-111111.gz",
        "test-log.20180101-000000",
        "test-log",
    ];
    assert_eq!(found, expected);
}

/// Upstream's TestRotateLogs: which files of a container are left after its rotation.
#[test]
fn after_a_rotation_all_but_the_newest_are_compressed() {
    let tidy = tidied(
        3,
        &[
            "0.log.00000000-000001",
            "0.log.00000000-000000.gz",
            "0.log.20260101-000000",
            "0.log",
        ],
    );
    assert_eq!(tidy.remove, ["0.log.00000000-000000.gz"]);
    assert_eq!(tidy.compress, ["0.log.00000000-000001"]);
}

/// Upstream's TestCleanupUnusedLog.
#[test]
fn leftovers_of_a_compression_are_removed() {
    let tidy = tidied(
        9,
        &[
            "0.log.1",
            "0.log.1.tmp",
            "0.log.2",
            "0.log.2.gz",
            "1.log.tmp",
        ],
    );
    assert_eq!(tidy.remove, ["0.log.1.tmp", "0.log.2"]);
    assert_eq!(tidy.compress, ["0.log.1"]);
}

/// Upstream's TestRemoveExcessLog; its log that is about to be rotated is here rotated (`5`).
#[test]
fn the_oldest_files_go_when_there_are_too_many() {
    let rotated = ["0.log.3", "0.log.1", "0.log.2", "0.log.4", "0.log.5"];
    let cases: [(usize, &[&str]); 3] = [
        (2, &["0.log.1", "0.log.2", "0.log.3", "0.log.4"]),
        (3, &["0.log.1", "0.log.2", "0.log.3"]),
        (6, &[]),
    ];
    for (files, removed) in cases {
        assert_eq!(tidied(files, &rotated).remove, removed, "{files} files");
    }
}

#[test]
fn what_is_fresh_or_in_work_is_not_compressed_again() {
    let fresh = BTreeSet::from(["0.log.2".to_owned()]);
    let list = names(&["0.log.1", "0.log.1.tmp", "0.log.2", "0.log.3", "0.log.4"]);
    let files = LogFiles {
        log: "0.log",
        names: &list,
        fresh: &fresh,
        compressing: Some("0.log.1"),
    };
    let tidy = tidy(&files, &policy(9));
    assert_eq!(tidy.remove, [""; 0]);
    assert_eq!(tidy.compress, ["0.log.3"]);
}

#[test]
fn rotated_logs_are_named_by_the_time_and_never_alike() {
    let now = at("2026-01-02T15:04:05.9Z");
    let cases: [(&[&str], &str); 8] = [
        (&[], "0.log.20260102-150405"),
        (&["0.log.20260102-150404.gz"], "0.log.20260102-150405"),
        (&["0.log.20260102-150405.gz"], "0.log.20260102-150405_001"),
        (
            &["0.log.20260102-150405", "0.log.20260102-150405_001.gz"],
            "0.log.20260102-150405_002",
        ),
        // A clock that was set back, or a kubelet in an eastern time zone.
        (&["0.log.20260102-170000"], "0.log.20260102-170000_001"),
        (&["0.log.20251231-235959_999"], "0.log.20260102-150405"),
        (&["0.log.20261231-235959_999"], "0.log.20270101-000000"),
        // Foreign names say nothing.
        (
            &[
                "0.log.zzz",
                "0.log.20260102-15040x",
                "1.log.20990101-000000",
            ],
            "0.log.20260102-150405",
        ),
    ];
    for (existing, expected) in cases {
        assert_eq!(
            rotated("0.log", &names(existing), now),
            expected,
            "{existing:?}"
        );
    }
}

#[test]
fn a_log_is_due_from_its_limit_on() {
    let due = |limit, size| {
        let policy = LogRotationPolicy { limit, ..policy(5) };
        policy.is_due(size)
    };
    assert!(!due(Some(10), 9));
    assert!(due(Some(10), 10));
    assert!(!due(Some(0), 0));
    assert!(due(Some(0), 1));
    assert!(!due(None, u64::MAX));
}

#[test]
fn a_log_rests_until_the_fastest_writer_could_have_filled_it() {
    let millis = |limit, size| {
        let policy = LogRotationPolicy { limit, ..policy(5) };
        policy.rest(size).as_millis()
    };
    assert_eq!(millis(Some(10 * MIB), 0), 117);
    assert_eq!(millis(Some(10 * MIB), 10 * MIB - 1), 39);
    assert_eq!(millis(Some(MIB), 0), 11);
    assert_eq!(millis(Some(1000), 900), 1);
    assert_eq!(millis(Some(u64::MAX), 0), 10_000);
    assert_eq!(millis(None, 0), 10_000);
    assert_eq!(policy(5).gather(), Duration::from_micros(9765));
}

#[test]
fn an_unreported_log_is_looked_at_as_often_as_it_grows() {
    let policy = policy(5);
    let seen = |size, secs| LogSize {
        size,
        at: Duration::from_secs(secs),
    };
    let cases = [
        (None, seen(0, 5), 10_000),
        (Some(seen(MIB, 0)), seen(MIB, 10), 10_000),
        (Some(seen(0, 0)), seen(10, 10), 10_000),
        (Some(seen(0, 0)), seen(5 * MIB, 10), 5_000),
        (Some(seen(0, 0)), seen(10 * MIB, 10), 1),
        (Some(seen(9 * MIB, 0)), seen(5 * MIB, 10), 10_000),
    ];
    for (before, now, millis) in cases {
        assert_eq!(
            policy.poll(before, now),
            Duration::from_millis(millis),
            "{before:?} {now:?}"
        );
    }
}

proptest! {
    #[test]
    fn at_no_rate_up_to_the_fastest_is_a_log_twice_its_limit_when_it_is_looked_at(limit in MIB..(1 << 40), share in 0.0..1.0_f64) {
        let policy = LogRotationPolicy { limit: Some(limit), interval: Duration::from_secs(1 << 40), ..policy(5) };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "any size below the limit will do")]
        let size = (limit as f64 * share) as u64;
        let late = policy.rest(size) + policy.gather();
        let written = late.as_micros() * u128::from(MAX_WRITE_RATE) / 1_000_000;
        prop_assert!(u128::from(size) + written < 2 * u128::from(limit));
    }

    #[test]
    fn each_name_sorts_behind_all_before_it(steps in prop::collection::vec(-3_i64..3, 1..50)) {
        let mut list = Vec::new();
        let mut now = at("2026-01-02T15:04:05Z");
        for step in steps {
            now += jiff::SignedDuration::from_secs(step);
            let name = rotated("0.log", &list, now);
            prop_assert!(list.iter().all(|before| compressed(before) < name), "{} in {:?}", name, list);
            list.push(name);
        }
    }

    #[test]
    fn the_bound_on_files_holds_whatever_lies_there(list in prop::collection::vec("0\\.log\\.[0-3](\\.gz|\\.tmp)?", 0..12), files in 2_usize..6) {
        let list: Vec<String> = list.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let fresh = BTreeSet::new();
        let tidy = tidy(&LogFiles { log: "0.log", names: &list, fresh: &fresh, compressing: None }, &policy(files));
        let left: Vec<_> = list.iter().filter(|name| !tidy.remove.contains(name)).collect();
        prop_assert!(left.len() < files);
        prop_assert!(tidy.compress.iter().all(|name| left.contains(&name) && Some(&name) != left.last()));
    }
}
