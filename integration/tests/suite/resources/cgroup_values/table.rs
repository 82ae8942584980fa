//! The recorded table, and what of it depends on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use logic_resources::cgroups::Hierarchy;

/// Values by group and file.
pub(super) type Values = BTreeMap<(String, String), String>;

/// Of a group, the score of its first process.
pub(super) const OOM_SCORE: &str = "oom_score_adj";

/// What `kubeReserved` and `systemReserved` take together.
const RESERVED_MEMORY: i64 = 300 << 20;
const RESERVED_CPU: i64 = 500;
const RESERVED_PIDS: i64 = 1000;

/// The machine's figures that limits above the pods come from.
pub(super) struct Machine {
    pub(super) hierarchy: Hierarchy,
    pub(super) has_huge_pages: bool,
    /// Whether the kernel measures who waits for what.
    pub(super) has_pressure: bool,
    /// Bytes.
    memory: i64,
    cpus: i64,
    pids: i64,
}

impl Machine {
    pub(super) fn here() -> Machine {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let number = |text: &str| text.trim().parse::<i64>().unwrap();
        let field = |name: &str| {
            let meminfo = text("/proc/meminfo");
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
            number(line.unwrap_or("0").trim().trim_end_matches("kB"))
        };
        let cpus = text("/proc/cpuinfo");
        let cpus = cpus.lines().filter(|line| line.starts_with("processor"));
        let threads = number(&text("/proc/sys/kernel/threads-max"));
        let pids = number(&text("/proc/sys/kernel/pid_max"));
        Machine {
            hierarchy: Hierarchy::parse(&text("/proc/self/mountinfo")).unwrap(),
            has_huge_pages: field("HugePages_Free:") >= 4
                && Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists(),
            has_pressure: Path::new("/proc/pressure/cpu").exists(),
            memory: field("MemTotal:") << 10,
            cpus: i64::try_from(cpus.count()).unwrap(),
            pids: threads.min(pids),
        }
    }

    pub(super) fn version(&self) -> &'static str {
        match &self.hierarchy {
            Hierarchy::V1(_) => "v1",
            Hierarchy::V2(_) => "v2",
        }
    }

    pub(super) fn can_run(&self, pod: &str) -> bool {
        match pod {
            super::HUGE => self.has_huge_pages,
            super::TINY => self.version() == "v1",
            _ => true,
        }
    }

    /// Names for values of this machine, in braces in the table.
    fn names(&self) -> Vec<(&'static str, String)> {
        let shares = |milli: i64| milli * 1024 / 1000;
        let weight = |shares: i64| 1 + (shares - 2) * 9999 / 262_142;
        let (all, some) = (self.cpus * 1000, self.cpus * 1000 - RESERVED_CPU);
        let allocatable = self.memory - RESERVED_MEMORY;
        let high = |mebibytes: i64, percent: i64| {
            let request = mebibytes << 20;
            let more = (allocatable - request) * percent / 100;
            ((request + more) / 4096 * 4096).to_string()
        };
        let score = |mebibytes: i64| {
            let part = 1000 * (mebibytes << 20) / self.memory;
            (1000 - part).clamp(3, 999).to_string()
        };
        vec![
            (
                "{allocatable memory}",
                (self.memory - RESERVED_MEMORY).to_string(),
            ),
            ("{memory}", self.memory.to_string()),
            ("{allocatable shares}", shares(some).to_string()),
            ("{shares}", shares(all).to_string()),
            ("{allocatable weight}", weight(shares(some)).to_string()),
            ("{weight}", weight(shares(all)).to_string()),
            (
                "{allocatable pids}",
                (self.pids - RESERVED_PIDS).to_string(),
            ),
            ("{pids}", self.pids.to_string()),
            // systemd's DefaultTasksMax, in the scopes of containers.
            ("{tasks of a unit}", (self.pids * 15 / 100).to_string()),
            ("{cpus}", format!("0-{}", self.cpus - 1)),
            ("{high of 16Mi, 0.9}", high(16, 90)),
            ("{high of 32Mi, 0.9}", high(32, 90)),
            ("{high of 16Mi, 0.5}", high(16, 50)),
            ("{high of 32Mi, 0.5}", high(32, 50)),
            ("{score of 16Mi}", score(16)),
            ("{score of 32Mi}", score(32)),
            ("{score of 48Mi}", score(48)),
        ]
    }
}

/// Limits that a kernel has or has not, by how their files begin: of huge pages, and of memory with swap.
const OPTIONAL: [&str; 3] = ["hugetlb.", "memory.memsw.", "memory.swap."];

