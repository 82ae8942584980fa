//! The machine's NUMA nodes: the memory and huge pages of each, and how far they are from each other.
//!
//! What a node does not tell, or tells in no form that there is, counts as none, so that nothing of it is given away.
//! Upstream: cAdvisor's utils/sysinfo (`GetNodesInfo`), 1.36. Unlike there, a machine whose kernel knows no nodes is one
//! node with all of its memory, and distances are matched with the nodes that there are, not with numbers from zero on.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use logic_placement::memory::{MachineMemory, NumaMemory};
use logic_placement::topology::{NumaNodeId, NumaTopology};

use crate::huge_pages;
use crate::meminfo::MemInfo;

/// More entries than the kernel's folder of nodes has, and more bytes than its files.
const MAX_ENTRIES: usize = 4096;
/// Bytes of one of the kernel's files about a node; a list of 8192 CPUs has 20 KiB.
const MAX_BYTES: u64 = 64 * 1024;

/// The NUMA nodes as decisions need them: both have the same nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaMachine {
    pub topology: NumaTopology,
    pub memory: MachineMemory,
}

/// Reads the nodes below `sys`, which is `/sys`. A machine without any is node 0, by `proc`, which is `/proc`.
pub fn read(proc: &Path, sys: &Path) -> NumaMachine {
    let folders = node_folders(sys);
    let mut machine = NumaMachine::default();
    for (id, folder) in &folders {
        let Ok(node) = NumaNodeId::new(*id) else {
            tracing::warn!("NUMA node {id} is left alone, its number is above 63");
            continue;
        };
        let memory = NumaMemory {
            bytes: memory(&folder.join("meminfo")),
            huge_pages: huge_pages::read_folder(&folder.join("hugepages")),
        };
        machine.memory.insert(node, memory);
        let row = distances(&folder.join("distance"), folders.keys());
        machine.topology.distances.insert(node, row);
    }
    if machine.memory.is_empty() {
        return without_nodes(proc, sys);
    }
    machine
}

/// All memory on node 0, of whose distance nothing is known.
fn without_nodes(proc: &Path, sys: &Path) -> NumaMachine {
    let node = NumaNodeId::new(0).expect("0 is in the range of nodes");
    let total = MemInfo::read(proc).ok();
    let memory = NumaMemory {
        bytes: total.and_then(|memory| memory.get("MemTotal")).unwrap_or(0),
        huge_pages: huge_pages::read(sys),
    };
    NumaMachine {
        topology: NumaTopology {
            distances: BTreeMap::from([(node, BTreeMap::new())]),
        },
        memory: MachineMemory::from([(node, memory)]),
    }
}

/// The folders of the nodes by their numbers.
fn node_folders(sys: &Path) -> BTreeMap<i64, PathBuf> {
    let entries = fs::read_dir(sys.join("devices/system/node"));
    let entries = entries.into_iter().flatten().flatten().take(MAX_ENTRIES);
    let node = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let digits = name.to_str()?.strip_prefix("node")?;
        let id: u32 = digits.parse().ok()?;
        (id.to_string() == digits).then(|| (i64::from(id), entry.path()))
    };
    entries.filter_map(node).collect()
}

/// The bytes of a line `Node 0 MemTotal:  1024 kB`.
fn memory(file: &Path) -> u64 {
    let text = text(file);
    let mut lines = text.lines();
    let amount = lines.find_map(|line| line.split_once(" MemTotal:"));
    let kibibytes = amount.and_then(|(_, amount)| amount.trim().strip_suffix("kB"));
    let kibibytes = kibibytes.and_then(|amount| amount.trim().parse::<u64>().ok());
    let bytes = kibibytes.and_then(|kibibytes| kibibytes.checked_mul(1024));
    bytes.unwrap_or_else(|| {
        tracing::warn!(
            "{} does not tell the memory of its NUMA node",
            file.display()
        );
        0
    })
}

/// The distances to all nodes, in the order of their numbers; none unless there is a number for each.
fn distances<'a>(
    file: &Path,
    nodes: impl ExactSizeIterator<Item = &'a i64>,
) -> BTreeMap<NumaNodeId, u64> {
    let text = text(file);
    let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
    let Some(numbers) = numbers.ok().filter(|numbers| numbers.len() == nodes.len()) else {
        tracing::debug!(
            "{} does not tell a distance to each NUMA node",
            file.display()
        );
        return BTreeMap::new();
    };
    let rows = nodes.zip(numbers);
    let known = |(id, distance): (&i64, u64)| Some((NumaNodeId::new(*id).ok()?, distance));
    rows.filter_map(known).collect()
}

