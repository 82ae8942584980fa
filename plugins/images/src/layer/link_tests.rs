//! Entries below links, of the layer itself and of the layers below it.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use tokio::time::Instant;

use super::*;
use crate::testing::{Tar, limits};

/// Unpacks a layer upon others, the topmost first; its tar can be made again.
fn unpacked(home: &Path, name: &str, tar: &[u8], below: &[PathBuf]) -> Result<PathBuf, LayerError> {
    let scratch = home.join(name);
    fs::create_dir(&scratch).unwrap();
    let context = UnpackContext {
        scratch,
        disk: Disk::default(),
        limits: limits(),
        image_left: Arc::new(AtomicU64::new(limits().image_bytes)),
        stop: Stop::new(Instant::now() + limits().layer_time),
    };
    let expected = Expected {
        packed: None,
        diff: Digest::of(tar),
    };
    let mut unpacked = unpack(tar, &expected, &context)?;
    unpacked.finish(&context, below)?;
    let files = context.scratch.join("files");
    let mut again = Vec::new();
    let split = context.scratch.join(SPLIT);
    assemble(&split, &files, &unpacked.moved, &mut again).unwrap();
    assert_eq!(
        Digest::of(&again),
        Digest::of(tar),
        "{name}: its tar is made again"
    );
    Ok(files)
}

/// Everything in a folder: paths, and what they are.
fn listing(folder: &Path) -> Vec<String> {
    let mut list = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let name = path
                .strip_prefix(folder)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            let shown = if kind.is_dir() {
                folders.push(path);
                format!("{name}/")
            } else if kind.is_symlink() {
                format!("{name} -> {}", fs::read_link(&path).unwrap().display())
            } else if kind.is_char_device() {
                format!("{name} hidden")
            } else {
                format!(
                    "{name}: {}",
                    String::from_utf8(fs::read(&path).unwrap()).unwrap()
                )
            };
            list.push(shown);
        }
    }
    list.sort();
    list
}

fn base() -> Tar {
    Tar::default()
        .folder("usr", 0o755)
        .folder("usr/lib", 0o711)
        .file("usr/lib/a", b"a")
        .symlink("lib", "usr/lib")
        .symlink("lib64", "/lib/../lib")
        .symlink("up", "..")
        .symlink("circle", "circle")
        .file("file", b"")
        .symlink("to-file", "file")
}

/// Unpacks each row upon the base, and compares.
fn check(rows: &[(&str, Tar, &[&str])]) {
    for (case, tar, expected) in rows {
        let home = tempfile::tempdir().unwrap();
        let lower = unpacked(home.path(), "lower", &base().end(), &[]).unwrap();
        let before = listing(&lower);
        let files = unpacked(
            home.path(),
            "upper",
            &tar.clone().end(),
            std::slice::from_ref(&lower),
        )
        .unwrap();
        assert_eq!(listing(&files), *expected, "{case}");
        assert_eq!(listing(&lower), before, "{case}");
        let lib = files.join("usr/lib");
        if lib.exists() {
            // As the layer below has it.
            assert_eq!(
                fs::metadata(&lib).unwrap().permissions().mode() & 0o7777,
                0o711,
                "{case}"
            );
        }
        if files.join("usr/lib/d/y").exists() {
            let made = fs::metadata(files.join("usr/lib/d")).unwrap();
            assert_eq!(
                (made.mode() & 0o7777, made.mtime()),
                (0o700, 1_000_000),
                "{case}"
            );
        }
    }
}

#[test]
fn what_lies_below_a_link_of_a_lower_layer_goes_where_the_link_leads() {
    check(&[
        (
            "file and folder",
            Tar::default()
                .file("lib/x", b"x")
                .folder("lib/d", 0o700)
                .file("lib/d/y", b"y"),
            &[
                "usr/",
                "usr/lib/",
                "usr/lib/d/",
                "usr/lib/d/y: y",
                "usr/lib/x: x",
            ],
        ),
        (
            "link of a link",
            Tar::default().file("lib64/x", b"x"),
            &["usr/", "usr/lib/", "usr/lib/x: x"],
        ),
        (
            "beside what is there",
            Tar::default()
                .file("usr/lib/y", b"y")
                .file("usr/lib/d/1", b"1")
                .file("lib/x", b"x")
                .file("lib/d/2", b"2"),
            &[
                "usr/",
                "usr/lib/",
                "usr/lib/d/",
                "usr/lib/d/1: 1",
                "usr/lib/d/2: 2",
                "usr/lib/x: x",
                "usr/lib/y: y",
            ],
        ),
        (
            "whiteouts",
            Tar::default().file("lib/.wh.a", b""),
            &["usr/", "usr/lib/", "usr/lib/a hidden"],
        ),
    ]);
}

#[test]
fn links_lead_up_and_into_other_layers_and_what_replaces_them_stays() {
    check(&[
        (
            "up to the root",
            Tar::default().file("up/x", b"x").file("up/up/up/y", b"y"),
            &["x: x", "y: y"],
        ),
        (
            "a link of its own to what only lies below",
            Tar::default().symlink("bin", "lib/bin").file("bin/x", b"x"),
            &[
                "bin -> lib/bin",
                "usr/",
                "usr/lib/",
                "usr/lib/bin/",
                "usr/lib/bin/x: x",
            ],
        ),
        (
            "a folder in the link's place",
            Tar::default().folder("lib", 0o755).file("lib/x", b"x"),
            &["lib/", "lib/x: x"],
        ),
        (
            "a removed link",
            Tar::default().file(".wh.lib", b"").file("lib/x", b"x"),
            &["lib/", "lib/x: x"],
        ),
        (
            "hard links through it",
            Tar::default()
                .hard_link("h", "lib/a")
                .hard_link("lib/b", "lib64/a"),
            &["h: a", "usr/", "usr/lib/", "usr/lib/b: a"],
        ),
    ]);
}

#[test]
fn a_link_that_leads_nowhere_useful_is_refused() {
    for (path, reason) in [("circle/x", "circle"), ("to-file/x", "no folder")] {
        let home = tempfile::tempdir().unwrap();
        let lower = unpacked(home.path(), "lower", &base().end(), &[]).unwrap();
        let tar = Tar::default().file(path, b"x").end();
        let error = unpacked(home.path(), "upper", &tar, &[lower]).unwrap_err();
        assert!(error.to_string().contains(reason), "{path}: {error}");
    }
}
