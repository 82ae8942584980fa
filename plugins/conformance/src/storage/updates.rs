//! Laws of volumes made of files: all of them appear at once, and change at once.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{fs, thread};

use futures_util::FutureExt;
use proto::storage::volume::Source;
use proto::storage::{File, FileSet, Mode};
use tonic::Code;

use super::super::{CheckResult, CheckStop, holds, refused, same};
use super::case::{Asked, Mounted, StorageCase, each, exists};
use super::{Sample, StorageCheck};

pub(super) const LAWS: &[(&str, StorageCheck)] = &[
    (
        "files have the content and the mode that was asked for",
        |case| each(case, Mode::FileSystem, |case, it| exact(case, it).boxed()).boxed(),
    ),
    ("new content replaces the old one as a whole", |case| {
        each(case, Mode::FileSystem, |case, it| {
            replaced(case, it).boxed()
        })
        .boxed()
    }),
    ("same content again changes nothing", |case| {
        each(case, Mode::FileSystem, |case, it| {
            unchanged(case, it).boxed()
        })
        .boxed()
    }),
    (
        "whoever reads meanwhile sees the old content or the new one",
        |case| each(case, Mode::FileSystem, |case, it| atomic(case, it).boxed()).boxed(),
    ),
    (
        "file whose path leads out is refused, and nothing is changed",
        |case| {
            each(case, Mode::FileSystem, |case, it| {
                escaping(case, it).boxed()
            })
            .boxed()
        },
    ),
];

/// How often a volume is updated while it is read.
const UPDATES: usize = 100;

const SECRET: &str = "do-not-tell-this";

fn file(path: &str, data: &[u8], mode: u32) -> File {
    File {
        path: path.to_owned(),
        data: data.to_vec(),
        mode,
        owner: None,
    }
}

/// A new volume of files, of the sample's medium.
async fn ask(
    case: &mut StorageCase,
    sample: &Sample,
    files: Vec<File>,
) -> Result<Asked, CheckStop> {
    let mut asked = case.ask(sample).await?;
    if !with_files(&mut asked, files) {
        return Err(CheckStop::Skipped("no sample is made of files"));
    }
    Ok(asked)
}

fn with_files(asked: &mut Asked, files: Vec<File>) -> bool {
    let source = asked
        .request
        .volume
        .as_mut()
        .map(|volume| &mut volume.source);
    let Some(Some(Source::Files(set))) = source else {
        return false;
    };
    let medium = set.medium;
    *set = FileSet {
        files,
        medium,
        ..FileSet::default()
    };
    true
}

async fn mounted(
    case: &mut StorageCase,
    sample: &Sample,
    files: Vec<File>,
) -> Result<Mounted, CheckStop> {
    let asked = ask(case, sample, files).await?;
    let path = case.mount(&asked).await?.path.into();
    Ok(Mounted {
        asked,
        path,
        before: 0,
    })
}

/// Mounts again with other files.
async fn update(case: &mut StorageCase, mounted: &mut Mounted, files: Vec<File>) -> CheckResult {
    if !case.ability(&mounted.asked).await?.updates {
        return Err(CheckStop::Skipped("no kind made of files can be updated"));
    }
    with_files(&mut mounted.asked, files);
    case.mount(&mounted.asked).await?;
    Ok(())
}

fn has(root: &Path, path: &str, expected: &[u8]) -> CheckResult {
    let found = fs::read(root.join(path));
    holds(found.as_ref().is_ok_and(|data| data == expected), || {
        let found = found.map(|data| data.len());
        format!(
            "{path} has {found:?} bytes, expected other {} bytes",
            expected.len()
        )
    })
}

async fn exact(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let binary: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let files = [
        ("empty", &b""[..], 0o644),
        ("binary", &binary, 0o400),
        ("a/folder/deep", b"deep", 0o640),
        ("a/beside", b"beside", 0o604),
        (".hidden", b"one", 0o644),
        ("name with spaces", b"spaces", 0o644),
    ];
    let wanted = files
        .iter()
        .map(|(path, data, mode)| file(path, data, *mode));
    let mounted = mounted(case, sample, wanted.collect()).await?;
    for (path, data, mode) in files {
        has(&mounted.path, path, data)?;
        let found = fs::metadata(mounted.path.join(path))?;
        let seen = format!("{:o}", found.permissions().mode() & 0o777);
        same(&format!("mode of {path}"), seen, format!("{mode:o}"))?;
    }
    Ok(())
}

async fn replaced(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let before = vec![
        file("stays", b"1", 0o644),
        file("goes", b"1", 0o644),
        file("folder/goes", b"1", 0o644),
    ];
    let mut mounted = mounted(case, sample, before).await?;
    let after = vec![
        file("stays", b"two", 0o600),
        file("comes", b"2", 0o644),
        // What was a folder is a file now.
        file("folder", b"2", 0o644),
    ];
    update(case, &mut mounted, after).await?;
    for (path, data) in [("stays", &b"two"[..]), ("comes", b"2"), ("folder", b"2")] {
        has(&mounted.path, path, data)?;
    }
    let old = mounted.path.join("goes");
    holds(!exists(&old), || format!("{old:?} is still there"))?;
    update(case, &mut mounted, vec![]).await?;
    let left = fs::read_dir(&mounted.path)?.filter_map(Result::ok);
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    let plain = left
        .iter()
        .filter(|name| !name.to_string_lossy().starts_with(".."));
    same("number of files left", plain.count(), 0)
}

