//! Where each CPU lies: its core, socket, NUMA node and last-level cache.
//!
//! Mirrors cAdvisor's utils/sysinfo (GetNodesInfo) and utils/sysfs, and upstream's `Discover` of
//! cpumanager/topology/topology.go, at v1.36. CPUs that are offline are left out; those that the kernel isolates
//! (`isolcpus`) are CPUs like others, as they are upstream.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use logic_placement::cpus::{
    CoreId, CpuMachine, CpuPlace, CpuSet, MAX_CPUS, SocketId, UncoreCacheId,
};
use logic_placement::topology::{NumaNodeId, NumaNodeOutOfRange};
use thiserror::Error;

/// Bytes that are read of a file at most: a list of every other CPU of 8192 has 20 KiB.
const MAX_FILE: u64 = 64 << 10;
/// Entries of a folder that are looked at; the kernel's have one for each CPU, and a few dozen more.
const MAX_ENTRIES: usize = 2 * 8192;
/// Caches up to this level belong to a core.
const CORE_CACHES: u32 = 2;

/// The machine's CPUs cannot be told.
#[derive(Debug, Error)]
pub enum CpuTopologyError {
    #[error("{} holds {text:?}, expected a number", path.display())]
    NotANumber { path: PathBuf, text: String },
    #[error("cpu {cpu} is on a node that cannot be")]
    Node {
        cpu: u32,
        #[source]
        error: NumaNodeOutOfRange,
    },
}

/// What the kernel calls a core: unique within a NUMA node. Books and drawers are levels above sockets on s390x.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CoreKey {
    node: NumaNodeId,
    socket: SocketId,
    core: i64,
    book: Option<i64>,
    drawer: Option<i64>,
}

/// A cache above those of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SharedCache {
    id: UncoreCacheId,
    /// How many CPUs share it.
    cpus: u32,
}

/// The machine by `devices/system` below `sys`, which is `/sys`: no CPUs where the kernel tells of none.
///
/// # Errors
///
/// A core or socket has something else than a number, or a NUMA node one above 63.
pub fn read(sys: &Path) -> Result<CpuMachine, CpuTopologyError> {
    let system = sys.join("devices/system");
    let cpus = Cpus {
        folder: system.join("cpu"),
        online: text(&system.join("cpu/online")).and_then(|list| list.parse().ok()),
    };
    let cores = match numbered(&system.join("node"), "node") {
        nodes if nodes.is_empty() => cpus.without_nodes()?,
        nodes => cpus.on_nodes(&system.join("node"), nodes)?,
    };
    Ok(CpuMachine::new(cpus.places(&cores)))
}

struct Cpus {
    folder: PathBuf,
    /// None where no CPU can be offline.
    online: Option<CpuSet>,
}

impl Cpus {
    fn on_nodes(
        &self,
        folder: &Path,
        nodes: Vec<u32>,
    ) -> Result<BTreeMap<CoreKey, Vec<u32>>, CpuTopologyError> {
        let mut cores = BTreeMap::new();
        for node in nodes {
            for cpu in numbered(&folder.join(format!("node{node}")), "cpu") {
                self.add(cpu, Some(node.into()), &mut cores)?;
            }
        }
        Ok(cores)
    }

    /// A kernel without NUMA: each socket is a node.
    fn without_nodes(&self) -> Result<BTreeMap<CoreKey, Vec<u32>>, CpuTopologyError> {
        let mut cores = BTreeMap::new();
        for cpu in numbered(&self.folder, "cpu") {
            self.add(cpu, None, &mut cores)?;
        }
        Ok(cores)
    }

