//! A spec's mounts as they are made: options become attributes of the mount, its propagation, and what the file system
//! itself is told. Pure.

use std::path::{Path, PathBuf};

use container_syscalls::{MountAttributes, Propagation};
use oci_spec::runtime::Mount;
use rustix::mount::MountAttrFlags;

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A file or folder of the node.
    Bind { path: PathBuf, recursive: bool },
    /// A file system of a type, with its source and what it is told: words, and words with values.
    New {
        kind: String,
        source: String,
        settings: Vec<(String, Option<String>)>,
    },
    /// Nothing: attributes of the mount that is there are changed.
    Remount,
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) destination: PathBuf,
    pub(crate) source: Source,
    pub(crate) attributes: MountAttributes,
    /// Of the mount and all that comes with it.
    pub(crate) recursive: MountAttributes,
    /// With whether all that comes with the mount spreads in the same way.
    pub(crate) propagation: Option<(Propagation, bool)>,
    /// A tmpfs becomes read-only when everything below it is mounted.
    pub(crate) is_closed_last: bool,
}

/// File systems that are made without looking for anything at a path.
const OF_THE_KERNEL: [&str; 7] = [
    "proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2",
];

impl Planned {
    /// Whether nothing of the node is looked for but a source that is bound.
    pub(crate) fn is_plain(&self) -> bool {
        match &self.source {
            Source::Bind { .. } | Source::Remount => true,
            Source::New { kind, .. } => OF_THE_KERNEL.contains(&kind.as_str()),
        }
    }
}

/// Attributes of linux/mount.h by their names in mount(8); those with "r" in front are recursive.
fn attribute(word: &str) -> Option<(MountAttrFlags, bool)> {
    let atime = MountAttrFlags::MOUNT_ATTR__ATIME;
    let known = match word {
        "ro" => (MountAttrFlags::MOUNT_ATTR_RDONLY, true),
        "rw" => (MountAttrFlags::MOUNT_ATTR_RDONLY, false),
        "nosuid" => (MountAttrFlags::MOUNT_ATTR_NOSUID, true),
        "suid" => (MountAttrFlags::MOUNT_ATTR_NOSUID, false),
        "nodev" => (MountAttrFlags::MOUNT_ATTR_NODEV, true),
        "dev" => (MountAttrFlags::MOUNT_ATTR_NODEV, false),
        "noexec" => (MountAttrFlags::MOUNT_ATTR_NOEXEC, true),
        "exec" => (MountAttrFlags::MOUNT_ATTR_NOEXEC, false),
        "nodiratime" => (MountAttrFlags::MOUNT_ATTR_NODIRATIME, true),
        "diratime" => (MountAttrFlags::MOUNT_ATTR_NODIRATIME, false),
        "nosymfollow" => (MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, true),
        "symfollow" => (MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, false),
        "noatime" => (MountAttrFlags::MOUNT_ATTR_NOATIME, true),
        "strictatime" => (MountAttrFlags::MOUNT_ATTR_STRICTATIME, true),
        "relatime" => (MountAttrFlags::MOUNT_ATTR_RELATIME, true),
        // Each takes back what it names, which leaves the kernel's default.
        "atime" | "norelatime" | "nostrictatime" => (atime, false),
        _ => return None,
    };
    Some(known)
}

fn is_access_time(word: &str) -> bool {
    word.ends_with("atime") && !word.ends_with("diratime")
}

fn propagation(word: &str) -> Option<Propagation> {
    match word {
        "private" => Some(Propagation::Private),
        "slave" => Some(Propagation::Slave),
        "shared" => Some(Propagation::Shared),
        "unbindable" => Some(Propagation::Unbindable),
        _ => None,
    }
}

/// Reads a word that says how mounts spread, with whether it is for the whole tree of them ("r" in front).
pub(crate) fn spread(word: &str) -> Option<(Propagation, bool)> {
    propagation(word).map(|plain| (plain, false)).or_else(|| {
        let plain = propagation(word.strip_prefix('r')?)?;
        Some((plain, true))
    })
}

fn apply(attributes: &mut MountAttributes, word: &str) -> bool {
    let Some((flag, is_set)) = attribute(word) else {
        return false;
    };
    let bits = u64::from(flag.bits());
    if is_access_time(word) {
        // Three exclusive values in one field, of which relatime is 0.
        let field = u64::from(MountAttrFlags::MOUNT_ATTR__ATIME.bits());
        attributes.clear |= field;
        attributes.set &= !field;
        if is_set {
            attributes.set |= bits;
        }
    } else if is_set {
        attributes.set |= bits;
        attributes.clear &= !bits;
    } else {
        attributes.clear |= bits;
        attributes.set &= !bits;
    }
    true
}

