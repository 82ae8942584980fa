//! Links, races and odd files; each also by hand, as on an old kernel.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use super::*;
use crate::test_dir::{TestDir, exchange};

const FOLDER: Mode = Mode::from_bits_retain(0o755);

/// volume/ with links of every kind; secret/ and secret.txt beside it.
fn test_dir() -> (TestDir, Root) {
    let test_dir = TestDir::new();
    test_dir.file("secret/file", "secret");
    let volume = test_dir.folder("volume");
    test_dir.file("volume/plain", "plain");
    test_dir.file("volume/a/b/deep", "deep");
    for (aim, link) in [
        ("plain", "to-plain"),
        ("a/b", "to-folder"),
        ("../plain", "a/up"),
        ("../../a/../plain", "a/b/up-and-down"),
        ("to-link", "ring"),
        ("ring", "to-link"),
        ("nowhere", "dangling"),
        ("../secret", "out"),
        ("..", "a/root"),
        ("../..", "a/out"),
        ("/etc/passwd", "absolute"),
        ("/proc/self/root/etc/passwd", "magic"),
        (".", "self"),
    ] {
        symlink(aim, volume.join(link)).unwrap();
    }
    symlink(volume.join("plain"), volume.join("absolute-inside")).unwrap();
    (test_dir, Root::open(&volume).unwrap())
}

type OpenFn = fn(&Root, &Path) -> Result<OwnedFd, Errno>;

