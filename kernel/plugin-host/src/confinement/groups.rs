//! The cgroup of one process of a plugin, of both versions: made, read, removed. Blocks.
//!
//! Files are few and written here, because neither the kernel nor this crate knows the node's cgroups. What the machine
//! refuses is a sentence, no error: a plugin without limits is better than none.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A parent may be removed, being empty, by the end of another plugin while it is made.
const MAKE_ATTEMPTS: u32 = 3;

/// The hierarchy of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    V1(PathBuf),
    V2(PathBuf),
}

/// The hierarchies of the two controllers that plugins are limited by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trees {
    memory: Option<Tree>,
    pids: Option<Tree>,
}

/// What a group may hold; none is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// In bytes.
    pub(super) memory: Option<u64>,
    /// Processes and threads.
    pub(super) pids: Option<u64>,
}

/// What a group holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupUsage {
    /// In bytes, the cache of files included.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Processes that the kernel has killed for memory.
    pub oom_kills: u64,
    /// How often a process could not be made because of the limit.
    pub refused_forks: u64,
}

impl Trees {
    /// Reads `/proc/self/mountinfo`. A controller is version 1's where it is mounted as such.
    pub(super) fn parse(mountinfo: &str) -> Self {
        let mut trees = Self::default();
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let (mount, mut right) = (left.split(' ').nth(4), right.split(' '));
            let (Some(mount), Some(kind), Some(options)) = (mount, right.next(), right.nth(1))
            else {
                continue;
            };
            for (name, tree) in [("memory", &mut trees.memory), ("pids", &mut trees.pids)] {
                match kind {
                    "cgroup" if options.split(',').any(|option| option == name) => {
                        *tree = Some(Tree::V1(mount.into()));
                    }
                    "cgroup2" if tree.is_none() && has_controller(Path::new(mount), name) => {
                        *tree = Some(Tree::V2(mount.into()));
                    }
                    _ => {}
                }
            }
        }
        trees
    }

    /// Makes the group with these limits; returns its folders, and what the machine refuses.
    pub(super) fn make(&self, group: &str, limits: Limits) -> (Vec<PathBuf>, Vec<String>) {
        let (mut folders, mut refused) = (Vec::new(), Vec::new());
        let limited = [
            (
                "memory",
                &self.memory,
                limits.memory,
                ["memory.limit_in_bytes", "memory.max"],
            ),
            ("pids", &self.pids, limits.pids, ["pids.max", "pids.max"]),
        ];
        for (name, tree, limit, [v1, v2]) in limited {
            let Some(tree) = tree else {
                let none = format!("{name} limit: the machine has no cgroup controller {name}");
                refused.extend(limit.map(|_| none));
                continue;
            };
            let made = tree.make(group, name).and_then(|folder| {
                let file = match tree {
                    Tree::V1(_) => v1,
                    Tree::V2(_) => v2,
                };
                if !folders.contains(&folder) {
                    folders.push(folder.clone());
                }
                let Some(limit) = limit else { return Ok(()) };
                let file = folder.join(file);
                fs::write(&file, limit.to_string()).map_err(|error| told(&file, error))
            });
            if let Err(error) = made {
                let what = if limit.is_some() { "limit" } else { "cgroup" };
                refused.push(format!("{name} {what}: {error}"));
            }
        }
        (folders, refused)
    }

    /// The folders below a group, by their names; each in every hierarchy that has it.
    pub(super) fn children(&self, group: &str) -> Vec<PathBuf> {
        let tops = [&self.memory, &self.pids]
            .into_iter()
            .flatten()
            .map(Tree::top);
        let below = tops.flat_map(|top| fs::read_dir(below(top, group)).into_iter().flatten());
        let folders = below
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.map(|entry| entry.path()).collect()
    }
}

impl Tree {
    fn top(&self) -> &Path {
        match self {
            Self::V1(top) | Self::V2(top) => top,
        }
    }

