//! The configuration, and what the space of the file system asks for.

use super::*;

/// Upstream's TestValidateImageGCPolicy.
#[test]
fn thresholds_are_percentages_and_the_low_one_is_not_above_the_high_one() {
    let made = |high, low| {
        ImageGcPolicy::new((high, low), Duration::ZERO, Duration::ZERO, KeyedBy::Id)
            .map_err(|error| error.to_string())
            .map(|policy| (policy.high_threshold, policy.low_threshold))
    };
    let cases = [
        ((2, 1), Ok((2, 1))),
        (
            (-1, 0),
            Err("invalid HighThresholdPercent -1, must be in range [0-100]"),
        ),
        (
            (101, 0),
            Err("invalid HighThresholdPercent 101, must be in range [0-100]"),
        ),
        (
            (0, -1),
            Err("invalid LowThresholdPercent -1, must be in range [0-100]"),
        ),
        (
            (0, 101),
            Err("invalid LowThresholdPercent 101, must be in range [0-100]"),
        ),
        (
            (1, 2),
            Err("LowThresholdPercent 2 can not be higher than HighThresholdPercent 1"),
        ),
    ];
    for ((high, low), expected) in cases {
        assert_eq!(
            made(high, low),
            expected.map_err(str::to_owned),
            "{high} {low}"
        );
    }
}

#[test]
fn collection_is_off_where_neither_space_nor_age_can_ask_for_it() {
    let of = |high, max| {
        let max = Duration::from_secs(max);
        ImageGcPolicy::new((high, 80), Duration::ZERO, max, KeyedBy::Id).unwrap()
    };
    assert!(of(100, 0).is_off());
    assert!(!of(100, 1).is_off());
    assert!(!of(99, 0).is_off());
}

/// Upstream's TestGarbageCollectBelowLowThreshold and TestGarbageCollectBelowSuccess, and its arithmetic.
#[test]
fn from_the_high_threshold_on_so_much_is_freed_that_the_low_one_is_reached() {
    let free = |bytes, used_percent| DiskFinding::Free {
        bytes,
        used_percent,
    };
    let cases = [
        ((1000, 600), DiskFinding::Enough),
        ((1000, 110), DiskFinding::Enough),
        ((1000, 109), free(91, 90)),
        ((1000, 100), free(100, 90)),
        ((1000, 50), free(150, 95)),
        ((1000, 0), free(200, 100)),
        ((1000, 2000), DiskFinding::Enough),
        ((u64::MAX, u64::MAX), DiskFinding::Enough),
        ((u64::MAX, 0), free(3_689_348_814_741_910_323, 100)),
        ((0, 0), DiskFinding::NoCapacity),
        ((0, 7), DiskFinding::NoCapacity),
    ];
    for ((capacity, available), expected) in cases {
        let space = DiskSpace {
            capacity,
            available,
        };
        assert_eq!(judge(&policy(), space), expected, "{capacity} {available}");
    }
}

/// Upstream's TestGarbageCollectNotEnoughFreed.
#[test]
fn too_little_freed_is_told_with_what_is_used_of_how_much() {
    let capacity = 10 << 30;
    let space = DiskSpace {
        capacity,
        available: capacity / 20,
    };
    let DiskFinding::Free {
        bytes,
        used_percent,
    } = judge(&policy(), space)
    else {
        panic!("it is full");
    };
    assert!(bytes > 500 << 20);
    assert_eq!(
        insufficient(space, used_percent, 500 << 20),
        "Insufficient free disk space on the node's image filesystem (95% of 10.0 GiB used). Failed to free sufficient \
         space by deleting unused images (freed 524288000 bytes). Investigate disk usage, as it could be used by active \
         images, logs, volumes, or other data."
    );
}

#[test]
fn bytes_are_told_in_the_largest_unit_of_which_there_is_one() {
    let cases = [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (3 << 40, "3.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(bytes_text(bytes), expected);
    }
}
