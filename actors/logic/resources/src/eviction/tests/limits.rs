//! Upstream's TestStorageLimitEvictions, its limits.

use logic_api::testing::yaml;

use super::*;
use crate::summary::{ContainerStats, FsStats, PodStats, VolumeStats};

const POD: &str = "
metadata: {name: web}
spec:
  containers:
  - {name: app, image: a, resources: {limits: {ephemeral-storage: 1Ki}}}
  - {name: free, image: a}
  volumes: [{name: scratch, emptyDir: {sizeLimit: 1Ki}}]
";

fn used(bytes: u64) -> FsStats {
    FsStats {
        used_bytes: Some(bytes),
        ..FsStats::default()
    }
}

/// What the emptyDir, the whole pod, and the container's layer and logs take, in bytes.
fn stats(volume: u64, pod: u64, [root, logs]: [u64; 2]) -> PodStats {
    PodStats {
        volumes: vec![VolumeStats {
            name: "scratch".into(),
            fs: used(volume),
            ..VolumeStats::default()
        }],
        ephemeral_storage: Some(used(pod)),
        containers: vec![ContainerStats {
            name: "app".into(),
            rootfs: Some(used(root)),
            logs: Some(used(logs)),
            ..ContainerStats::default()
        }],
        ..PodStats::default()
    }
}

#[test]
fn a_pod_is_over_its_limit_only_above_it_and_the_message_names_the_limit() {
    let pod = yaml::pod(POD);
    assert!(is_limited(&pod));
    let (shared, dedicated) = (FsLayout::Shared, FsLayout::DedicatedImages);
    let volume = r#"Usage of EmptyDir volume "scratch" exceeds the limit "1Ki". "#;
    let whole = "Pod ephemeral local storage usage exceeds the total limit of containers 1Ki. ";
    let container = r#"Container app exceeded its local ephemeral storage limit "1Ki". "#;
    let cases = [
        (stats(1024, 1024, [512, 512]), shared, None),
        (stats(1025, 0, [0, 0]), shared, Some(volume)),
        (stats(1025, 1025, [1025, 0]), shared, Some(volume)),
        (stats(0, 1025, [0, 0]), shared, Some(whole)),
        (stats(0, 1025, [1025, 0]), shared, Some(whole)),
        (stats(0, 0, [1000, 25]), shared, Some(container)),
        (stats(0, 0, [1000, 25]), dedicated, None),
        (stats(0, 0, [0, 1025]), dedicated, Some(container)),
        (
            stats(u64::MAX, 0, [u64::MAX, u64::MAX]),
            shared,
            Some(volume),
        ),
        (PodStats::default(), shared, None),
    ];
    for (stats, layout, expected) in cases {
        let found = breach(&pod, &stats, layout).map(|breach| breach.message);
        assert_eq!(found.as_deref(), expected, "{stats:?}");
    }
}

#[test]
fn a_limit_of_nothing_is_none_and_a_pod_without_limits_is_not_measured() {
    let free = yaml::pod(
        &POD.replace("sizeLimit: 1Ki", "")
            .replace("limits: {ephemeral-storage: 1Ki}", ""),
    );
    assert!(!is_limited(&free));
    let much = stats(1 << 40, 1 << 40, [1 << 40, 0]);
    assert_eq!(breach(&free, &much, FsLayout::Shared), None);
    let zero = yaml::pod(
        &POD.replace("sizeLimit: 1Ki", "sizeLimit: 0")
            .replace("limits: {ephemeral-storage: 1Ki}", ""),
    );
    assert!(!is_limited(&zero));
    assert_eq!(breach(&zero, &much, FsLayout::Shared), None);
}
