//! Where files may lie.

use proptest::prelude::*;

use super::super::paths::checked;
use super::*;

fn named(path: &str) -> Result<Vec<String>, String> {
    several(&[path])
}

fn several(paths: &[&str]) -> Result<Vec<String>, String> {
    let files = paths
        .iter()
        .map(|path| ((*path).to_owned(), FileProjection::default()));
    let checked = checked(files.collect()).map_err(|problem| problem.to_string())?;
    Ok(checked.into_keys().collect())
}

/// Upstream's TestValidatePath (atomic_writer_test).
#[test]
fn paths_stay_within_the_volume() {
    let long_name = "a".repeat(256);
    let long_path = "a/".repeat(2049);
    let cases = [
        ("i/am/a/path", Ok("i/am/a/path")),
        ("i//am/./a/path/", Ok("i/am/a/path")),
        ("..i", Err("must not start with '..': ..i")),
        ("...", Err("must not start with '..': ...")),
        ("./..data", Err("must not start with '..': ./..data")),
        ("i/..am", Ok("i/..am")),
        ("", Err("must not be empty: \"\"")),
        (".", Err("must name a file: .")),
        (
            "/i/am/absolute",
            Err("must be relative path: /i/am/absolute"),
        ),
        ("..", Err("must not contain '..': ..")),
        ("i/../am", Err("must not contain '..': i/../am")),
        ("../../etc", Err("must not contain '..': ../../etc")),
        ("a\0b", Err("must not contain a zero byte: \"a\\0b\"")),
        (
            &long_name,
            Err("filenames must be less than or equal to 255 characters"),
        ),
        (
            &long_path,
            Err("must be less than or equal to 4096 characters"),
        ),
    ];
    for (path, expected) in cases {
        let expected = expected
            .map(|clean| vec![clean.to_owned()])
            .map_err(|text| format!("invalid path: {text}"));
        assert_eq!(named(path), expected, "{path:?}");
    }
}

#[test]
fn nothing_is_a_file_and_a_folder_at_once() {
    let refused = several(&["a", "a/b", "c"]);
    assert_eq!(
        refused,
        Err("invalid path: a/b lies below the file a".to_owned())
    );
    assert!(several(&["a", "ab", "b/a"]).is_ok());
    assert_eq!(several(&["a/b", "a//b"]).unwrap(), ["a/b"]);
}

/// What is beyond the bound is not even made: ten thousand paths of one key of a megabyte are ten gigabytes.
#[test]
fn a_volumes_files_are_bounded_while_they_are_made() {
    let big = "x".repeat(1_000_000);
    let rig = rig(&[config_map("m", json!({"data": {"key": big}}))]);
    let items = |many: u32| -> Value {
        (0..many)
            .map(|index| json!({"key": "key", "path": format!("{index}")}))
            .collect()
    };
    let volumes = |items: Value| {
        [
            json!({"name": "v", "configMap": {"name": "m", "items": items}}),
            json!({"name": "v", "projected": {"sources": [{"configMap": {"name": "m", "items": items}}]}}),
        ]
    };
    for volume in volumes(items(33)) {
        assert_eq!(rig.make(volume).unwrap().set.files.len(), 33);
    }
    let too_many = "the volume's files have 34000000 bytes, expected at most 33554432";
    for volume in volumes(items(10_000)) {
        let (message, until) = rig.refused(volume);
        assert_eq!((message.as_str(), until), (too_many, RetryWhen::Changed));
    }
}

#[test]
fn facts_of_the_pod_are_bounded_as_other_files() {
    let mut rig = rig(&[]);
    let note = ("note".to_owned(), "\"".repeat(200_000));
    rig.pod.metadata.annotations = Some([note].into());
    let items: Value = (0..10_000)
        .map(|index| {
            json!({"path": format!("{index}"), "fieldRef": {"fieldPath": "metadata.annotations"}})
        })
        .collect();
    let (message, _) = rig.refused(json!({"name": "v", "downwardAPI": {"items": items}}));
    let expected = "the volume's files have 33600588 bytes, expected at most 33554432";
    assert_eq!(message, expected);
}

/// A source of objects may give keys that the API server would not.
#[test]
fn a_key_that_is_a_path_is_a_path_within_the_volume_or_refused() {
    let mut rig = rig(&[]);
    let cases = [
        ("a/b", Ok("a/b")),
        (
            "../etc/passwd",
            Err("invalid path: must not contain '..': ../etc/passwd"),
        ),
        (
            "/etc/passwd",
            Err("invalid path: must be relative path: /etc/passwd"),
        ),
        (
            "..data",
            Err("invalid path: must not start with '..': ..data"),
        ),
    ];
    for (key, wanted) in cases {
        let map = json!({"metadata": {"name": "m"}, "data": {key: "x"}});
        let map = serde_json::from_value(map).unwrap();
        let name = ("default".to_owned(), "m".to_owned());
        rig.objects
            .config_maps
            .insert(name, std::sync::Arc::new(map));
        let made = rig.make(json!({"name": "v", "configMap": {"name": "m"}}));
        match wanted {
            Ok(path) => assert_eq!(shown(&made.unwrap().set)[0].0, path),
            Err(text) => {
                let error = made.unwrap_err();
                assert_eq!(
                    (error.message.as_str(), error.until),
                    (text, RetryWhen::Changed)
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn every_clean_path_is_one(path in "[a./\0]{0,12}") {
        if let Ok(clean) = named(&path) {
            let clean = &clean[0];
            prop_assert!(!clean.starts_with('/') && !clean.starts_with("..") && !clean.is_empty());
            prop_assert!(clean.split('/').all(|name| !["", ".", ".."].contains(&name)));
            prop_assert_eq!(named(clean), Ok(vec![clean.clone()]));
        }
    }
}
