//! ConfigMaps and Secrets.

use super::*;

const SUBDIRS: &str = "path/to/1/2/3/foo.txt";

fn wanted(items: Value, mode: i32, optional: bool) -> Value {
    json!({"name": "v", "configMap": {"name": "m", "items": items, "defaultMode": mode, "optional": optional}})
}

fn as_secret(volume: &Value) -> Value {
    let text = volume.to_string();
    let text = text.replace("configMap", "secret");
    let text = text.replace("\"name\":\"m\"", "\"secretName\":\"m\"");
    serde_json::from_str(&text).unwrap()
}

/// Upstream's TestMakePayload of configmap and secret.
#[test]
fn entries_become_files_all_or_those_that_are_named() {
    let data = config_map("m", json!({"data": {"foo": "foo", "bar": "bar"}}));
    let secret = object(
        "v1",
        "Secret",
        "m",
        json!({"stringData": {"foo": "foo", "bar": "bar"}}),
    );
    type ExpectedFiles = &'static [(&'static str, &'static str, u32)];
    let cases: [(Value, i32, bool, ExpectedFiles); 9] = [
        (
            Value::Null,
            0o644,
            false,
            &[("foo", "foo", 0o644), ("bar", "bar", 0o644)],
        ),
        (
            json!([]),
            0o400,
            false,
            &[("foo", "foo", 0o400), ("bar", "bar", 0o400)],
        ),
        (
            json!([{"key": "foo", "path": "path/to/foo.txt"}]),
            0o644,
            false,
            &[("path/to/foo.txt", "foo", 0o644)],
        ),
        (
            json!([{"key": "foo", "path": SUBDIRS}]),
            0o644,
            false,
            &[(SUBDIRS, "foo", 0o644)],
        ),
        (
            json!([{"key": "foo", "path": SUBDIRS}, {"key": "bar", "path": "another/path/to/the/esteemed/bar.bin"}]),
            0o644,
            false,
            &[
                (SUBDIRS, "foo", 0o644),
                ("another/path/to/the/esteemed/bar.bin", "bar", 0o644),
            ],
        ),
        (
            json!([{"key": "foo", "path": "foo.txt", "mode": 0o400}, {"key": "bar", "path": "bar.bin", "mode": 0o400}]),
            0o644,
            false,
            &[("foo.txt", "foo", 0o400), ("bar.bin", "bar", 0o400)],
        ),
        (
            json!([{"key": "foo", "path": "foo.txt"}, {"key": "bar", "path": "bar.bin"}]),
            0o644,
            false,
            &[("foo.txt", "foo", 0o644), ("bar.bin", "bar", 0o644)],
        ),
        (
            json!([{"key": "foo", "path": "one"}, {"key": "foo", "path": "two"}]),
            0o644,
            false,
            &[("one", "foo", 0o644), ("two", "foo", 0o644)],
        ),
        (
            json!([{"key": "zab", "path": "path/to/foo.txt"}]),
            0o644,
            true,
            &[],
        ),
    ];
    let rig = rig(&[data, secret]);
    for (items, mode, optional, files) in cases {
        let volume = wanted(items, mode, optional);
        assert_eq!(rig.made(volume.clone()), expected(files), "{volume}");
        assert_eq!(rig.made(as_secret(&volume)), expected(files), "{volume}");
    }
}

/// Upstream's TestMakePayload of configmap: binary data.
#[test]
fn binary_entries_are_files_beside_those_of_text() {
    let binary = config_map("m", json!({"binaryData": {"foo": "Zm9v", "bar": "YmFy"}}));
    let mixed = config_map(
        "m",
        json!({"binaryData": {"foo": "Zm9v"}, "data": {"bar": "bar"}}),
    );
    for map in [binary, mixed] {
        let rig = rig(&[map]);
        let all = expected(&[("foo", "foo", 0o644), ("bar", "bar", 0o644)]);
        assert_eq!(rig.made(wanted(Value::Null, 0o644, false)), all);
        let one = rig.made(wanted(json!([{"key": "foo", "path": "f"}]), 0o644, false));
        assert_eq!(one, expected(&[("f", "foo", 0o644)]));
    }
}

