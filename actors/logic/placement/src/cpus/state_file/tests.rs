//! The file, by upstream's cases of state_checkpoint_test.go and policy_static_test.go.

use std::error::Error;

use proptest::prelude::*;

use super::*;
use crate::cpus::tests::machines::{Even, two_sockets};
use crate::cpus::tests::{Node, admit, anywhere, defaults, held, pod_of, set, shown, with};
use crate::cpus::{CpuMachine, CpuSettings};
use crate::topology::{AssignmentRequest, HintProvider, PodLevelManagers};

const GATES: [PodLevelManagers; 2] = [PodLevelManagers::Off, PodLevelManagers::On];
const NESTED: &str = r#""pod": {"container1": "4-6", "container2": "1-3"}"#;
const FLAT: &str = r#""containerID1": "4-6", "containerID2": "1-3""#;

fn without_policy(pod_level: PodLevelManagers) -> CpuManager {
    let settings = CpuSettings {
        policy: "none",
        pod_level,
        ..defaults()
    };
    CpuManager::new(&settings, CpuMachine::default()).unwrap()
}

fn owner(id: &str) -> Option<(PodUid, String)> {
    let number = id.strip_prefix("containerID")?;
    Some(("pod".into(), format!("container{number}")))
}

/// An error with its causes, as the log has it.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    text
}

fn state(default: &str, containers: &[(&str, &str)], pod: &str) -> CpuState {
    let own = containers.iter();
    let own = own.map(|(name, cpus)| ((*name).to_owned(), set(cpus)));
    let pods = (!pod.is_empty()).then(|| ("pod".into(), set(pod)));
    let containers = (!containers.is_empty()).then(|| ("pod".into(), own.collect()));
    CpuState {
        default: set(default),
        containers: containers.into_iter().collect(),
        pods: pods.into_iter().collect(),
    }
}

fn file(default: &str, entries: &str, pods: &str, checksum: u64) -> String {
    format!(
        "{{\"policyName\": \"none\", \"defaultCPUSet\": \"{default}\", \"entries\": {{{entries}}}, \
         {pods} \"checksum\": {checksum}}}"
    )
}

/// Upstream's TestCheckpointStateRestore: the files that are whole. The checksums are upstream's.
#[test]
fn a_file_of_any_version_is_read_whose_checksum_is_right() {
    let two = [("container1", "4-6"), ("container2", "1-3")];
    let pods = r#""podEntries": {"pod": {"cpuSet": "4-6"}},"#;
    let bare = r#"{"policyName": "none", "defaultCPUSet": "1-3", "checksum": 1694838852}"#;
    let [off, on] = GATES;
    for (gates, file, expected) in [
        (
            &[off][..],
            file("4-6", "", "", 354_655_845),
            state("4-6", &[], ""),
        ),
        (
            &GATES,
            file("1-3", NESTED, "", 3_610_638_499),
            state("1-3", &two, ""),
        ),
        (&GATES, bare.to_owned(), state("1-3", &[], "")),
        (
            &GATES,
            file("1-3", FLAT, "", 3_680_390_589),
            state("1-3", &two, ""),
        ),
        (
            &[on],
            file("1-3", NESTED, pods, 2_649_431_787),
            state("1-3", &two, "4-6"),
        ),
        // Kubelets of long ago wrote none.
        (&GATES, file("1-3", FLAT, "", 0), state("1-3", &two, "")),
        (&GATES, file("1-3", NESTED, "", 0), state("1-3", &two, "")),
    ] {
        for gate in gates {
            let read = without_policy(*gate).read_state(file.as_bytes(), owner);
            assert_eq!(read.unwrap(), expected, "{file}");
        }
    }
}

