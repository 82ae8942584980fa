//! The `mounts` section: what every container has, the sandbox's files, and the configuration's own.

use proto::cri::{Mount, MountPropagation};
use serde_json::{Value, json};

use super::{SpecError, SpecInput, UserIds};

const SHM: &str = "/dev/shm";

/// Options that the field `mount_options` may have.
const MOUNT_OPTIONS: [&str; 3] = ["noexec", "nodev", "nosuid"];

/// How mounts of the node's folder that is mounted spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HostPropagation {
    #[default]
    Private,
    Slave,
    Shared,
}

/// The source of one mount of the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountSource {
    /// On the node, without links.
    pub(crate) path: String,
    pub(crate) propagation: HostPropagation,
    /// Options that the source's own mount has: a user namespace must keep them.
    pub(crate) kept: Vec<&'static str>,
}

/// Returns the mounts, and the propagation of the container's root if a mount needs one.
pub(super) fn section(
    input: SpecInput<'_>,
) -> Result<(Vec<Value>, Option<&'static str>), SpecError> {
    let own = |path: &str| {
        let mut mounts = input.config.mounts.iter();
        mounts.any(|mount| normal(&mount.container_path) == path)
    };
    // Who mounts `/dev` has all of it: only the sandbox's memory is mounted there, as with containerd.
    let has_dev = own("/dev");
    let is_replaced = |mount: &Value| {
        let path = mount["destination"].as_str().unwrap_or_default();
        own(path) || (has_dev && path.starts_with("/dev/"))
    };
    let mut mounts: Vec<_> = defaults(input)
        .into_iter()
        .filter(|mount| !is_replaced(mount))
        .collect();
    let mut propagation = None;
    let mut asked = Vec::new();
    if input.sources.len() != input.config.mounts.len() {
        return Err(SpecError::Invalid {
            field: "mounts",
            found: input.config.mounts.len().to_string(),
            expected: "a source for each",
        });
    }
    for (mount, source) in input.config.mounts.iter().zip(input.sources) {
        asked.push(bind(mount, source, input, &mut propagation)?);
    }
    let of_sandbox = of_sandbox(input).into_iter();
    asked.extend(of_sandbox.filter(|mount| !mount["destination"].as_str().is_some_and(own)));
    // A mount below another one comes after it: the sandbox's files are in a folder that the container mounts.
    asked.sort_by_key(|mount| {
        let path = mount["destination"].as_str().unwrap_or_default();
        path.split('/').filter(|part| !part.is_empty()).count()
    });
    mounts.extend(asked);
    Ok((mounts, propagation))
}

/// The path without dots, as Go's `filepath.Clean` makes it below `/`: nothing is above the root.
pub(crate) fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn defaults(input: SpecInput<'_>) -> Vec<Value> {
    let access = if input.privileged() { "rw" } else { "ro" };
    let made = |destination: &str, kind: &str, options: &[&str]| json!({ "destination": destination, "type": kind, "source": kind, "options": options });
    let safe = ["nosuid", "noexec", "nodev"];
    let with = |more: &[&'static str]| [&safe[..], more].concat();
    vec![
        made("/proc", "proc", &safe),
        made(
            "/dev",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        ),
        made(
            "/dev/pts",
            "devpts",
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
                "gid=5",
            ],
        ),
        made("/dev/mqueue", "mqueue", &safe),
        made("/sys", "sysfs", &with(&[access])),
        made("/sys/fs/cgroup", "cgroup", &with(&["relatime", access])),
    ]
}

