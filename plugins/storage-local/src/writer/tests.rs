//! The laws of the writer, on a real file system; upstream's tables are in pkg/volume/util/atomic_writer_test.go.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use mounts::mount::{TmpfsOptions, tmpfs, unmount};
use proto::storage as wire;
use rustix::process::umask;
use tempfile::TempDir;

use super::*;

type Files<'a> = &'a [(&'a str, u32, &'a [u8])];

fn payload(files: Files<'_>) -> Payload {
    let file = |&(path, mode, data): &(&str, u32, &[u8])| wire::File {
        path: path.to_owned(),
        data: data.to_owned(),
        mode,
        owner: None,
    };
    Payload::new(files.iter().map(file).collect()).unwrap()
}

fn put(path: &Path, files: Files<'_>) -> WriteOutcome {
    write(path, &payload(files), None).unwrap()
}

fn volume() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// What a container finds: every file, through the names at the top, with its mode.
fn seen(volume: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    fn walk(at: &Path, name: &str, seen: &mut BTreeMap<String, (u32, Vec<u8>)>) {
        let found = fs::metadata(at).unwrap();
        if found.is_dir() {
            for entry in fs::read_dir(at).unwrap() {
                let entry = entry.unwrap().file_name().into_string().unwrap();
                walk(&at.join(&entry), &format!("{name}/{entry}"), seen);
            }
            return;
        }
        let mode = found.permissions().mode() & 0o7777;
        seen.insert(name.to_owned(), (mode, fs::read(at).unwrap()));
    }
    let mut all = BTreeMap::new();
    for name in names(volume).iter().filter(|name| !name.starts_with("..")) {
        walk(&volume.join(name), name, &mut all);
    }
    all
}