/// Upstream's TestCheckpointStateRestore: the files that are refused.
#[test]
fn a_file_that_is_damaged_or_of_another_policy_is_refused() {
    let pods = r#""podEntries": {"pod": {"cpuSet": "4-6"}},"#;
    let odd = r#""pod": {"container1": "4-6", "container2": "asd"}"#;
    let other =
        r#"{"policyName":"other","defaultCPUSet":"1-3","entries":{},"checksum":1394507217}"#;
    let corrupt = "checkpoint is corrupted";
    let number = r#"{"policyName": 5}"#;
    for (gate, file, refusal) in [
        (0, file("4-6", "", "", 1337), corrupt),
        (1, file("1-3", "", r#""podEntries": {},"#, 12_345), corrupt),
        (0, file("1-3", NESTED, pods, 2_649_431_787), corrupt),
        (0, "{".to_owned(), "unexpected end of JSON input"),
        (0, String::new(), "unexpected end of JSON input"),
        (
            0,
            other.to_owned(),
            "configured policy \"none\" differs from state checkpoint policy \"other\"",
        ),
        (
            0,
            file("1.3", "", "", 3_021_697_696),
            "could not parse default cpu set \"1.3\": strconv.Atoi: parsing \"1.3\": invalid syntax",
        ),
        (
            0,
            file("1-3", odd, "", 962_272_150),
            "could not parse cpuset \"asd\" for container \"container2\" in pod \"pod\": \
             strconv.Atoi: parsing \"asd\": invalid syntax",
        ),
        (
            0,
            file("1-3", r#""stranger": "4-6""#, "", 0),
            "failed to migrate checkpoint from v1 to v2: containerID 'stranger' not found in \
             initial containers list",
        ),
        (
            0,
            number.to_owned(),
            "its field \"policyName\" is none of a state of the CPU manager",
        ),
        (
            0,
            r#"{"entries": {"pod": 5}}"#.to_owned(),
            "its field \"entries\" is none of a state of the CPU manager",
        ),
    ] {
        let read = without_policy(GATES[gate]).read_state(file.as_bytes(), owner);
        assert_eq!(chain(&read.unwrap_err()), refusal, "{file}");
    }
}

/// Upstream's TestCheckpointStateStore, TestCheckpointStateHelpers and
/// TestCPUManagerCheckpointV2_MarshalCheckpoint_ForwardCompatibility: kubelets up to 1.35 read the same checksum.
#[test]
fn a_file_is_written_as_the_kubelet_writes_it() {
    let two = [("container1", "4-6"), ("container2", "1-3")];
    for (gate, state, written) in [
        (
            0,
            state("1-3", &two, ""),
            r#"{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"1-3"}},"checksum":3610638499}"#,
        ),
        (
            0,
            state("4-6", &[], ""),
            r#"{"policyName":"none","defaultCpuSet":"4-6","checksum":354655845}"#,
        ),
        (
            1,
            state("1-3", &two, "4-6"),
            r#"{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"1-3"}},"podEntries":{"pod":{"cpuSet":"4-6"}},"checksum":2649431787}"#,
        ),
    ] {
        let manager = without_policy(GATES[gate]);
        let bytes = manager.write_state(&state);
        assert_eq!(String::from_utf8(bytes.clone()).unwrap(), written);
        assert_eq!(manager.read_state(&bytes, owner).unwrap(), state);
    }
    for state in [
        state("1-3", &[], ""),
        state("", &[("container1", "1,5,8")], ""),
        state("0-8", &[("c1", "")], ""),
    ] {
        for gate in GATES {
            let manager = without_policy(gate);
            let read = manager.read_state(&manager.write_state(&state), owner);
            assert_eq!(read.unwrap(), state);
        }
    }
}

fn two_sockets_with(reserved: (u32, &'static str), options: &'static [&'static str]) -> CpuManager {
    Node {
        reserved,
        options,
        ..Node::new(two_sockets())
    }
    .manager()
}

/// Upstream's TestStaticPolicyStart and TestStaticPolicyStartWithResvList.
#[test]
fn a_state_is_refused_that_does_not_fit_the_machine() {
    let strict: &[&str] = &["strict-cpu-reservation"];
    let (one, two) = ([("0", "0-2")], [("0", "0-2"), ("1", "3-4")]);
    let overlap = "pod: pod, container: 0 cpuset: \"0-2\" overlaps with default cpuset \"2-11\"";
    let present = |reserved: &str, default: &str| {
        format!(
            "some of strictly reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{default}\""
        )
    };
    let absent = |reserved: &str, default: &str| {
        format!("not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{default}\"")
    };
    let other = |known: &str| {
        format!(
            "current set of available CPUs \"0-11\" doesn't match with CPUs in state \"{known}\""
        )
    };
    for (reserved, options, state, refusal) in [
        ((0, ""), &[][..], state("1-11", &[("0", "0")], ""), None),
        ((1, ""), &[], state("", &[], ""), None),
        (
            (2, ""),
            &[],
            state("0-1", &[], ""),
            Some(absent("0,6", "0-1")),
        ),
        (
            (2, ""),
            strict,
            state("0-1", &[], ""),
            Some(present("0", "0-1")),
        ),
        (
            (0, ""),
            &[],
            state("2-11", &one, ""),
            Some(overlap.to_owned()),
        ),
        (
            (0, ""),
            strict,
            state("2-11", &one, ""),
            Some(overlap.to_owned()),
        ),
        ((0, ""), &[], state("5-12", &two, ""), Some(other("0-12"))),
        ((0, ""), &[], state("5-10", &two, ""), Some(other("0-10"))),
        (
            (0, ""),
            &[],
            state("", &one, ""),
            Some("default cpuset cannot be empty".to_owned()),
        ),
        ((2, "0-1"), &[], state("", &[], ""), None),
        ((2, "0-1"), strict, state("", &[], ""), None),
        (
            (2, "0-1"),
            &[],
            state("2-5", &[], ""),
            Some(absent("0-1", "2-5")),
        ),
        (
            (2, "0-1"),
            strict,
            state("0-5", &[], ""),
            Some(present("0-1", "0-5")),
        ),
        // What a node with strict reservation writes itself; the last one is refused upstream.
        ((2, "0-1"), strict, state("4-11", &[("0", "2-3")], ""), None),
        ((2, "0-1"), strict, state("", &[("0", "2-11")], ""), None),
    ] {
        let checked = two_sockets_with(reserved, options).check_state(&state);
        let refused = checked.err().map(|error| error.to_string());
        assert_eq!(refused, refusal, "{state:?}");
    }
}

/// Upstream's TestStaticPolicyStart and TestStaticPolicyStartWithResvList: nothing has been given yet.
#[test]
fn what_everybody_runs_on_at_first_follows_from_the_settings() {
    let strict: &[&str] = &["strict-cpu-reservation"];
    let none = HeldAssignments::new();
    for (options, shared) in [(&[][..], "0-11"), (strict, "2-11")] {
        assert_eq!(
            two_sockets_with((2, "0-1"), options).shared(&none),
            set(shared)
        );
    }
    assert_eq!(
        without_policy(GATES[0]).check_state(&state("1", &[("0", "0-2")], "")),
        Ok(())
    );
}

/// The file names all CPUs of a pod, and does not say which of them its containers share.
#[test]
fn after_a_restart_containers_share_none_of_the_cpus_that_a_sibling_has_to_itself() {
    let node = Node {
        reserved: (1, ""),
        pod_level: PodLevelManagers::On,
        ..Node::new(two_sockets())
    };
    let (manager, pod) = (node.manager(), pod_of("pod", "pod 3, init 1, app 1, app"));
    let request = AssignmentRequest {
        devices: &crate::devices::DeviceInventory::EMPTY,
        preferences: &crate::devices::DevicePreferences::NONE,
        pod: &pod,
        held: &HeldAssignments::new(),
        assigned: &Assignment::default(),
    };
    let assigned = manager.assign_pod(&request, anywhere()).unwrap();
    let held = with(HeldAssignments::new(), &pod, &assigned);
    let nobody = BTreeMap::new();
    let restored = manager.state(&held, &nobody).held(&nobody);
    for container in ["init-0", "app-1", "app-2"] {
        let before = manager.affinity(&pod, container, &held);
        assert_eq!(manager.affinity(&pod, container, &restored), before);
        for held in [&held, &restored] {
            assert_eq!(
                manager.given(&pod, container, held),
                before,
                "as it is told"
            );
        }
    }
    let other = pod_of("other", "pod 1, app");
    assert!(manager.given(&other, "app-1", &held).is_empty());
    let [own, shared] = ["app-1", "app-2"].map(|name| manager.affinity(&pod, name, &restored));
    assert_eq!((own.len(), shared.len(), own.common(&shared)), (1, 2, 0));
}

/// Upstream's TestCPUManagerRestoreState.
#[test]
fn pods_hold_the_same_over_a_restart() {
    let [off, on] = GATES;
    for (gate, parts, whole) in [
        (on, "pod 2, app 1", true),
        (off, "pod 2, app 1", false),
        (on, "app 1, app 1", false),
        (off, "app 1, app 1", false),
        (on, "pod 3, init, init 1, sidecar 1, app 1, app", true),
    ] {
        let four = Even {
            sockets: 1,
            nodes: 1,
            caches: 1,
            cores: 4,
            threads: 1,
        }
        .machine();
        let node = Node {
            reserved: (1, ""),
            pod_level: gate,
            ..Node::new(four)
        };
        let (manager, pod) = (node.manager(), pod_of("pod", parts));
        let none = HeldAssignments::new();
        let request = AssignmentRequest {
            devices: &crate::devices::DeviceInventory::EMPTY,
            preferences: &crate::devices::DevicePreferences::NONE,
            pod: &pod,
            held: &none,
            assigned: &Assignment::default(),
        };
        let assigned = match whole {
            true => manager.assign_pod(&request, anywhere()),
            false => admit(&manager, &pod, &none, anywhere()),
        };
        let held = with(HeldAssignments::new(), &pod, &assigned.unwrap());
        let known = BTreeMap::from([(pod.uid(), Arc::new(pod.clone()))]);
        let state = manager.state(&held, &known);
        assert_eq!(state.pods.contains_key(&pod.uid()), whole, "{parts}");
        let bytes = manager.write_state(&state);
        let read = manager.read_state(&bytes, |_| None).unwrap();
        assert_eq!(manager.check_state(&read), Ok(()), "{parts}");
        let restored = read.held(&known);
        let nothing = held.values().all(|assigned| assigned.is_empty());
        assert_eq!(
            restored,
            if nothing { none } else { held.clone() },
            "{parts}"
        );
        // Of a pod that is not known yet, each container runs on the same all the same.
        let blind = read.held(&BTreeMap::new());
        for (_, container) in pod.all_containers() {
            let name = &container.name;
            assert_eq!(
                manager.affinity(&pod, name, &blind),
                manager.affinity(&pod, name, &held)
            );
        }
        assert_eq!(manager.shared(&blind), manager.shared(&held));
        assert_eq!(manager.write_state(&manager.state(&blind, &known)), bytes);
    }
}

/// Upstream's TestCheckpointStateClear: what nobody holds is in no file.
#[test]
fn a_state_names_what_is_held_and_no_more() {
    let manager = Node {
        reserved: (1, "0"),
        ..Node::new(two_sockets())
    }
    .manager();
    let own = held(&[("pod", "app-0", "1,4")]);
    let state = manager.state(&own, &BTreeMap::new());
    assert_eq!(state.default, set("0,2-3,5-11"));
    assert_eq!(
        shown(&state.held(&BTreeMap::new())[&"pod-uid".into()])["app-0"],
        "1,4"
    );
    let state = manager.state(&HeldAssignments::new(), &BTreeMap::new());
    assert_eq!(
        state,
        CpuState {
            default: set("0-11"),
            ..CpuState::default()
        }
    );
}

/// Texts that are nearly files.
fn nearly() -> impl Strategy<Value = String> {
    let name = "policyName|entries|podEntries|checksum|defaultCpuSet";
    let value = r#""[0-9,-]{0,9}"|"none"|0|[0-9]{1,20}|\{"a": ?("1"|\{"cpuSet": "1"\})\}"#;
    let pattern = format!(r#"\{{("({name})": ?({value}),?){{0,3}}\}}?|.{{0,40}}"#);
    proptest::string::string_regex(&pattern).unwrap()
}

proptest! {
    #[test]
    fn what_is_read_from_any_text_is_written_and_read_again(text in nearly()) {
        for gate in GATES {
            let manager = without_policy(gate);
            if let Ok(state) = manager.read_state(text.as_bytes(), owner) {
                let again = manager.read_state(&manager.write_state(&state), owner);
                prop_assert_eq!(again.unwrap(), state);
            }
        }
    }
}
