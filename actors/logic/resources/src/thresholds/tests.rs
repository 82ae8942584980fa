//! Upstream's tables of eviction/helpers_test.go on thresholds.

use super::*;
use crate::eviction::FsLayout;
use crate::testing::at;

const MIB: u64 = 1 << 20;

fn observed(signal: Signal, capacity: u64, available: u64) -> Observations {
    let observed = Observation {
        capacity,
        available,
        sampled_at: at(0),
    };
    Observations::from([(signal, observed)])
}

fn hard(signal: Signal, limit: ThresholdLimit) -> Threshold {
    Threshold {
        signal,
        grace: Duration::ZERO,
        limit,
        min_reclaim: ThresholdLimit::amount(0),
    }
}

fn soft(signal: Signal, limit: ThresholdLimit) -> Threshold {
    Threshold {
        grace: Duration::from_secs(30),
        ..hard(signal, limit)
    }
}

fn keeping(threshold: Threshold, min_reclaim: ThresholdLimit) -> Threshold {
    Threshold {
        min_reclaim,
        ..threshold
    }
}

fn mebibytes(amount: u64) -> ThresholdLimit {
    ThresholdLimit::amount(amount * MIB)
}

fn percent(percent: u32) -> ThresholdLimit {
    ThresholdLimit::PerMillion(percent * 10_000)
}

/// Upstream's TestThresholdsMet, TestPercentageThresholdsMet and TestFallbackResourcesUsage' signal without a figure.
#[test]
fn a_threshold_is_met_below_its_limit_and_resolved_above_its_reclaim() {
    let plain = hard(Signal::MemoryAvailable, mebibytes(100));
    let unseen = hard(Signal::PidAvailable, mebibytes(100));
    let reclaim = keeping(plain, mebibytes(50));
    let tenth = hard(Signal::MemoryAvailable, percent(10));
    let tenth_and_more = keeping(tenth, percent(5));
    let cases = [
        (plain, 101, Reclaim::Ignored, false),
        (plain, 100, Reclaim::Ignored, false),
        (plain, 99, Reclaim::Ignored, true),
        (reclaim, 120, Reclaim::Ignored, false),
        (reclaim, 120, Reclaim::Enforced, true),
        (reclaim, 150, Reclaim::Enforced, false),
        (tenth, 100, Reclaim::Ignored, false),
        (tenth, 99, Reclaim::Ignored, true),
        (tenth_and_more, 120, Reclaim::Ignored, false),
        (tenth_and_more, 120, Reclaim::Enforced, true),
        (tenth_and_more, 150, Reclaim::Enforced, false),
        (unseen, 0, Reclaim::Ignored, false),
    ];
    for (threshold, available, reclaim, met) in cases {
        let observations = observed(Signal::MemoryAvailable, 1000 * MIB, available * MIB);
        let found = thresholds_met(&BTreeSet::from([threshold]), &observations, reclaim);
        assert_eq!(
            !found.is_empty(),
            met,
            "{threshold:?} {available} {reclaim:?}"
        );
    }
}

/// A threshold above the whole, with a reclaim beyond all numbers, is met and overflows nothing.
#[test]
fn limits_that_contradict_the_machine_are_met_and_nothing_overflows() {
    let most = ThresholdLimit::amount(u64::MAX);
    let greedy = keeping(hard(Signal::NodeFsAvailable, most), most);
    for reclaim in [Reclaim::Ignored, Reclaim::Enforced] {
        let observations = observed(Signal::NodeFsAvailable, 0, u64::MAX - 1);
        assert_eq!(
            thresholds_met(&BTreeSet::from([greedy]), &observations, reclaim).len(),
            1
        );
    }
}

#[test]
fn amounts_print_as_upstream() {
    assert_eq!(Signal::PidAvailable.amount(12_000), "12k");
    assert_eq!(Signal::MemoryAvailable.amount(1536), "1536");
    assert_eq!(Signal::MemoryAvailable.amount(0), "0");
    assert_eq!(Signal::MemoryAvailable.amount(3 << 30), "3Gi");
    assert_eq!(Signal::NodeFsInodesFree.amount(2_000_000), "2M");
    let share = hard(Signal::NodeFsInodesFree, percent(10));
    assert_eq!(
        share.quantity(10_240),
        "1Ki",
        "a share is printed as bytes are"
    );
    assert_eq!(share.quantity(1000), "100");
    // Upstream: an amount is told in the form in which it was written.
    for (written, told) in [
        ("1G", "1G"),
        ("1Gi", "1Gi"),
        ("1000000000", "1G"),
        ("1024Mi", "1Gi"),
        ("1073741824", "1073741824"),
        ("0.5Gi", "512Mi"),
        ("5000", "5k"),
        ("1e9", "1e9"),
    ] {
        let limit = amount(written).unwrap();
        assert_eq!(
            hard(Signal::MemoryAvailable, limit).quantity(0),
            told,
            "{written}"
        );
    }
}

