//! The machine read from trees such as kernels show them.

use super::*;

/// A machine as its firmware tells of it. CPUs of all cores' first threads are numbered before the second ones.
struct Tree {
    sockets: u32,
    /// NUMA nodes of all sockets; none where the kernel has no NUMA.
    nodes: u32,
    /// Cores of all sockets.
    cores: u32,
    threads: u32,
    /// Last-level caches of all sockets; none where the kernel does not tell.
    caches: u32,
    /// Whether each socket counts its cores from zero.
    core_ids: CoreIds,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CoreIds {
    OfSocket,
    OfMachine,
}

const LAPTOP: Tree = Tree {
    sockets: 1,
    nodes: 1,
    cores: 4,
    threads: 2,
    caches: 1,
    core_ids: CoreIds::OfSocket,
};

impl Tree {
    fn part(&self, core: u32, of: u32) -> u32 {
        core * of / self.cores
    }

    fn cpus(&self) -> u32 {
        self.cores * self.threads
    }

    fn build(&self) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path();
        write(sys, "cpu/online", &format!("0-{}", self.cpus() - 1));
        write(sys, "cpu/cpufreq/boost", "1");
        for cpu in 0..self.cpus() {
            let core = cpu % self.cores;
            let socket = self.part(core, self.sockets);
            let id = match self.core_ids {
                CoreIds::OfSocket => core % (self.cores / self.sockets),
                CoreIds::OfMachine => core,
            };
            write(
                sys,
                &format!("cpu/cpu{cpu}/topology/core_id"),
                &id.to_string(),
            );
            let package = format!("cpu/cpu{cpu}/topology/physical_package_id");
            write(sys, &package, &socket.to_string());
            self.caches(sys, cpu, core);
            if self.nodes > 0 {
                let node = self.part(core, self.nodes);
                write(sys, &format!("node/node{node}/cpu{cpu}/online"), "1");
                write(sys, &format!("node/node{node}/cpulist"), "");
            }
        }
        folder
    }

    fn caches(&self, sys: &Path, cpu: u32, core: u32) {
        if self.caches == 0 {
            return;
        }
        let cache = self.part(core, self.caches);
        let sharing = |other: &u32| self.part(other % self.cores, self.caches) == cache;
        let shared: Vec<u32> = (0..self.cpus()).filter(sharing).collect();
        for (index, level, id, map) in [
            ("index0", 1, core, "1".to_owned()),
            ("index2", 2, core, "3".to_owned()),
            ("index3", 3, cache, hex_map(&shared, self.cpus())),
        ] {
            let file = |name: &str| format!("cpu/cpu{cpu}/cache/{index}/{name}");
            write(sys, &file("level"), &level.to_string());
            write(sys, &file("id"), &id.to_string());
            write(sys, &file("shared_cpu_map"), &map);
        }
    }
}

/// A set of CPUs as words of 32 bits, the highest first.
fn hex_map(cpus: &[u32], all: u32) -> String {
    let word = |word: u32| {
        let bits = cpus.iter().filter(|cpu| **cpu / 32 == word);
        format!("{:08x}", bits.map(|cpu| 1_u32 << (cpu % 32)).sum::<u32>())
    };
    let words: Vec<String> = (0..all.div_ceil(32)).rev().map(word).collect();
    words.join(",")
}