async fn unchanged(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let files = vec![file("one", b"1", 0o644), file("folder/two", b"2", 0o600)];
    let mut mounted = mounted(case, sample, files.clone()).await?;
    let look = |mounted: &Mounted| -> std::io::Result<_> {
        let one = fs::metadata(mounted.path.join("one"))?;
        let names = fs::read_dir(&mounted.path)?.filter_map(Result::ok);
        let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        names.sort();
        Ok((one.modified()?, names))
    };
    let before = look(&mounted)?;
    for _ in 0..3 {
        update(case, &mut mounted, files.clone()).await?;
        same("what is seen", look(&mounted)?, before.clone())?;
    }
    Ok(())
}

/// All files of one generation have the same bytes.
fn generation(letter: u8) -> Vec<File> {
    let data = vec![letter; 64 << 10];
    let names = ["first", "folder/middle", "last"];
    names.map(|name| file(name, &data, 0o644)).into()
}

async fn atomic(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mut mounted = mounted(case, sample, generation(b'a')).await?;
    let (over, rounds) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let reading = thread::spawn({
        let (over, rounds, path) = (over.clone(), rounds.clone(), mounted.path.clone());
        move || -> Result<(), String> {
            while !over.load(Ordering::Relaxed) {
                look(&path)?;
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    });
    let mut outcome = Ok(());
    for letter in (b'a'..=b'z').cycle().take(UPDATES) {
        outcome = update(case, &mut mounted, generation(letter)).await;
        if outcome.is_err() {
            break;
        }
    }
    over.store(true, Ordering::Relaxed);
    let read = reading.join();
    outcome?;
    let read = read.unwrap_or_else(|_| Err("the reader panicked".to_owned()));
    read.map_err(CheckStop::Broken)?;
    let rounds = rounds.load(Ordering::Relaxed);
    holds(rounds > 0, || "nothing was read meanwhile".to_owned())
}

/// The letter of a file of one generation, if all of it is there.
fn whole(path: &Path, data: &[u8]) -> Result<u8, String> {
    match data.first() {
        Some(letter) if data.len() == 64 << 10 && data.iter().all(|byte| byte == letter) => {
            Ok(*letter)
        }
        Some(_) | None => Err(format!("{path:?} is half-written: {} bytes", data.len())),
    }
}

/// Reads a file through the volume's links.
///
/// Between the step through the link and the open, the generation may be replaced and removed: the file is then
/// opened again at once. That is excused by an update alone, so it happens at most once an update; a file that is
/// missing while the link stays is an error.
fn read_through_link(volume: &Path, name: &str) -> Result<u8, String> {
    let (path, link) = (volume.join(name), volume.join("..data"));
    let mut missed = 0;
    loop {
        let before = fs::read_link(&link).ok();
        let moved = || before.is_some() && fs::read_link(&link).ok() != before;
        match fs::read(&path) {
            Ok(data) => return whole(&path, &data),
            Err(error) if error.kind() == ErrorKind::NotFound && missed < UPDATES && moved() => {
                missed += 1;
            }
            Err(error) => return Err(format!("{path:?}: {error}")),
        }
    }
}

/// One look of a reader: each file is whole; within one generation's folder all files are of it.
pub(super) fn look(volume: &Path) -> Result<(), String> {
    let read = |path: &Path| -> Result<u8, String> {
        let data = fs::read(path).map_err(|error| format!("{path:?}: {error}"))?;
        whole(path, &data)
    };
    read_through_link(volume, "first")?;
    read_through_link(volume, "folder/middle")?;
    // Upstream's layout: one folder a generation, behind this link. It may be removed while it is read.
    let Ok(folder) = fs::canonicalize(volume.join("..data")) else {
        return Ok(());
    };
    let generation = ["first", "folder/middle", "last"].map(|name| read(&folder.join(name)));
    match generation {
        [Ok(first), Ok(middle), Ok(last)] if first == middle && middle == last => Ok(()),
        [Ok(_), Ok(_), Ok(_)] => Err(format!("{folder:?} has files of several generations")),
        _ if !folder.exists() => Ok(()),
        _ if fs::canonicalize(volume.join("..data")).ok().as_ref() != Some(&folder) => Ok(()),
        [first, middle, last] => Err(format!("{first:?}, {middle:?}, {last:?}")),
    }
}

async fn escaping(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let good = vec![file("good", b"old", 0o644)];
    let mut mounted = mounted(case, sample, good).await?;
    let updates = case.ability(&mounted.asked).await?.updates;
    for path in [
        "../outside",
        "a/../../outside",
        "a/../b",
        "/etc/outside",
        "..",
        "..data",
        "..data/x",
        "",
        "a\0b",
    ] {
        let files = vec![
            file("good", b"new", 0o644),
            file(path, SECRET.as_bytes(), 0o644),
        ];
        let what = format!("the file {path:?}");
        let asked = match updates {
            true => {
                with_files(&mut mounted.asked, files);
                mounted.asked.clone()
            }
            false => ask(case, sample, files).await?,
        };
        let answer = case.storage.mount(asked.request.clone()).await;
        let status = refused(&what, answer)?;
        same(&what, status.code(), Code::InvalidArgument)?;
        holds(!status.message().contains(SECRET), || {
            "the refusal tells the content".to_owned()
        })?;
        has(&mounted.path, "good", b"old")?;
    }
    let outside = mounted.path.parent().map(|folder| folder.join("outside"));
    holds(!outside.is_some_and(|path| exists(&path)), || {
        "a file was written beside the volume".to_owned()
    })
}
