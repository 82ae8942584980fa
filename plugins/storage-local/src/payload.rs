//! The files of a volume, their paths checked and cleaned as upstream's AtomicWriter does it.

use std::collections::{BTreeMap, BTreeSet};

use proto::storage::File;
use tonic::Status;

const NAME_MAX: usize = 255;
const PATH_MAX: usize = 4096;

/// What a volume is to hold, by path within it.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    files: BTreeMap<String, PayloadEntry>,
}

/// One file of a volume: its content, mode and owner.
pub(crate) struct PayloadEntry {
    pub(crate) data: Vec<u8>,
    /// Permission bits and no others.
    pub(crate) mode: u32,
    pub(crate) owner: u32,
}

// Data may be secret: it is never shown.
impl std::fmt::Debug for PayloadEntry {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Entry({} bytes, {:o})", self.data.len(), self.mode)
    }
}

impl Payload {
    /// Checks every path; of two that mean the same the later one counts.
    pub(crate) fn new(files: Vec<File>) -> Result<Self, Status> {
        let mut cleaned = BTreeMap::new();
        for file in files {
            check(&file.path).map_err(Status::invalid_argument)?;
            let entry = PayloadEntry {
                data: file.data,
                mode: file.mode & 0o777,
                owner: file.owner.unwrap_or(0),
            };
            cleaned.insert(clean(&file.path), entry);
        }
        let payload = Self { files: cleaned };
        match payload.both() {
            Some(path) => Err(Status::invalid_argument(format!(
                "invalid path: must not be both a file and a folder: {path}"
            ))),
            None => Ok(payload),
        }
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &PayloadEntry)> {
        self.files
            .iter()
            .map(|(path, entry)| (path.as_str(), entry))
    }

    pub(crate) fn file(&self, path: &str) -> Option<&PayloadEntry> {
        self.files.get(path)
    }

    pub(crate) fn count(&self) -> usize {
        self.files.len()
    }

    /// The folders that the files lie in, each after the one that it lies in.
    pub(crate) fn folders(&self) -> BTreeSet<&str> {
        self.files.keys().flat_map(|path| above(path)).collect()
    }

    /// The names at the top of the volume.
    pub(crate) fn tops(&self) -> BTreeSet<&str> {
        self.files
            .keys()
            .map(|path| path.split('/').next().unwrap_or(path))
            .collect()
    }

    /// A path that is a file, and a folder of another file.
    fn both(&self) -> Option<&str> {
        self.folders()
            .into_iter()
            .find(|folder| self.files.contains_key(*folder))
    }
}

/// "a/b/c" lies in "a" and "a/b".
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}

/// Upstream's `validatePath`, in its words.
fn check(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err(format!("invalid path: must not be empty: {path:?}"));
    }
    if path.starts_with('/') {
        return Err(format!("invalid path: must be relative path: {path}"));
    }
    if path.len() > PATH_MAX {
        return Err(format!(
            "invalid path: must be less than or equal to {PATH_MAX} characters"
        ));
    }
    for item in path.split('/') {
        if item == ".." {
            return Err(format!("invalid path: must not contain '..': {path}"));
        }
        if item.len() > NAME_MAX {
            return Err(format!(
                "invalid path: filenames must be less than or equal to {NAME_MAX} characters"
            ));
        }
    }
    if path.starts_with("..") {
        return Err(format!("invalid path: must not start with '..': {path}"));
    }
    check_cleaned(path)
}

/// What upstream would only find out when it writes.
fn check_cleaned(path: &str) -> Result<(), String> {
    let cleaned = clean(path);
    if cleaned.is_empty() {
        return Err(format!("invalid path: must name a file: {path}"));
    }
    if cleaned.starts_with("..") {
        return Err(format!("invalid path: must not start with '..': {path}"));
    }
    if cleaned.contains('\0') {
        return Err(format!(
            "invalid path: must not contain a null byte: {path:?}"
        ));
    }
    Ok(())
}

fn clean(path: &str) -> String {
    let items = path.split('/').filter(|item| !matches!(*item, "" | "."));
    items.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(paths: &[&str]) -> Result<Payload, Status> {
        let file = |path: &&str| File {
            path: (*path).to_owned(),
            ..File::default()
        };
        Payload::new(paths.iter().map(file).collect())
    }

    /// Upstream's TestValidatePath.
    #[test]
    fn a_path_stays_within_the_volume_and_within_bounds() {
        for good in [
            "i/am/well/behaved.txt",
            "keepyourheaddownandfollowtherules.txt",
            ".dot",
            "a/..b",
            &"a".repeat(255),
        ] {
            assert!(payload(&[good]).is_ok(), "{good}");
        }
        let (long, wide) = ("a/".repeat(2049), "a".repeat(256));
        for (bad, why) in [
            ("", "invalid path: must not be empty: \"\""),
            (
                "/dev/null",
                "invalid path: must be relative path: /dev/null",
            ),
            (
                "..sneaky.txt",
                "invalid path: must not start with '..': ..sneaky.txt",
            ),
            (
                "./..sneaky.txt",
                "invalid path: must not start with '..': ./..sneaky.txt",
            ),
            (
                "hello/there/../../../../../../etc/passwd",
                "invalid path: must not contain '..': hello/there/../../../../../../etc/passwd",
            ),
            (
                "hello/../etc/bad",
                "invalid path: must not contain '..': hello/../etc/bad",
            ),
            ("..", "invalid path: must not contain '..': .."),
            (".", "invalid path: must name a file: ."),
            (
                "a\0b",
                "invalid path: must not contain a null byte: \"a\\0b\"",
            ),
            (
                &long,
                "invalid path: must be less than or equal to 4096 characters",
            ),
            (
                &wide,
                "invalid path: filenames must be less than or equal to 255 characters",
            ),
        ] {
            let refused = payload(&["fine", bad]).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            assert_eq!(refused.message(), why);
        }
    }

    /// Upstream's TestValidatePayload.
    #[test]
    fn unclean_paths_are_cleaned() {
        let cleaned = payload(&["foo////bar", "./bar", "x/./y/"]).unwrap();
        let paths: Vec<_> = cleaned.files().map(|(path, _)| path).collect();
        assert_eq!(paths, ["bar", "foo/bar", "x/y"]);
        assert_eq!(cleaned.tops(), BTreeSet::from(["bar", "foo", "x"]));
        assert_eq!(cleaned.folders(), BTreeSet::from(["foo", "x"]));
    }

    #[test]
    fn a_file_is_no_folder() {
        let refused = payload(&["a", "a/b"]).unwrap_err();
        assert_eq!(
            refused.message(),
            "invalid path: must not be both a file and a folder: a"
        );
        assert!(payload(&["a.b", "a/b"]).is_ok());
    }
}
