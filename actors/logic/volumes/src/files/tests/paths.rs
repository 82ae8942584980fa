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

#[test]
fn a_volumes_files_are_bounded() {
    let file = || FileProjection {
        data: vec![0; MAX_VOLUME_BYTES / 2 + 1],
        ..FileProjection::default()
    };
    let one = BTreeMap::from([("a".to_owned(), file())]);
    assert!(checked(one).is_ok());
    let two = BTreeMap::from([("a".to_owned(), file()), ("b".to_owned(), file())]);
    let refused = checked(two).unwrap_err().to_string();
    assert_eq!(
        refused,
        "the volume's files have 33554434 bytes, expected at most 33554432"
    );
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
