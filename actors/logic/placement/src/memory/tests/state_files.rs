//! The kubelet's file of what pods hold.

use serde_json::{Value, json};

use super::*;

/// What upstream's tests of the file hold, up to its checksum.
const RECORDED: &str = r#"
    "policyName": "static",
    "machineState": {"0": {"numberOfAssignments": 0, "memoryMap": {"memory": {
        "total": 2048, "systemReserved": 512, "allocatable": 1536, "reserved": 512, "free": 1024
    }}, "cells": []}},
    "entries": {"pod": {"container1": [{"numaAffinity": [0], "type": "memory", "size": 512}]}}"#;
const RECORDED_PODS: &str = r#", "podEntries": {"pod": {"memoryBlocks": [{"numaAffinity": [0], "type": "memory", "size": 512}]}}"#;

/// The same manager without the gate `PodLevelResourceManagers` and under it.
fn managers(nodes: &[(u64, u64)]) -> [MemoryManager; 2] {
    let machine = machine(nodes);
    [PodLevelManagers::Off, PodLevelManagers::On].map(|level| managed_with(&machine, level))
}

/// Upstream's TestCheckpointStateRestore, by the checksums that it records: its policy is none of the kubelet's names, so
/// that an intact file is refused for that alone.
#[test]
fn a_file_is_read_whose_checksum_is_right() {
    const INTACT: &str = "[memorymanager] configured policy \"Static\" differs from state checkpoint policy \"static\"";
    const CORRUPT: &str = "checkpoint is corrupted";
    let emptied = RECORDED.split("\"entries\"").next().unwrap();
    let [off, on] = managers(&[(1536, 0)]);
    for (manager, content, pods, checksum, expected) in [
        (&off, RECORDED, "", 4_215_593_881_u64, INTACT),
        (&on, RECORDED, "", 4_215_593_881, INTACT),
        (&on, RECORDED, RECORDED_PODS, 1_278_640_530, INTACT),
        (&off, RECORDED, RECORDED_PODS, 1_278_640_530, CORRUPT),
        (&off, RECORDED, "", 101_010, CORRUPT),
        (&on, RECORDED, "", 12_345, CORRUPT),
        (
            &on,
            emptied,
            "\"entries\": {}, \"podEntries\": {}",
            12_345,
            CORRUPT,
        ),
        // By the name that the older form has since there is another; no file has it.
        (&off, RECORDED, "", 2_267_633_148, INTACT),
        (&on, RECORDED, "", 2_267_633_148, CORRUPT),
        // Of the time before checksums.
        (&off, RECORDED, "", 0, INTACT),
        (&on, RECORDED, "", 0, INTACT),
    ] {
        let file = format!("{{{content}{pods}, \"checksum\": {checksum}}}");
        let refused = manager.restore(file.as_bytes()).unwrap_err();
        assert_eq!(refused.to_string(), expected, "{checksum}");
    }
}

#[test]
fn an_operator_is_told_which_file_to_delete() {
    let [off, _] = managers(&[(1536, 0)]);
    let advice = |file: &str| off.restore(file.as_bytes()).unwrap_err().advice("/k/state");
    let expected = "could not restore state from checkpoint: unexpected end of JSON input, please drain this node and \
                    delete the memory manager checkpoint file \"/k/state\" before restarting Kubelet";
    assert_eq!(advice("{"), expected);
    let none = r#"{"policyName": "None", "machineState": {}, "checksum": 0}"#;
    let expected = "could not restore state from checkpoint: [memorymanager] configured policy \"Static\" differs from \
                    state checkpoint policy \"None\", please drain this node and delete the memory manager checkpoint \
                    file \"/k/state\" before restarting Kubelet";
    assert_eq!(advice(none), expected);
    for other in [
        "\"text\"",
        "{\"machineState\": {\"x\": {}}}",
        "{\"checksum\": -1}",
        "\u{fffd}",
    ] {
        assert!(
            advice(other).contains("it does not read as a memory manager's state"),
            "{other}"
        );
    }
}

