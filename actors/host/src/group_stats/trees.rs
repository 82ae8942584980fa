//! The trees of cgroups during one pass, and one group in them.

use std::collections::BTreeMap;

use logic_resources::cgroups::Hierarchy;
use logic_resources::group_stats::GroupDetail;

use super::files::Folder;
use super::v1;

/// The controllers in whose trees groups are looked for: of the others some have no groups of containers.
const WALKED: [&str; 2] = ["cpu", "memory"];

/// The tops of the trees, opened once.
#[derive(Debug)]
pub(super) enum Trees {
    V1(ControllerTrees),
    V2(Folder),
}

/// A tree of each controller.
#[derive(Debug)]
pub(super) struct ControllerTrees {
    tops: BTreeMap<String, Folder>,
    io_files: Vec<[&'static str; 2]>,
}

impl Trees {
    /// Opens the tops; none of version 2 where there is none.
    pub(super) fn open(hierarchy: &Hierarchy) -> Option<Trees> {
        match hierarchy {
            Hierarchy::V1(trees) => {
                let tops = trees.iter().filter_map(|(controller, top)| {
                    Folder::open(top).map(|top| (controller.clone(), top))
                });
                let tops: BTreeMap<String, Folder> = tops.collect();
                let io_files = tops.get("blkio").map(v1::io_files);
                Some(Trees::V1(ControllerTrees {
                    io_files: io_files.unwrap_or_default(),
                    tops,
                }))
            }
            Hierarchy::V2(top) => Folder::open(top).map(Trees::V2),
        }
    }

    /// The tops below which groups are looked for.
    pub(super) fn walked(&self) -> impl Iterator<Item = &Folder> {
        let (trees, unified) = match self {
            Trees::V1(trees) => (Some(trees), None),
            Trees::V2(top) => (None, Some(top)),
        };
        let tops = trees
            .into_iter()
            .flat_map(|trees| WALKED.iter().filter_map(|name| trees.tops.get(*name)));
        tops.chain(unified)
    }

    /// Opens a group's folders; none where there is no such group.
    pub(super) fn group(&self, name: &str) -> Option<Group<'_>> {
        let below = name.trim_start_matches('/');
        match self {
            Trees::V1(trees) => {
                let folder = |controller| trees.tops.get(controller)?.below(below);
                let [cpu, memory] = WALKED.map(folder);
                let is_there = cpu.is_some() || memory.is_some();
                is_there.then(|| Group::V1 {
                    trees,
                    name: below.to_owned(),
                    cpu,
                    memory,
                })
            }
            Trees::V2(top) => top.below(below).map(Group::V2),
        }
    }
}

/// The folders of one group.
#[derive(Debug)]
pub(super) enum Group<'a> {
    V1 {
        trees: &'a ControllerTrees,
        /// Without a slash at its beginning.
        name: String,
        cpu: Option<Folder>,
        memory: Option<Folder>,
    },
    V2(Folder),
}

impl ControllerTrees {
    /// The folders of a group, two of which are open, as far as its detail needs them.
    pub(super) fn folders<'a>(
        &'a self,
        name: &str,
        (cpu, memory): (Option<&'a Folder>, Option<&'a Folder>),
        detail: GroupDetail,
    ) -> v1::Folders<'a> {
        let folder = |controller, from| match detail >= from {
            true => self.tops.get(controller)?.below(name),
            false => None,
        };
        v1::Folders {
            cpu,
            usage: folder("cpuacct", GroupDetail::CpuAndMemory),
            memory,
            io: folder("blkio", GroupDetail::Summary),
            io_files: &self.io_files,
            tasks: folder("pids", GroupDetail::Everything),
        }
    }
}

impl Group<'_> {
    /// The folders whose processes are the group's, the one of its CPU first.
    pub(super) fn folders(&self) -> impl Iterator<Item = &Folder> {
        let (cpu, memory) = match self {
            Group::V1 { cpu, memory, .. } => (cpu.as_ref(), memory.as_ref()),
            Group::V2(folder) => (Some(folder), None),
        };
        cpu.into_iter().chain(memory)
    }
}
