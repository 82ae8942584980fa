//! The state file, with the checksums that upstream's tests record.

use super::*;

const EXAMPLE_UID: &str = "067798be-454e-4be4-9047-1aa06aea63f7";
const POD: &str = "139cdb46-f989-4f17-9561-ca10cfb509a6";

fn worker_device(name: &str) -> ClaimDevice {
    ClaimDevice {
        pool: "worker-1".to_owned(),
        ..device(
            name,
            &["test request"],
            &["example.com/example=cdi-example"],
        )
    }
}

fn example(name: &str, uid: &str, devices: Vec<ClaimDevice>) -> ClaimEntry {
    ClaimEntry {
        uid: uid.into(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        pods: [POD.into()].into(),
        drivers: [("test-driver.cdi.k8s.io".into(), devices)].into(),
        preparation: Preparation::Unprepared,
    }
}

fn device_json(name: &str, share: &str) -> String {
    format!(
        r#"{{"PoolName":"worker-1","DeviceName":"{name}","ShareID":{share},"RequestNames":["test request"],"CDIDeviceIDs":["example.com/example=cdi-example"]}}"#
    )
}

fn claim_json(name: &str, uid: &str, devices: &[String]) -> String {
    let devices = devices.join(",");
    format!(
        r#"{{"ClaimUID":"{uid}","ClaimName":"{name}","Namespace":"default","PodUIDs":{{"{POD}":{{}}}},"DriverState":{{"test-driver.cdi.k8s.io":{{"Devices":[{devices}]}}}}}}"#
    )
}

/// A file of upstream: `list` names the claims, `version` is that of the format.
fn file(list: &str, version: &str, claims: &[String], checksum: u32) -> String {
    let claims = claims.join(",");
    let data = format!(
        r#"{{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/{version}","{list}":[{claims}]}}"#
    );
    let data = serde_json::to_string(&data).unwrap();
    format!(r#"{{"Data":{data},"Checksum":{checksum}}}"#)
}

#[test]
fn the_file_is_written_and_read_as_upstream_does() {
    let shared = ClaimDevice {
        share: Some("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa".to_owned()),
        ..worker_device("dev-1")
    };
    let bare = ClaimDevice {
        requests: Vec::new(),
        cdi_ids: Vec::new(),
        ..worker_device("dev-2")
    };
    let bare_json = r#"{"PoolName":"worker-1","DeviceName":"dev-2","ShareID":null,"RequestNames":null,"CDIDeviceIDs":null}"#;
    let second_uid = "4cf8db2d-06c0-7d70-1a51-e59b25b2c16c";
    let (first, other) = (device_json("dev-1", "null"), device_json("dev-2", "null"));
    let share_json = device_json("dev-1", "\"aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa\"");
    let one = |devices: &[String]| vec![claim_json("example", EXAMPLE_UID, devices)];
    let two = vec![
        claim_json("example-1", EXAMPLE_UID, std::slice::from_ref(&first)),
        claim_json("example-2", second_uid, &[bare_json.to_owned()]),
    ];
    let cases = [
        (
            vec![example(
                "example",
                EXAMPLE_UID,
                vec![worker_device("dev-1")],
            )],
            one(std::slice::from_ref(&first)),
            2_570_581_864,
        ),
        (
            vec![example("example", EXAMPLE_UID, vec![shared])],
            one(&[share_json]),
            736_302_156,
        ),
        (
            vec![example(
                "example",
                EXAMPLE_UID,
                vec![worker_device("dev-1"), worker_device("dev-2")],
            )],
            one(&[first, other]),
            1_223_221_469,
        ),
        (
            vec![
                example("example-1", EXAMPLE_UID, vec![worker_device("dev-1")]),
                example("example-2", second_uid, vec![bare]),
            ],
            two,
            2_820_117_767,
        ),
    ];
    for (claims, written, checksum) in cases {
        let cache = ClaimCache::from_iter(claims);
        let expected = file("ClaimInfoStateList", "v1", &written, checksum);
        assert_eq!(String::from_utf8(encode_claims(&cache)).unwrap(), expected);
        assert_eq!(decode_claims(expected.as_bytes()).unwrap(), cache);
    }
}

#[test]
fn fields_and_versions_that_are_older_are_read() {
    let device = r#"{"PoolName":"worker-1","DeviceName":"dev-1","CDIDeviceIDs":["example.com/example=cdi-example"]}"#;
    let claims = [claim_json("example", EXAMPLE_UID, &[device.to_owned()])];
    let old = ClaimDevice {
        requests: Vec::new(),
        ..worker_device("dev-1")
    };
    let expected = ClaimCache::from_iter([example("example", EXAMPLE_UID, vec![old])]);
    for (version, checksum) in [("v1", 1_137_250_765), ("v0", 1_284_376_732)] {
        let text = file("ClaimInfoStateList", version, &claims, checksum);
        assert_eq!(
            decode_claims(text.as_bytes()).unwrap(),
            expected,
            "{version}"
        );
    }
}

#[test]
fn a_file_without_claims_is_read_as_none() {
    let nothing = r#"{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":null}"#;
    let written = encode_claims(&ClaimCache::default());
    assert_eq!(decode_claims(&written).unwrap(), ClaimCache::default());
    let data = serde_json::to_string(nothing).unwrap();
    let first = format!(r#"{{"Data":{data},"Checksum":4010664294}}"#);
    let read = decode_claims(first.as_bytes());
    assert_eq!(read.unwrap(), ClaimCache::default());
}

#[test]
fn what_is_prepared_is_not_taken_for_prepared_after_a_restart() {
    let prepared = entry("claim", &["web"], &[("driver", &[device("dev", &[], &[])])]);
    let cache = ClaimCache::from_iter([prepared.clone()]);
    let read = decode_claims(&encode_claims(&cache)).unwrap();
    let unprepared = ClaimEntry {
        preparation: Preparation::Unprepared,
        ..prepared
    };
    assert_eq!(read, ClaimCache::from_iter([unprepared]));
}

#[test]
fn a_damaged_file_says_what_is_wrong_with_it() {
    let device = device_json("dev-1", "null");
    let claims = [claim_json("example-1", EXAMPLE_UID, &[device])];
    let stale = file("Entries", "v1", &claims, 2_930_258_365);
    let mut torn = encode_claims(&ClaimCache::default());
    torn.truncate(20);
    let cases: [(&[u8], &str); 4] = [
        (
            stale.as_bytes(),
            "checkpoint is corrupted: its checksum is 2930258365",
        ),
        (b"{", "it does not read as a checkpoint"),
        (&torn, "it does not read as a checkpoint"),
        (
            br#"{"Data":"7","Checksum":1790921346}"#,
            "its data does not read as claims",
        ),
    ];
    for (bytes, expected) in cases {
        let flaw = decode_claims(bytes).unwrap_err();
        let text = flaw.to_string();
        assert!(text.contains(expected), "{text:?} has no {expected:?}");
        assert!(!flaw.transient());
    }
}
