//! Upstream's tables of the order in which pods go.

use proptest::prelude::*;

use super::*;

/// Upstream's TestOrderedByExceedsRequestMemory, TestOrderedByMemory, TestOrderedByPriority, TestOrderedByPriorityMemory
/// and TestStatsNotFoundForPod.
#[test]
fn short_of_memory_the_excess_counts_then_priority_then_how_much() {
    let pods = [
        pod("above-high-priority", 10, 100, 200),
        pod("above-low-priority-little", 1, 100, 150),
        pod("above-low-priority-much", 1, 100, 250),
        pod("within-low-priority", 1, 300, 100),
        pod("within-high-priority", 10, 300, 100),
        pod("at-its-request", 0, 100, 100),
        unmeasured(pod("unmeasured", 100, 0, 0)),
    ];
    let expected = [
        "unmeasured",
        "above-low-priority-much",
        "above-low-priority-little",
        "above-high-priority",
        "at-its-request",
        "within-low-priority",
        "within-high-priority",
    ];
    assert_eq!(order(Signal::MemoryAvailable, &pods), expected);
    assert_eq!(order(Signal::AllocatableMemoryAvailable, &pods), expected);
}

/// Upstream's TestOrderedByPriorityProcess.
#[test]
fn short_of_process_ids_the_priority_counts_then_how_many() {
    let pods = [
        pod("high-many", 10, 0, 200),
        pod("low-few", 1, 0, 10),
        pod("low-many", 1, 0, 20),
        unmeasured(pod("low-unmeasured", 1, 0, 0)),
    ];
    let expected = ["low-unmeasured", "low-many", "low-few", "high-many"];
    assert_eq!(order(Signal::PidAvailable, &pods), expected);
}

/// Upstream's TestOrderedByExceedsRequestDisk, TestOrderedbyDisk and TestOrderedByPriorityDisk.
#[test]
fn short_of_disk_the_excess_counts_then_priority_then_how_much() {
    let expected = [
        on_disk("above-low-priority-high-usage", 1, 0, [200, 100, 200]),
        on_disk("above-low-priority-low-usage", 1, 0, [10, 10, 30]),
        on_disk("above-high-priority-high-usage", 10, 100, [200, 150, 250]),
        on_disk("above-high-priority-low-usage", 10, 100, [90, 50, 10]),
        on_disk("below-low-priority-high-usage", 1, 1024, [500, 200, 100]),
        on_disk("below-low-priority-low-usage", 1, 1024, [50, 100, 50]),
        on_disk("below-high-priority-high-usage", 10, 1024, [250, 500, 50]),
        on_disk("below-high-priority-low-usage", 10, 1024, [100, 60, 40]),
    ];
    let mut pods = expected.to_vec();
    pods.reverse();
    let names = expected.map(|pod| pod.name);
    for signal in [
        Signal::NodeFsAvailable,
        Signal::ImageFsAvailable,
        Signal::ContainerFsAvailable,
    ] {
        assert_eq!(order(signal, &pods), names);
    }
    pods.push(unmeasured(on_disk("unmeasured", 100, 0, [0; 3])));
    assert_eq!(order(Signal::NodeFsAvailable, &pods)[0], "unmeasured");
}

/// Upstream's TestOrderedbyInodes and TestOrderedByPriorityInodes.
#[test]
fn short_of_inodes_the_priority_counts_then_how_many() {
    let pods = [
        on_disk("high-few", 10, 0, [10, 40, 100]),
        on_disk("high-many", 10, 0, [150, 150, 50]),
        on_disk("low-few", 1, 0, [60, 30, 10]),
        on_disk("low-many", 1, 0, [50, 100, 250]),
    ];
    let expected = ["low-many", "low-few", "high-many", "high-few"];
    assert_eq!(order(Signal::NodeFsInodesFree, &pods), expected);
    // As upstream, the bytes that a pod asks for come off its inodes.
    let asking = on_disk("asking", 1, 1, [500, 0, 0]);
    let [.., low_few, _] = pods;
    assert_eq!(
        order(Signal::NodeFsInodesFree, &[asking, low_few]),
        ["low-few", "asking"]
    );
}