/// Upstream's TestCheckpointStateStore and TestMemoryManagerCheckpointV1_MarshalCheckpoint_ForwardCompatibility. The
/// checksums are those of upstream's dump of the same content.
#[test]
fn a_file_is_written_as_the_kubelet_writes_it() {
    let [off, on] = managers(&[(1536, 1), (512, 0)]);
    let mut held = held(&[
        ("a", "main", "0 hugepages-1Gi 1Gi + 0 memory 1Gi"),
        ("b", "main", "1 memory 1Mi"),
    ]);
    let machine = concat!(
        r#""machineState":{"0":{"numberOfAssignments":2,"memoryMap":{"#,
        r#""hugepages-1Gi":{"total":1073741824,"systemReserved":0,"allocatable":1073741824,"#,
        r#""reserved":1073741824,"free":0},"memory":{"total":3221225472,"systemReserved":536870912,"#,
        r#""allocatable":1610612736,"reserved":1073741824,"free":536870912}},"cells":[0]},"#,
        r#""1":{"numberOfAssignments":1,"memoryMap":{"hugepages-1Gi":{"total":0,"systemReserved":0,"#,
        r#""allocatable":0,"reserved":0,"free":0},"memory":{"total":1073741824,"systemReserved":536870912,"#,
        r#""allocatable":536870912,"reserved":1048576,"free":535822336}},"cells":[1]}}"#,
    );
    let entries = concat!(
        r#""entries":{"a":{"main":[{"numaAffinity":[0],"type":"hugepages-1Gi","size":1073741824},"#,
        r#"{"numaAffinity":[0],"type":"memory","size":1073741824}]},"#,
        r#""b":{"main":[{"numaAffinity":[1],"type":"memory","size":1048576}]}}"#,
    );
    let saved = |manager: &MemoryManager, held: &HeldAssignments| {
        String::from_utf8(manager.save(held)).unwrap()
    };
    let text = |pods: &str, checksum: u32| {
        format!("{{\"policyName\":\"Static\",{machine},{entries}{pods},\"checksum\":{checksum}}}")
    };
    assert_eq!(saved(&off, &held), text("", 2_444_954_682));
    let own = Arc::make_mut(held.get_mut(&"b".into()).unwrap());
    own.pod = resources("1 memory 1Mi");
    let pods = r#","podEntries":{"b":{"memoryBlocks":[{"numaAffinity":[1],"type":"memory","size":1048576}]}}"#;
    assert_eq!(saved(&on, &held), text(pods, 1_881_807_420));
    assert_eq!(on.restore(saved(&on, &held).as_bytes()).unwrap(), held);
}

/// Nodes are ordered as texts there.
#[test]
fn the_eleventh_node_comes_before_the_third() {
    let [off, on] = managers(&[(1024, 0); 12]);
    let held = held(&[("a", "main", "2,10 memory 2Gi")]);
    let saved = String::from_utf8(off.save(&held)).unwrap();
    let place = |node: &str| saved.find(&format!("\"{node}\":{{\"number")).unwrap();
    assert!(place("1") < place("10") && place("10") < place("2"));
    assert_eq!(off.restore(saved.as_bytes()).unwrap(), held);
    assert_eq!(on.restore(saved.as_bytes()).unwrap(), held);
}

/// Upstream's TestMemoryManagerRestoreState.
#[test]
fn what_pods_hold_outlives_the_agent() {
    let amounts = [("cpu", "1"), ("memory", "128Mi")];
    let whole = pod_level(one("a", "100Mi", ""), &amounts, &amounts);
    let two = with(
        "a",
        vec![],
        vec![asking("c1", "100Mi", ""), asking("c2", "100Mi", "")],
    );
    let of_two = ["c1: 0 memory 100Mi", "c2: 0 memory 100Mi"];
    let [off, on] = managers(&[(9216, 5); 2]);
    for (manager, pod, in_pod, in_containers) in [
        (&on, &whole, "0 memory 128Mi", &["main: 0 memory 100Mi"][..]),
        (&off, &whole, "", &[]),
        (&on, &two, "", &of_two),
        (&off, &two, "", &of_two),
    ] {
        let mut held = HeldAssignments::new();
        let assigned = match in_pod {
            "" => by_container(manager, pod),
            _ => manager
                .assign_pod(&request(pod, &held, &Assignment::default()), ANY)
                .unwrap(),
        };
        if !assigned.is_empty() {
            held.insert("a".into(), Arc::new(assigned));
        }
        let restored = manager.restore(&manager.save(&held)).unwrap();
        assert_eq!(restored, held);
        let own = restored
            .get(&"a".into())
            .map_or_else(Assignment::default, |own| (**own).clone());
        assert_eq!(show_blocks(&own.pod.memory), in_pod);
        assert_eq!(show(&own), in_containers);
    }
}