fn ways() -> [(&'static str, OpenFn); 2] {
    [
        ("openat2", |root, path| {
            root.beneath(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        }),
        ("by hand", |root, path| {
            hand::open(
                root.as_fd(),
                path,
                OFlags::PATH | OFlags::CLOEXEC,
                Mode::empty(),
            )
        }),
    ]
}

fn same(opened: &OwnedFd, path: &Path) -> bool {
    let (stat, expected) = (stat(opened).unwrap(), fs::metadata(path).unwrap());
    (stat.st_dev, stat.st_ino) == (expected.dev(), expected.ino())
}

#[test]
fn links_that_stay_below_are_followed() {
    let (test_dir, root) = test_dir();
    for (path, aim) in [
        ("plain", "plain"),
        ("to-plain", "plain"),
        ("to-folder/deep", "a/b/deep"),
        ("a/up", "plain"),
        ("a/b/up-and-down", "plain"),
        ("to-folder/up-and-down", "plain"),
        ("a/root/plain", "plain"),
        ("self/self/a", "a"),
        ("a/b/..", "a"),
        ("a/./b", "a/b"),
        (".", ""),
    ] {
        for (way, open) in ways() {
            let opened = open(&root, Path::new(path)).unwrap();
            let aim = test_dir.path("volume").join(aim);
            assert!(same(&opened, &aim), "{path} {way}");
        }
    }
    assert!(same(&root.open_path(Path::new("")).unwrap(), root.path()));
}

#[test]
fn links_that_leave_are_refused() {
    let (_ground, root) = test_dir();
    for path in [
        "out",
        "out/file",
        "a/out",
        "a/out/secret/file",
        "absolute",
        "absolute-inside",
        "..",
        "../secret/file",
        "a/../../secret",
        "/etc/passwd",
    ] {
        for (way, open) in ways() {
            let refusal = open(&root, Path::new(path)).unwrap_err();
            assert_eq!(refusal, Errno::XDEV, "{path} {way}");
        }
        let refusal = root.open_path(Path::new(path)).unwrap_err();
        let expected = format!("{path} leads out of {}", root.path().display());
        assert_eq!(refusal.to_string(), expected);
        assert!(!refusal.transient());
        assert_eq!(Status::from(refusal).code(), Code::InvalidArgument);
    }
    for (_, open) in ways() {
        open(&root, Path::new("magic")).unwrap_err();
    }
}

#[test]
fn what_is_not_there_or_never_ends_is_told_so() {
    let (_ground, root) = test_dir();
    for (path, expected) in [
        ("nothing", Errno::NOENT),
        ("dangling", Errno::NOENT),
        ("plain/below", Errno::NOTDIR),
        ("ring", Errno::LOOP),
    ] {
        for (way, open) in ways() {
            let refusal = open(&root, Path::new(path)).unwrap_err();
            assert_eq!(refusal, expected, "{path} {way}");
        }
    }
    assert!(
        root.open_path(Path::new("dangling"))
            .unwrap_err()
            .not_found()
    );
}

#[test]
fn by_hand_files_are_opened_for_reading_and_made() {
    let (test_dir, root) = test_dir();
    let open = |path: &str, flags| {
        let mode = Mode::from_bits_retain(0o640);
        hand::open(root.as_fd(), Path::new(path), flags | OFlags::CLOEXEC, mode)
    };
    let mut content = String::new();
    let file = open("to-folder/deep", OFlags::RDONLY).unwrap();
    File::from(file).read_to_string(&mut content).unwrap();
    assert_eq!(content, "deep");
    let fresh = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    open("to-folder/new", fresh).unwrap();
    assert!(test_dir.path("volume/a/b/new").exists());
    assert_eq!(open("dangling", fresh).unwrap_err(), Errno::EXIST);
    assert_eq!(open("out/new", fresh).unwrap_err(), Errno::XDEV);
    let folder = OFlags::PATH | OFlags::DIRECTORY;
    assert_eq!(open("plain", folder).unwrap_err(), Errno::NOTDIR);
    open("a", folder).unwrap();
}

#[test]
fn missing_folders_are_made_with_the_mode_that_was_asked_for() {
    let (test_dir, root) = test_dir();
    let before = rustix::process::umask(Mode::from_bits_retain(0o077));
    for (path, mode) in [
        ("x/y/z", 0o775),
        ("to-folder/new/er", 0o2770),
        ("a/root/w", 0o1777),
        ("self/s/./t", 0o755),
    ] {
        let mode = Mode::from_bits_retain(mode);
        let made = root.make_dirs(Path::new(path), mode).unwrap();
        assert!(same(&made, &root.path().join(path)), "{path}");
        for _ in 0..2 {
            root.make_dirs(Path::new(path), FOLDER).unwrap();
        }
        let folder = fs::metadata(root.path().join(path)).unwrap();
        assert_eq!(folder.permissions().mode() & 0o7777, mode.bits(), "{path}");
    }
    rustix::process::umask(before);
    let x = fs::metadata(test_dir.path("volume/x")).unwrap();
    assert_eq!(x.permissions().mode() & 0o7777, 0o775);
    let a = fs::metadata(test_dir.path("volume/a")).unwrap();
    assert_eq!(a.permissions().mode() & 0o7777, 0o755, "it was there");
    assert!(same(
        &root.make_dirs(Path::new(""), FOLDER).unwrap(),
        root.path()
    ));
}

#[test]
fn folders_are_made_nowhere_else() {
    let (test_dir, root) = test_dir();
    for path in ["out/new", "a/out/secret/new", "absolute/new", "../new"] {
        let refusal = root.make_dirs(Path::new(path), FOLDER).unwrap_err();
        assert!(
            matches!(refusal, SafeError::Escapes { .. }),
            "{path} {refusal}"
        );
    }
    for (path, why) in [
        ("dangling/new", "file exists"),
        ("dangling", "file exists"),
        ("plain/new", "not a directory"),
        ("plain", "not a directory"),
    ] {
        let refusal = root.make_dirs(Path::new(path), FOLDER).unwrap_err();
        let text = Status::from(refusal).message().to_owned();
        assert!(text.ends_with(why), "{text}");
    }
    let beside = fs::read_dir(test_dir.root()).unwrap().count();
    assert_eq!(beside, 2, "secret and volume");
    assert_eq!(fs::read_dir(test_dir.path("secret")).unwrap().count(), 1);
}

#[test]
fn only_plain_files_of_a_bounded_size_are_read() {
    let (test_dir, root) = test_dir();
    let read = |path: &str, most| root.read_file(Path::new(path), most);
    assert_eq!(read("to-folder/deep", 4).unwrap(), b"deep");
    assert_eq!(read("plain", 100).unwrap(), b"plain");
    test_dir.file("volume/empty", "");
    assert_eq!(read("empty", 0).unwrap(), b"");
    let pipe = test_dir.path("volume/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR).unwrap();
    for (path, why) in [
        ("to-folder/deep", "is larger than 3 bytes"),
        ("a", "is not a regular file"),
        ("pipe", "is not a regular file"),
        ("out/file", "leads out of"),
        ("nothing", "open"),
    ] {
        let refusal = read(path, 3).unwrap_err().to_string();
        assert!(refusal.contains(why), "{refusal}");
    }
}

#[test]
fn a_new_file_is_never_one_that_was_there() {
    let (test_dir, root) = test_dir();
    let mode = Mode::from_bits_retain(0o600);
    drop(root.create(Path::new("to-folder/new"), mode).unwrap());
    assert!(test_dir.path("volume/a/b/new").exists());
    for path in ["plain", "to-plain", "dangling", "out/new"] {
        root.create(Path::new(path), mode).unwrap_err();
    }
    assert!(!test_dir.path("volume/nowhere").exists());
}

#[test]
fn whoever_exchanges_folders_and_links_meanwhile_never_leads_out() {
    let test_dir = TestDir::new();
    let inside = fs::metadata(test_dir.folder("volume/d/in")).unwrap();
    let inside = (inside.dev(), inside.ino());
    test_dir.folder("outside/in");
    let volume = test_dir.path("volume");
    symlink("../outside", volume.join("link")).unwrap();
    let (over, volume_too) = (Arc::new(AtomicBool::new(false)), volume.clone());
    let swapping = thread::spawn({
        let over = over.clone();
        move || {
            while !over.load(Ordering::Relaxed) {
                exchange(&volume_too.join("d"), &volume_too.join("link"));
            }
        }
    });
    let root = Root::open(&volume).unwrap();
    let (mut found, mut refused) = (0, 0);
    for round in 0..200_000 {
        for (_, open) in ways() {
            match open(&root, Path::new("d/in")) {
                Ok(opened) => {
                    let stat = stat(&opened).unwrap();
                    assert_eq!((stat.st_dev, stat.st_ino), inside);
                    found += 1;
                }
                Err(_) => refused += 1,
            }
        }
        drop(root.make_dirs(Path::new("d/made/deeper"), FOLDER));
        if round > 5_000 && found > 100 && refused > 100 {
            break;
        }
    }
    over.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
    assert!(found > 0 && refused > 0, "{found} found, {refused} refused");
    assert_eq!(fs::read_dir(test_dir.path("outside")).unwrap().count(), 1);
}
