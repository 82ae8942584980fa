//! Figures, compared with what was written; walks, counted.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::test_dir::TestDir;

/// Blocks of all paths, as stat tells them.
fn blocks(paths: &[&Path]) -> u64 {
    let all = paths.iter().map(|path| fs::symlink_metadata(path).unwrap());
    all.map(|found| found.blocks() * 512).sum()
}

/// Upstream's TestMetricsStatFS.
#[test]
fn a_file_system_has_its_own_figures() {
    let test_dir = TestDir::new();
    let volume = test_dir.tmpfs("volume");
    let before = file_system(&volume).unwrap();
    fs::write(volume.join("file"), vec![1; 1 << 20]).unwrap();
    let after = file_system(&volume).unwrap();
    assert_eq!(after.capacity, Some(4 << 20));
    assert_eq!(after.used.unwrap() - before.used.unwrap(), 1 << 20);
    assert_eq!(
        before.available.unwrap() - after.available.unwrap(),
        1 << 20
    );
    assert_eq!(after.inodes_used.unwrap() - before.inodes_used.unwrap(), 1);
    assert_eq!(
        after.inodes.unwrap() - after.inodes_free.unwrap(),
        after.inodes_used.unwrap()
    );
    assert_eq!(after.measure(), Measure::FileSystemFigures);
    assert!(after.taken_ms > 1_700_000_000_000);
}

/// Upstream's TestMetricsDuGetCapacity, TestDiskUsage.
#[test]
fn a_folder_is_measured_in_blocks_with_each_inode_once() {
    let test_dir = TestDir::new();
    let volume = test_dir.folder("volume");
    let (plain, folder) = (
        test_dir.file("volume/plain", &"x".repeat(10_000)),
        test_dir.folder("volume/d"),
    );
    fs::hard_link(&plain, volume.join("d/again")).unwrap();
    std::os::unix::fs::symlink("/", volume.join("link")).unwrap();
    let mut sparse = fs::File::create(volume.join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    sparse.write_all(b"x").unwrap();
    sparse.sync_all().unwrap();
    let measured = super::folder(&volume).unwrap();
    let (link, sparse) = (volume.join("link"), volume.join("sparse"));
    let expected = blocks(&[&volume, &plain, &folder, &link, &sparse]);
    assert_eq!(
        (measured.used, measured.inodes_used),
        (Some(expected), Some(5))
    );
    assert_eq!(measured.measure(), Measure::Walk);
    let whole = file_system(&volume).unwrap();
    assert_eq!(
        (measured.capacity, measured.inodes),
        (whole.capacity, whole.inodes)
    );
}

#[test]
fn what_is_mounted_in_a_folder_is_not_its_own() {
    let test_dir = TestDir::new();
    let volume = test_dir.folder("volume");
    let alone = folder(&volume).unwrap();
    let inner = test_dir.tmpfs("volume/inner");
    fs::write(inner.join("file"), vec![1; 1 << 20]).unwrap();
    let bound = test_dir.folder("volume/bound");
    let access = proto::storage::Access::ReadWrite;
    let source = test_dir.file("source/file", "x");
    let source = source.parent().unwrap();
    crate::mount::bind(source, &bound, access, crate::mount::Depth::Single).unwrap();
    test_dir.file("volume/file", "");
    let measured = folder(&volume).unwrap();
    assert_eq!(
        measured.inodes_used.unwrap() - alone.inodes_used.unwrap(),
        1
    );
}

#[test]
fn a_file_is_measured_too() {
    let test_dir = TestDir::new();
    let file = test_dir.file("file", "content");
    let measured = folder(&file).unwrap();
    assert_eq!(
        (measured.used, measured.inodes_used),
        (Some(blocks(&[&file])), Some(1))
    );
}

#[test]
fn what_is_not_there_is_told() {
    let test_dir = TestDir::new();
    let missing = test_dir.path("missing");
    for measured in [file_system(&missing), folder(&missing)] {
        let refusal = measured.unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::NotFound);
        assert!(refusal.message().contains("missing"), "{refusal}");
    }
}

async fn pool() -> BlockingPool {
    BlockingPool::new(
        sdk::testing::health(tempfile::tempdir().unwrap().path()).await,
        4,
    )
}

const LATE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn walks_of_one_folder_are_made_once_at_a_time() {
    let test_dir = TestDir::new();
    let (one, other) = (test_dir.folder("one"), test_dir.folder("other"));
    let (pool, walks) = (pool().await, Walks::new());
    let (first, _) = walks.join(&pool, &one, LATE);
    let (second, role) = walks.join(&pool, &one, LATE);
    let (third, _) = walks.join(&pool, &other, LATE);
    assert_eq!(role, Role::Later);
    assert!(first.ptr_eq(&second) && !first.ptr_eq(&third));
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(first, second);
    third.await.unwrap();
    assert!(walks.under_way().is_empty());
    test_dir.file("one/new", "");
    let later = walks.folder(&pool, &one, LATE).await.unwrap();
    assert_eq!(later.inodes_used.unwrap() - first.inodes_used.unwrap(), 1);
}

#[tokio::test]
async fn a_walk_goes_on_for_others_when_its_first_caller_is_gone() {
    let test_dir = TestDir::new();
    let volume = test_dir.folder("volume");
    let (pool, walks) = (pool().await, Walks::new());
    drop(walks.join(&pool, &volume, LATE));
    let second = walks.folder(&pool, &volume, LATE).await.unwrap();
    assert_eq!(second.inodes_used, Some(1));
    assert!(walks.under_way().is_empty());
}

#[tokio::test]
async fn a_walk_leaves_time_to_others() {
    let test_dir = TestDir::new();
    let volume = test_dir.folder("volume");
    for file in 0..2_000 {
        fs::write(volume.join(file.to_string()), "").unwrap();
    }
    let begun = tokio::time::Instant::now();
    folder(&volume).unwrap();
    let took = tokio::time::Instant::now() - begun;
    assert!(
        took >= Duration::from_millis(100),
        "{took:?} for 2,000 files"
    );
}