    fn make(&self, group: &str, controller: &str) -> io::Result<PathBuf> {
        let mut made = self.try_make(group, controller);
        for _ in 1..MAKE_ATTEMPTS {
            match &made {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    made = self.try_make(group, controller);
                }
                _ => break,
            }
        }
        made
    }

    fn try_make(&self, group: &str, controller: &str) -> io::Result<PathBuf> {
        let mut folder = self.top().to_owned();
        for part in group.split('/').filter(|part| !part.is_empty()) {
            if let Self::V2(_) = self {
                enable(&folder, controller)?;
            }
            folder.push(part);
            match DirBuilder::new().mode(0o755).create(&folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(told(&folder, error));
                }
                _ => {}
            }
        }
        Ok(folder)
    }
}

/// Hands a controller to the groups below this one.
fn enable(group: &Path, controller: &str) -> io::Result<()> {
    let file = group.join("cgroup.subtree_control");
    let handed = fs::read_to_string(&file).unwrap_or_default();
    if handed.split_whitespace().any(|name| name == controller) {
        return Ok(());
    }
    fs::write(&file, format!("+{controller}")).map_err(|error| told(&file, error))
}

fn has_controller(mount: &Path, controller: &str) -> bool {
    let list = fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
    list.split_whitespace().any(|name| name == controller)
}

fn below(top: &Path, group: &str) -> PathBuf {
    top.join(group.trim_start_matches('/'))
}

fn told(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Reads what the group of these folders holds. Blocks.
pub fn group_usage(folders: &[PathBuf]) -> GroupUsage {
    GroupUsage {
        memory: number(folders, &["memory.current", "memory.usage_in_bytes"]),
        pids: number(folders, &["pids.current"]),
        oom_kills: count(
            folders,
            &["memory.events", "memory.oom_control"],
            "oom_kill",
        ),
        refused_forks: count(folders, &["pids.events"], "max"),
    }
}

/// Whether the group has come to its limit of memory. A process that the kernel kills because the whole machine is
/// short of memory counts among the group's as well.
pub(super) fn is_full(folders: &[PathBuf]) -> bool {
    count(folders, &["memory.events"], "max") > 0
        || number(folders, &["memory.failcnt"]).is_some_and(|failures| failures > 0)
}

fn read<'a>(folders: &'a [PathBuf], files: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    let paths = folders
        .iter()
        .flat_map(move |folder| files.iter().map(move |file| folder.join(file)));
    paths.filter_map(|path| fs::read_to_string(path).ok())
}

fn number(folders: &[PathBuf], files: &[&str]) -> Option<u64> {
    read(folders, files).find_map(|text| text.trim().parse().ok())
}

fn count(folders: &[PathBuf], files: &[&str], key: &str) -> u64 {
    let mut counts = read(folders, files).filter_map(|text| {
        let value = |line: &str| {
            line.strip_prefix(key)?
                .strip_prefix(' ')?
                .trim()
                .parse()
                .ok()
        };
        text.lines().find_map(value)
    });
    counts.next().unwrap_or(0)
}