fn names(volume: &Path) -> Vec<String> {
    let entries = fs::read_dir(volume).unwrap();
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

fn expected(files: Files<'_>) -> BTreeMap<String, (u32, Vec<u8>)> {
    let payload = payload(files);
    let files = payload.files();
    files
        .map(|(path, entry)| (path.to_owned(), (entry.mode, entry.data.clone())))
        .collect()
}

/// The volume holds these files and nothing else: no trace of an earlier write.
fn assert_clean(volume: &Path, files: Files<'_>) {
    assert_eq!(seen(volume), expected(files));
    let hidden: Vec<_> = names(volume)
        .into_iter()
        .filter(|name| name.starts_with(".."))
        .collect();
    let version = fs::read_link(volume.join(DATA)).unwrap();
    assert_eq!(
        hidden,
        [version.to_str().unwrap(), DATA],
        "one version and its link"
    );
}

const BINARY: &[u8] = &[0x7f, b'E', b'L', b'F', 2, 1, 0, 0xff, 0xfe, 0, 9];

/// Upstream's TestWriteOnce.
#[test]
fn what_is_written_is_seen() {
    let cases: &[Files<'_>] = &[
        &[],
        &[("foo", 0o644, b"foo"), ("bar", 0o644, b"bar")],
        &[
            ("binary.bin", 0o644, BINARY),
            (".binary.bin", 0o644, BINARY),
        ],
        &[("foo", 0o777, b"foo"), ("bar", 0o400, b"bar")],
        &[
            ("foo", 0o407, b"foo"),
            ("bar", 0o440, b"bar"),
            (".dotfile", 0o777, b"dotfile"),
            (".dotfile.file", 0o666, b"dotfile.file"),
        ],
        &[
            ("foo/bar.txt", 0o400, b"foo/bar"),
            ("bar/zab.txt", 0o644, b"bar/zab.txt"),
        ],
        &[
            ("foo//bar.txt", 0o644, b"foo//bar"),
            ("bar///bar/zab.txt", 0o644, b"zab"),
        ],
        &[
            ("foo.log", 0o644, b"foo"),
            ("bar.zap", 0o644, b"bar"),
            (".dotfile", 0o644, b"dotfile"),
            ("foo/bar.txt", 0o644, b"foo/bar"),
            ("bar/zab.txt", 0o644, b"bar/zab.txt"),
            ("foo/blaz/bar.txt", 0o644, b"foo/blaz/bar"),
            ("bar/zib/zab.txt", 0o400, b"bar/zib/zab.txt"),
            ("1/2/3/4/5/6/7/8/9/10/.dotfile.lib", 0o777, b"1-2-3-dotfile"),
        ],
        &[("empty", 0o644, b"")],
    ];
    for files in cases {
        let volume = volume();
        assert_eq!(put(volume.path(), files), WriteOutcome::Replaced);
        assert_clean(volume.path(), files);
        assert_eq!(put(volume.path(), files), WriteOutcome::Unchanged);
        assert_clean(volume.path(), files);
    }
}

/// Upstream's TestNewAtomicWriter.
#[test]
fn a_volume_that_is_not_there_is_not_made() {
    let volume = volume();
    let path = volume.path().join("missing");
    let refused = write(&path, &payload(&[]), None).unwrap_err();
    assert_eq!(refused.code(), tonic::Code::NotFound);
    assert!(!path.exists());
}

/// Upstream's TestUpdate, TestMultipleUpdates and TestPathsToRemove.
#[test]
fn after_each_update_only_the_last_files_are_there() {
    let tables: &[&[Files<'_>]] = &[
        &[
            &[("foo", 0o644, b"foo"), ("bar", 0o644, b"bar")],
            &[("foo", 0o400, b"foo2"), ("bar", 0o640, b"bar2")],
            &[("foo", 0o600, b"foo3"), ("bar", 0o600, b"bar3")],
        ],
        &[
            &[
                ("foo/bar.txt", 0o644, b"foo"),
                ("bar/zab.txt", 0o644, b"bar"),
            ],
            &[
                ("foo/bar.txt", 0o644, b"foo"),
                ("bar/zab.txt", 0o644, b"bar"),
                ("blu/two/2/3/4/5/zip.txt", 0o644, b"zip"),
            ],
            &[
                ("foo/bar.txt", 0o644, b"foo"),
                ("bar/zab.txt", 0o644, b"bar"),
                ("bar/2/3/4/5/zip.txt", 0o644, b"zip"),
            ],
            &[("foo/bar.txt", 0o644, b"foo")],
            &[("bar/baz.txt", 0o644, b"baz")],
            &[],
            &[("foo", 0o644, b"a file that was a folder")],
            &[("foo/bar.txt", 0o644, b"a folder that was a file")],
        ],
        &[
            &[
                ("foo.txt", 0o644, b"foo"),
                ("zip/zap/bar.txt", 0o644, b"zip/bar"),
            ],
            &[("foo.txt", 0o644, b"foo")],
        ],
        &[
            &[
                ("foo.txt", 0o644, b"foo"),
                ("zap/1/2/3/4/bar.txt", 0o644, b"zip/bar"),
                ("zap/1/2/c/bar.txt", 0o644, b"zap/bar"),
                ("zap/1/2/magic.txt", 0o644, b"indigo"),
            ],
            &[
                ("foo.txt", 0o644, b"foo"),
                ("zap/1/2/magic.txt", 0o644, b"indigo"),
            ],
        ],
        &[
            &[
                ("foo/bar.txt", 0o644, b"foo"),
                ("bar//zab.txt", 0o644, b"bar"),
            ],
            &[
                ("foo/bar.txt", 0o644, b"foo2"),
                ("add/new/keys.txt", 0o644, b"new"),
            ],
        ],
    ];
    for table in tables {
        let volume = volume();
        for files in *table {
            assert_eq!(put(volume.path(), files), WriteOutcome::Replaced);
            assert_clean(volume.path(), files);
        }
    }
}

/// Upstream's TestCreateUserVisibleFiles.
#[test]
fn names_at_the_top_are_links_through_the_data_link() {
    let volume = volume();
    put(
        volume.path(),
        &[
            ("./bar", 0o644, b""),
            ("foo///bar", 0o644, b""),
            ("foo/x/txt", 0o644, b""),
        ],
    );
    let visible: Vec<_> = names(volume.path())
        .into_iter()
        .filter(|name| !name.starts_with(".."))
        .map(|name| (fs::read_link(volume.path().join(&name)).unwrap(), name))
        .collect();
    let link = |name: &str| (PathBuf::from(format!("..data/{name}")), name.to_owned());
    assert_eq!(visible, [link("bar"), link("foo")]);
    let version = fs::read_link(volume.path().join(DATA)).unwrap();
    assert!(version.to_str().unwrap().starts_with("..20"), "{version:?}");
}

#[test]
fn the_umask_takes_nothing_away() {
    let volume = volume();
    let before = umask(Mode::from_raw_mode(0o077));
    put(volume.path(), &[("a/b", 0o666, b"x"), ("c", 0o777, b"y")]);
    umask(before);
    let mode = |path: &str| {
        let found = fs::metadata(volume.path().join(path)).unwrap();
        found.permissions().mode() & 0o7777
    };
    assert_eq!((mode("a/b"), mode("c")), (0o666, 0o777));
    assert_eq!((mode("a"), mode("..data/")), (0o755, 0o755));
}

#[test]
fn only_permission_bits_are_taken_from_a_mode() {
    let volume = volume();
    let entry = wire::File {
        path: "x".to_owned(),
        mode: 0o104_755,
        ..wire::File::default()
    };
    write(volume.path(), &Payload::new(vec![entry]).unwrap(), None).unwrap();
    let found = fs::metadata(volume.path().join("x")).unwrap();
    assert_eq!(found.permissions().mode() & 0o7777, 0o755);
}

fn owned(files: &[(&str, u32, Option<u32>)]) -> Payload {
    let file = |&(path, mode, owner): &(&str, u32, Option<u32>)| wire::File {
        path: path.to_owned(),
        data: b"x".to_vec(),
        mode,
        owner,
    };
    Payload::new(files.iter().map(file).collect()).unwrap()
}

#[test]
fn files_have_their_owner_and_the_volume_s_group_from_the_moment_they_are_seen() {
    let volume = volume();
    let ownership = Ownership {
        fs_group: 2345,
        ..Ownership::default()
    };
    let payload = owned(&[("token", 0o600, Some(1234)), ("d/plain", 0o400, None)]);
    let looked = Cell::new(false);
    let look = |step| {
        if step == Step::Owned {
            let version = names(volume.path()).remove(0);
            let at = |path: &str| fs::metadata(volume.path().join(&version).join(path)).unwrap();
            let facts = |path: &str| (at(path).uid(), at(path).gid(), at(path).mode() & 0o7777);
            assert_eq!(facts("token"), (1234, 2345, 0o640));
            assert_eq!(facts("d/plain"), (0, 2345, 0o440));
            assert_eq!(facts("d"), (0, 2345, 0o2755));
            assert_eq!(facts(""), (0, 2345, 0o2755));
            assert!(!volume.path().join(DATA).exists());
            looked.set(true);
        }
        Ok(())
    };
    let writer = Writer::open(volume.path(), &payload, Some(&ownership), &look).unwrap();
    assert_eq!(writer.write().unwrap(), WriteOutcome::Replaced);
    assert!(looked.get());
    let again = write(volume.path(), &payload, Some(&ownership)).unwrap();
    assert_eq!(again, WriteOutcome::Unchanged);
    let other = owned(&[("token", 0o600, Some(1235)), ("d/plain", 0o400, None)]);
    let again = write(volume.path(), &other, Some(&ownership)).unwrap();
    assert_eq!(again, WriteOutcome::Replaced);
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let volume = volume();
    let files: Files<'_> = &[("a", 0o644, b"one"), ("b/c", 0o600, b"two")];
    put(volume.path(), files);
    let before = fs::read_link(volume.path().join(DATA)).unwrap();
    let written = |step| {
        assert_eq!(step, Step::Swept, "though nothing changed");
        Ok(())
    };
    let payload = payload(files);
    let writer = Writer::open(volume.path(), &payload, None, &written).unwrap();
    assert_eq!(writer.write().unwrap(), WriteOutcome::Unchanged);
    assert_eq!(fs::read_link(volume.path().join(DATA)).unwrap(), before);
}

#[test]
fn whatever_differs_is_replaced() {
    let first: Files<'_> = &[("a", 0o644, b"one"), ("b/c", 0o600, b"two")];
    let spoil: &[fn(&Path)] = &[
        |data| fs::write(data.join("a"), b"oNe").unwrap(),
        |data| fs::write(data.join("a"), b"one more").unwrap(),
        |data| fs::set_permissions(data.join("a"), fs::Permissions::from_mode(0o666)).unwrap(),
        |data| std::os::unix::fs::chown(data.join("a"), Some(7), None).unwrap(),
        |data| fs::write(data.join("extra"), b"").unwrap(),
        |data| fs::create_dir(data.join("b/empty")).unwrap(),
        |data| fs::remove_file(data.join("b/c")).unwrap(),
        |data| {
            fs::remove_file(data.join("a")).unwrap();
            symlink("/etc/passwd", data.join("a")).unwrap();
        },
        |data| {
            fs::remove_file(data.join("a")).unwrap();
            rustix::fs::mkfifoat(rustix::fs::CWD, data.join("a"), Mode::from_raw_mode(0o644))
                .unwrap();
        },
        |data| {
            fs::remove_dir_all(data.join("b")).unwrap();
            fs::write(data.join("b"), b"").unwrap();
        },
    ];
    for spoil in spoil {
        let volume = volume();
        put(volume.path(), first);
        spoil(&volume.path().join(DATA));
        assert_eq!(put(volume.path(), first), WriteOutcome::Replaced);
        assert_clean(volume.path(), first);
    }
}

#[test]
fn names_and_links_that_were_spoilt_are_made_right() {
    let files: Files<'_> = &[("a", 0o644, b"one")];
    let outside = volume();
    fs::write(outside.path().join("kept"), b"").unwrap();
    let spoil: &[fn(&Path, &Path)] = &[
        |volume, _| fs::remove_file(volume.join("a")).unwrap(),
        |volume, _| {
            fs::remove_file(volume.join("a")).unwrap();
            symlink("/etc/passwd", volume.join("a")).unwrap();
        },
        |volume, _| fs::remove_file(volume.join(DATA)).unwrap(),
        |volume, outside| {
            fs::remove_file(volume.join(DATA)).unwrap();
            symlink(outside, volume.join(DATA)).unwrap();
        },
        |volume, _| {
            fs::remove_file(volume.join(DATA)).unwrap();
            symlink("..", volume.join(DATA)).unwrap();
        },
        |volume, _| {
            fs::remove_file(volume.join(DATA)).unwrap();
            fs::create_dir_all(volume.join(DATA).join("a")).unwrap();
        },
        |volume, outside| symlink(outside, volume.join(DATA_NEW)).unwrap(),
        |volume, outside| symlink(outside, volume.join("..2020_01_01_00_00_00.1")).unwrap(),
    ];
    for spoil in spoil {
        let volume = volume();
        put(volume.path(), files);
        spoil(volume.path(), outside.path());
        put(volume.path(), files);
        assert_clean(volume.path(), files);
    }
    assert_eq!(names(outside.path()), ["kept"]);
}

#[test]
fn what_is_not_the_writer_s_is_left_alone() {
    let volume = volume();
    fs::create_dir_all(volume.path().join("nested/mount")).unwrap();
    symlink("elsewhere", volume.path().join("theirs")).unwrap();
    put(
        volume.path(),
        &[("a", 0o644, b"one"), ("nested/x", 0o644, b"hidden")],
    );
    put(volume.path(), &[("a", 0o644, b"two")]);
    assert!(volume.path().join("nested/mount").is_dir());
    let theirs = fs::read_link(volume.path().join("theirs")).unwrap();
    assert_eq!(theirs, Path::new("elsewhere"));
}

const OLD: Files<'_> = &[
    ("a", 0o644, b"old a"),
    ("b", 0o600, b"old b"),
    ("gone/x", 0o644, b"old x"),
    ("gone2", 0o644, b"old y"),
];
const NEW: Files<'_> = &[
    ("a", 0o640, b"new a, longer than before"),
    ("b", 0o600, b"new b"),
    ("come/x", 0o644, b"new x"),
    ("come2", 0o644, b"new y"),
];
const NEWEST: Files<'_> = &[("a", 0o644, b"newest a"), ("b", 0o644, b"newest b")];