/// Upstream's TestGetReclaimableThreshold and TestSortByEvictionPriority: every signal is of a resource, and memory
/// comes first.
#[test]
fn memory_comes_before_everything_else_and_each_signal_has_a_resource() {
    let all: BTreeSet<Threshold> = Signal::ALL.map(|signal| hard(signal, mebibytes(1))).into();
    let order: Vec<&str> = all.iter().map(|t| t.signal.name()).collect();
    assert_eq!(
        order[..2],
        ["memory.available", "allocatableMemory.available"]
    );
    let resources: Vec<&str> = all.iter().map(|t| t.signal.resource()).collect();
    let disk = ["ephemeral-storage", "inodes"];
    assert_eq!(resources[..2], ["memory", "memory"]);
    assert!(resources[2..8].chunks(2).all(|pair| *pair == disk));
    assert_eq!(resources[8], "pids");
    for signal in Signal::ALL {
        assert_eq!(Signal::from_name(signal.name()), Some(signal));
    }
    assert_eq!(Signal::from_name("mem.available"), None);
}

/// Upstream's TestNodeConditions and TestHasNodeConditions.
#[test]
fn each_signal_has_its_condition() {
    let words = |signals: &[Signal]| -> BTreeSet<&str> {
        signals.iter().map(|s| s.condition().as_str()).collect()
    };
    assert_eq!(words(&[]), BTreeSet::new());
    assert_eq!(words(&Signal::ALL[..2]), ["MemoryPressure"].into());
    assert_eq!(words(&Signal::ALL[2..8]), ["DiskPressure"].into());
    assert_eq!(words(&Signal::ALL[8..]), ["PIDPressure"].into());
}

fn state(thresholds: &[Threshold]) -> (ThresholdPolicy, ThresholdState) {
    let policy = ThresholdPolicy {
        thresholds: thresholds.iter().copied().collect(),
        transition: Duration::from_secs(60),
    };
    (policy, ThresholdState::default())
}

/// Upstream's TestThresholdsFirstObservedAt, TestThresholdsMetGracePeriod, TestNodeConditionsLastObservedAt and
/// TestNodeConditionsObservedSince.
#[test]
fn a_threshold_remembers_when_it_was_first_met_and_a_pressure_when_last() {
    let signal = Signal::ImageFsAvailable;
    let threshold = soft(signal, mebibytes(100));
    let (policy, none) = state(&[threshold]);
    let low = observed(signal, 1000 * MIB, 50 * MIB);
    let enough = observed(signal, 1000 * MIB, 500 * MIB);

    let first = none.after(at(0), &policy, &low);
    assert_eq!(first.first_met, [(threshold, at(0))].into());
    assert!(first.unresolved.is_empty(), "its grace is not over");
    let later = first.after(at(29), &policy, &low);
    assert_eq!(later.first_met, [(threshold, at(0))].into());
    assert!(later.unresolved.is_empty());
    let due = later.after(at(30), &policy, &low);
    assert_eq!(due.unresolved, [threshold].into());
    assert_eq!(due.pressure_seen, [(signal, at(30))].into());

    let over = due.after(at(60), &policy, &enough);
    assert!(over.first_met.is_empty() && over.unresolved.is_empty());
    assert_eq!(
        over.pressure_seen,
        [(signal, at(30))].into(),
        "the last time stays"
    );
    assert!(
        over.after(at(89), &policy, &enough)
            .pressure_seen
            .contains_key(&signal)
    );
    assert!(
        over.after(at(90), &policy, &enough)
            .pressure_seen
            .is_empty()
    );
}

/// A moment before the one that is remembered is no reason to forget, nor to evict.
#[test]
fn time_that_stands_still_neither_ends_a_pressure_nor_a_grace() {
    let threshold = soft(Signal::MemoryAvailable, mebibytes(100));
    let (policy, none) = state(&[threshold]);
    let low = observed(Signal::MemoryAvailable, 1000 * MIB, 50 * MIB);
    let mut state = none.after(at(100), &policy, &low);
    for _ in 0..100 {
        state = state.after(at(50), &policy, &low);
        assert!(state.unresolved.is_empty() && state.pressure_seen.len() == 1);
    }
}

type Texts = &'static [(&'static str, &'static str)];

/// The `allocatable`, hard, soft, grace and reclaim texts of a case, and what is expected; none for an error.
type ParseCase = (AllocatableThresholds, [Texts; 4], Option<Vec<Threshold>>);