/// Upstream's TestMakePayload ("non existent key") of configmap and secret.
#[test]
fn a_key_that_is_not_there_is_named() {
    let map = config_map("m", json!({"data": {"foo": "foo"}}));
    let secret = object("v1", "Secret", "m", json!({"stringData": {"foo": "foo"}}));
    let rig = rig(&[map, secret]);
    let volume = wanted(json!([{"key": "zab", "path": "f"}]), 0o644, false);
    let refused = |text: &str| (text.to_owned(), RetryWhen::Changed);
    assert_eq!(
        rig.refused(volume.clone()),
        refused("configmap references non-existent config key: zab")
    );
    assert_eq!(
        rig.refused(as_secret(&volume)),
        refused("references non-existent secret key: zab")
    );
}

/// Upstream's TestPluginOptional of configmap and secret.
#[test]
fn what_is_optional_may_be_missing_and_is_looked_for_again() {
    let rig = rig(&[]);
    for optional in [true, false] {
        let volume = wanted(Value::Null, 0o644, optional);
        let names = ["configmap", "secret"];
        let kinds = ["ConfigMap", "Secret"];
        for (index, volume) in [volume.clone(), as_secret(&volume)].into_iter().enumerate() {
            let uses = match (rig.make(volume), optional) {
                (Ok(files), true) => {
                    assert!(files.set.files.is_empty());
                    files.uses
                }
                (Err(error), false) => {
                    assert_eq!(
                        error.to_string(),
                        format!("{} \"m\" not found", names[index])
                    );
                    assert_eq!(error.until, RetryWhen::Changed);
                    error.uses
                }
                (other, _) => panic!("{other:?}"),
            };
            let used: Vec<_> = uses
                .iter()
                .map(|used| (used.kind, used.namespace.as_str(), used.name.as_str()))
                .collect();
            assert_eq!(used, [(kinds[index], "default", "m")]);
        }
    }
}

#[test]
fn secrets_never_touch_a_disk() {
    let map = config_map("m", json!({"data": {"foo": "foo"}}));
    let secret = object("v1", "Secret", "m", json!({"stringData": {"foo": "foo"}}));
    let rig = rig(&[map, secret]);
    let volume = wanted(Value::Null, 0o644, false);
    let medium = |volume| rig.make(volume).unwrap().set.medium;
    assert_eq!(medium(as_secret(&volume)), Medium::Memory);
    assert_eq!(medium(volume), Medium::Disk);
    assert_eq!(
        medium(json!({"name": "v", "downwardAPI": {}})),
        Medium::Memory
    );
    assert_eq!(
        medium(json!({"name": "v", "projected": {}})),
        Medium::Memory
    );
}

#[test]
fn no_default_mode_means_the_apis_default() {
    let rig = rig(&[config_map("m", json!({"data": {"foo": "foo"}}))]);
    let made = rig.made(json!({"name": "v", "configMap": {"name": "m"}}));
    assert_eq!(made, expected(&[("foo", "foo", 0o644)]));
}

#[test]
fn a_secret_of_ten_megabytes_is_refused_and_whoever_waits_for_it_learns_why() {
    let secret = object(
        "v1",
        "Secret",
        "big",
        json!({"stringData": {"k": "x".repeat(10_000_000)}}),
    );
    let mut rig = rig(&[]);
    rig.objects = parse(secret.to_string().as_bytes()).objects;
    let volume = json!({"name": "v", "secret": {"secretName": "big"}});
    let why = "document 1: data: found 10000000 bytes, expected at most 1048576";
    let (message, until) = rig.refused(volume.clone());
    assert_eq!(message, format!("secret \"big\" not found: {why}"));
    assert_eq!(until, RetryWhen::Changed);

    // Other sources of objects may be less strict.
    let held = serde_json::from_value(
        json!({"metadata": {"name": "big"}, "data": {"k": "AAAA".repeat(400_000)}}),
    );
    let key = ("default".to_owned(), "big".to_owned());
    rig.objects
        .secrets
        .insert(key, std::sync::Arc::new(held.unwrap()));
    let (message, _) = rig.refused(volume);
    assert_eq!(
        message,
        "secret \"big\" has 1200000 bytes, expected at most 1048576"
    );
}