/// Removes a group, and above it `parents` groups that are then empty. One that holds a process stays.
pub(super) fn remove(folders: &[PathBuf], parents: usize) {
    for folder in folders {
        let emptied = folder.ancestors().take(parents + 1);
        // The first that stays keeps all above it.
        let _ = emptied
            .map(fs::remove_dir)
            .take_while(Result::is_ok)
            .count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mountinfo(rows: &[(&Path, &str, &str)]) -> String {
        let line = |(mount, kind, options): &(&Path, &str, &str)| {
            format!(
                "1 1 0:1 / {} rw,relatime shared:4 - {kind} {kind} rw,{options}\n",
                mount.display()
            )
        };
        rows.iter().map(line).collect()
    }

    fn write(folder: &Path, file: &str, text: &str) {
        fs::write(folder.join(file), text).unwrap();
    }

    fn text(folder: &Path, file: &str) -> String {
        fs::read_to_string(folder.join(file)).unwrap()
    }

    const LIMITS: Limits = Limits {
        memory: Some(64 << 20),
        pids: Some(32),
    };

    #[test]
    fn controllers_of_version_one_have_a_folder_each() {
        let top = tempfile::tempdir().unwrap();
        let [memory, pids] = ["memory", "pids"].map(|name| top.path().join(name));
        let [memory, pids] = [memory.as_path(), pids.as_path()];
        fs::create_dir(memory).unwrap();
        fs::create_dir(pids).unwrap();
        let trees = Trees::parse(&mountinfo(&[
            (top.path(), "cgroup2", "nsdelegate"),
            (memory, "cgroup", "memory"),
            (pids, "cgroup", "pids"),
        ]));
        let (folders, refused) = trees.make("/oxlet/n/p/1", LIMITS);
        assert_eq!(refused, [""; 0]);
        assert_eq!(
            folders,
            [memory.join("oxlet/n/p/1"), pids.join("oxlet/n/p/1")]
        );
        assert_eq!(text(&folders[0], "memory.limit_in_bytes"), "67108864");
        assert_eq!(text(&folders[1], "pids.max"), "32");
        write(&folders[0], "memory.usage_in_bytes", "4096\n");
        write(
            &folders[0],
            "memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        );
        write(&folders[0], "memory.failcnt", "0\n");
        write(&folders[1], "pids.current", "3\n");
        write(&folders[1], "pids.events", "max 7\n");
        let usage = GroupUsage {
            memory: Some(4096),
            pids: Some(3),
            oom_kills: 2,
            refused_forks: 7,
        };
        assert_eq!(group_usage(&folders), usage);
        assert!(!is_full(&folders));
        write(&folders[0], "memory.failcnt", "1\n");
        assert!(is_full(&folders));
        assert_eq!(trees.children("/oxlet/n/p"), folders);
    }

    #[test]
    fn controllers_of_version_two_are_handed_down_to_one_folder() {
        let top = tempfile::tempdir().unwrap();
        write(top.path(), "cgroup.controllers", "cpu memory pids\n");
        write(top.path(), "cgroup.subtree_control", "cpu memory\n");
        let trees = Trees::parse(&mountinfo(&[(top.path(), "cgroup2", "nsdelegate")]));
        let (folders, refused) = trees.make("/oxlet/p", LIMITS);
        assert_eq!(refused, [""; 0]);
        assert_eq!(folders, [top.path().join("oxlet/p")]);
        assert_eq!(text(&folders[0], "memory.max"), "67108864");
        assert_eq!(text(&folders[0], "pids.max"), "32");
        // A folder keeps what was written last: memory was there at the top, and nothing below it.
        assert_eq!(text(top.path(), "cgroup.subtree_control"), "+pids");
        assert_eq!(
            text(&top.path().join("oxlet"), "cgroup.subtree_control"),
            "+pids"
        );
        write(
            &folders[0],
            "memory.events",
            "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n",
        );
        assert_eq!(group_usage(&folders).oom_kills, 1);
        assert!(is_full(&folders));
    }

    #[test]
    fn what_the_machine_lacks_or_refuses_is_said_of_each_limit_that_is_wanted() {
        let top = tempfile::tempdir().unwrap();
        write(top.path(), "cgroup.controllers", "cpu pids\n");
        let trees = Trees::parse(&mountinfo(&[(top.path(), "cgroup2", "")]));
        let (folders, refused) = trees.make("/p", LIMITS);
        assert_eq!(folders.len(), 1);
        assert_eq!(
            refused,
            ["memory limit: the machine has no cgroup controller memory"]
        );
        let unlimited = Limits::default();
        assert_eq!(trees.make("/p", unlimited).1, [""; 0]);
        write(top.path(), "file", "");
        let (folders, refused) = trees.make("/file/p", LIMITS);
        assert!(folders.is_empty());
        assert!(refused[1].starts_with("pids limit: "), "{refused:?}");
        assert_eq!(Trees::parse(""), Trees::default());
    }

    #[test]
    fn group_goes_with_its_parents_as_far_as_they_are_empty() {
        let top = tempfile::tempdir().unwrap();
        let kept = top.path().join("oxlet/other");
        let gone = top.path().join("oxlet/node/plugin/1");
        fs::create_dir_all(&kept).unwrap();
        fs::create_dir_all(&gone).unwrap();
        remove(std::slice::from_ref(&gone), 3);
        assert!(kept.is_dir() && !top.path().join("oxlet/node").exists());
        remove(&[top.path().join("oxlet")], 3);
        assert!(kept.is_dir());
    }
}