/// The beginning of a file; nothing where there is none.
fn text(file: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            tracing::debug!("{} cannot be read: {error}", file.display());
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn node(id: i64) -> NumaNodeId {
        NumaNodeId::new(id).unwrap()
    }

    fn nodes(root: &Path, files: &[(&str, &str)]) -> NumaMachine {
        let files = files.iter();
        let files: Vec<_> = files
            .map(|(name, text)| (format!("sys/devices/system/node/{name}"), *text))
            .collect();
        let files: Vec<_> = files.iter().map(|(name, text)| (&**name, *text)).collect();
        write(root, &files);
        read(&root.join("proc"), &root.join("sys"))
    }

    #[test]
    fn each_node_has_its_memory_huge_pages_and_distances() {
        let folder = tempfile::tempdir().unwrap();
        let machine = nodes(
            folder.path(),
            &[
                ("online", "0,2\n"),
                ("has_memory", "0,2\n"),
                (
                    "node0/meminfo",
                    "Node 0 MemTotal:       32817192 kB\nNode 0 MemFree:  1 kB\n",
                ),
                ("node0/distance", "10 21\n"),
                ("node0/hugepages/hugepages-2048kB/nr_hugepages", "7\n"),
                ("node0/hugepages/hugepages-1048576kB/nr_hugepages", "2\n"),
                ("node2/meminfo", "Node 2 MemTotal:  1024 kB\n"),
                ("node2/distance", "21 10\n"),
            ],
        );
        let memory = [
            (
                node(0),
                NumaMemory {
                    bytes: 32_817_192 * 1024,
                    huge_pages: BTreeMap::from([(2 << 20, 7), (1 << 30, 2)]),
                },
            ),
            (
                node(2),
                NumaMemory {
                    bytes: 1 << 20,
                    huge_pages: BTreeMap::new(),
                },
            ),
        ];
        assert_eq!(machine.memory, MachineMemory::from(memory));
        let row = |first, second| BTreeMap::from([(node(0), first), (node(2), second)]);
        let distances = BTreeMap::from([(node(0), row(10, 21)), (node(2), row(21, 10))]);
        assert_eq!(machine.topology, NumaTopology { distances });
    }

    #[test]
    fn a_machine_without_nodes_is_one_with_all_of_its_memory() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let one = |bytes, huge_pages| NumaMachine {
            topology: NumaTopology {
                distances: BTreeMap::from([(node(0), BTreeMap::new())]),
            },
            memory: MachineMemory::from([(node(0), NumaMemory { bytes, huge_pages })]),
        };
        assert_eq!(nodes(root, &[]), one(0, BTreeMap::new()));
        write(
            root,
            &[
                ("proc/meminfo", "MemTotal:  2048 kB\n"),
                (
                    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                    "3\n",
                ),
            ],
        );
        let expected = one(2 << 20, BTreeMap::from([(2 << 20, 3)]));
        assert_eq!(nodes(root, &[("has_cpu", "0\n")]), expected);
    }

    #[test]
    fn a_tree_that_makes_no_sense_gives_nodes_without_memory() {
        let folder = tempfile::tempdir().unwrap();
        let long = "1".repeat(100_000);
        let machine = nodes(
            folder.path(),
            &[
                ("node1/meminfo", "Node 1 MemTotal: lots\n"),
                ("node1/distance", "10 x\n"),
                ("node1/hugepages/hugepages-0kB/nr_hugepages", "-1\n"),
                (
                    "node1/hugepages/hugepages-99999999999999999999kB/nr_hugepages",
                    "1\n",
                ),
                ("node1/hugepages/pages/nr_hugepages", "1\n"),
                (
                    "node2/meminfo",
                    "Node 2 MemTotal: 18446744073709551615 kB\n",
                ),
                ("node2/distance", "10 20 30 40 50\n"),
                ("node3", "no folder"),
                ("node4/meminfo", &long),
                ("node4/distance", &long),
                ("node05/meminfo", "Node 5 MemTotal: 1 kB\n"),
                ("node64/meminfo", "Node 64 MemTotal: 1 kB\n"),
                ("node/meminfo", "MemTotal: 1 kB\n"),
                ("nodes/meminfo", "MemTotal: 1 kB\n"),
            ],
        );
        let nothing = [1, 2, 3, 4].map(|id| (node(id), NumaMemory::default()));
        assert_eq!(machine.memory, MachineMemory::from(nothing));
        let unknown = [1, 2, 3, 4].map(|id| (node(id), BTreeMap::new()));
        let mut expected = BTreeMap::from(unknown);
        // There are five nodes, of which one has a number that is too high.
        let row = [(1, 10), (2, 20), (3, 30), (4, 40)].map(|(id, far)| (node(id), far));
        expected.insert(node(2), row.into());
        assert_eq!(machine.topology.distances, expected);
    }
}