fn parsed((allocatable, texts, _): &ParseCase) -> Result<BTreeSet<Threshold>, ThresholdError> {
    let [hard, soft, soft_grace, min_reclaim] = texts.map(|list| -> BTreeMap<String, String> {
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        list.iter().map(own).collect()
    });
    parse(&ThresholdTexts {
        hard: &hard,
        soft: &soft,
        soft_grace: &soft_grace,
        min_reclaim: &min_reclaim,
        allocatable: *allocatable,
    })
}

/// Upstream's TestParseThresholdConfig and TestAddAllocatableThresholds.
#[test]
fn configured_thresholds_are_read_as_upstream_reads_them() {
    use AllocatableThresholds::{Derived, Left};
    use Signal::{
        AllocatableMemoryAvailable as OfPods, ImageFsAvailable as Image, MemoryAvailable as Memory,
        NodeFsAvailable as Node,
    };
    const MEMORY: &str = "memory.available";
    let nothing = || ThresholdLimit::amount(0);
    let share = ThresholdLimit::PerMillion;
    let cases: Vec<ParseCase> = vec![
        (Left, [&[], &[], &[], &[]], Some(vec![])),
        (
            Left,
            [&[(MEMORY, "0%")], &[(MEMORY, "100%")], &[], &[]],
            Some(vec![]),
        ),
        (
            Derived,
            [
                &[(MEMORY, "150Mi")],
                &[(MEMORY, "300Mi")],
                &[(MEMORY, "30s")],
                &[(MEMORY, "0")],
            ],
            Some(vec![
                keeping(hard(OfPods, mebibytes(150)), nothing()),
                hard(Memory, mebibytes(150)),
                soft(Memory, mebibytes(300)),
            ]),
        ),
        (
            Derived,
            [&[], &[(MEMORY, "300Mi")], &[(MEMORY, "30s")], &[]],
            Some(vec![soft(Memory, mebibytes(300))]),
        ),
        (
            Left,
            [
                &[(MEMORY, "10%")],
                &[(MEMORY, "30%")],
                &[(MEMORY, "30s")],
                &[(MEMORY, "5%")],
            ],
            Some(vec![
                keeping(hard(Memory, percent(10)), percent(5)),
                keeping(soft(Memory, percent(30)), percent(5)),
            ]),
        ),
        (
            Left,
            [
                &[
                    ("imagefs.available", "150Mi"),
                    ("nodefs.available", "10.5%"),
                ],
                &[
                    ("imagefs.available", "300Mi"),
                    ("nodefs.available", "20.5%"),
                ],
                &[("imagefs.available", "30s"), ("nodefs.available", "30s")],
                &[("imagefs.available", "2Gi"), ("nodefs.available", "5%")],
            ],
            Some(vec![
                keeping(hard(Image, mebibytes(150)), mebibytes(2048)),
                keeping(hard(Node, share(105_000)), percent(5)),
                keeping(soft(Image, mebibytes(300)), mebibytes(2048)),
                keeping(soft(Node, share(205_000)), percent(5)),
            ]),
        ),
    ];
    for case in cases {
        let expected = case.2.clone().map(|list| list.into_iter().collect());
        assert_eq!(parsed(&case).ok(), expected, "{case:?}");
    }
}

/// Upstream's TestParseThresholdConfig, its inodes.
#[test]
fn thresholds_of_inodes_are_read_as_those_of_bytes() {
    use AllocatableThresholds::Left;
    use Signal::{ImageFsInodesFree as ImageInodes, NodeFsInodesFree as NodeInodes};
    let cases: Vec<ParseCase> = vec![(
        Left,
        [
            &[
                ("imagefs.inodesFree", "150Mi"),
                ("nodefs.inodesFree", "100Mi"),
            ],
            &[
                ("imagefs.inodesFree", "300Mi"),
                ("nodefs.inodesFree", "200Mi"),
            ],
            &[("imagefs.inodesFree", "30s"), ("nodefs.inodesFree", "30s")],
            &[("imagefs.inodesFree", "2Gi"), ("nodefs.inodesFree", "1Gi")],
        ],
        Some(vec![
            keeping(hard(ImageInodes, mebibytes(150)), mebibytes(2048)),
            keeping(hard(NodeInodes, mebibytes(100)), mebibytes(1024)),
            keeping(soft(ImageInodes, mebibytes(300)), mebibytes(2048)),
            keeping(soft(NodeInodes, mebibytes(200)), mebibytes(1024)),
        ]),
    )];
    for case in cases {
        let expected = case.2.clone().map(|list| list.into_iter().collect());
        assert_eq!(parsed(&case).ok(), expected, "{case:?}");
    }
}

