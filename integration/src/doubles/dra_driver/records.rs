//! The driver's records, a file a claim: whatever moment a process is killed at, the next one finds them whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A file that is being written.
const DRAFT: &str = "new";

/// The folder of the records.
#[derive(Clone, Debug)]
pub(super) struct Records {
    dir: PathBuf,
}

impl Records {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        for folder in ["allocated", "prepared"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        Ok(Records {
            dir: dir.to_owned(),
        })
    }

    /// Notes that the agent has taken in this process of the driver.
    pub(super) fn registered(&self, process: u32) -> Result<()> {
        self.append("registered", &process.to_string())
    }

    pub(super) fn is_registered(&self, process: u32) -> Result<bool> {
        Ok(self.lines("registered")?.contains(&process.to_string()))
    }

    /// Notes which devices a claim is allocated.
    pub(super) fn allocate(&self, claim: &str, devices: &[String]) -> Result<()> {
        write(&self.allocated_file(claim), devices)
    }

    /// Forgets what a claim is allocated.
    pub(super) fn deallocate(&self, claim: &str) -> Result<()> {
        let file = self.allocated_file(claim);
        fs::remove_file(&file).with_context(|| file.display().to_string())
    }

    /// Prepares a claim, or finds it prepared, and returns its devices.
    ///
    /// # Errors
    ///
    /// The claim is allocated nothing, or a device is another's; or the records fail.
    pub(super) fn prepare(&self, claim: &str) -> Result<Vec<String>> {
        self.append("calls", &format!("prepare {claim}"))?;
        let file = self.prepared_file(claim);
        if let Some(devices) = read(&file)? {
            return Ok(devices);
        }
        let devices = read(&self.allocated_file(claim))?.context("the claim is not allocated")?;
        for (other, taken) in self.prepared()? {
            if let Some(device) = devices.iter().find(|device| taken.contains(device)) {
                let complaint = format!("{device} for {claim} is prepared for {other}");
                self.append("complaints", &complaint)?;
                anyhow::bail!(complaint);
            }
        }
        write(&file, &devices)?;
        Ok(devices)
    }

    /// Undoes a claim, if it is prepared.
    pub(super) fn unprepare(&self, claim: &str) -> Result<()> {
        self.append("calls", &format!("unprepare {claim}"))?;
        match fs::remove_file(self.prepared_file(claim)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Reads what is prepared, by claim.
    pub(super) fn prepared(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let mut all = BTreeMap::new();
        for file in fs::read_dir(self.dir.join("prepared"))? {
            let file = file?.path();
            // One that is gone meanwhile is not prepared.
            let devices = read(&file)?.filter(|_| file.extension().is_none());
            let claim = file.file_name().and_then(|name| name.to_str());
            if let (Some(claim), Some(devices)) = (claim, devices) {
                all.insert(claim.to_owned(), devices);
            }
        }
        Ok(all)
    }

    pub(super) fn calls(&self) -> Result<Vec<String>> {
        self.lines("calls")
    }

    pub(super) fn complaints(&self) -> Result<Vec<String>> {
        self.lines("complaints")
    }

    fn allocated_file(&self, claim: &str) -> PathBuf {
        self.dir.join("allocated").join(claim)
    }

    fn prepared_file(&self, claim: &str) -> PathBuf {
        self.dir.join("prepared").join(claim)
    }

    /// One write, so that no kill leaves half a line before another's.
    fn append(&self, name: &str, line: &str) -> Result<()> {
        let mut options = File::options();
        let mut file = options
            .create(true)
            .append(true)
            .open(self.dir.join(name))?;
        Ok(file.write_all(format!("{line}\n").as_bytes())?)
    }

    fn lines(&self, name: &str) -> Result<Vec<String>> {
        let text = present(fs::read_to_string(self.dir.join(name)))?;
        let text = text.unwrap_or_default();
        Ok(text.lines().map(str::to_owned).collect())
    }
}

fn write(file: &Path, devices: &[String]) -> Result<()> {
    let draft = file.with_extension(DRAFT);
    fs::write(&draft, devices.join("\n"))?;
    fs::rename(&draft, file).with_context(|| file.display().to_string())
}

/// The devices of one record; none where there is none.
fn read(file: &Path) -> Result<Option<Vec<String>>> {
    let text = present(fs::read_to_string(file)).with_context(|| file.display().to_string())?;
    Ok(text.map(|text| text.lines().map(str::to_owned).collect()))
}

fn present<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_has_its_devices_alone_until_it_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        let devices = ["d0".to_owned(), "d1".to_owned()];
        records.allocate("a", &devices).unwrap();
        records.allocate("b", &devices[1..]).unwrap();
        records.prepare("c").unwrap_err();
        for _ in 0..2 {
            assert_eq!(records.prepare("a").unwrap(), devices);
        }
        let refused = records.prepare("b").unwrap_err().to_string();
        assert_eq!(refused, "d1 for b is prepared for a");
        assert_eq!(records.complaints().unwrap(), [refused]);
        for _ in 0..2 {
            records.unprepare("a").unwrap();
        }
        assert_eq!(records.prepare("b").unwrap(), devices[1..]);
        assert_eq!(
            records.prepared().unwrap(),
            BTreeMap::from([("b".to_owned(), devices[1..].to_vec())])
        );
        assert_eq!(records.calls().unwrap().len(), 7);
    }
}
