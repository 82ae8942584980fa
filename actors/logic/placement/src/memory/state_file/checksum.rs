//! The file's checksum: FNV of the text that Go's debug dump makes of the content, with the names of Go's types.
//!
//! Upstream: pkg/kubelet/checkpointmanager/checksum, k8s.io/utils/dump (`ForHash`) and spew's `%#v`. Types are named where
//! a field begins, not within lists and maps; numbers are sorted as numbers; what is `nil` is `<nil>`.

use std::collections::BTreeMap;

use logic_api::pod::hash::fnv32a;

use super::content::{FileBlock, FileNode, FileTable, PodEntry, StateFile};

/// The struct that the content is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileForm {
    WithPods,
    WithoutPods,
    /// The same by the name that it has since there is another.
    NamedV1,
}

/// Sets the checksum.
pub(super) fn seal(file: &mut StateFile, form: FileForm) {
    file.checksum = checksum(file, form);
}

pub(super) fn is_intact(file: &StateFile, form: FileForm) -> bool {
    file.checksum == checksum(file, form)
}

fn checksum(file: &StateFile, form: FileForm) -> u64 {
    fnv32a(dump(file, form).as_bytes()).into()
}

fn dump(file: &StateFile, form: FileForm) -> String {
    let name = match form {
        FileForm::WithPods | FileForm::WithoutPods => "MemoryManagerCheckpoint",
        FileForm::NamedV1 => "MemoryManagerCheckpointV1",
    };
    let nodes = map(&file.machine_state, |found| {
        nil_or(found, |found| format!("<*>{}", node(found)))
    });
    let entries = map(&file.entries, |pod| map(pod, blocks));
    let pods = match form {
        FileForm::WithPods => {
            let pods = map(&file.pod_entries, pod);
            format!(" PodEntries:(state.PodMemoryAssignments){pods}")
        }
        FileForm::WithoutPods | FileForm::NamedV1 => String::new(),
    };
    format!(
        "(*state.{name}){{PolicyName:(string){} MachineState:(state.NUMANodeMap){nodes} \
         Entries:(state.ContainerMemoryAssignments){entries}{pods} Checksum:(checksum.Checksum)0}}",
        file.policy_name
    )
}

fn node(node: &FileNode) -> String {
    let tables = map(&node.memory_map, |found| {
        nil_or(found, |found| format!("<*>{}", table(found)))
    });
    format!(
        "{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable){tables} Cells:([]int){}}}",
        node.number_of_assignments,
        list(&node.cells, i64::to_string)
    )
}

fn table(table: &FileTable) -> String {
    format!(
        "{{TotalMemSize:(uint64){} SystemReserved:(uint64){} Allocatable:(uint64){} Reserved:(uint64){} Free:(uint64){}}}",
        table.total, table.system_reserved, table.allocatable, table.reserved, table.free
    )
}

fn pod(pod: &PodEntry) -> String {
    format!(
        "{{MemoryBlocks:([]state.Block){}}}",
        blocks(&pod.memory_blocks)
    )
}

fn blocks(blocks: &Option<Vec<FileBlock>>) -> String {
    list(blocks, |block| {
        format!(
            "{{NUMAAffinity:([]int){} Type:(v1.ResourceName){} Size:(uint64){}}}",
            list(&block.numa_affinity, i64::to_string),
            block.resource,
            block.size
        )
    })
}

fn map<K: ToString, V>(map: &Option<BTreeMap<K, V>>, show: impl Fn(&V) -> String) -> String {
    nil_or(map, |map| {
        let pairs = map.iter();
        let pairs = pairs.map(|(key, value)| format!("{}:{}", key.to_string(), show(value)));
        format!("map[{}]", pairs.collect::<Vec<_>>().join(" "))
    })
}

fn list<T>(list: &Option<Vec<T>>, show: impl Fn(&T) -> String) -> String {
    nil_or(list, |list| {
        let items: Vec<String> = list.iter().map(show).collect();
        format!("[{}]", items.join(" "))
    })
}

fn nil_or<T>(value: &Option<T>, show: impl FnOnce(&T) -> String) -> String {
    value.as_ref().map_or_else(|| "<nil>".to_owned(), show)
}
