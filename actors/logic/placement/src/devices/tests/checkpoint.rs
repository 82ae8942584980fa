//! The checkpoint's bytes are upstream's.

use super::super::checkpoint::*;

fn entry(pod: &str, resource: &str, devices: &[(i64, &[&str])], answer: &[u8]) -> CheckpointEntry {
    let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    CheckpointEntry {
        pod: pod.to_owned(),
        container: "con1".to_owned(),
        resource: resource.to_owned(),
        devices: Some(
            devices
                .iter()
                .map(|(node, ids)| (*node, owned(ids)))
                .collect(),
        ),
        answer: Some(answer.to_vec()),
    }
}

fn example() -> DeviceCheckpoint {
    let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    DeviceCheckpoint {
        allocations: vec![
            entry(
                "pod1",
                "domain1.com/resource1",
                &[(0, &["dev1", "dev2"]), (10, &["dev1"]), (2, &["dev2"])],
                b"\n\x04\n\x01a",
            ),
            entry("pod3", "domain2.com/resource3", &[(-1, &["dev5"])], b""),
        ],
        registered: [
            (
                "domain1.com/resource1".to_owned(),
                owned(&["dev1", "dev2", "dev3"]),
            ),
            ("domain2.com/resource3".to_owned(), owned(&[])),
        ]
        .into(),
    }
}

/// Upstream's TestCheckpoint, as far as the file goes.
#[test]
fn a_checkpoint_is_read_as_it_was_written() {
    for checkpoint in [example(), DeviceCheckpoint::default()] {
        let bytes = checkpoint.clone().encode();
        assert_eq!(DeviceCheckpoint::decode(&bytes).unwrap(), checkpoint);
    }
}

const EXAMPLE: &str = concat!(
    r#"{"Data":{"PodDeviceEntries":[{"PodUID":"pod1","ContainerName":"con1","ResourceName":"domain1.com/resource1","#,
    r#""DeviceIDs":{"0":["dev1","dev2"],"2":["dev2"],"10":["dev1"]},"AllocResp":"CgQKAWE="},"#,
    r#"{"PodUID":"pod3","ContainerName":"con1","ResourceName":"domain2.com/resource3","#,
    r#""DeviceIDs":{"-1":["dev5"]},"AllocResp":""}],"#,
    r#""RegisteredDevices":{"domain1.com/resource1":["dev1","dev2","dev3"],"domain2.com/resource3":[]}},"#,
    r#""Checksum":3825301949}"#
);

#[test]
fn a_checkpoint_has_the_fields_and_the_checksum_that_upstream_gives_it() {
    assert_eq!(String::from_utf8(example().encode()).unwrap(), EXAMPLE);
    let none = DeviceCheckpoint::default().encode();
    let expected =
        r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}"#;
    assert_eq!(String::from_utf8(none).unwrap(), expected);
}

/// Go keeps what is absent apart from what is empty, and the checksum with it.
#[test]
fn what_is_null_in_the_file_is_none_of_it() {
    let bytes = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"a","ContainerName":"b","ResourceName":"c.d/e","DeviceIDs":null,"AllocResp":null}],"RegisteredDevices":{"c.d/e":null}},"Checksum":1897917954}"#;
    let read = DeviceCheckpoint::decode(bytes.as_bytes()).unwrap();
    let expected = CheckpointEntry {
        pod: "a".to_owned(),
        container: "b".to_owned(),
        resource: "c.d/e".to_owned(),
        ..CheckpointEntry::default()
    };
    assert_eq!(read.allocations, [expected]);
    assert_eq!(read.registered["c.d/e"], Vec::<String>::new());
    let nothing = r#"{"Data":{},"Checksum":1944006890}"#;
    assert_eq!(
        DeviceCheckpoint::decode(nothing.as_bytes()).unwrap(),
        DeviceCheckpoint::default()
    );
}

#[test]
fn a_checkpoint_that_is_damaged_is_refused_by_name() {
    for bytes in [
        "",
        "{",
        "[]",
        "null",
        r#"{"Data":{}}"#,
        r#"{"Data":{"PodDeviceEntries":[{"AllocResp":"?"}]},"Checksum":1}"#,
        r#"{"Data":{"PodDeviceEntries":[{"DeviceIDs":["dev1"]}]},"Checksum":1}"#,
    ] {
        let flaw = DeviceCheckpoint::decode(bytes.as_bytes()).unwrap_err();
        assert_eq!(
            flaw.to_string(),
            "it does not read as a checkpoint of devices",
            "{bytes}"
        );
        assert!(!flaw.transient());
    }
    let changed = EXAMPLE.replace("\"dev5\"", "\"dev6\"");
    let flaw = DeviceCheckpoint::decode(changed.as_bytes()).unwrap_err();
    assert_eq!(
        flaw.to_string(),
        "its checksum is 3825301949, expected 1705890942"
    );
}

/// The file of a node with one GPU and no pod that has it, as a vendor's manual shows it.
#[test]
fn a_kubelets_own_file_is_intact() {
    let file = br#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},"Checksum":3952659280}"#;
    let read = DeviceCheckpoint::decode(file).unwrap();
    assert_eq!(read.registered["nvidia.com/gpu"].len(), 1);
}
