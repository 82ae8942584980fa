//! Files with holes, as GNU tar writes them and as nobody should.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::testing::{Tar, limits};

fn context(home: &Path, name: &str) -> UnpackContext {
    let scratch = home.join(name);
    fs::create_dir(&scratch).unwrap();
    UnpackContext {
        scratch,
        disk: Disk::default(),
        limits: limits(),
        image_left: Arc::new(AtomicU64::new(limits().image_bytes)),
        stop: Stop::new(tokio::time::Instant::now() + std::time::Duration::from_secs(600)),
    }
}

/// Unpacks a layer; returns where its files are and its tar made again.
fn unpacked(home: &Path, name: &str, tar: &[u8]) -> Result<(PathBuf, Vec<u8>), LayerError> {
    let context = context(home, name);
    let expected = Expected {
        packed: None,
        diff: Digest::of(tar),
    };
    unpack(tar, &expected, &context)?;
    let files = context.scratch.join("files");
    let mut again = Vec::new();
    assemble(&context.scratch.join(SPLIT), &files, &[], &mut again).unwrap();
    Ok((files, again))
}

/// A file of 40 MiB with 30 pieces: more than one header of the old form holds.
fn holed(path: &Path) {
    let file = File::create(path).unwrap();
    for piece in 0..30_u64 {
        let at = piece * (1 << 20) + 8192;
        file.write_all_at(&[u8::try_from(piece).unwrap() + 1; 5000], at)
            .unwrap();
    }
    file.set_len(40 << 20).unwrap();
}