struct Killed;

/// Writes, and is killed at the step with this number; tells whether there was such a step.
fn killed_at(number: usize, path: &Path, files: Files<'_>) -> Option<Step> {
    let (count, at) = (Cell::new(0), Cell::new(None));
    let payload = payload(files);
    let stop = |step| {
        if count.replace(count.get() + 1) == number {
            at.set(Some(step));
            std::panic::resume_unwind(Box::new(Killed));
        }
        Ok(())
    };
    let write = || Writer::open(path, &payload, None, &stop).unwrap().write();
    match catch_unwind(AssertUnwindSafe(write)) {
        Ok(written) => drop(written.unwrap()),
        Err(_) => assert!(at.get().is_some()),
    }
    at.get()
}

/// What is seen is the old or the new content as a whole.
fn assert_whole(volume: &Path, before: Files<'_>, after: Files<'_>, step: Step) {
    let Ok(version) = fs::read_link(volume.join(DATA)) else {
        assert!(before.is_empty(), "{step:?} lost the old content");
        return;
    };
    let version = volume.join(version);
    let whole = |files: Files<'_>| {
        let all = expected(files);
        let same = |(path, (_, data)): (&String, &(u32, Vec<u8>))| {
            fs::read(version.join(path)).is_ok_and(|found| found == *data)
        };
        all.iter().all(same)
    };
    let old = !before.is_empty() && whole(before);
    assert!(
        old || whole(after),
        "half of the content is seen at {step:?}"
    );
}