/// The rank functions of upstream's `buildSignalToRankFunc`.
#[test]
fn only_what_lies_on_the_file_system_that_is_short_counts() {
    let pods = [
        on_disk("layers", 0, 0, [300, 0, 0]),
        on_disk("logs", 0, 0, [0, 200, 0]),
        on_disk("volumes", 0, 0, [0, 0, 100]),
    ];
    let by_layers = ["layers", "logs", "volumes"];
    let by_own = ["logs", "volumes", "layers"];
    let cases = [
        (FsLayout::Shared, Signal::NodeFsAvailable, by_layers),
        (FsLayout::Shared, Signal::ImageFsInodesFree, by_layers),
        (FsLayout::DedicatedImages, Signal::NodeFsAvailable, by_own),
        (FsLayout::DedicatedImages, Signal::NodeFsInodesFree, by_own),
        (
            FsLayout::DedicatedImages,
            Signal::ImageFsAvailable,
            by_layers,
        ),
        (
            FsLayout::DedicatedImages,
            Signal::ContainerFsAvailable,
            by_layers,
        ),
        (FsLayout::SplitImages, Signal::NodeFsAvailable, by_layers),
        (
            FsLayout::SplitImages,
            Signal::ContainerFsInodesFree,
            by_layers,
        ),
        // Images are shared: nobody takes more of them than others.
        (FsLayout::SplitImages, Signal::ImageFsAvailable, by_layers),
    ];
    for (layout, signal, expected) in cases {
        assert_eq!(
            order_on(layout, signal, &pods),
            expected,
            "{layout:?} {signal:?}"
        );
    }
}

/// Upstream's TestNodeReclaimFuncs, its table of what is reclaimed where.
#[test]
fn the_node_gives_back_what_lies_on_the_file_system_that_is_short() {
    use NodeReclaim::{DeadContainers, UnusedImages};
    let both: &[NodeReclaim] = &[DeadContainers, UnusedImages];
    let cases: [(FsLayout, [&[NodeReclaim]; 3]); 3] = [
        (FsLayout::Shared, [both, both, both]),
        (FsLayout::DedicatedImages, [&[], both, both]),
        (
            FsLayout::SplitImages,
            [&[DeadContainers], &[UnusedImages], &[DeadContainers]],
        ),
    ];
    let disks = [
        [Signal::NodeFsAvailable, Signal::NodeFsInodesFree],
        [Signal::ImageFsAvailable, Signal::ImageFsInodesFree],
        [Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree],
    ];
    for (layout, expected) in cases {
        for (signals, expected) in disks.iter().zip(expected) {
            for signal in signals {
                assert_eq!(layout.reclaims(*signal), expected, "{layout:?} {signal:?}");
            }
        }
        for signal in [
            Signal::MemoryAvailable,
            Signal::AllocatableMemoryAvailable,
            Signal::PidAvailable,
        ] {
            assert!(layout.reclaims(signal).is_empty());
        }
    }
}

/// Upstream's TestHasDedicatedImageFs: devices decide.
#[test]
fn the_layout_follows_from_the_devices() {
    let of = |images, containers| {
        FsLayout::of(FsDevices {
            node: 1,
            images,
            containers,
        })
    };
    assert_eq!(of(Some(1), None), FsLayout::Shared);
    assert_eq!(of(None, None), FsLayout::Shared);
    assert_eq!(of(Some(1), Some(1)), FsLayout::Shared);
    assert_eq!(of(Some(2), None), FsLayout::DedicatedImages);
    assert_eq!(of(Some(2), Some(2)), FsLayout::DedicatedImages);
    assert_eq!(of(Some(2), Some(1)), FsLayout::SplitImages);
}

pub(super) fn any_pods() -> impl Strategy<Value = Vec<PodUsage>> {
    let one = (0_i32..3, 0_u64..4, 0_u64..4, any::<bool>(), any::<bool>());
    prop::collection::vec(one, 0..8).prop_map(|list| {
        let build = |(index, (priority, request, used, is_critical, is_measured))| {
            let mut pod = pod(&format!("p{index}"), priority, request, used);
            pod = if is_critical { critical(pod) } else { pod };
            if is_measured { pod } else { unmeasured(pod) }
        };
        list.into_iter().enumerate().map(build).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranking_ignores_the_order_of_its_input_and_loses_nobody(pods in any_pods()) {
        for signal in Signal::ALL {
            let ranking = rank(signal, FsLayout::Shared, &pods);
            prop_assert_eq!(ranking.victims.len() + ranking.spared.len(), pods.len());
            let mut turned = pods.clone();
            turned.reverse();
            prop_assert_eq!(ranking, rank(signal, FsLayout::Shared, &turned));
        }
    }

    #[test]
    fn more_of_a_higher_priority_never_goes_before_less_of_a_lower_one(pods in any_pods()) {
        let places: Vec<_> = order(Signal::PidAvailable, &pods);
        let priority = |uid: &String| pods.iter().find(|p| p.uid.as_str() == uid).map(|p| p.priority);
        prop_assert!(places.iter().map(priority).is_sorted());
    }
}
