//! What files say of devices, and what becomes of it in a container's document.

use std::fs;
use std::path::{Path, PathBuf};

use proto::cri::{CdiDevice, ContainerConfig};
use serde_json::{Value, json};

use super::file::{CdiFile, is_qualified};
use super::{asked, inject};

fn refusal(text: &str) -> String {
    sdk::error_chain(&CdiFile::parse(text).unwrap_err())
}

/// A file of one device with this in it.
fn with_device(version: &str, edits: &str) -> String {
    format!(
        "cdiVersion: '{version}'\nkind: vendor.com/net\ndevices: [{{name: a, containerEdits: {edits}}}]"
    )
}

fn write(folder: &Path, name: &str, kind: &str, device: &str, word: &str) {
    fs::create_dir_all(folder).unwrap();
    let file = json!({
        "cdiVersion": "0.3.0",
        "kind": kind,
        "devices": [{ "name": device, "containerEdits": { "env": [format!("WORD={word}")] } }],
        "containerEdits": { "env": [format!("FILE={word}")] },
    });
    fs::write(folder.join(name), file.to_string()).unwrap();
}

fn document() -> Value {
    json!({
        "process": { "user": { "uid": 1000, "gid": 0, "additionalGids": [0] }, "env": ["A=1"] },
        "mounts": [{ "destination": "/dev/x", "source": "old" }, { "destination": "/a/b", "source": "b" }],
        "linux": { "devices": [], "resources": { "devices": [{ "allow": false, "access": "rwm" }] } },
    })
}

fn injected(folders: &[PathBuf], names: &[&str]) -> Result<Value, String> {
    let mut document = document();
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    match inject(&mut document, &names, folders) {
        Ok(()) => Ok(document),
        Err(error) => Err(sdk::error_chain(&error)),
    }
}

/// What a device with these edits makes of a document.
fn edited(version: &str, edits: &str) -> Result<Value, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.yaml"), with_device(version, edits)).unwrap();
    injected(&[folder.path().to_owned()], &["vendor.com/net=a"])
}

/// Upstream's TestParseAnnotations, and WithCDI's order.
#[test]
fn devices_are_asked_for_by_the_configuration_and_by_annotations_each_once() {
    let config = |annotations: &[(&str, &str)]| ContainerConfig {
        cdi_devices: ["v.com/c=1", "v.com/c=1"]
            .map(|name| CdiDevice {
                name: name.to_owned(),
            })
            .into(),
        annotations: annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..ContainerConfig::default()
    };
    let both = config(&[
        ("cdi.k8s.io/b", "v.com/c=3,v.com/c=1"),
        ("cdi.k8s.io/a", "v.com/c=2"),
        ("other/a", "x"),
    ]);
    assert_eq!(
        asked(&both).unwrap(),
        ["v.com/c=1", "v.com/c=2", "v.com/c=3"]
    );
    let wrong = asked(&config(&[("cdi.k8s.io/a", "v.com/c=2,nothing")])).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "failed to parse CDI device annotations: invalid CDI device name \"nothing\""
    );
}

/// Upstream's TestQualifiedName.
#[test]
fn a_qualified_name_has_vendor_class_and_device() {
    for name in ["vendor.com/class=dev", "v/c=0", "a.b-c_d/e.f=1:2-x"] {
        assert!(is_qualified(name), "{name}");
    }
    for name in [
        "",
        "dev",
        "vendor/class",
        "vendor=dev",
        "1vendor/class=dev",
        "vendor-/class=dev",
        "vendor/class=",
        "vendor/cl:ass=dev",
        "vendor/class=-x",
    ] {
        assert!(!is_qualified(name), "{name}");
    }
}

/// Upstream's TestRequiredVersion and TestValidateVersion.
#[test]
fn a_file_says_a_version_that_has_what_it_uses() {
    for (needed, before, edits) in [
        (
            "0.4.0",
            "0.3.0",
            "{mounts: [{hostPath: /a, containerPath: /a, type: bind}]}",
        ),
        (
            "0.5.0",
            "0.4.0",
            "{deviceNodes: [{path: /dev/a, hostPath: /dev/b}]}",
        ),
        ("0.7.0", "0.6.0", "{additionalGids: [5]}"),
        ("0.7.0", "0.6.0", "{intelRdt: {closID: x}}"),
        ("1.1.0", "1.0.0", "{intelRdt: {enableMonitoring: true}}"),
        (
            "1.1.0",
            "1.0.0",
            "{netDevices: [{hostInterfaceName: a, name: b}]}",
        ),
    ] {
        CdiFile::parse(&with_device(needed, edits)).unwrap();
        CdiFile::parse(&with_device(&format!("v{needed}"), edits)).unwrap();
        let expected = format!("cdiVersion is {before:?}, expected at least {needed}");
        assert_eq!(refusal(&with_device(before, edits)), expected);
    }
    for unknown in ["0.9.0", "2.0.0", "", "1"] {
        assert!(refusal(&with_device(unknown, "{env: [A=1]}")).contains("one of"));
    }
    let dotted =
        "cdiVersion: 0.5.0\nkind: v.com/a.b\ndevices: [{name: a, containerEdits: {env: [A=1]}}]";
    assert!(refusal(dotted).contains("at least 0.6.0"));
    let digit =
        "cdiVersion: 0.4.0\nkind: v.com/a\ndevices: [{name: 0, containerEdits: {env: [A=1]}}]";
    // YAML reads it as a number: a name is a text.
    assert!(refusal(digit).contains("form"));
    assert!(refusal(&digit.replace("name: 0", "name: '0'")).contains("at least 0.5.0"));
}