/// Plans a mount.
pub(crate) fn plan(mount: &Mount) -> Planned {
    let words: Vec<&str> = mount
        .options()
        .iter()
        .flatten()
        .map(String::as_str)
        .collect();
    let kind = mount.typ().as_deref().unwrap_or_default();
    let is_bind = kind == "bind" || words.iter().any(|word| matches!(*word, "bind" | "rbind"));
    let mut planned = Planned {
        destination: mount.destination().clone(),
        source: Source::Remount,
        attributes: MountAttributes::default(),
        recursive: MountAttributes::default(),
        propagation: None,
        is_closed_last: false,
    };
    let mut settings = Vec::new();
    for word in words.iter().copied() {
        if let Some(spread) = spread(word) {
            planned.propagation = Some(spread);
        } else if matches!(word, "bind" | "rbind" | "remount" | "defaults")
            || apply(&mut planned.attributes, word)
            || word
                .strip_prefix('r')
                .is_some_and(|word| apply(&mut planned.recursive, word))
        {
        } else if let Some((name, value)) = word.split_once('=') {
            settings.push((name.to_owned(), Some(value.to_owned())));
        } else if !matches!(
            word,
            "async" | "nolazytime" | "nomand" | "noiversion" | "loud"
        ) {
            settings.push((word.to_owned(), None));
        }
    }
    if words.contains(&"remount") && !is_bind {
        return planned;
    }
    let source = mount.source().clone().unwrap_or_default();
    if is_bind {
        planned.source = Source::Bind {
            path: source,
            recursive: words.contains(&"rbind"),
        };
        return planned;
    }
    let read_only = u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits());
    let is_closed = planned.attributes.set & read_only != 0;
    if is_closed && (kind == "tmpfs" || mount.destination() == Path::new("/dev")) {
        planned.is_closed_last = true;
        planned.attributes.set &= !read_only;
    }
    // What these have is the machine's, whose superblock stays as it is.
    if is_closed && !OF_THE_KERNEL.contains(&kind) {
        settings.push(("ro".to_owned(), None));
    }
    planned.source = Source::New {
        kind: kind.to_owned(),
        source: source.to_string_lossy().into_owned(),
        settings,
    };
    planned
}

/// Whether the container's `/dev` is ours to fill: not where the pod has bound something there, as runc's `needsSetupDev`.
pub(crate) fn has_own_dev(mounts: &[Planned]) -> bool {
    !mounts
        .iter()
        .any(|mount| matches!(mount.source, Source::Bind { .. }) && is_dev(&mount.destination))
}

fn is_dev(path: &Path) -> bool {
    let names = path.components().filter_map(|part| match part {
        std::path::Component::Normal(name) => Some(name),
        std::path::Component::RootDir
        | std::path::Component::CurDir
        | std::path::Component::ParentDir
        | std::path::Component::Prefix(_) => None,
    });
    names.eq([std::ffi::OsStr::new("dev")])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RDONLY: u64 = 1;
    const NOSUID: u64 = 2;
    const ATIME: u64 = 0x70;

    fn planned(kind: &str, options: &[&str]) -> Planned {
        let mount =
            json!({ "destination": "/d", "type": kind, "source": "/s", "options": options });
        plan(&serde_json::from_value(mount).unwrap())
    }

    #[test]
    fn the_last_word_for_an_attribute_counts() {
        let attributes = |options: &[&str]| {
            let planned = planned("bind", options);
            let plain = (planned.attributes.set, planned.attributes.clear);
            (plain, (planned.recursive.set, planned.recursive.clear))
        };
        assert_eq!(attributes(&["rbind", "ro"]), ((RDONLY, 0), (0, 0)));
        assert_eq!(
            attributes(&["ro", "rw", "nosuid"]),
            ((NOSUID, RDONLY), (0, 0))
        );
        assert_eq!(attributes(&["rro", "suid"]), ((0, NOSUID), (RDONLY, 0)));
        assert_eq!(attributes(&["noatime"]), ((0x10, ATIME), (0, 0)));
        assert_eq!(
            attributes(&["strictatime", "relatime"]),
            ((0, ATIME), (0, 0))
        );
        assert_eq!(attributes(&["noatime", "atime"]), ((0, ATIME), (0, 0)));
        assert_eq!(attributes(&["rnoatime"]), ((0, 0), (0x10, ATIME)));
        assert_eq!(attributes(&["nodiratime"]), ((0x80, 0), (0, 0)));
    }

    #[test]
    fn how_a_mount_spreads_is_what_it_says_last() {
        let spread = |options: &[&str]| planned("bind", options).propagation;
        assert_eq!(
            spread(&["rbind", "rprivate", "rw"]),
            Some((Propagation::Private, true))
        );
        assert_eq!(
            spread(&["rslave", "private"]),
            Some((Propagation::Private, false))
        );
        assert_eq!(spread(&["rshared"]), Some((Propagation::Shared, true)));
        assert_eq!(spread(&["rbind", "ro", "rro", "relatime"]), None);
    }

    #[test]
    fn a_file_system_is_told_what_no_attribute_says() {
        let of = |kind: &str, options: &[&str]| match planned(kind, options).source {
            Source::New { settings, .. } => settings,
            other @ (Source::Bind { .. } | Source::Remount) => panic!("{other:?}"),
        };
        let value = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        let word = |name: &str| (name.to_owned(), None);
        assert_eq!(
            of(
                "devpts",
                &["nosuid", "newinstance", "ptmxmode=0666", "gid=5"]
            ),
            [
                word("newinstance"),
                value("ptmxmode", "0666"),
                value("gid", "5")
            ]
        );
        assert_eq!(
            of("ext4", &["ro", "sync", "async"]),
            [word("sync"), word("ro")]
        );
        assert_eq!(of("sysfs", &["ro"]), []);
    }

    #[test]
    fn a_tmpfs_is_closed_when_all_is_mounted() {
        let closed = planned("tmpfs", &["nosuid", "ro"]);
        assert_eq!(
            (closed.is_closed_last, closed.attributes.set),
            (true, NOSUID)
        );
        let open = planned("tmpfs", &["nosuid"]);
        assert!(!open.is_closed_last);
    }

    #[test]
    fn dev_is_the_pods_where_it_is_bound() {
        let at = |kind: &str, path: &str| {
            let mut planned = planned(kind, &[]);
            planned.destination = path.into();
            [planned]
        };
        for (kind, path, expected) in [
            ("bind", "/dev", false),
            ("bind", "/dev/", false),
            ("bind", "/dev/shm", true),
            ("tmpfs", "/dev", true),
        ] {
            assert_eq!(has_own_dev(&at(kind, path)), expected, "{kind} {path}");
        }
    }
}
