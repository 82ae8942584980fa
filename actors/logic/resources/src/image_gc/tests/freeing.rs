//! Which images go, and in which order.

use proptest::prelude::*;

use super::*;

/// Upstream's TestDeleteUnusedImagesExemptSandboxImage and TestDeletePinnedImage.
#[test]
fn a_pinned_image_stays_and_of_an_image_that_is_listed_twice_the_last_entry_counts() {
    let mut node = Node::new(policy(), &[pinned(0, 1024)], &[]);
    assert_eq!(node.free(u64::MAX, at(1)), 0);
    assert_eq!(node.left().len(), 1);
    let mut node = Node::new(policy(), &[pinned(0, 1024), image(0, 1024)], &[]);
    node.free(u64::MAX, at(1));
    assert_eq!(node.left().len(), 1);
}

/// Upstream's TestDoNotDeletePinnedImage, TestDeleteUnPinnedImage, TestAllPinnedImages and
/// TestFreeSpaceImagesInUseContainersAreIgnored.
#[test]
fn space_is_freed_of_what_is_neither_pinned_nor_in_use() {
    let (a, b) = (image(1, 1024), image(2, 1024));
    let used = [image(0, 1024), image(1, 2048)];
    // Images, their users, the bytes wanted and freed, and how many images are left.
    type Case<'a> = (&'a [ImageFacts], &'a [ImageUse], u64, u64, usize);
    let cases: [Case<'_>; 4] = [
        (&[pinned(1, 1024), b.clone()], &[], 4096, 1024, 1),
        (&[a, b], &[], 2048, 2048, 0),
        (&[pinned(1, 1024), pinned(2, 1024)], &[], 2048, 0, 2),
        (&used, &[container(1)], 2048, 1024, 1),
    ];
    for (images, uses, wanted, freed, left) in cases {
        let mut node = Node::new(policy(), images, uses);
        assert_eq!(node.free(wanted, at(1)), freed, "{images:?}");
        assert_eq!(node.left().len(), left, "{images:?}");
    }
}

/// Upstream's TestDeleteUnusedImagesRemoveAllUnusedImages.
#[test]
fn all_images_that_nothing_uses_go_when_everything_is_to_go() {
    let images = [image(0, 1024), image(1, 2048), image(2, 2048)];
    let mut node = Node::new(policy(), &images, &[container(2)]);
    assert_eq!(node.free(u64::MAX, at(1)), 3072);
    assert_eq!(node.left(), ["image-2"]);
}

/// Upstream's TestDeleteUnusedImagesLimitByImageLiveTime.
#[test]
fn even_when_everything_is_to_go_an_image_is_let_live_for_its_minimum_age() {
    let images = [image(0, 1024), image(1, 2048), image(2, 2048)];
    let mut node = Node::new(aged(3, 0), &images, &[container(2)]);
    node.detect(zero(), zero());
    assert_eq!(node.free(u64::MAX, at(1)), 0);
    assert_eq!(node.left().len(), 3);
    assert_eq!(node.free(u64::MAX, at(3)), 3072);
    assert_eq!(node.left(), ["image-2"]);
}

/// Upstream's TestFreeSpaceRemoveByLeastRecentlyUsed.
#[test]
fn the_image_that_was_used_longest_ago_goes_first() {
    let images = [image(0, 1024), image(1, 2048)];
    let mut node = Node::new(policy(), &images, &[container(0), container(1)]);
    node.detect(zero(), at(1));
    node.uses = vec![container(1)];
    node.detect(at(2), at(2));
    node.uses.clear();
    node.detect(at(3), at(3));
    assert_eq!(node.free(1024, at(60)), 1024);
    assert_eq!(node.left(), ["image-1"]);
}

/// Upstream's TestFreeSpaceTiesBrokenByDetectedTime: neither is in use; the one that was never used goes first there, and
/// of two that were never used the one that was detected first.
#[test]
fn of_images_used_at_one_time_the_one_that_was_detected_first_goes() {
    let mut node = Node::new(policy(), &[image(0, 1024)], &[container(0)]);
    node.detect(zero(), at(1));
    node.images.push(image(1, 2048));
    node.detect(at(2), at(2));
    node.uses.clear();
    node.detect(at(3), at(3));
    assert_eq!(node.free(1024, at(4)), 2048);
    assert_eq!(node.left(), ["image-0"]);

    let mut node = Node::new(policy(), &[image(1, 1024)], &[]);
    node.detect(zero(), at(1));
    node.images.insert(0, image(0, 2048));
    node.detect(at(2), at(2));
    assert_eq!(node.free(1, at(3)), 1024);
    assert_eq!(node.left(), ["image-0"]);
}