/// Upstream's TestReadSpec and TestValidateContainerEdits.
#[test]
fn a_file_with_a_mistake_is_refused_by_what_it_is() {
    for (edits, word) in [
        ("{env: [NOTHING]}", "NAME=value"),
        ("{env: ['=x']}", "NAME=value"),
        ("{deviceNodes: [{path: ''}]}", "no path"),
        ("{deviceNodes: [{path: /dev/a, type: x}]}", "b, c, u or p"),
        (
            "{deviceNodes: [{path: /dev/a, permissions: rx}]}",
            "letters of rwm",
        ),
        ("{hooks: [{hookName: later, path: /a}]}", "later"),
        ("{hooks: [{hookName: poststop, path: ''}]}", "no path"),
        ("{mounts: [{hostPath: /a}]}", "containerPath"),
        ("{surprise: 1}", "surprise"),
        ("{}", "says nothing"),
        ("null", "says nothing"),
    ] {
        let refusal = refusal(&with_device("1.0.0", edits));
        assert!(refusal.contains(word), "{edits}: {refusal}");
    }
    for (text, word) in [
        (
            "cdiVersion: 1.0.0\nkind: v.com/net\ndevices: []",
            "no devices",
        ),
        (
            "cdiVersion: 1.0.0\nkind: net\ndevices: [{name: a, containerEdits: {env: [A=1]}}]",
            "the vendor",
        ),
        (
            "cdiVersion: 1.0.0\nkind: v.com/net\ndevices: [{name: a, containerEdits: {env: [A=1]}}, {name: a, containerEdits: {env: [A=1]}}]",
            "twice",
        ),
        ("{", "not YAML"),
    ] {
        let refusal = refusal(text);
        assert!(refusal.contains(word), "{text}: {refusal}");
    }
}

/// Upstream's TestNewCache and TestInjectDevice: priorities, conflicts, files that can't be read.
#[test]
fn a_later_folder_stands_before_an_earlier_and_two_files_of_one_cancel_each_other() {
    let home = tempfile::tempdir().unwrap();
    let (etc, run) = (home.path().join("etc"), home.path().join("run"));
    let folders = [etc.clone(), run.clone(), home.path().join("absent")];
    write(&etc, "a.json", "v.com/net", "a", "etc");
    write(&etc, "b.yaml", "v.com/net", "b", "etc");
    write(&run, "a.json", "v.com/net", "a", "run");
    fs::write(run.join("broken.json"), "{").unwrap();
    fs::write(run.join("notes.txt"), "{").unwrap();
    let words = |names: &[&str]| injected(&folders, names).map(|it| it["process"]["env"].clone());
    assert_eq!(
        words(&["v.com/net=a"]),
        Ok(json!(["A=1", "FILE=run", "WORD=run"]))
    );
    assert_eq!(
        words(&["v.com/net=b"]),
        Ok(json!(["A=1", "FILE=etc", "WORD=etc"]))
    );
    let unknown = words(&["v.com/net=x", "v.com/net=a", "other/y=z"]).unwrap_err();
    assert_eq!(
        unknown,
        "CDI device injection failed: unresolvable CDI devices v.com/net=x, other/y=z"
    );
    // In the folder of the higher priority there are two now: neither counts, and neither does the lower one.
    write(&run, "c.json", "v.com/net", "a", "twice");
    let conflict = words(&["v.com/net=a"]).unwrap_err();
    assert!(
        conflict.ends_with("unresolvable CDI devices v.com/net=a"),
        "{conflict}"
    );
}