#[test]
fn a_kill_at_any_step_leaves_whole_content_and_the_next_write_repairs_it() {
    let mut steps = Vec::new();
    for before in [&[] as Files<'_>, OLD] {
        for number in 0.. {
            let volume = volume();
            if !before.is_empty() {
                put(volume.path(), before);
            }
            let Some(step) = killed_at(number, volume.path(), NEW) else {
                break;
            };
            steps.push(step);
            assert_whole(volume.path(), before, NEW, step);
            // Killed again and again, at every step of the repair.
            for again in 0..4 {
                killed_at(again, volume.path(), NEW);
                assert_whole(volume.path(), before, NEW, step);
            }
            put(volume.path(), NEW);
            assert_clean(volume.path(), NEW);
        }
    }
    for step in [
        Step::Swept,
        Step::FolderMade,
        Step::FileWritten,
        Step::Owned,
        Step::LinkMade,
        Step::Swapped,
        Step::NameLinked,
        Step::NamePruned,
        Step::OldRemoved,
    ] {
        assert!(steps.contains(&step), "no kill at {step:?}");
    }
}

#[test]
fn after_a_kill_other_content_can_follow_as_well() {
    for number in 0.. {
        let volume = volume();
        put(volume.path(), OLD);
        if killed_at(number, volume.path(), NEW).is_none() {
            break;
        }
        for files in [NEWEST, OLD] {
            put(volume.path(), files);
            assert_clean(volume.path(), files);
        }
    }
}

