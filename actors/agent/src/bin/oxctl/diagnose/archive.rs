//! The archive: a packed tar, for its owner alone, without secrets and of bounded size.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::Value;
use tar::{Builder, EntryType, Header};

use super::error::DiagnoseError;
use super::redact::Redactor;

const LIMITS: ArchiveLimits = ArchiveLimits {
    file: 8 << 20,
    all: 128 << 20,
};
/// What could not be had is told in as many lines at most.
const MAX_ERRORS: usize = 1000;
/// Nobody but the owner reads the archive, nor what is unpacked from it.
const MODE: u32 = 0o600;

/// Whether a file that is there is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    Kept,
    Replaced,
}

/// In bytes, before they are packed.
#[derive(Debug, Clone, Copy)]
struct ArchiveLimits {
    /// Of one file; more of it is cut off.
    file: usize,
    /// Of all files together.
    all: usize,
}

/// What was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) files: usize,
    /// Lines of `errors.txt`.
    pub(super) missing: usize,
}

/// An archive that is being written: beside its place, which it gets when it is whole. Dropped before that, it leaves
/// nothing.
pub(super) struct Archive {
    path: PathBuf,
    part: PathBuf,
    existing: Existing,
    builder: Builder<GzEncoder<File>>,
    /// The folder that everything is in.
    folder: String,
    /// In seconds since the epoch.
    time: u64,
    names: BTreeSet<String>,
    bytes: usize,
    limits: ArchiveLimits,
    errors: Vec<String>,
    unnamed_errors: usize,
    redactor: Redactor,
}

impl Archive {
    /// # Errors
    /// A file that is there, unless it may be replaced; a folder that cannot be written to.
    pub(super) fn create(
        path: &Path,
        existing: Existing,
        (folder, time): (String, u64),
    ) -> Result<Archive, DiagnoseError> {
        if existing == Existing::Kept && path.symlink_metadata().is_ok() {
            return Err(DiagnoseError::Exists(path.to_owned()));
        }
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(part);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&part)
            .map_err(DiagnoseError::file("make", &part))?;
        Ok(Archive {
            path: path.to_owned(),
            part,
            existing,
            builder: Builder::new(GzEncoder::new(file, Compression::default())),
            folder,
            time,
            names: BTreeSet::new(),
            bytes: 0,
            limits: LIMITS,
            errors: Vec::new(),
            unnamed_errors: 0,
            redactor: Redactor::default(),
        })
    }

    /// What takes secrets out; it has to know them before the first file is added.
    pub(super) fn redactor(&mut self) -> &mut Redactor {
        &mut self.redactor
    }

    /// Adds a file without its secrets; what there is no room for is named among the errors.
    pub(super) fn add(&mut self, name: &str, text: &str) -> Result<(), DiagnoseError> {
        let text = self.redactor.clean(text);
        self.add_clean(name, text)
    }

    /// As [`add`](Self::add), of JSON, which it stays.
    pub(super) fn add_json(&mut self, name: &str, mut value: Value) -> Result<(), DiagnoseError> {
        self.redactor.clean_json(&mut value);
        self.add_clean(name, format!("{value:#}\n"))
    }

    fn add_clean(&mut self, name: &str, mut text: String) -> Result<(), DiagnoseError> {
        let name = safe(name);
        // A log may come back under the same name: the first one counts.
        if self.names.contains(&name) {
            return Ok(());
        }
        let ArchiveLimits { file, all } = self.limits;
        if text.len() > file {
            text.truncate(text.floor_char_boundary(file));
            self.missing(
                &name,
                format!("longer than {file} bytes: the rest is cut off"),
            );
        }
        if self.bytes + text.len() > all {
            self.missing(&name, format!("the archive has {all} bytes already"));
            return Ok(());
        }
        self.bytes += text.len();
        self.names.insert(name.clone());
        self.append(&name, &text)
    }

    /// Names a part that cannot be had, with the reason.
    pub(super) fn missing(&mut self, what: &str, why: impl Display) {
        match self.errors.len() < MAX_ERRORS {
            true => self.errors.push(format!("{what}: {why}")),
            false => self.unnamed_errors += 1,
        }
    }

    /// Writes `errors.txt`, and puts the archive into its place.
    pub(super) fn finish(mut self) -> Result<Written, DiagnoseError> {
        let missing = self.errors.len() + self.unnamed_errors;
        let lines = self
            .errors
            .iter()
            .map(|line| line.replace('\n', " ") + "\n");
        let mut text: String = lines.collect();
        if self.unnamed_errors > 0 {
            text.push_str(&format!("... and {} more\n", self.unnamed_errors));
        }
        let text = self.redactor.clean(&text);
        self.append("errors.txt", &text)?;
        let (path, part) = (self.path.clone(), self.part.clone());
        self.place().map_err(DiagnoseError::file("write", &part))?;
        let placed = match self.existing {
            Existing::Replaced => fs::rename(&part, &path),
            Existing::Kept => placed_anew(&part, &path),
        };
        placed.map_err(|source| {
            let is_there = source.kind() == io::ErrorKind::AlreadyExists;
            match is_there {
                true => DiagnoseError::Exists(path.clone()),
                false => DiagnoseError::file("make", &path)(source),
            }
        })?;
        Ok(Written {
            files: self.names.len() + 1,
            missing,
        })
    }

    fn append(&mut self, name: &str, text: &str) -> Result<(), DiagnoseError> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(text.len() as u64);
        header.set_mode(MODE);
        header.set_mtime(self.time);
        let path = format!("{}/{name}", self.folder);
        let added = self.builder.append_data(&mut header, path, text.as_bytes());
        added.map_err(DiagnoseError::file("write", &self.part))
    }

    fn place(&mut self) -> io::Result<()> {
        self.builder.finish()?;
        let packer = self.builder.get_mut();
        packer.try_finish()?;
        packer.get_mut().flush()?;
        packer.get_ref().sync_all()
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        // Its place has it by now, or nobody gets it.
        drop(fs::remove_file(&self.part));
    }
}