/// `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf` are read-only where the root is.
fn of_sandbox(input: SpecInput<'_>) -> Vec<Value> {
    let files = input.sandbox_mounts;
    let readonly = input
        .security()
        .is_some_and(|context| context.readonly_rootfs);
    let access = if readonly { "ro" } else { "rw" };
    let bound = |destination: &str, source: &str, access: &'static str| {
        (!source.is_empty()).then(|| {
            let mut options = vec!["rbind", "rprivate", access];
            if destination == SHM {
                options.extend(&files.shm_kept);
            }
            json!({ "destination": destination, "type": "bind", "source": source, "options": options })
        })
    };
    let mounts = [
        bound("/etc/hosts", &files.hosts, access),
        bound("/etc/hostname", &files.hostname, access),
        bound("/etc/resolv.conf", &files.resolv_conf, access),
        bound(SHM, &files.shm, "rw"),
    ];
    mounts.into_iter().flatten().collect()
}

fn bind(
    mount: &Mount,
    source: &MountSource,
    input: SpecInput<'_>,
    root: &mut Option<&'static str>,
) -> Result<Value, SpecError> {
    refuse_unsupported(mount, input)?;
    let mut options = vec!["rbind"];
    options.push(spread(mount, source, root)?);
    options.push(access(mount, input)?);
    options.extend(more_options(mount)?);
    options.extend(&source.kept);
    let destination = normal(&mount.container_path);
    Ok(
        json!({ "destination": destination, "type": "bind", "source": source.path, "options": options }),
    )
}

fn refuse_unsupported(mount: &Mount, input: SpecInput<'_>) -> Result<(), SpecError> {
    if !mount.container_path.starts_with('/') {
        return Err(SpecError::Invalid {
            field: "mount.container_path",
            found: mount.container_path.clone(),
            expected: "an absolute path",
        });
    }
    let user = input.namespaces.user.as_ref();
    UserIds::map(user.map(|user| &user.ids), mount)?;
    if user.is_some() && mount.propagation() == MountPropagation::PropagationBidirectional {
        return Err(SpecError::Unenforceable {
            field: "mount.propagation",
            value: mount.container_path.clone(),
            why: "what is mounted in a user namespace never reaches the node",
        });
    }
    Ok(())
}

/// What a mount is further restricted by: KEP-5855 has these three, and the runtime says in its features that it does.
fn more_options(mount: &Mount) -> Result<Vec<&'static str>, SpecError> {
    let known = |asked: &String| {
        let found = MOUNT_OPTIONS.into_iter().find(|option| option == asked);
        found.ok_or_else(|| SpecError::Invalid {
            field: "mount.mount_options",
            found: asked.clone(),
            expected: "noexec, nodev or nosuid",
        })
    };
    mount.mount_options.iter().map(known).collect()
}

/// The mount's propagation, which the node's own mount must have for it to work.
fn spread(
    mount: &Mount,
    source: &MountSource,
    root: &mut Option<&'static str>,
) -> Result<&'static str, SpecError> {
    let not = |expected| SpecError::Invalid {
        field: "mount propagation",
        found: source.path.clone(),
        expected,
    };
    match mount.propagation() {
        MountPropagation::PropagationPrivate => Ok("rprivate"),
        MountPropagation::PropagationHostToContainer => {
            if source.propagation == HostPropagation::Private {
                return Err(not("a path on a shared or slave mount of the node"));
            }
            root.get_or_insert("rslave");
            Ok("rslave")
        }
        MountPropagation::PropagationBidirectional => {
            if source.propagation != HostPropagation::Shared {
                return Err(not("a path on a shared mount of the node"));
            }
            *root = Some("rshared");
            Ok("rshared")
        }
    }
}

fn access(mount: &Mount, input: SpecInput<'_>) -> Result<&'static str, SpecError> {
    if !mount.recursive_read_only {
        return Ok(if mount.readonly { "ro" } else { "rw" });
    }
    if !mount.readonly || mount.propagation() != MountPropagation::PropagationPrivate {
        return Err(SpecError::Invalid {
            field: "mount.recursive_read_only",
            found: "true".to_owned(),
            expected: "a mount that is readonly and private as well",
        });
    }
    if !input.recursive_read_only {
        return Err(SpecError::Unenforceable {
            field: "mount.recursive_read_only",
            value: mount.container_path.clone(),
            why: "the runtime handler has no such mounts",
        });
    }
    Ok("rro")
}