    /// Adds a CPU to its core. One that is offline, or whose core or socket the kernel does not tell, is left out.
    fn add(
        &self,
        cpu: u32,
        node: Option<i64>,
        cores: &mut BTreeMap<CoreKey, Vec<u32>>,
    ) -> Result<(), CpuTopologyError> {
        if self
            .online
            .as_ref()
            .is_some_and(|online| !online.contains(cpu))
        {
            return Ok(());
        }
        let (core, socket) = (
            self.topology(cpu, "core_id")?,
            self.topology(cpu, "physical_package_id")?,
        );
        let (Some(core), Some(socket)) = (core, socket) else {
            return Ok(());
        };
        // Kernels of arm64 guests call the only socket -1.
        let socket = u32::try_from(socket).unwrap_or(0);
        let node = NumaNodeId::new(node.unwrap_or(socket.into()));
        let key = CoreKey {
            node: node.map_err(|error| CpuTopologyError::Node { cpu, error })?,
            socket: SocketId(socket),
            core,
            book: self.topology(cpu, "book_id")?,
            drawer: self.topology(cpu, "drawer_id")?,
        };
        cores.entry(key).or_default().push(cpu);
        Ok(())
    }

    fn topology(&self, cpu: u32, file: &str) -> Result<Option<i64>, CpuTopologyError> {
        let path = self.folder.join(format!("cpu{cpu}/topology/{file}"));
        let Some(text) = text(&path) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(CpuTopologyError::NotANumber { path, text }),
        }
    }

    fn places(&self, cores: &BTreeMap<CoreKey, Vec<u32>>) -> BTreeMap<u32, CpuPlace> {
        let mut per_node: BTreeMap<NumaNodeId, u32> = BTreeMap::new();
        for key in cores.keys() {
            *per_node.entry(key.node).or_default() += 1;
        }
        let mut places = BTreeMap::new();
        for (key, threads) in cores {
            let Some(first) = threads.iter().min().copied() else {
                continue;
            };
            let threads_of_node = u32::try_from(threads.len()).unwrap_or(u32::MAX);
            let threads_of_node = threads_of_node.saturating_mul(per_node[&key.node]);
            let cache = self.uncore_cache(first, threads_of_node);
            let place = CpuPlace {
                core: CoreId(first),
                socket: key.socket,
                node: key.node,
                cache: cache.unwrap_or(UncoreCacheId(key.socket.0)),
            };
            places.extend(threads.iter().map(|cpu| (*cpu, place)));
        }
        places
    }

    /// The first cache above those of a core that other than all CPUs of the NUMA node share.
    fn uncore_cache(&self, cpu: u32, threads_of_node: u32) -> Option<UncoreCacheId> {
        let folder = self.folder.join(format!("cpu{cpu}/cache"));
        let mut names = names(&folder);
        names.retain(|name| name.starts_with("index"));
        names.sort();
        let mut caches = names
            .iter()
            .filter_map(|name| shared_cache(&folder.join(name)));
        let cache = caches.find(|cache| cache.cpus != threads_of_node);
        cache.map(|cache| cache.id)
    }
}

/// A cache by its folder; none where it belongs to a core, or the kernel does not tell all of it.
fn shared_cache(folder: &Path) -> Option<SharedCache> {
    let number = |file: &str| text(&folder.join(file))?.parse::<u32>().ok();
    if number("level")? <= CORE_CACHES {
        return None;
    }
    let map = text(&folder.join("shared_cpu_map"))?;
    let words = map
        .split(',')
        .map(|word| u64::from_str_radix(word.trim(), 16));
    let words: Vec<u64> = words.collect::<Result<_, _>>().ok()?;
    Some(SharedCache {
        id: UncoreCacheId(number("id")?),
        cpus: words.iter().map(|word| word.count_ones()).sum(),
    })
}

/// The numbers of a folder's entries that have this name and a number, in order: those that a CPU may have.
fn numbered(folder: &Path, name: &str) -> Vec<u32> {
    let names = names(folder);
    let number = |entry: &String| {
        let digits = entry.strip_prefix(name)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| is_number);
        number.filter(|number| *number < MAX_CPUS)
    };
    let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.take(MAX_ENTRIES).map(|entry| entry.file_name());
    names.filter_map(|name| name.into_string().ok()).collect()
}

/// A file's text without the space around it; none where it is absent, longer than such a file can be, or no text.
fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    let read = file.take(MAX_FILE).read_to_string(&mut text).ok()?;
    let is_whole = u64::try_from(read).is_ok_and(|read| read < MAX_FILE);
    is_whole.then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests;
