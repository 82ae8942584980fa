//! The mount `cgroup` of version 1, written out as the mounts that it stands for.
//!
//! The mount is replaced by a tmpfs with the container's own group of each hierarchy bound into it, with the mount's options,
//! as runc does it: where they are read-only, the container's root can neither change its own limits nor allow itself devices.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use libcgroups::common::DEFAULT_CGROUP_ROOT;
use serde_json::{Value, json};

use super::{CgroupError, v1};

/// Writes out a spec's cgroup mounts on a machine with version 1.
pub(crate) fn write_out(spec: &mut Value) -> Result<(), CgroupError> {
    let is_cgroup = |mount: &Value| mount["type"] == "cgroup";
    if !spec["mounts"]
        .as_array()
        .is_some_and(|all| all.iter().any(is_cgroup))
    {
        return Ok(());
    }
    let group = spec["linux"]["cgroupsPath"].as_str().unwrap_or_default();
    let group = Path::new(group)
        .strip_prefix("/")
        .map_err(|_| CgroupError::Path(group.to_owned()))?
        .to_owned();
    let points = v1::mounts(Path::new(DEFAULT_CGROUP_ROOT)).map_err(CgroupError::MountPoints)?;
    let own = fs::read_to_string("/proc/self/cgroup").map_err(CgroupError::Own)?;
    let hierarchies = hierarchies(&points, &group, &own, v1::has_own_group);
    let Some(mounts) = spec["mounts"].as_array_mut() else {
        return Ok(());
    };
    *mounts = std::mem::take(mounts)
        .into_iter()
        .flat_map(|mount| {
            if is_cgroup(&mount) {
                written_out(&mount, &hierarchies)
            } else {
                vec![mount]
            }
        })
        .collect();
    Ok(())
}

/// A hierarchy: its name below the mount, and the container's group in it.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    name: String,
    group: PathBuf,
}

/// Returns the hierarchies that are mounted at `points`; one of several controllers has their names too. Where the container
/// has no group of its own it stays in this process's, by `own`. Each is there once, also where a table names its mount
/// twice, as that of a node within a container does, whose own mounts lie over others: of two mounts on top of each other
/// the second one would be made on the node too, where mounts spread.
fn hierarchies(
    points: &[PathBuf],
    group: &Path,
    own: &str,
    has_own_group: impl Fn(&Path) -> bool,
) -> Vec<Hierarchy> {
    let mut all = Vec::new();
    let points: BTreeSet<&PathBuf> = points.iter().collect();
    for point in points {
        let name = point.file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|_| point.parent() == Some(Path::new(DEFAULT_CGROUP_ROOT)))
        else {
            continue;
        };
        let group = if has_own_group(point) {
            point.join(group)
        } else {
            point.join(of_own(own, name))
        };
        let mut add = |name: &str| {
            all.push(Hierarchy {
                name: name.to_owned(),
                group: group.clone(),
            });
        };
        add(name);
        if name.contains(',') {
            name.split(',').for_each(add);
        }
    }
    all
}

/// The group that this process is in, by `/proc/self/cgroup`; the topmost where the hierarchy isn't in it.
fn of_own<'a>(own: &'a str, name: &str) -> &'a str {
    let mut lines = own.lines().map(|line| line.splitn(3, ':'));
    let path = lines.find_map(|mut fields| {
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let named = controllers.strip_prefix("name=").unwrap_or(controllers);
        (named == name).then_some(path)
    });
    path.unwrap_or_default().trim_start_matches('/')
}

/// Returns the mounts in a cgroup mount's place.
fn written_out(mount: &Value, hierarchies: &[Hierarchy]) -> Vec<Value> {
    let destination = mount["destination"].as_str().unwrap_or_default();
    let asked = mount["options"].as_array().into_iter().flatten();
    let asked: Vec<&str> = asked.filter_map(Value::as_str).collect();
    let mut options = vec!["bind"];
    options.extend(asked.iter().filter(|option| **option != "rw"));
    let mut above = vec!["nosuid", "noexec", "nodev", "mode=755"];
    if asked.contains(&"ro") {
        above.push("ro");
    }
    let mut mounts = vec![json!({
        "destination": destination,
        "type": "tmpfs",
        "source": "tmpfs",
        "options": above,
    })];
    mounts.extend(hierarchies.iter().map(|one| {
        json!({
            "destination": Path::new(destination).join(&one.name),
            "type": "bind",
            "source": one.group,
            "options": options,
        })
    }));
    mounts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hierarchy_is_the_containers_own_group_or_ours_where_it_has_none() {
        let points = [
            "cpu,cpuacct",
            "memory",
            "systemd",
            "named",
            "misc",
            "memory",
            "memory/pod/c",
        ]
        .map(|name| Path::new(DEFAULT_CGROUP_ROOT).join(name));
        let own = "3:memory:/us\n2:name=named:/a/b\n0::/v2\n";
        let has_own_group = |point: &Path| !point.ends_with("named") && !point.ends_with("misc");
        let found = hierarchies(&points, Path::new("pod/c"), own, has_own_group);
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.name.as_str(), one.group.to_str().unwrap()))
            .collect();
        let expected = [
            ("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/pod/c"),
            ("cpu", "/sys/fs/cgroup/cpu,cpuacct/pod/c"),
            ("cpuacct", "/sys/fs/cgroup/cpu,cpuacct/pod/c"),
            ("memory", "/sys/fs/cgroup/memory/pod/c"),
            ("misc", "/sys/fs/cgroup/misc/"),
            ("named", "/sys/fs/cgroup/named/a/b"),
            ("systemd", "/sys/fs/cgroup/systemd/pod/c"),
        ];
        assert_eq!(found, expected);
        assert!(hierarchies(&["/elsewhere/cpu".into()], Path::new("c"), own, |_| true).is_empty());
    }

    #[test]
    fn what_is_to_be_read_only_is_so_in_each_hierarchy_and_above_them() {
        let hierarchies = [Hierarchy {
            name: "memory".to_owned(),
            group: "/g".into(),
        }];
        for (options, bound, closed) in [
            (
                json!(["nosuid", "ro"]),
                json!(["bind", "nosuid", "ro"]),
                true,
            ),
            (json!(["nosuid", "rw"]), json!(["bind", "nosuid"]), false),
            (Value::Null, json!(["bind"]), false),
        ] {
            let mount = json!({"destination": "/c", "type": "cgroup", "options": options});
            let mounts = written_out(&mount, &hierarchies);
            let options = mounts[0]["options"].as_array().unwrap();
            assert_eq!(options.contains(&json!("ro")), closed);
            assert_eq!(
                (&mounts[0]["type"], &mounts[0]["destination"]),
                (&json!("tmpfs"), &json!("/c"))
            );
            let expected = json!({"destination": "/c/memory", "type": "bind", "source": "/g", "options": bound});
            assert_eq!(mounts[1..], [expected]);
        }
    }
}