/// Moves a file to where nothing is, not even by now.
fn placed_anew(part: &Path, path: &Path) -> io::Result<()> {
    let anew = renameat_with(CWD, part, CWD, path, RenameFlags::NOREPLACE);
    match anew {
        // Not every file system can; a link is refused as well where there is something.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => fs::hard_link(part, path),
        anew => Ok(anew?),
    }
}

/// A name that unpacks within its folder, and shows in a terminal.
fn safe(name: &str) -> String {
    let part = |part: &str| -> String {
        let letter = |letter: char| match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => letter,
            _ => '_',
        };
        match part {
            "" | "." | ".." => "_".to_owned(),
            part => part.chars().take(200).map(letter).collect(),
        }
    };
    let parts: Vec<String> = name.split('/').map(part).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::super::tests::unpacked;
    use super::*;

    fn create(path: &Path, existing: Existing) -> Result<Archive, DiagnoseError> {
        Archive::create(path, existing, ("top".to_owned(), 7))
    }

    #[test]
    fn an_archive_is_its_owners_and_replaces_nothing_without_being_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let mut archive = create(&path, Existing::Kept).unwrap();
        archive.add("a/b.txt", "hello password=x1\n").unwrap();
        archive.missing("c", "it is a test\nof two lines");
        let written = archive.finish().unwrap();
        assert_eq!(
            written,
            Written {
                files: 2,
                missing: 1
            }
        );
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let files = unpacked(&path);
        assert_eq!(files["top/a/b.txt"], "hello password=<removed>\n");
        assert_eq!(files["top/errors.txt"], "c: it is a test of two lines\n");
        let before = fs::read(&path).unwrap();
        let refused = create(&path, Existing::Kept).err().unwrap().to_string();
        assert!(refused.contains("--force"), "{refused}");
        // One that comes meanwhile stays as well.
        let other = folder.path().join("b.tar.gz");
        let late = create(&other, Existing::Kept).unwrap();
        fs::write(&other, "precious").unwrap();
        assert!(late.finish().is_err());
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        create(&other, Existing::Replaced)
            .unwrap()
            .finish()
            .unwrap();
        assert_eq!(unpacked(&other)["top/errors.txt"], "");
        assert_eq!(fs::metadata(&other).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            2,
            "no parts are left"
        );
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, path) = (folder.path().join("target"), folder.path().join("link"));
        symlink(&target, &path).unwrap();
        assert!(create(&path, Existing::Kept).is_err());
        create(&path, Existing::Replaced).unwrap().finish().unwrap();
        assert!(!target.exists());
        assert!(!path.symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn what_is_too_much_is_cut_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let mut archive = create(&path, Existing::Kept).unwrap();
        archive.limits = ArchiveLimits { file: 5, all: 6 };
        archive.add("long", &"ü".repeat(5)).unwrap();
        archive.add("late", "and more").unwrap();
        for _ in 0..MAX_ERRORS {
            archive.missing("x", "y");
        }
        archive.finish().unwrap();
        let files = unpacked(&path);
        assert_eq!(files["top/long"], "üü");
        assert!(!files.contains_key("top/late"));
        let errors = &files["top/errors.txt"];
        assert!(errors.starts_with("long: longer than"), "{errors}");
        assert!(errors.contains("late: the archive has"), "{errors}");
        assert!(errors.ends_with("... and 3 more\n"), "{errors}");
    }

    #[test]
    fn names_stay_within_the_archive() {
        assert_eq!(safe("../a b/./ü\n.log"), "_/a_b/_/__.log");
        assert_eq!(safe("/etc"), "_/etc");
    }
}