/// What the pod's containers are assigned one after the other.
fn by_container(manager: &MemoryManager, pod: &Pod) -> Assignment {
    let (none, mut assigned) = (HeldAssignments::new(), Assignment::default());
    for container in &pod.spec.as_ref().unwrap().containers {
        let own = manager
            .assign(&request(pod, &none, &assigned), container, ANY)
            .unwrap();
        assigned.assign(&container.name, own);
    }
    assigned
}

/// The file when pods hold this, changed, and without a checksum.
fn changed(manager: &MemoryManager, held: &HeldAssignments, change: fn(&mut Value)) -> Vec<u8> {
    let mut file: Value = serde_json::from_slice(&manager.save(held)).unwrap();
    file["checksum"] = json!(0);
    change(&mut file);
    serde_json::to_vec(&file).unwrap()
}

fn set(file: &mut Value, path: &str, fields: &[(&str, u64)]) {
    for (field, amount) in fields {
        file.pointer_mut(path).unwrap()[*field] = json!(amount);
    }
}

const MEMORY: &str = "/machineState/0/memoryMap/memory";
const HUGE: &str = "/machineState/0/memoryMap/hugepages-1Gi";

/// Pods that hold something, how their file is changed, and the error.
type Case = (HeldAssignments, fn(&mut Value), &'static str);

fn check_refusals(cases: Vec<Case>) {
    let manager = managed(&[(1536, 4), (1536, 4)]);
    for (index, (held, change, expected)) in cases.into_iter().enumerate() {
        let file = changed(&manager, &held, change);
        let refused = manager.restore(&file).unwrap_err();
        assert_eq!(refused.to_string(), expected, "case {index}");
        assert_eq!(refused.advice("/k/state"), expected);
    }
}

fn none() -> HeldAssignments {
    HeldAssignments::new()
}

fn half() -> HeldAssignments {
    held(&[("a", "main", "0 memory 512Mi")])
}

fn both() -> HeldAssignments {
    held(&[("a", "main", "0 memory 1Gi + 0 hugepages-1Gi 1Gi")])
}

fn remove(file: &mut Value, path: &str, field: &str) {
    let fields = file.pointer_mut(path).unwrap().as_object_mut().unwrap();
    fields.remove(field).unwrap();
}

/// Upstream's TestStaticPolicyStart, those with other nodes and other amounts.
#[test]
fn a_file_of_another_machine_is_refused() {
    const OTHER: &str = "[memorymanager] the expected machine state is different from the real one";
    check_refusals(vec![
        (none(), |file| remove(file, "/machineState", "1"), OTHER),
        (
            none(),
            |file| file["machineState"]["2"] = file["machineState"]["1"].clone(),
            OTHER,
        ),
        (
            none(),
            |file| file["machineState"]["1"] = Value::Null,
            OTHER,
        ),
        (
            none(),
            |file| remove(file, "/machineState/0/memoryMap", "memory"),
            OTHER,
        ),
        (
            none(),
            |file| set(file, MEMORY, &[("total", 1536 * MI)]),
            OTHER,
        ),
        (
            none(),
            |file| set(file, MEMORY, &[("systemReserved", 1024)]),
            OTHER,
        ),
        (
            none(),
            |file| set(file, MEMORY, &[("allocatable", 1024)]),
            OTHER,
        ),
        (
            half(),
            |file| set(file, MEMORY, &[("reserved", 0), ("free", 1536 * MI)]),
            OTHER,
        ),
        (half(), |file| set(file, MEMORY, &[("free", 0)]), OTHER),
        (
            none(),
            |file| {
                set(
                    file,
                    HUGE,
                    &[("total", GI), ("allocatable", GI), ("free", GI)],
                )
            },
            OTHER,
        ),
        (
            none(),
            |file| set(file, HUGE, &[("systemReserved", GI)]),
            OTHER,
        ),
        (
            both(),
            |file| set(file, HUGE, &[("reserved", 3 * GI), ("free", GI)]),
            OTHER,
        ),
        (
            both(),
            |file| file["machineState"]["0"]["numberOfAssignments"] = json!(1),
            OTHER,
        ),
        (
            both(),
            |file| file["machineState"]["0"]["cells"] = json!([0, 1]),
            OTHER,
        ),
        (
            both(),
            |file| file["machineState"]["0"]["cells"] = Value::Null,
            OTHER,
        ),
    ]);
}

/// Upstream's TestStaticPolicyStart, those whose containers hold what there is not.
#[test]
fn a_file_with_memory_that_the_machine_has_not_is_refused() {
    const EMPTY: &str =
        "[memorymanager] machine state can not be empty when it has memory assignments";
    const NODE: &str = "[memorymanager] (pod: a, container: main) the memory assignment uses the NUMA that does not \
                        exist";
    const RESOURCE: &str = "[memorymanager] (pod: a, container: main) the memory assignment uses memory resource that \
                            does not exist";
    fn first(file: &mut Value) -> &mut Value {
        &mut file["entries"]["a"]["main"][0]
    }
    check_refusals(vec![
        (half(), |file| file["machineState"] = json!({}), EMPTY),
        (half(), |file| file["machineState"] = Value::Null, EMPTY),
        (
            half(),
            |file| first(file)["numaAffinity"] = json!([2]),
            NODE,
        ),
        (
            half(),
            |file| first(file)["numaAffinity"] = json!([-1]),
            NODE,
        ),
        (
            half(),
            |file| first(file)["numaAffinity"] = json!([0, 64]),
            NODE,
        ),
        (
            both(),
            |file| first(file)["type"] = json!("hugepages-2Mi"),
            RESOURCE,
        ),
    ]);
}

/// Upstream's TestStaticPolicyStart, those that succeed, and TestCheckpointStateHelpers' container without memory.
#[test]
fn in_a_group_only_the_sums_of_its_nodes_count() {
    let manager = managed(&[(640, 1); 2]);
    let group = held(&[
        ("a", "main", "0,1 memory 768Mi + 0,1 hugepages-1Gi 1Gi"),
        ("b", "main", "0,1 memory 256Mi + 0,1 hugepages-1Gi 1Gi"),
    ]);
    let expected = [
        "0,1 x4 hugepages-1Gi 0+1Gi memory 0+640Mi",
        "0,1 x4 hugepages-1Gi 0+1Gi memory 256Mi+384Mi",
    ];
    assert_eq!(state(&manager, &group), expected);
    let cases: [fn(&mut Value); 4] = [
        |_| {},
        |file| {
            set(file, MEMORY, &[("free", 200 * MI), ("reserved", 440 * MI)]);
            let second = "/machineState/1/memoryMap/memory";
            set(file, second, &[("free", 56 * MI), ("reserved", 584 * MI)]);
        },
        |file| file["machineState"]["0"]["cells"] = json!([1, 0]),
        |file| file["entries"]["c"] = json!({"main": [], "other": null}),
    ];
    for change in cases {
        assert_eq!(
            manager.restore(&changed(&manager, &group, change)).unwrap(),
            group
        );
    }
    let empty = r#"{"policyName": "Static", "machineState": {}, "checksum": 0}"#;
    assert!(manager.restore(empty.as_bytes()).unwrap().is_empty());
    let free = state(&manager, &HeldAssignments::new());
    assert_eq!(free[0], "0 x0 hugepages-1Gi 1Gi+0 memory 640Mi+0");
}

#[test]
fn a_file_that_was_cut_off_or_changed_is_refused() {
    let [off, on] = managers(&[(1536, 1)]);
    let held = held(&[("a", "main", "0 memory 1Gi")]);
    for manager in [off, on] {
        let file = manager.save(&held);
        for end in 0..file.len() {
            assert!(manager.restore(&file[..end]).is_err(), "{end}");
        }
        for digit in (0..file.len()).filter(|at| file[*at].is_ascii_digit()) {
            let mut other = file.clone();
            other[digit] = if other[digit] == b'9' { b'8' } else { b'9' };
            assert!(manager.restore(&other).is_err(), "{digit}");
        }
    }
}