/// Upstream's TestGarbageCollectImageNotOldEnough.
#[test]
fn an_image_is_not_freed_before_its_minimum_age() {
    let images = [image(0, 1024), image(1, 2048)];
    let mut node = Node::new(aged(60, 0), &images, &[container(1)]);
    node.detect(at(10), at(10));
    assert_eq!(node.free(1024, at(10)), 0);
    assert_eq!(node.left().len(), 2);
    assert_eq!(node.free(1024, at(70)), 1024);
    assert_eq!(node.left(), ["image-1"]);
}

/// Upstream's TestGarbageCollectImageTooOld.
#[test]
fn an_image_that_was_not_used_for_its_maximum_age_goes_once_the_agent_has_watched_for_so_long() {
    let images = [image(0, 1024), image(1, 2048)];
    let mut node = Node::new(aged(0, 60), &images, &[container(1), container(0)]);
    node.detect(at(0), at(0));
    node.uses.pop();
    node.detect(at(0), at(0));
    assert_eq!(node.free_old(at(0), at(0)), 0);
    assert_eq!(node.free_old(at(60), at(0)), 0, "not a moment before");
    assert_eq!(
        node.free_old(at(61), at(30)),
        0,
        "the agent has watched for half a minute"
    );
    assert_eq!(node.free_old(at(61), at(0)), 1);
    assert_eq!(node.left(), ["image-1"]);
}

/// Upstream's TestGarbageCollectImageMaxAgeDisabled.
#[test]
fn without_a_maximum_age_no_image_is_too_old() {
    let images = [image(0, 1024), image(1, 2048)];
    let mut node = Node::new(aged(0, 0), &images, &[container(1)]);
    node.detect(at(0), at(0));
    assert_eq!(node.free_old(at(0), at(0)), 0);
    assert_eq!(node.free_old(Timestamp::MAX, at(0)), 0);
    assert_eq!(node.left().len(), 2);
}

/// Upstream removes it: its time of last use is the year 1.
#[test]
fn an_image_that_no_container_has_used_yet_is_as_old_as_its_detection() {
    let mut node = Node::new(aged(0, 60), &[image(0, 1)], &[]);
    node.detect(at(1000), at(1000));
    assert_eq!(
        node.free_old(at(1001), at(0)),
        0,
        "just pulled, for a pod that is about to start"
    );
    assert_eq!(node.free_old(at(1061), at(0)), 1);
}

proptest! {
    /// Whatever is there: nothing in use or pinned goes, no more goes than is needed, and what goes was used no later than
    /// what stays.
    #[test]
    fn what_goes_is_unused_least_recent_and_just_enough(
        images in prop::collection::vec((0_u64..5000, any::<bool>(), 0_i64..50, any::<bool>()), 0..20),
        wanted in 0_u64..20_000,
    ) {
        let facts: Vec<ImageFacts> = (0_u32..).zip(&images).map(|(number, (bytes, is_pinned, _, _))| ImageFacts {
            pinned: *is_pinned,
            ..image(number, *bytes)
        }).collect();
        let mut node = Node::new(policy(), &facts, &[]);
        for second in 0..50 {
            let used = (0_u32..).zip(&images).filter(|(_, (_, _, last, _))| *last == second);
            node.uses = used.map(|(number, _)| container(number)).collect();
            node.detect(zero(), at(second));
        }
        let in_use = (0_u32..).zip(&images).filter(|(_, (_, _, _, in_use))| *in_use);
        node.uses = in_use.map(|(number, _)| container(number)).collect();
        let freed = node.free(wanted, at(100));
        let numbered = (0..images.len()).zip(0_u32..);
        let gone = numbered.filter(|(_, number)| !node.left().contains(&id(*number).as_str()));
        let gone: Vec<usize> = gone.map(|(n, _)| n).collect();
        let last = |n: &usize| images[*n].2;
        prop_assert!(gone.iter().all(|n| !images[*n].1 && !images[*n].3));
        let candidates = (0..images.len()).filter(|n| !images[*n].1 && !images[*n].3 && !gone.contains(n));
        let oldest_left = candidates.map(|n| images[n].2).min();
        prop_assert!(gone.iter().all(|n| oldest_left.is_none_or(|left| last(n) <= left)));
        let newest = gone.iter().map(last).max();
        let smallest_of_newest = gone.iter().filter(|n| Some(last(n)) == newest).map(|n| images[*n].0).max();
        prop_assert!(freed < wanted + smallest_of_newest.unwrap_or(1).max(1));
    }
}
