//! Whose a process's standard streams are: the process's user's, so that a program that isn't root can open
//! `/dev/stdout` again. OCI runtimes change the owner too, but cannot where the container has a user namespace: the
//! streams' owner has no id in it.

use std::path::Path;

use rustix::fs::{Uid, fchown};
use serde::{Deserialize, Serialize};

use crate::call::Inherited;

/// The largest `config.json` that is read, in bytes.
const MAX_SPEC_BYTES: u64 = 16 << 20;

/// A range of user ids of a container, as in an OCI `linux.uidMappings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdRange {
    #[serde(rename = "containerID")]
    container_id: u32,
    #[serde(rename = "hostID")]
    host_id: u32,
    size: u32,
}

/// What an OCI `config.json` says of users; nothing else of it is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    process: Process,
    linux: Linux,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Process {
    user: User,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    uid: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Linux {
    #[serde(rename = "uidMappings")]
    uid_mappings: Vec<IdRange>,
}

/// Reads the user of a bundle's process, in the container, and the container's ranges of user ids. A bundle that cannot be
/// read is the OCI runtime's to refuse, in its own words.
pub(crate) fn of_bundle(bundle: &Path) -> (u32, Vec<IdRange>) {
    let text = files::read_regular(bundle, Path::new("config.json"), MAX_SPEC_BYTES);
    let spec: Spec = text
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    (spec.process.user.uid, spec.linux.uid_mappings)
}

/// Reads the user of an OCI `process`, in the container.
pub(crate) fn of_process(process: &serde_json::Value) -> u32 {
    let uid = process
        .pointer("/user/uid")
        .and_then(serde_json::Value::as_u64);
    uid.and_then(|uid| u32::try_from(uid).ok()).unwrap_or(0)
}

/// Gives a process's streams to its user. They stay root's where the user has no id on the host.
pub(crate) fn give(streams: &Inherited, user: u32, ranges: &[IdRange]) -> std::io::Result<()> {
    let Some(owner) = host_id(user, ranges).filter(|owner| *owner != u32::MAX) else {
        return Ok(());
    };
    for stream in [&streams.stdin, &streams.stdout, &streams.stderr]
        .into_iter()
        .flatten()
    {
        fchown(stream, Some(Uid::from_raw(owner)), None)?;
    }
    Ok(())
}

/// The id on the host of an id in a container; without ranges they are the same.
fn host_id(id: u32, ranges: &[IdRange]) -> Option<u32> {
    if ranges.is_empty() {
        return Some(id);
    }
    ranges.iter().find_map(|range| {
        let offset = id.checked_sub(range.container_id)?;
        (offset < range.size).then(|| range.host_id.checked_add(offset))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_in_the_range_that_it_is_in() {
        let range = |container_id, host_id, size| IdRange {
            container_id,
            host_id,
            size,
        };
        let ranges = [range(0, 100_000, 1000), range(1000, 500_000, 10)];
        for (id, ranges, expected) in [
            (7, &[][..], Some(7)),
            (0, &ranges, Some(100_000)),
            (999, &ranges, Some(100_999)),
            (1009, &ranges, Some(500_009)),
            (1010, &ranges, None),
            (5, &[range(0, u32::MAX, 10)], None),
        ] {
            assert_eq!(host_id(id, ranges), expected, "{id} in {ranges:?}");
        }
    }

    #[test]
    fn a_bundle_tells_its_user_and_one_that_is_none_tells_root() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"ociVersion":"1.0.2","process":{"user":{"uid":1000,"gid":5}},
            "linux":{"uidMappings":[{"containerID":0,"hostID":9,"size":2}],"namespaces":[]}}"#;
        std::fs::write(dir.path().join("config.json"), text).unwrap();
        let (user, ranges) = of_bundle(dir.path());
        assert_eq!((user, ranges.len()), (1000, 1));
        std::fs::write(dir.path().join("config.json"), "{").unwrap();
        assert_eq!(of_bundle(dir.path()), (0, Vec::new()));
    }
}
