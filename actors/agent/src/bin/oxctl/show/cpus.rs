//! A picture of the machine: sockets, NUMA nodes, cores, and who has which CPUs.

use std::collections::BTreeSet;

use agent::endpoints::admin::{CpuRow, CpuUsage, DeviceRow, MachineView, MemoryRow};
use logic_placement::cpus::CpuSet;

use crate::agent::AgentError;
use crate::table::TextTable;

pub(crate) fn table(answer: &[u8]) -> Result<String, AgentError> {
    let machine: MachineView = serde_json::from_slice(answer)?;
    let mut text = format!(
        "cpu manager {}, memory manager {}, topology manager {} by {}\n",
        machine.cpu_policy, machine.memory_policy, machine.topology_policy, machine.topology_scope
    );
    let mut table = TextTable::new(&["SOCKET", "NUMA", "CACHE", "CORES", "CPUS", "WHO"]);
    for group in groups(&machine.cpus) {
        table.row(cells(&group));
    }
    text.push_str(&table.take());
    if !machine.memory.is_empty() {
        let mut table = TextTable::new(&["NUMA", "RESOURCE", "MIB", "WHO"]);
        for row in &machine.memory {
            table.row(memory(row));
        }
        text.push_str(&table.take());
    }
    Ok(text)
}

/// The devices of device plugins and of claims, one line each.
pub(crate) fn devices(answer: &[u8]) -> Result<String, AgentError> {
    let devices: Vec<DeviceRow> = serde_json::from_slice(answer)?;
    let mut table = TextTable::new(&["RESOURCE", "ID", "HEALTH", "NUMA", "WHO"]);
    for row in devices {
        let nodes: Vec<String> = row.nodes.iter().map(u8::to_string).collect();
        table.row([
            row.resource,
            row.id,
            row.health,
            nodes.join(","),
            row.holder,
        ]);
    }
    Ok(table.take())
}

/// CPUs that lie together and have the same use, in the order of the machine.
fn groups(cpus: &[CpuRow]) -> Vec<Vec<&CpuRow>> {
    let mut sorted: Vec<&CpuRow> = cpus.iter().collect();
    sorted.sort_by_key(|row| (row.socket, row.node, row.cache, row.core, row.cpu));
    let mut groups: Vec<Vec<&CpuRow>> = Vec::new();
    for row in sorted {
        let likeness = |row: &CpuRow| {
            (
                row.socket,
                row.node,
                row.cache,
                row.usage,
                row.holders.clone(),
            )
        };
        match groups.last_mut() {
            Some(group)
                if group
                    .last()
                    .is_some_and(|last| likeness(last) == likeness(row)) =>
            {
                group.push(row);
            }
            Some(_) | None => groups.push(vec![row]),
        }
    }
    groups
}

fn cells(group: &[&CpuRow]) -> [String; 6] {
    let Some(first) = group.first() else {
        return Default::default();
    };
    let cores: BTreeSet<u32> = group.iter().map(|row| row.core).collect();
    let cpus = CpuSet::from_numbers(group.iter().map(|row| row.cpu));
    let who = match first.usage {
        CpuUsage::Reserved => "reserved".to_owned(),
        CpuUsage::Shared => "shared".to_owned(),
        CpuUsage::Exclusive => first.holders.join(", "),
    };
    [
        first.socket.to_string(),
        first.node.to_string(),
        first.cache.to_string(),
        cores.len().to_string(),
        cpus.to_string(),
        who,
    ]
}

fn memory(row: &MemoryRow) -> [String; 4] {
    let nodes: Vec<String> = row.nodes.iter().map(u8::to_string).collect();
    let who = match row.holder.is_empty() {
        true => "allocatable",
        false => &row.holder,
    };
    [
        nodes.join(","),
        row.resource.clone(),
        (row.bytes >> 20).to_string(),
        who.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cpu: u32, socket: u32, core: u32, who: &[&str]) -> CpuRow {
        CpuRow {
            cpu,
            socket,
            node: u8::try_from(socket).unwrap(),
            core,
            cache: socket,
            usage: match (cpu, who) {
                (0, _) => CpuUsage::Reserved,
                (_, []) => CpuUsage::Shared,
                (_, _) => CpuUsage::Exclusive,
            },
            holders: who.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn cpus_that_lie_together_and_have_the_same_use_are_one_line() {
        let own = ["shop/db app"];
        let machine = MachineView {
            cpu_policy: "static".to_owned(),
            memory_policy: "Static".to_owned(),
            topology_policy: "restricted".to_owned(),
            topology_scope: "pod".to_owned(),
            cpus: vec![
                row(0, 0, 0, &[]),
                row(1, 0, 1, &own),
                row(2, 1, 2, &[]),
                row(3, 1, 3, &[]),
                row(4, 0, 4, &[]),
                row(5, 0, 1, &own),
            ],
            memory: vec![
                MemoryRow {
                    nodes: vec![0],
                    resource: "memory".to_owned(),
                    bytes: 3 << 30,
                    holder: String::new(),
                },
                MemoryRow {
                    nodes: vec![0, 1],
                    resource: "hugepages-2Mi".to_owned(),
                    bytes: 4 << 20,
                    holder: "shop/db app".to_owned(),
                },
            ],
        };
        let text = table(&serde_json::to_vec(&machine).unwrap()).unwrap();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| {
                line.split("   ")
                    .map(str::trim)
                    .filter(|cell| !cell.is_empty())
                    .collect()
            })
            .collect();
        assert_eq!(
            lines,
            [
                vec![
                    "cpu manager static, memory manager Static, topology manager restricted by pod"
                ],
                vec!["SOCKET", "NUMA", "CACHE", "CORES", "CPUS", "WHO"],
                vec!["0", "0", "0", "1", "0", "reserved"],
                vec!["0", "0", "0", "1", "1,5", "shop/db app"],
                vec!["0", "0", "0", "1", "4", "shared"],
                vec!["1", "1", "1", "2", "2-3", "shared"],
                vec!["NUMA", "RESOURCE", "MIB", "WHO"],
                vec!["0", "memory", "3072", "allocatable"],
                vec!["0,1", "hugepages-2Mi", "4", "shop/db app"],
            ]
        );
    }
}