fn write(sys: &Path, file: &str, text: &str) {
    let path = sys.join("devices/system").join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

/// How many CPUs, cores, sockets, nodes and caches.
fn counts(machine: &CpuMachine) -> [usize; 5] {
    let cpus = usize::try_from(machine.cpus().len()).unwrap();
    let (cores, sockets) = (machine.cores().len(), machine.sockets().len());
    [
        cpus,
        cores,
        sockets,
        machine.nodes().len(),
        machine.caches().len(),
    ]
}

fn list(cpus: Option<&CpuSet>) -> String {
    cpus.unwrap().to_string()
}

/// A machine, how many it has of everything, and the CPUs of its first NUMA node and cache.
type Case = (Tree, [usize; 5], &'static str, &'static str);

fn machines() -> Vec<Case> {
    let tree = |sockets, nodes, cores, threads, caches| Tree {
        sockets,
        nodes,
        cores,
        threads,
        caches,
        core_ids: CoreIds::OfSocket,
    };
    let by_machine = |tree| Tree {
        core_ids: CoreIds::OfMachine,
        ..tree
    };
    vec![
        (LAPTOP, [8, 4, 1, 1, 1], "0-7", "0-7"),
        // Two sockets with sub-NUMA clusters.
        (tree(2, 4, 8, 2, 2), [16, 8, 2, 4, 2], "0-1,8-9", "0-3,8-11"),
        // What all CPUs of a node share is no cache of its own, and the socket's number stands for it.
        (tree(2, 2, 6, 2, 2), [12, 6, 2, 2, 2], "0-2,6-8", "0-2,6-8"),
        // Caches of two cores each.
        (
            by_machine(tree(2, 4, 24, 2, 12)),
            [48, 24, 2, 4, 12],
            "0-5,24-29",
            "0-1,24-25",
        ),
        (
            by_machine(tree(1, 1, 16, 1, 8)),
            [16, 16, 1, 1, 8],
            "0-15",
            "0-1",
        ),
        // Two sockets a node.
        (tree(4, 2, 8, 2, 4), [16, 8, 4, 2, 4], "0-3,8-11", "0-1,8-9"),
        // arm64 without SMT, whose kernel tells of no caches.
        (
            by_machine(tree(1, 1, 16, 1, 0)),
            [16, 16, 1, 1, 1],
            "0-15",
            "0-15",
        ),
        // Guests without NUMA: a socket is a node.
        (tree(1, 0, 4, 2, 0), [8, 4, 1, 1, 1], "0-7", "0-7"),
        (tree(2, 0, 4, 2, 0), [8, 4, 2, 2, 2], "0-1,4-5", "0-1,4-5"),
    ]
}

/// Upstream's Test_Discover, and cAdvisor's machines: a laptop, two sockets with sub-NUMA clusters, caches for a few
/// cores each, arm64 without SMT, a guest without NUMA or caches.
#[test]
fn cpus_lie_where_the_kernel_says() {
    for (tree, expected, node, cache) in machines() {
        let machine = read(tree.build().path()).unwrap();
        assert_eq!(counts(&machine), expected);
        assert_eq!(list(machine.nodes().values().next()), node);
        assert_eq!(list(machine.caches().values().next()), cache);
        let second = tree.cores;
        let core = machine.place(second).filter(|_| tree.threads == 2);
        assert!(core.is_none_or(|place| place.core == CoreId(0)));
    }
}

/// Upstream's Test_getUncoreCacheID: without a cache of its own a core has its socket's number.
#[test]
fn a_core_without_a_cache_has_its_sockets_number() {
    let tree = Tree {
        sockets: 2,
        nodes: 2,
        cores: 8,
        caches: 4,
        ..LAPTOP
    }
    .build();
    let sys = tree.path();
    fs::remove_file(sys.join("devices/system/cpu/cpu4/cache/index3/id")).unwrap();
    write(sys, "cpu/cpu5/cache/index3/shared_cpu_map", "no map");
    let machine = read(sys).unwrap();
    for (cpu, cache) in [(0, 0), (2, 1), (4, 1), (12, 1), (5, 1), (6, 3)] {
        assert_eq!(
            machine.place(cpu).unwrap().cache,
            UncoreCacheId(cache),
            "{cpu}"
        );
    }
}

#[test]
fn a_cpu_that_is_offline_is_left_out_and_an_isolated_one_is_not() {
    let tree = LAPTOP.build();
    write(tree.path(), "cpu/online", "0-2,4-7");
    write(tree.path(), "cpu/isolated", "1,5");
    let machine = read(tree.path()).unwrap();
    assert_eq!(machine.cpus(), &"0-2,4-7".parse().unwrap());
    // What is left of the core is named by its lowest CPU.
    assert_eq!(machine.place(7).unwrap().core, CoreId(7));
    fs::remove_file(tree.path().join("devices/system/cpu/online")).unwrap();
    assert_eq!(read(tree.path()).unwrap().cpus().len(), 8);
}

#[test]
fn a_cpu_without_a_core_or_socket_is_left_out() {
    let tree = LAPTOP.build();
    let topology = |cpu: u32| {
        tree.path()
            .join(format!("devices/system/cpu/cpu{cpu}/topology"))
    };
    fs::remove_file(topology(1).join("core_id")).unwrap();
    fs::remove_dir_all(topology(2)).unwrap();
    assert_eq!(read(tree.path()).unwrap().cpus(), &"0,3-7".parse().unwrap());
}

/// Upstream's Test_Discover and GetNodesInfo: nothing is known of it.
#[test]
fn a_machine_that_tells_nothing_has_no_cpus() {
    let empty = tempfile::tempdir().unwrap();
    assert!(read(empty.path()).unwrap().cpus().is_empty());
    assert!(
        read(&empty.path().join("absent"))
            .unwrap()
            .cpus()
            .is_empty()
    );
    // Memory alone.
    write(empty.path(), "node/node0/meminfo", "Node 0 MemTotal: 1 kB");
    assert!(read(empty.path()).unwrap().cpus().is_empty());
}

#[test]
fn a_socket_that_has_no_number_is_the_first() {
    let tree = Tree { nodes: 0, ..LAPTOP }.build();
    for cpu in 0..8 {
        write(
            tree.path(),
            &format!("cpu/cpu{cpu}/topology/physical_package_id"),
            "-1",
        );
    }
    let machine = read(tree.path()).unwrap();
    assert_eq!(counts(&machine)[..4], [8, 4, 1, 1]);
    assert_eq!(machine.place(7).unwrap().socket, SocketId(0));
}

#[test]
fn a_tree_that_lies_is_refused_or_believed_in_part() {
    let refused = |file: &str, lie: &str| {
        let tree = LAPTOP.build();
        write(tree.path(), file, lie);
        let error = read(tree.path()).unwrap_err().to_string();
        error.replace(&tree.path().display().to_string(), "/sys")
    };
    let core = "cpu/cpu3/topology/core_id";
    let number = "holds \"many\", expected a number";
    assert_eq!(
        refused(core, "many"),
        format!("/sys/devices/system/{core} {number}")
    );
    assert_eq!(
        refused("node/node64/cpu3/online", "1"),
        "cpu 3 is on a node that cannot be"
    );
    let long = "1".repeat(usize::try_from(MAX_FILE).unwrap());
    for (file, lie, cpus) in [
        ("cpu/online", "nonsense", 8),
        ("cpu/online", &*long, 8),
        ("cpu/cpu99999/topology/core_id", "0", 8),
        ("cpu/cpuidle3/topology/core_id", "0", 8),
        ("node/node0/cpu8192/online", "1", 8),
        ("node/node0/cpu77/online", "1", 8),
        ("node/node1/cpu0/online", "1", 8),
        (core, &*long, 7),
    ] {
        let tree = LAPTOP.build();
        write(tree.path(), file, lie);
        assert_eq!(read(tree.path()).unwrap().cpus().len(), cpus, "{file}");
    }
}