/// Drops from both the rows of optional limits that only one of them has in any group: the machine on which the table was recorded
/// and this one differ in them.
pub(super) fn keep_common(expected: &mut Values, actual: &mut Values) {
    let files = |values: &Values| values.keys().map(|(_, file)| file.clone()).collect();
    let (theirs, ours): (BTreeSet<String>, BTreeSet<String>) = (files(expected), files(actual));
    let is_common = |(_, file): &(String, String)| {
        OPTIONAL.iter().all(|prefix| !file.starts_with(prefix))
            || theirs.contains(file) && ours.contains(file)
    };
    expected.retain(|place, _| is_common(place));
    actual.retain(|place, _| is_common(place));
}

/// What the kubelet wrote.
pub(super) struct Table(Values);

impl Table {
    /// A line is `group file value`, of which the group and the file have no spaces.
    pub(super) fn parse(text: &str) -> Table {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let row = |line: &str| {
            let mut words = line.splitn(3, ' ').map(str::to_owned);
            let (group, file) = (words.next()?, words.next()?);
            Some(((group, file), words.next()?))
        };
        Table(lines.filter_map(row).collect())
    }

    /// Whether the pod ran where the table was recorded.
    pub(super) fn has_pod(&self, pod: &str) -> bool {
        self.0.keys().any(|(group, _)| group == pod)
    }

    /// The rows that a machine like this one can have, with its own figures.
    pub(super) fn of(&self, machine: &Machine) -> Values {
        let names: BTreeMap<&str, String> = machine.names().into_iter().collect();
        let rows = self.0.iter().filter(|((group, file), _)| {
            let below = group.strip_prefix(super::SUMMARY).unwrap_or(group);
            let pod = below.split('/').next().unwrap_or_default();
            machine.can_run(pod) && (machine.has_pressure || !file.contains("psi."))
        });
        rows.map(|(place, value)| {
            let own = names.get(value.as_str());
            (place.clone(), own.unwrap_or(value).clone())
        })
        .collect()
    }

    /// The text of a table with these values. Only values that pods do not state are named.
    pub(super) fn recorded(values: &Values, machine: &Machine) -> String {
        let names = machine.names();
        let mut text =
            "# What the kubelet 1.36.2 writes; see tests/suite/resources/cgroup_values.\n"
                .to_owned();
        for ((group, file), value) in values {
            let is_machines = group == "kubepods"
                || ["memory.high", "cpuset.cpus", "pids.max", OOM_SCORE].contains(&file.as_str());
            let name = names.iter().find(|(_, own)| own == value && is_machines);
            let value = name.map_or(value.as_str(), |(name, _)| name);
            text += &format!("{group} {file} {value}\n");
        }
        text
    }
}

/// The rows that differ, for people.
pub(super) fn difference(expected: &Values, actual: &Values) -> String {
    let mut text = String::from("group file: the kubelet's value, ours\n");
    let places: BTreeSet<_> = expected.keys().chain(actual.keys()).collect();
    for place in places {
        let (theirs, ours) = (expected.get(place), actual.get(place));
        if theirs != ours {
            let (group, file) = place;
            text += &format!("{group} {file}: {theirs:?}, {ours:?}\n");
        }
    }
    text
}

#[cfg(test)]
fn values<const COUNT: usize>(rows: [(&str, &str, &str); COUNT]) -> Values {
    rows.map(|(group, file, value)| ((group.to_owned(), file.to_owned()), value.to_owned()))
        .into()
}

#[test]
fn limits_of_huge_pages_are_compared_where_both_machines_have_them() {
    let limit = ("a", "hugetlb.2MB.limit_in_bytes", "0");
    let compared = |mut theirs: Values, mut ours: Values| {
        keep_common(&mut theirs, &mut ours);
        theirs == ours
    };
    let rest = ("a", "pids.max", "100");
    assert!(compared(values([rest]), values([rest, limit])));
    assert!(compared(values([rest, limit]), values([rest])));
    assert!(compared(values([rest, limit]), values([rest, limit])));
    let other = ("a", "hugetlb.2MB.limit_in_bytes", "7");
    assert!(!compared(values([rest, limit]), values([rest, other])));
    // One group alone without it is not another machine.
    let second = ("b", "hugetlb.2MB.limit_in_bytes", "0");
    assert!(!compared(values([limit, second]), values([limit])));
    assert!(!compared(values([rest]), values([])));
}

#[test]
fn a_table_is_read_as_it_is_written() {
    let machine = Machine::here();
    let allocatable = (machine.memory - RESERVED_MEMORY).to_string();
    let values = values([
        ("kubepods", "memory.max", &allocatable),
        ("plain/c", "cpu.max", "max 100000"),
    ]);
    let text = Table::recorded(&values, &machine);
    assert!(
        text.contains("kubepods memory.max {allocatable memory}\n"),
        "{text}"
    );
    assert!(text.contains("plain/c cpu.max max 100000\n"), "{text}");
    assert_eq!(Table::parse(&text).of(&machine), values);
}
