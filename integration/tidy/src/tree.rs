//! The files of the workspace: its crates and their Rust sources.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Folders of crates that ship.
const SHIPPED: [&str; 4] = ["actors", "config", "kernel", "plugins"];
/// Of these, what does not: suites and doubles, and the harness of fuzz targets.
const NOT_SHIPPED: [&str; 4] = [
    "plugins/conformance",
    "plugins/images/src/fuzzing.rs",
    "plugins/runtime-fake",
    "plugins/sample-device",
];

/// What is read once and checked by every rule.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Every Rust source by its path from the workspace's root.
    pub(crate) sources: BTreeMap<PathBuf, String>,
    /// The folders that hold a `Cargo.toml` and `src/`, with the names of their packages.
    pub(crate) crates: BTreeMap<PathBuf, String>,
}

impl Tree {
    /// Reads everything below `root` but hidden folders and what cargo builds.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.folder(root, Path::new(""))?;
        Ok(tree)
    }

    /// Whether a folder or file is of a crate that ships.
    pub(crate) fn ships(path: &Path) -> bool {
        SHIPPED.iter().any(|folder| path.starts_with(folder))
            && !NOT_SHIPPED.iter().any(|folder| path.starts_with(folder))
    }

    /// The sources whose paths are wanted, without tests.
    pub(crate) fn without_tests(
        &self,
        is_wanted: impl Fn(&Path) -> bool,
    ) -> impl Iterator<Item = (&Path, &str)> {
        let is_test = |path: &Path| {
            path.iter().any(|part| {
                part == "tests"
                    || part == "testing"
                    || part == "testing.rs"
                    || part.to_string_lossy().ends_with("tests.rs")
            })
        };
        let files = self.sources.iter();
        let wanted = files.filter(move |(path, _)| is_wanted(path) && !is_test(path));
        wanted.map(|(path, text)| {
            let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            (path.as_path(), &text[..end])
        })
    }

    fn folder(&mut self, root: &Path, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let path = folder.join(&*name);
            if name.starts_with('.') || name == "target" {
                continue;
            }
            if entry.file_type()?.is_dir() {
                self.folder(root, &path)?;
            } else if name.ends_with(".rs") {
                self.sources.insert(path, fs::read_to_string(entry.path())?);
            } else if name == "Cargo.toml" && root.join(folder).join("src").is_dir() {
                let manifest = fs::read_to_string(entry.path())?;
                if let Some(package) = package_name(&manifest) {
                    self.crates.insert(folder.to_owned(), package.to_owned());
                }
            }
        }
        Ok(())
    }
}

fn package_name(manifest: &str) -> Option<&str> {
    let (_, package) = manifest.split_once("[package]")?;
    let name = package.lines().find_map(|line| line.strip_prefix("name"))?;
    name.split('"').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_by_its_manifest() {
        let manifest = "# the crate\n[package]\nname = \"tidy\"\nversion = \"1\"\n";
        assert_eq!(package_name(manifest), Some("tidy"));
        assert_eq!(package_name("[workspace]\nname = \"tidy\"\n"), None);
    }
}
