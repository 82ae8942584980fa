//! `/proc/meminfo`: the kernel's figures of the machine's memory.

use std::path::{Path, PathBuf};
use std::{fs, io};

use thiserror::Error;

/// Why the machine's memory cannot be read.
#[derive(Debug, Error)]
pub enum MemInfoError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}: expected a line {line} with kilobytes", path.display())]
    Line { path: PathBuf, line: &'static str },
}

/// The content of the file when it was read.
#[derive(Debug, Clone, Default)]
pub struct MemInfo {
    path: PathBuf,
    text: String,
}

impl MemInfo {
    /// Reads `meminfo` below `proc`, which is `/proc`.
    ///
    /// # Errors
    /// [`MemInfoError::Read`] where there is no such file.
    pub fn read(proc: &Path) -> Result<Self, MemInfoError> {
        let path = proc.join("meminfo");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(MemInfo { path, text }),
            Err(source) => Err(MemInfoError::Read { path, source }),
        }
    }

    /// A line's amount in bytes, e.g. of `MemTotal`; none where there is no such line.
    pub fn get(&self, name: &str) -> Option<u64> {
        let mut lines = self.text.lines();
        let amount = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kibibytes: u64 = amount.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    }

    /// A line's amount in bytes.
    ///
    /// # Errors
    /// [`MemInfoError::Line`] where there is no such line.
    pub fn bytes(&self, line: &'static str) -> Result<u64, MemInfoError> {
        let path = || self.path.clone();
        self.get(line)
            .ok_or_else(|| MemInfoError::Line { path: path(), line })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_read_by_its_whole_name_and_in_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let text = "MemTotal:  2048 kB\nInactive: 3 kB\nInactive(file): 7 kB\nHugePages_Total: 0\n";
        fs::write(folder.path().join("meminfo"), text).unwrap();
        let memory = MemInfo::read(folder.path()).unwrap();
        assert_eq!(memory.get("MemTotal"), Some(2 << 20));
        assert_eq!(memory.get("Inactive(file)"), Some(7 << 10));
        assert_eq!(memory.get("HugePages_Total"), None);
        let error = memory.bytes("MemAvailable").unwrap_err().to_string();
        assert!(error.ends_with("/meminfo: expected a line MemAvailable with kilobytes"));
        assert!(MemInfo::read(Path::new("/nonexistent")).is_err());
    }
}