#[test]
fn a_write_that_fails_leaves_the_old_version_and_no_trace() {
    let (steps, failures) = (RefCell::new(Vec::new()), Cell::new(0));
    for number in 0.. {
        let volume = volume();
        put(volume.path(), OLD);
        let count = Cell::new(0);
        let fail = |step| match count.replace(count.get() + 1) == number {
            true => {
                steps.borrow_mut().push(step);
                Err(Status::resource_exhausted("no space left on device"))
            }
            false => Ok(()),
        };
        let payload = payload(NEW);
        let result = Writer::open(volume.path(), &payload, None, &fail)
            .unwrap()
            .write();
        if result.is_ok() {
            break;
        }
        failures.set(failures.get() + 1);
        let step = *steps.borrow().last().unwrap();
        match step {
            Step::Swept | Step::FolderMade | Step::FileWritten | Step::Owned | Step::LinkMade => {
                assert_clean(volume.path(), OLD);
            }
            // From here on the new version is there.
            Step::Swapped | Step::NameLinked | Step::NamePruned | Step::OldRemoved => {
                assert_whole(volume.path(), NEW, NEW, step);
            }
        }
        put(volume.path(), NEW);
        assert_clean(volume.path(), NEW);
    }
    assert!(failures.get() > 10, "{} failures", failures.get());
}

