//! Volumes of a container that are mounted within another volume of it: their mount points must be there before, for
//! a container cannot make them in a volume that it may only read.
//!
//! Upstream: pkg/volume/util/nested_volumes.go (1.36).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::PodView;

/// The directories within this volume of the pod that its containers need; of nested ones the outermost alone, for the
/// rest lies in another volume.
pub(super) fn mount_points(pod: &Pod, volume: &str) -> BTreeSet<String> {
    let containers = pod.all_containers();
    containers
        .flat_map(|(_, container)| of(container, volume))
        .collect()
}

fn of(container: &Container, volume: &str) -> Vec<String> {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let mut all: Vec<String> = mounts
        .iter()
        .map(|mount| clean(&mount.mount_path))
        .collect();
    all.sort();
    let own = mounts.iter().filter(|mount| mount.name == volume);
    own.flat_map(|mount| below(&clean(&mount.mount_path), &all))
        .collect()
}

fn below(own: &str, all: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let prefix = format!("{}/", own.trim_end_matches('/'));
    for path in all.iter().filter_map(|path| path.strip_prefix(&prefix)) {
        let within = |outer: &String| path == outer || path.starts_with(&format!("{outer}/"));
        if !path.is_empty() && !found.iter().any(within) {
            found.push(path.to_owned());
        }
    }
    found
}

/// Without `.`, `..` and doubled slashes; nothing leads above the root.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::VolumeMount;
    use logic_api::testing::*;

    use super::*;

    /// Upstream's TestGetNestedMountpoints.
    #[test]
    fn the_outermost_folders_within_a_volume_are_named_once() {
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
        let cases: &[Case<'_>] = &[
            (&[("v", "/dir")], &[]),
            (&[("v", "/dir"), ("w", "/dir2")], &[]),
            (&[("v", "/dir"), ("w", "/dir/nested")], &["nested"]),
            (&[("w", "/dir"), ("v", "/dir/nested")], &[]),
            (
                &[
                    ("v", "/dir"),
                    ("w", "/dir/a"),
                    ("x", "/dir/a/b"),
                    ("y", "/dir/c/d"),
                ],
                &["a", "c/d"],
            ),
            (&[("v", "/dir/./x/.."), ("w", "//dir//a")], &["a"]),
            (&[("v", "/../dir"), ("w", "/dir/../etc")], &[]),
            (&[("v", "/dir"), ("v", "/dir/self")], &["self"]),
            (&[("v", "/"), ("w", "/a")], &["a"]),
        ];
        for (mounts, expected) in cases {
            let mount = |(name, path): &(&str, &str)| VolumeMount {
                name: (*name).into(),
                mount_path: (*path).into(),
                ..VolumeMount::default()
            };
            let pod = pod("p").app_with("c", |c| {
                c.volume_mounts = Some(mounts.iter().map(mount).collect());
            });
            let found: Vec<String> = mount_points(&pod, "v").into_iter().collect();
            assert_eq!(&found, expected, "{mounts:?}");
        }
    }
}