/// Upstream's TestApplyContainerEdits.
#[test]
fn edits_are_written_into_the_document() {
    let edits = "{env: [A=2, B=3], additionalGids: [0, 7, 7], \
        deviceNodes: [{path: /dev/vendor, type: c, major: 5, minor: 6, fileMode: 0660, permissions: r, gid: 9}, \
        {path: /dev/mine, hostPath: /dev/null}, {path: /dev/shut, hostPath: /dev/zero, permissions: none}], \
        mounts: [{hostPath: /new, containerPath: /dev/x, options: [ro, bind]}, {hostPath: /top, containerPath: /a, type: none, options: [rbind]}], \
        hooks: [{hookName: createContainer, path: /bin/hook, args: [hook, x], timeout: 3}]}";
    let document = edited("1.0.0", edits).unwrap();
    assert_eq!(document["process"]["env"], json!(["A=2", "B=3"]));
    assert_eq!(document["process"]["user"]["additionalGids"], json!([0, 7]));
    let devices = &document["linux"]["devices"];
    assert_eq!(
        devices[0],
        json!({ "path": "/dev/vendor", "type": "c", "major": 5, "minor": 6, "fileMode": 0o660, "uid": 1000, "gid": 9 })
    );
    assert_eq!(
        devices[1],
        json!({ "path": "/dev/mine", "type": "c", "major": 1, "minor": 3, "fileMode": 0o666, "uid": 1000 })
    );
    let rules = &document["linux"]["resources"]["devices"];
    assert_eq!(
        rules[1],
        json!({ "allow": true, "type": "c", "major": 5, "minor": 6, "access": "r" })
    );
    assert_eq!(rules[2]["access"], "rwm");
    assert_eq!(rules[3]["access"], "");
    let mounts: Vec<_> = document["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| (mount["destination"].clone(), mount["source"].clone()))
        .collect();
    assert_eq!(
        mounts,
        [
            (json!("/a"), json!("/top")),
            (json!("/a/b"), json!("b")),
            (json!("/dev/x"), json!("/new"))
        ]
    );
    assert_eq!(
        document["hooks"]["createContainer"],
        json!([{ "path": "/bin/hook", "args": ["hook", "x"], "timeout": 3 }])
    );
}

#[test]
fn a_device_that_is_not_there_or_is_another_is_an_error() {
    for (edits, word) in [
        (
            "{deviceNodes: [{path: /dev/no-such-device}]}",
            "failed to stat CDI host device \"/dev/no-such-device\"",
        ),
        ("{deviceNodes: [{path: /etc}]}", "not a device node"),
        (
            "{deviceNodes: [{path: /dev/null, type: b}]}",
            "type \"c\", expected \"b\"",
        ),
    ] {
        let refusal = edited("1.0.0", edits).unwrap_err();
        assert!(refusal.contains(word), "{edits}: {refusal}");
    }
    // One that says its number needs no device of the node.
    let whole = "{deviceNodes: [{path: /dev/no-such-device, type: b, major: 7}]}";
    edited("1.0.0", whole).unwrap();
}

#[test]
fn what_cannot_be_given_is_refused_by_its_name() {
    let rdt = edited("1.0.0", "{intelRdt: {closID: x}}").unwrap_err();
    assert!(rdt.contains("intelRdt"), "{rdt}");
    let net = edited(
        "1.1.0",
        "{netDevices: [{hostInterfaceName: eth1, name: eth0}]}",
    )
    .unwrap_err();
    assert!(net.contains("netDevices"), "{net}");
}

#[test]
fn a_bind_mount_is_mapped_where_the_container_has_users_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let edits = "{mounts: [{hostPath: /a, containerPath: /a, options: [rbind]}, {hostPath: /b, containerPath: /b, options: [bind]}, {hostPath: t, containerPath: /t, type: tmpfs}]}";
    fs::write(folder.path().join("a.json"), with_device("0.4.0", edits)).unwrap();
    let mut document = document();
    document["linux"]["namespaces"] = json!([{ "type": "user" }]);
    let names = ["vendor.com/net=a".to_owned()];
    inject(&mut document, &names, &[folder.path().to_owned()]).unwrap();
    let options = |path: &str| {
        let mounts = document["mounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["destination"] == path);
        mount.unwrap()["options"].clone()
    };
    assert_eq!(options("/a"), json!(["rbind", "ridmap"]));
    assert_eq!(options("/b"), json!(["bind", "idmap"]));
    assert_eq!(options("/t"), json!([]));
}

#[test]
fn a_file_that_is_nested_without_end_is_left_out_and_hurts_nobody() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("a.json", "[".repeat(1 << 20)),
        ("b.yaml", "{a: ".repeat(1 << 18)),
        ("c.yaml", "- ".repeat(1 << 18)),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    write(folder.path(), "d.json", "v.com/net", "a", "good");
    let folders = [folder.path().to_owned()];
    let document = injected(&folders, &["v.com/net=a"]).unwrap();
    assert_eq!(document["process"]["env"][2], "WORD=good");
}