/// A small tmpfs.
struct Tight(TempDir);

impl Tight {
    fn new(options: &TmpfsOptions) -> Self {
        let folder = volume();
        tmpfs(folder.path(), options).unwrap();
        Self(folder)
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        unmount(self.0.path()).unwrap();
    }
}

#[test]
fn a_full_disk_in_the_middle_changes_nothing_until_there_is_room() {
    let tight = Tight::new(&TmpfsOptions {
        size: 64 << 10,
        ..TmpfsOptions::default()
    });
    let path = tight.0.path();
    let small: Files<'_> = &[("a", 0o644, b"old"), ("b", 0o644, b"old too")];
    put(path, small);
    let half = vec![7; 30 << 10];
    let large: Files<'_> = &[
        ("a", 0o644, &half),
        ("b", 0o644, &half),
        ("c", 0o644, &half),
    ];
    for _ in 0..3 {
        let full = write(path, &payload(large), None).unwrap_err();
        assert_eq!(full.code(), tonic::Code::ResourceExhausted, "{full}");
        assert!(
            full.message().ends_with("no space left on device"),
            "{full}"
        );
        assert_clean(path, small);
    }
    let fits: Files<'_> = &[("a", 0o644, &half)];
    put(path, fits);
    assert_clean(path, fits);
}

#[test]
fn a_disk_without_inodes_changes_nothing_either() {
    let tight = Tight::new(&TmpfsOptions {
        inodes: 12,
        ..TmpfsOptions::default()
    });
    let path = tight.0.path();
    let few: Files<'_> = &[("a", 0o644, b"old")];
    put(path, few);
    let names: Vec<_> = (0..20).map(|n| format!("folder-{n}/file")).collect();
    let many: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), 0o644, b"x" as &[u8]))
        .collect();
    let full = write(path, &payload(&many), None).unwrap_err();
    assert_eq!(full.code(), tonic::Code::ResourceExhausted, "{full}");
    assert_clean(path, few);
    put(path, &many[..2]);
    assert_clean(path, &many[..2]);
}

#[test]
fn a_file_of_ten_megabytes_is_written_and_compared() {
    let volume = volume();
    let mut large: Vec<u8> = (0..10 << 20)
        .map(|n: u32| n.to_le_bytes()[n as usize % 3])
        .collect();
    put(volume.path(), &[("large", 0o400, &large)]);
    assert_eq!(
        put(volume.path(), &[("large", 0o400, &large)]),
        WriteOutcome::Unchanged
    );
    *large.last_mut().unwrap() ^= 1;
    assert_eq!(
        put(volume.path(), &[("large", 0o400, &large)]),
        WriteOutcome::Replaced
    );
    assert_clean(volume.path(), &[("large", 0o400, &large)]);
}

#[test]
fn folders_as_deep_as_a_path_may_be_are_written_and_removed() {
    let volume = volume();
    let deep = format!("{}x", "d/".repeat(2000));
    let files: Files<'_> = &[(&deep, 0o644, b"deep")];
    put(volume.path(), files);
    assert_eq!(put(volume.path(), files), WriteOutcome::Unchanged);
    assert_eq!(fs::read(volume.path().join(&deep)).unwrap(), b"deep");
    put(volume.path(), OLD);
    assert_clean(volume.path(), OLD);
}

#[test]
fn something_mounted_in_an_old_version_does_not_keep_the_new_one_from_being_seen() {
    let volume = volume();
    put(volume.path(), &[("d/a", 0o644, b"old")]);
    let old = volume
        .path()
        .join(fs::read_link(volume.path().join(DATA)).unwrap());
    let inner = old.join("d");
    tmpfs(&inner, &TmpfsOptions::default()).unwrap();
    fs::write(inner.join("kept"), b"kept").unwrap();
    put(volume.path(), &[("d/a", 0o644, b"new")]);
    assert_eq!(fs::read(volume.path().join("d/a")).unwrap(), b"new");
    assert_eq!(fs::read(inner.join("kept")).unwrap(), b"kept");
    unmount(&inner).unwrap();
    put(volume.path(), &[("d/a", 0o644, b"new")]);
    assert_clean(volume.path(), &[("d/a", 0o644, b"new")]);
}
