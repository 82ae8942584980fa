//! How the bind mounts of a container spread. libcontainer 0.7 takes these options of a bind mount and drops them, by
//! which every mount would follow the node's, and on a node whose mounts are shared would be the node's own. So they
//! are set here, while the container's init waits for its start.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use serde_json::Value;

use crate::mounts::table::points;

/// Why a mount doesn't spread as the spec says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PropagationError {
    #[error("cannot read the mounts of process {0}")]
    Read(i32, #[source] io::Error),
    #[error("cannot enter the mounts of process {0}")]
    Enter(i32, #[source] Errno),
    #[error("mount {0}: its propagation cannot be set")]
    Set(PathBuf, #[source] Errno),
    #[error("the thread that sets the propagation of mounts broke off")]
    Thread,
}

/// How one mount of the spec shall spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    destination: PathBuf,
    kind: MsFlags,
    /// Whether all that came with it spreads in the same way.
    recursive: bool,
}

/// Returns what the spec says of its bind mounts.
pub(crate) fn of_spec(spec: &Value) -> Vec<Wanted> {
    let mounts = spec["mounts"].as_array().into_iter().flatten();
    mounts.filter_map(of_mount).collect()
}

fn of_mount(mount: &Value) -> Option<Wanted> {
    let options = mount["options"].as_array()?;
    let mut words = options.iter().filter_map(Value::as_str);
    let is_bind = mount["type"] == "bind" || words.clone().any(|w| matches!(w, "bind" | "rbind"));
    let destination = mount["destination"].as_str().filter(|_| is_bind)?;
    let (kind, recursive) = words.rfind(|word| kind(word).is_some()).and_then(kind)?;
    Some(Wanted {
        destination: destination.into(),
        kind,
        recursive,
    })
}

fn kind(word: &str) -> Option<(MsFlags, bool)> {
    let plain = match word.strip_prefix('r') {
        Some(plain @ ("private" | "slave" | "shared" | "unbindable")) => plain,
        _ => word,
    };
    let kind = match plain {
        "private" => MsFlags::MS_PRIVATE,
        "slave" => MsFlags::MS_SLAVE,
        "shared" => MsFlags::MS_SHARED,
        "unbindable" => MsFlags::MS_UNBINDABLE,
        _ => return None,
    };
    Some((kind, plain != word))
}

/// Sets the propagation of a container's mounts. Its root must stand, and nothing of its own may run yet.
pub(crate) fn set(pid: i32, wanted: Vec<Wanted>) -> Result<(), PropagationError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let read = |error| PropagationError::Read(pid, error);
    let table = fs::read(format!("/proc/{pid}/mountinfo")).map_err(read)?;
    let namespace = fs::File::open(format!("/proc/{pid}/ns/mnt")).map_err(read)?;
    // A root folder belongs to a thread: this process goes on with its own.
    let entered = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_FS).map_err(|error| PropagationError::Enter(pid, error))?;
        setns(&namespace, CloneFlags::CLONE_NEWNS)
            .map_err(|error| PropagationError::Enter(pid, error))?;
        let found = wanted.into_iter().filter_map(|mut one| {
            // One that is not to be reached lies under a later mount.
            one.destination = fs::canonicalize(&one.destination).ok()?;
            Some(one)
        });
        for (point, kind) in plan(&points(&table), &found.collect::<Vec<_>>()) {
            let none: Option<&str> = None;
            match mount(none, &point, none, kind, none) {
                // The same.
                Ok(()) | Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(error) => return Err(PropagationError::Set(point, error)),
            }
        }
        Ok(())
    });
    entered.join().map_err(|_| PropagationError::Thread)?
}

/// Returns what is set of which mount: each follows the nearest mount of the spec that it lies at or below.
fn plan(points: &[PathBuf], wanted: &[Wanted]) -> Vec<(PathBuf, MsFlags)> {
    let nearest = |point: &Path| {
        let above = wanted
            .iter()
            .filter(|one| point.starts_with(&one.destination));
        above.max_by_key(|one| OsStr::as_bytes(one.destination.as_os_str()).len())
    };
    let mut planned: Vec<(PathBuf, MsFlags)> = Vec::new();
    for point in points {
        let Some(one) = nearest(point) else { continue };
        let is_it = one.recursive || *point == one.destination;
        if is_it && planned.last().is_none_or(|(last, _)| last != point) {
            planned.push((point.clone(), one.kind));
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_bind_mount_says_last_is_what_it_wants() {
        let mount = |kind: &str, options: &[&str]| json!({ "destination": "/d", "type": kind, "options": options });
        let said = |mount: Value| of_mount(&mount).map(|one| (one.kind, one.recursive));
        let private = |recursive| Some((MsFlags::MS_PRIVATE, recursive));
        assert_eq!(
            said(mount("bind", &["rbind", "rprivate", "rw"])),
            private(true)
        );
        assert_eq!(
            said(mount("none", &["bind", "rslave", "private"])),
            private(false)
        );
        let shared = Some((MsFlags::MS_SHARED, true));
        assert_eq!(said(mount("bind", &["rbind", "rshared"])), shared);
        assert_eq!(
            said(mount("bind", &["rbind", "ro", "rro", "relatime"])),
            None
        );
        assert_eq!(said(mount("tmpfs", &["private"])), None);
    }

    #[test]
    fn a_mount_follows_the_nearest_one_of_the_spec() {
        let table = b"1 0 0:1 / / rw - x x rw\n2 1 0:1 / /v rw - x x rw\n3 2 0:1 / /v/a\\040b rw - x x rw\n4 2 0:1 / /v/s rw - x x rw\n5 4 0:1 / /v/s/t rw - x x rw\n6 1 0:1 / /vw rw - x x rw\n";
        let wanted = |destination: &str, kind, recursive| Wanted {
            destination: destination.into(),
            kind,
            recursive,
        };
        let all = [
            wanted("/v", MsFlags::MS_PRIVATE, true),
            wanted("/v/s", MsFlags::MS_SHARED, false),
        ];
        let expected = [
            ("/v", MsFlags::MS_PRIVATE),
            ("/v/a b", MsFlags::MS_PRIVATE),
            ("/v/s", MsFlags::MS_SHARED),
        ];
        let expected = expected.map(|(point, kind)| (PathBuf::from(point), kind));
        assert_eq!(plan(&points(table), &all), expected);
    }
}
