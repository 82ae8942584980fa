//! Groups of a container that is over, removed with those that it made in them, as far as nobody is in them: what has no
//! processes any more is no place to be measured, and keeps memory of the kernel.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::Path;

use rustix::io::{Errno, Result};

use super::tree::Place;

/// How many groups may be left because something is in them, before the rest is left as well.
const MAX_BUSY: usize = 1024;
/// How many groups are tried to remove at most, so that it ends whatever is made meanwhile.
const MAX_TRIES: u32 = 1 << 20;

/// The removal of a tree of groups, in steps: the pod's other containers must not wait for it.
#[derive(Debug)]
pub(crate) struct GroupRemoval {
    place: Place,
    top: CString,
    /// Groups that cannot be removed, by the depth of the group that they are in.
    busy: BTreeSet<(usize, CString)>,
    tries: u32,
}

impl GroupRemoval {
    /// Begins with a group; `None` when it is not there.
    pub(crate) fn new(group: &Path) -> Option<GroupRemoval> {
        let name = group.file_name()?.as_encoded_bytes();
        Some(GroupRemoval {
            place: Place::above(group).ok()?,
            top: CString::new(name).ok()?,
            busy: BTreeSet::new(),
            tries: 0,
        })
    }

    /// Goes on for some steps; false once all is done that can be.
    pub(crate) fn go_on(&mut self, steps: u32) -> bool {
        for _ in 0..steps {
            // What cannot be looked at stays: the runtime removes it with the container, or says why not.
            if !matches!(self.step(), Ok(true)) {
                return false;
            }
        }
        true
    }

    fn step(&mut self) -> Result<bool> {
        self.tries += 1;
        if self.tries > MAX_TRIES || self.busy.len() > MAX_BUSY {
            return Ok(false);
        }
        let depth = self.place.depth();
        let next = if depth == 0 {
            Some(self.top.clone()).filter(|top| !self.is_busy(0, top))
        } else {
            let wanted = |name: &std::ffi::CStr| !self.is_busy(depth, name);
            self.place.groups(1, wanted)?.pop()
        };
        let Some(name) = next else {
            return self.back();
        };
        match self.place.remove(&name) {
            Ok(()) | Err(Errno::NOENT) if depth == 0 => Ok(false),
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::BUSY | Errno::NOTEMPTY) => self.place.descend(&name).map(|()| true),
            Err(_) => {
                self.busy.insert((depth, name));
                Ok(true)
            }
        }
    }

    /// Leaves a group that has no other in it that could be removed, and removes it.
    fn back(&mut self) -> Result<bool> {
        let depth = self.place.depth();
        let Some(name) = self.place.ascend()? else {
            return Ok(false);
        };
        // Those in it have no other place to be remembered for.
        self.busy.retain(|(busy, _)| *busy < depth);
        if self.place.remove(&name).is_err() {
            self.busy.insert((depth - 1, name));
        }
        Ok(true)
    }

    fn is_busy(&self, depth: usize, name: &std::ffi::CStr) -> bool {
        self.busy.contains(&(depth, name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A group of the test's own in every hierarchy that is mounted.
    fn groups(name: &str) -> Vec<PathBuf> {
        let name = format!("oxlet-monitor-{name}-{}", std::process::id());
        let mounts = super::super::hierarchies().unwrap().into_iter();
        let all = mounts.map(|hierarchy| hierarchy.mount.join(&name));
        all.filter(|group| fs::create_dir(group).is_ok()).collect()
    }

    fn nest(group: &Path, name: &CStr, depth: usize) {
        let mut place = Place::above(&group.join("x")).unwrap();
        for _ in 0..depth {
            rustix::fs::mkdirat(place.fd(), name, 0o755.into()).unwrap();
            place.descend(name).unwrap();
        }
    }

    fn remove(group: &Path) {
        let mut removal = GroupRemoval::new(group).unwrap();
        while removal.go_on(16) {}
    }

    #[test]
    fn groups_are_removed_however_deep_and_many() {
        let name = CString::new("n".repeat(200)).unwrap();
        for group in groups("deep") {
            // Deeper than a path is long.
            nest(&group, &name, 60);
            nest(&group, c"beside", 3);
            for number in 0..100 {
                fs::create_dir(group.join(number.to_string())).unwrap();
            }
            remove(&group);
            assert!(!group.exists(), "{}", group.display());
        }
    }

    #[test]
    fn a_group_with_a_process_stays_and_keeps_no_other() {
        for group in groups("busy") {
            let Ok(()) = fs::create_dir_all(group.join("a/inhabited")) else {
                panic!("{}", group.display());
            };
            fs::create_dir_all(group.join("b/c")).unwrap();
            let mut child = std::process::Command::new("sleep")
                .arg("1000")
                .spawn()
                .unwrap();
            let procs = group.join("a/inhabited/cgroup.procs");
            let entered = fs::write(procs, child.id().to_string()).is_ok();
            remove(&group);
            assert!(!group.join("b").exists());
            assert_eq!(group.join("a/inhabited").exists(), entered);
            child.kill().unwrap();
            child.wait().unwrap();
            remove(&group);
            assert!(!entered || !group.exists(), "{}", group.display());
        }
    }
}