#[test]
fn every_form_of_gnu_tar_is_unpacked_with_its_holes_and_made_again() {
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("source");
    fs::create_dir(&source).unwrap();
    holed(&source.join("holed"));
    File::create(source.join("hole"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    fs::write(source.join("plain"), "after it").unwrap();
    for (name, form) in [
        ("old", "--format=gnu"),
        ("zero-zero", "--sparse-version=0.0"),
        ("zero-one", "--sparse-version=0.1"),
        ("one-zero", "--sparse-version=1.0"),
    ] {
        let mut tar = Command::new("tar");
        if name != "old" {
            tar.arg("--format=posix");
        }
        let tar = tar
            .args(["--sparse", form, "--numeric-owner", "-C"])
            .arg(&source)
            .args(["-cf", "-", "holed", "hole", "plain"])
            .output()
            .unwrap();
        assert!(tar.status.success(), "{tar:?}");
        assert!(tar.stdout.len() < 1 << 20, "tar found no holes");
        let (files, again) = unpacked(home.path(), name, &tar.stdout).unwrap();
        for file in ["holed", "hole", "plain"] {
            let (found, expected) = (fs::read(files.join(file)), fs::read(source.join(file)));
            assert!(
                found.unwrap() == expected.unwrap(),
                "{name}: {file} is another one"
            );
        }
        let blocks = |file: &str| fs::metadata(files.join(file)).unwrap().blocks();
        assert!(
            blocks("holed") * 512 < 1 << 20,
            "{name}: the holes are filled"
        );
        assert_eq!(blocks("hole"), 0, "{name}");
        assert!(again == tar.stdout, "{name}: another tar is made");
    }
}

/// An entry of the old form; numbers are octal digits.
fn old(size: usize, real_size: &str, map: &[(&str, &str)]) -> Vec<u8> {
    let mut header = *tar::Header::new_gnu().as_bytes();
    header[..3].copy_from_slice(b"old");
    header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    header[156] = b'S';
    for (number, (offset, length)) in map.iter().enumerate() {
        let at = 386 + 24 * number;
        header[at..at + offset.len()].copy_from_slice(offset.as_bytes());
        header[at + 12..at + 12 + length.len()].copy_from_slice(length.as_bytes());
    }
    header[483..483 + real_size.len()].copy_from_slice(real_size.as_bytes());
    sealed(header)
}

fn sealed(mut header: [u8; 512]) -> Vec<u8> {
    header[100..107].copy_from_slice(b"0000644");
    for field in [108, 116] {
        header[field..field + 7].copy_from_slice(b"0000000");
    }
    header[136..147].copy_from_slice(b"00000000000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header.to_vec()
}

#[test]
fn a_map_that_lies_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let block = [1; 512];
    let old = |size, real_size, map: &[_]| {
        let tar = [old(size, real_size, map), block.to_vec(), vec![0; 1024]];
        tar.concat()
    };
    // 512 is 1000 in octal.
    let right = old(512, "2000", &[("400", "1000")]);
    unpacked(home.path(), "right", &right).unwrap();
    let pax = |records: &[(&str, &str)], content: &[u8]| {
        let records: Vec<_> = records
            .iter()
            .map(|(key, value)| (*key, value.as_bytes()))
            .collect();
        Tar::default().pax(&records).file("x", content).end()
    };
    let map = |map| {
        [
            ("GNU.sparse.numblocks", "2"),
            ("GNU.sparse.size", "1000"),
            ("GNU.sparse.map", map),
        ]
    };
    let one = [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.realsize", "1000"),
    ];
    let long = vec![b'1'; 4096];
    let mut many = b"100000000\n".to_vec();
    many.extend(std::iter::repeat_n(b"0\n".as_slice(), 1 << 20).flatten());
    for (number, (tar, words)) in [
        (old(512, "2000", &[("0", "400"), ("200", "400")]), "overlap"),
        (old(512, "700", &[("0", "1000")]), "beyond"),
        (old(512, "2000", &[("0", "400")]), "another size"),
        (old(512, "2000", &[("0", "9")]), "no number"),
        (old(512, "x", &[("0", "1000")]), "size is no number"),
        (pax(&map("0,2,1,2"), b"1234"), "overlap"),
        (pax(&map("0,2,999,2"), b"1234"), "beyond"),
        (pax(&map("0,2,5,2"), b"123"), "another size"),
        (pax(&map("0,2,5"), b"1234"), "another length"),
        (pax(&map("0,2,5,-2"), b"1234"), "no number"),
        (pax(&map("0,2,5,18446744073709551615"), b"1234"), "beyond"),
        (pax(&[("GNU.sparse.numbytes", "1")], b"1"), "take turns"),
        (
            pax(
                &[("GNU.sparse.major", "2"), ("GNU.sparse.minor", "0")],
                b"1",
            ),
            "unknown version",
        ),
        (pax(&one, b"1\n0\n"), "within a sparse map"),
        (pax(&one, &long), "no number"),
        (pax(&one, &many), "bytes in a sparse map"),
    ]
    .into_iter()
    .enumerate()
    {
        let refused = unpacked(home.path(), &number.to_string(), &tar).unwrap_err();
        assert!(refused.to_string().contains(words), "{words}: {refused}");
    }
}

#[test]
fn a_hole_larger_than_a_layer_may_be_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let records: [(&str, &[u8]); 3] = [
        ("GNU.sparse.numblocks", b"0"),
        ("GNU.sparse.size", b"9223372036854775807"),
        ("GNU.sparse.map", b""),
    ];
    let tar = Tar::default().pax(&records).file("x", b"").end();
    let refused = unpacked(home.path(), "a", &tar).unwrap_err();
    assert!(
        refused.to_string().contains("bytes in a sparse file"),
        "{refused}"
    );
}

/// Blocks of a map that say that more of them follow, and hold nothing.
#[test]
fn a_map_without_an_end_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut header = *tar::Header::new_gnu().as_bytes();
    header[..3].copy_from_slice(b"old");
    header[124..135].fill(b'0');
    header[156] = b'S';
    (header[386], header[398], header[482], header[483]) = (b'0', b'0', 1, b'0');
    let mut further = [0; 512];
    further[504] = 1;
    let blocks = usize::try_from(limits().header_bytes / 512).unwrap() + 1;
    let tar = [sealed(header), further.repeat(blocks)].concat();
    let refused = unpacked(home.path(), "a", &tar).unwrap_err();
    assert!(
        refused.to_string().contains("bytes in a sparse map"),
        "{refused}"
    );
}