/// Upstream's TestParseThresholdConfig, what it refuses.
#[test]
fn what_is_no_threshold_is_refused() {
    const MEMORY: &str = "memory.available";
    let cases: [[Texts; 4]; 17] = [
        [&[("mem.available", "150Mi")], &[], &[], &[]],
        [&[(MEMORY, "-150Mi")], &[], &[], &[]],
        [&[(MEMORY, "-15%")], &[], &[], &[]],
        [&[(MEMORY, "150%")], &[], &[], &[]],
        [&[], &[(MEMORY, "-150Mi")], &[], &[]],
        [
            &[(MEMORY, "150Mi"), ("invalid.foo", "150Mi")],
            &[],
            &[],
            &[],
        ],
        [&[], &[(MEMORY, "150Mi")], &[], &[]],
        [&[], &[(MEMORY, "150Mi")], &[(MEMORY, "-30s")], &[]],
        [&[], &[], &[], &[(MEMORY, "-300Mi")]],
        [&[], &[], &[], &[("mem.available", "300Mi")]],
        [&[], &[], &[], &[(MEMORY, "")]],
        [&[], &[], &[], &[(MEMORY, "-15%")]],
        [&[], &[], &[], &[(MEMORY, "10..5%")]],
        [&[(MEMORY, "")], &[], &[], &[]],
        [&[(MEMORY, "10..5%")], &[], &[], &[]],
        [&[], &[(MEMORY, "150Mi")], &[("mem.available", "30s")], &[]],
        [&[], &[(MEMORY, "150Mi")], &[(MEMORY, "30mins")], &[]],
    ];
    for texts in cases {
        let case = (AllocatableThresholds::Left, texts, None);
        assert!(parsed(&case).is_err(), "{texts:?}");
    }
}

/// Upstream's TestParsePercentage and TestCompareThresholdValue.
#[test]
fn a_percentage_is_a_share_and_equal_amounts_are_equal_however_they_are_written() {
    assert_eq!(amount("10%"), Some(percent(10)));
    assert_eq!(amount("0.5%"), Some(ThresholdLimit::PerMillion(5000)));
    assert_eq!(amount("10.5%"), Some(ThresholdLimit::PerMillion(105_000)));
    for wrong in ["blah", "25.5..5%", "%", "", "-1", "-1%"] {
        assert_eq!(amount(wrong), None, "{wrong}");
    }
    // What switches a signal off takes nothing of what is allocatable either.
    assert_eq!(
        [hard_limit("0%"), hard_limit("100%"), hard_limit("x")],
        [None; 3]
    );
    assert_eq!(hard_limit("10%"), Some(percent(10)));
    assert_eq!(amount("1Gi"), amount("1024Mi"));
    assert_ne!(amount("1Gi"), amount("1G"));
    assert_ne!(amount("10%"), amount("20%"));
    assert_ne!(amount("10%"), amount("100000"));
}

/// Upstream's TestAddContainerFsThresholds.
#[test]
fn writable_layers_have_the_thresholds_of_the_file_system_that_they_lie_on() {
    let of_fs = |disk: Signal, inodes: Signal, amount: u64| {
        [
            keeping(hard(disk, mebibytes(amount)), mebibytes(1)),
            soft(disk, mebibytes(amount * 2)),
            hard(inodes, mebibytes(amount)),
            soft(inodes, mebibytes(amount * 2)),
        ]
    };
    let node = of_fs(Signal::NodeFsAvailable, Signal::NodeFsInodesFree, 100);
    let image = of_fs(Signal::ImageFsAvailable, Signal::ImageFsInodesFree, 150);
    let as_layers = |amount| {
        of_fs(
            Signal::ContainerFsAvailable,
            Signal::ContainerFsInodesFree,
            amount,
        )
    };
    let both: BTreeSet<Threshold> = node.into_iter().chain(image).collect();
    let cases = [
        (FsLayout::Shared, 100),
        (FsLayout::SplitImages, 100),
        (FsLayout::DedicatedImages, 150),
    ];
    for (layout, amount) in cases {
        let expected: BTreeSet<Threshold> = both.iter().copied().chain(as_layers(amount)).collect();
        assert_eq!(
            with_container_fs(&both, layout),
            (expected.clone(), vec![]),
            "{layout:?}"
        );
        // What the configuration says of the layers' file system counts for nothing.
        let own = [
            hard(Signal::ContainerFsAvailable, mebibytes(7)),
            soft(Signal::ContainerFsInodesFree, mebibytes(7)),
        ];
        let with_own = both.iter().copied().chain(own).collect();
        let (made, ignored) = with_container_fs(&with_own, layout);
        assert_eq!(made, expected);
        assert_eq!(
            ignored,
            [
                "found containerfs.available for hard eviction. ignoring",
                "found containerfs.inodesFree for soft eviction. ignoring"
            ]
        );
        let alone = with_container_fs(&own.into(), layout);
        assert_eq!(alone.0, BTreeSet::new());
    }
}
