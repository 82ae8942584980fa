//! What a layer may do to the folder that it is unpacked into, and to nothing else.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::*;
use crate::testing::{Tar, limits};

struct Unpacking {
    home: tempfile::TempDir,
    limits: Limits,
}

impl Unpacking {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        Self {
            home,
            limits: limits(),
        }
    }

    fn context(&self, name: &str) -> UnpackContext {
        let scratch = self.home.path().join(name);
        fs::create_dir(&scratch).unwrap();
        UnpackContext {
            scratch,
            disk: Disk::default(),
            limits: self.limits.clone(),
            image_left: Arc::new(AtomicU64::new(self.limits.image_bytes)),
            stop: Stop::new(tokio::time::Instant::now() + std::time::Duration::from_secs(600)),
        }
    }

    /// Unpacks a layer upon others, the topmost first, and returns where its files are.
    fn unpack(&self, name: &str, tar: Vec<u8>, below: &[PathBuf]) -> Result<PathBuf, LayerError> {
        let context = self.context(name);
        let expected = Expected {
            packed: None,
            diff: Digest::of(&tar),
        };
        unpack(tar.as_slice(), &expected, &context)?.finish(&context, below)?;
        Ok(context.scratch.join("files"))
    }

    fn refusal(&self, name: &str, tar: Tar) -> String {
        let error = self.unpack(name, tar.end(), &[]).unwrap_err();
        error.to_string()
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// As by Go's archive/tar, which other builders of images use.
#[test]
fn an_owner_and_a_mode_that_are_not_written_are_zero() {
    let unpacking = Unpacking::new();
    let files = unpacking.unpack("a", Tar::default().blank("x").end(), &[]);
    let found = fs::metadata(files.unwrap().join("x")).unwrap();
    let (uid, gid, mode) = (found.uid(), found.gid(), found.mode());
    assert_eq!((uid, gid, mode & 0o7777), (0, 0, 0));
}

/// chown(2) takes it as no change: the file would be root's.
#[test]
fn an_owner_that_is_no_id_is_refused() {
    for owner in ["uid", "gid"] {
        let tar = Tar::default().pax(&[(owner, b"4294967295")]);
        let error = Unpacking::new()
            .unpack("a", tar.file("x", b"x").end(), &[])
            .unwrap_err();
        assert!(error.to_string().contains("above 4294967294"), "{error}");
    }
}

/// What a folder had is forgotten with it, and what only has its name as a beginning is not.
#[test]
fn a_folder_that_a_file_replaces_takes_what_was_below_with_it() {
    let unpacking = Unpacking::new();
    let lower = Tar::default().file("lower", b"lower").end();
    let lower = unpacking.unpack("lower", lower, &[]).unwrap();
    let tar = Tar::default()
        .folder("a", 0o700)
        .file("a/implied/x", b"x")
        .hard_link("a/link", "lower")
        .folder("a-b", 0o700)
        .hard_link("a-b/link", "lower")
        .file("a", b"file");
    let files = unpacking.unpack("upper", tar.end(), &[lower]).unwrap();
    assert_eq!(fs::read(files.join("a")).unwrap(), b"file");
    assert_eq!(fs::read(files.join("a-b/link")).unwrap(), b"lower");
    assert_eq!(fs::metadata(files.join("a-b")).unwrap().mtime(), 1_000_000);
}

/// As containerd, which adds to the folder that the layers below made: cron reads no folder again that is as old as before.
#[test]
fn a_folder_that_a_layer_adds_to_without_an_entry_is_as_new_as_that() {
    let unpacking = Unpacking::new();
    let lower = Tar::default().folder("cron.d", 0o711);
    let lower = unpacking.unpack("lower", lower.end(), &[]).unwrap();
    let upper = Tar::default().file("cron.d/job", b"x");
    let files = unpacking.unpack("upper", upper.end(), std::slice::from_ref(&lower));
    let mtime = |folder: &Path| fs::metadata(folder.join("cron.d")).unwrap().mtime();
    let files = files.unwrap();
    assert_eq!(mtime(&lower), 1_000_000);
    assert!(mtime(&files) > 1_000_000);
    assert_eq!(
        fs::metadata(files.join("cron.d")).unwrap().mode() & 0o7777,
        0o711
    );
}

#[test]
fn no_path_leads_out_of_the_layer() {
    let unpacking = Unpacking::new();
    let outside = unpacking.home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    let outside_text = outside.to_str().unwrap();
    assert!(
        unpacking
            .refusal("a", Tar::default().file("../outside/x", b""))
            .contains("..")
    );
    assert!(
        unpacking
            .refusal("b", Tar::default().file("a/../../outside/x", b""))
            .contains("..")
    );
    // Through a link: it is followed as in a chroot of the layer.
    let through = Tar::default().symlink("l", outside_text).file("l/x", b"");
    let files = unpacking.unpack("c", through.end(), &[]).unwrap();
    assert!(
        files
            .join(outside_text.trim_start_matches('/'))
            .join("x")
            .is_file()
    );
    let relative = Tar::default()
        .symlink("l", "../../outside")
        .file("l/x", b"");
    let files = unpacking.unpack("d", relative.end(), &[]).unwrap();
    assert!(files.join("outside/x").is_file());
    assert_eq!(names(&outside), ["secret"]);
    let linked = Tar::default()
        .symlink("l", outside_text)
        .hard_link("x", "l/secret");
    assert!(unpacking.refusal("e", linked).contains("no layer has"));
    let absolute = unpacking
        .unpack("f", Tar::default().file("/etc/x", b"in").end(), &[])
        .unwrap();
    assert_eq!(fs::read(absolute.join("etc/x")).unwrap(), b"in");
    // A file over a link replaces the link, and doesn't write through it.
    let over = Tar::default()
        .symlink("l", &format!("{outside_text}/secret"))
        .file("l", b"mine")
        .end();
    let over = unpacking.unpack("g", over, &[]).unwrap();
    assert_eq!(fs::read(over.join("l")).unwrap(), b"mine");
    assert_eq!(names(&outside), ["secret"]);
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
}

#[test]
fn a_link_to_a_folder_of_the_layer_is_followed_within_it() {
    let unpacking = Unpacking::new();
    let tar = Tar::default()
        .folder("usr/lib", 0o755)
        .symlink("lib", "/usr/lib")
        .file("lib/x", b"1");
    let files = unpacking.unpack("a", tar.end(), &[]).unwrap();
    assert_eq!(fs::read(files.join("usr/lib/x")).unwrap(), b"1");
    assert!(
        fs::symlink_metadata(files.join("lib"))
            .unwrap()
            .is_symlink()
    );
}

#[test]
fn hard_links_to_devices_and_fifos_of_lower_layers_open_nothing() {
    let unpacking = Unpacking::new();
    // Opening a FIFO without a writer never ends, and opening the device 1:11 writes to the kernel's log.
    let lower = Tar::default()
        .device(b'6', "fifo", 0, 0)
        .device(b'3', "null", 1, 3)
        .symlink("s", "/etc/shadow");
    let lower = unpacking.unpack("lower", lower.end(), &[]).unwrap();
    let tar = Tar::default()
        .hard_link("a", "fifo")
        .hard_link("b", "null")
        .hard_link("c", "s");
    let files = unpacking.unpack("upper", tar.end(), &[lower]).unwrap();
    assert!(
        fs::symlink_metadata(files.join("a"))
            .unwrap()
            .file_type()
            .is_fifo()
    );
    let null = fs::symlink_metadata(files.join("b")).unwrap();
    assert!(null.file_type().is_char_device());
    assert_eq!(null.rdev(), rustix::fs::makedev(1, 3));
    assert_eq!(
        fs::read_link(files.join("c")).unwrap(),
        Path::new("/etc/shadow")
    );
}

#[test]
fn hard_links_to_files_of_lower_layers_keep_holes_and_count() {
    let mut unpacking = Unpacking::new();
    let lower = unpacking
        .unpack("lower", Tar::default().file("big", b"data").end(), &[])
        .unwrap();
    let big = fs::File::options()
        .write(true)
        .open(lower.join("big"))
        .unwrap();
    big.set_len(1 << 40).unwrap();
    let two = Tar::default()
        .hard_link("x", "big")
        .hard_link("y", "big")
        .end();
    let files = unpacking
        .unpack("upper", two.clone(), std::slice::from_ref(&lower))
        .unwrap();
    let (x, y) = (
        fs::metadata(files.join("x")).unwrap(),
        fs::metadata(files.join("y")).unwrap(),
    );
    assert_eq!((x.ino(), x.len()), (y.ino(), 1 << 40));
    assert!(
        x.blocks() < 1000,
        "{} blocks: the hole was filled",
        x.blocks()
    );
    fs::write(lower.join("big"), vec![7; 200_000]).unwrap();
    unpacking.limits.layer_bytes = 100_000;
    let result = unpacking.unpack("limited", two, &[lower]);
    // A file system that shares blocks copies nothing.
    if let Err(error) = result {
        assert_eq!(
            error.to_string(),
            "the layer has more than 100000 bytes copied for hard links"
        );
    }
}

#[test]
fn a_removed_file_of_a_lower_layer_is_no_target() {
    let unpacking = Unpacking::new();
    let bottom = unpacking
        .unpack("bottom", Tar::default().file("d/f", b"1").end(), &[])
        .unwrap();
    let middle = unpacking
        .unpack("middle", Tar::default().file("d/.wh.f", b"").end(), &[])
        .unwrap();
    let opaque = unpacking
        .unpack(
            "opaque",
            Tar::default().file("d/.wh..wh..opq", b"").end(),
            &[],
        )
        .unwrap();
    for (name, above) in [("x", middle), ("y", opaque)] {
        let tar = Tar::default().hard_link("l", "d/f").end();
        let error = unpacking
            .unpack(name, tar, &[above, bottom.clone()])
            .unwrap_err();
        assert!(error.to_string().contains("no layer has"), "{error}");
    }
}

#[test]
fn whiteouts_hide_what_is_below_and_not_their_own_layer() {
    let unpacking = Unpacking::new();
    let tar = Tar::default()
        .file("a/.wh.gone", b"")
        .file("a/stays", b"1")
        .file("a/.wh.stays", b"")
        .file("b/.wh..wh..opq", b"")
        .file(".wh.again", b"")
        .folder("again", 0o700)
        .file(".wh..wh.plnk", b"");
    let files = unpacking.unpack("a", tar.end(), &[]).unwrap();
    let gone = fs::symlink_metadata(files.join("a/gone")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    assert_eq!(fs::read(files.join("a/stays")).unwrap(), b"1");
    for folder in ["b", "again"] {
        let mut value = [0; 1];
        rustix::fs::getxattr(files.join(folder), "trusted.overlay.opaque", &mut value).unwrap();
        assert_eq!(value, *b"y", "{folder}");
    }
    assert_eq!(names(&files), ["a", "again", "b"]);
    assert!(
        unpacking
            .refusal("b", Tar::default().file("a/.wh...", b""))
            .contains("no name")
    );
    assert!(
        unpacking
            .refusal("c", Tar::default().device(b'3', "x", 0, 0))
            .contains("whiteout")
    );
}

#[test]
fn attributes_that_overlayfs_would_believe_are_left_out() {
    let unpacking = Unpacking::new();
    let tar = Tar::default()
        .pax(&[
            ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
            ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
            ("SCHILY.xattr.user.overlay.opaque", b"y"),
            ("SCHILY.xattr.security.selinux", b"x"),
            ("SCHILY.xattr.user.kept", b"1"),
        ])
        .folder("d", 0o755);
    let files = unpacking.unpack("a", tar.end(), &[]).unwrap();
    let mut list = vec![0; 4096];
    let count = rustix::fs::listxattr(files.join("d"), list.as_mut_slice()).unwrap();
    assert_eq!(&list[..count], b"user.kept\0");
}

#[test]
fn modes_names_and_links_are_kept() {
    let unpacking = Unpacking::new();
    let deep = "d/".repeat(1500);
    let tar = Tar::default()
        .entry(b'0', b"su", "", 0o4755, b"1")
        .entry(b'0', b"\xff\xfe", "", 0o644, b"2")
        .hard_link("two", "su")
        .device(b'4', "disk", 8, 1)
        .long(b'5', deep.as_bytes(), b"")
        .long(b'0', format!("{deep}f").as_bytes(), b"deep")
        .folder("tmp", 0o1777);
    let files = unpacking.unpack("a", tar.end(), &[]).unwrap();
    let su = fs::metadata(files.join("su")).unwrap();
    assert_eq!(
        (su.mode() & 0o7777, su.nlink(), su.mtime()),
        (0o4755, 2, 1_000_000)
    );
    assert_eq!(
        fs::metadata(files.join("tmp")).unwrap().mode() & 0o7777,
        0o1777
    );
    assert_eq!(fs::metadata(files.join("tmp")).unwrap().mtime(), 1_000_000);
    assert!(
        fs::symlink_metadata(files.join("disk"))
            .unwrap()
            .file_type()
            .is_block_device()
    );
    assert_eq!(fs::read(files.join(format!("{deep}f"))).unwrap(), b"deep");
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    assert_eq!(fs::read(files.join(name)).unwrap(), b"2");
}

#[test]
fn a_folder_without_an_entry_is_as_the_lower_layers_have_it() {
    let unpacking = Unpacking::new();
    let lower = unpacking
        .unpack("lower", Tar::default().folder("tmp", 0o1777).end(), &[])
        .unwrap();
    let files = unpacking
        .unpack("upper", Tar::default().file("tmp/x", b"").end(), &[lower])
        .unwrap();
    assert_eq!(
        fs::metadata(files.join("tmp")).unwrap().mode() & 0o7777,
        0o1777
    );
}

#[test]
fn what_is_too_much_is_refused_by_name() {
    let mut unpacking = Unpacking::new();
    unpacking.limits.header_bytes = 4096;
    let long = vec![b'a'; 5000];
    let error = unpacking.refusal("a", Tar::default().long(b'0', &long, b""));
    assert_eq!(
        error,
        "the layer has more than 4096 bytes in an extended header"
    );
    unpacking.limits.entries = 2;
    let three = Tar::default().file("1", b"").file("2", b"").file("3", b"");
    assert_eq!(
        unpacking.refusal("b", three),
        "the layer has more than 2 entries"
    );
    unpacking.limits.entries = 1000;
    unpacking.limits.metadata_bytes = 1000;
    let mut many = Tar::default();
    for number in 0..20 {
        many = many.folder(&format!("{number}"), 0o755);
    }
    assert_eq!(
        unpacking.refusal("c", many),
        "the layer has more than 1000 bytes of names"
    );
    unpacking.limits = limits();
    unpacking.limits.depth = 3;
    let deep = Tar::default().file("a/b/c", b"").file("a/b/c2/d", b"");
    assert!(unpacking.refusal("d", deep).contains("too deep"));
    unpacking.limits.path_components = 7;
    let wide = (0..3).fold(Tar::default(), |tar, number| {
        tar.file(&format!("a/b/{number}"), b"")
    });
    assert_eq!(
        unpacking.refusal("e", wide),
        "the layer has more than 7 components of paths"
    );
}

#[test]
fn a_layer_ends_at_its_deadline_and_when_nobody_wants_it() {
    let unpacking = Unpacking::new();
    let tar = Tar::default().file("x", b"1").end();
    let expected = Expected {
        packed: None,
        diff: Digest::of(&tar),
    };
    let mut late = unpacking.context("late");
    late.stop = Stop::new(tokio::time::Instant::now());
    let given_up = unpacking.context("given up");
    drop(given_up.stop.guard());
    for (context, reason) in [(late, "deadline"), (given_up, "gone")] {
        let error = unpack(tar.as_slice(), &expected, &context).unwrap_err();
        assert!(matches!(error, LayerError::Stopped(_)), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn a_zip_bomb_ends_at_the_limit() {
    let mut unpacking = Unpacking::new();
    unpacking.limits.layer_bytes = 1 << 20;
    let bomb = Tar::default().file("zeros", &vec![0; 8 << 20]).end();
    for (name, packed) in [
        (
            "gzip",
            crate::testing::ImageBuilder::gzip(vec![bomb.clone()]).packed,
        ),
        (
            "zstd",
            crate::testing::ImageBuilder::zstd(vec![bomb.clone()]).packed,
        ),
    ] {
        assert!(packed[0].len() < 100_000);
        let context = unpacking.context(name);
        let expected = Expected {
            packed: None,
            diff: Digest::of(&bomb),
        };
        let error = unpack(packed[0].as_slice(), &expected, &context).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the layer has more than 1048576 unpacked bytes"
        );
        assert!(
            fs::metadata(context.scratch.join("files/zeros"))
                .unwrap()
                .len()
                <= 1 << 20
        );
    }
    let context = unpacking.context("image");
    context
        .image_left
        .store(1000, std::sync::atomic::Ordering::Relaxed);
    let tar = Tar::default().file("x", &[0; 2000]).end();
    let expected = Expected {
        packed: None,
        diff: Digest::of(&tar),
    };
    let error = unpack(tar.as_slice(), &expected, &context).unwrap_err();
    assert!(error.to_string().contains("left to the image"), "{error}");
}

#[test]
fn another_digest_or_size_than_announced_is_an_error() {
    let unpacking = Unpacking::new();
    let tar = Tar::default().file("x", b"1").end();
    let right = (Digest::of(&tar), u64::try_from(tar.len()).unwrap());
    let wrong = Digest::of(b"other");
    for (name, what, packed, diff) in [
        ("a", "digest", (wrong.clone(), right.1), right.0.clone()),
        ("b", "size", (right.0.clone(), right.1 + 1), right.0.clone()),
        ("c", "diff id", right.clone(), wrong.clone()),
    ] {
        let expected = Expected {
            packed: Some(packed),
            diff,
        };
        let error = unpack(tar.as_slice(), &expected, &unpacking.context(name)).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("the {what} of the layer is ")),
            "{error}"
        );
    }
}

#[test]
fn a_torn_tar_is_malformed_and_never_a_panic() {
    let unpacking = Unpacking::new();
    let tar = Tar::default()
        .pax(&[("path", b"long")])
        .file("x", &[1; 700])
        .folder("d", 0o755)
        .end();
    let whole = tar.len() - 1024;
    for (number, end) in (1..whole)
        .step_by(97)
        .filter(|end| end % 512 != 0)
        .enumerate()
    {
        let result = unpacking.unpack(&number.to_string(), tar[..end].to_vec(), &[]);
        assert!(
            matches!(result, Err(LayerError::Malformed { .. })),
            "cut at {end}: {result:?}"
        );
    }
    let zeros = Tar::default().file("x", b"").raw(&[0; 512]).file("y", b"");
    assert!(
        unpacking
            .refusal("zeros", zeros)
            .contains("followed by something")
    );
}
