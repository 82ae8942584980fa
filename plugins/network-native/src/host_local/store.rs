//! The store: a folder of a network with a file an address, named by it. In it stand the container and the interface.
//! Its lock is that of the program: one of both changes it at a time.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use blocking_pool::Cancel;
use network_cni::CniError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{Holder, holders};
use crate::address;
use crate::failure::{OrFail, fail};

const LOCK: &str = "lock";
/// An address's file until its holder stands in it.
const NEW: &str = "new";
const LAST: &str = "last_reserved_ip.";
const LINE_BREAK: &str = "\r\n";
/// The program holds the lock for about a millisecond.
const RETRY_LOCK: Duration = Duration::from_millis(1);

/// A network's folder, locked.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    /// Its lock ends with it.
    _lock: File,
}

impl Store {
    /// Opens the folder, made where it is not there, and waits for its lock.
    pub(super) fn open(dir: &Path) -> Result<Self, CniError> {
        let what = || format!("address store {}", dir.display());
        let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
        made.or_fail(what())?;
        let mut options = OpenOptions::new();
        let options = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o750);
        let lock = options.open(dir.join(LOCK)).or_fail(what())?;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error).or_fail(what()),
            }
            let waited = Cancel::current().sleep(RETRY_LOCK);
            waited.map_err(|_| fail(format!("{}: its lock is held by another", what())))?;
        }
        // Whoever was killed while it reserved left it; nobody else does now.
        drop(fs::remove_file(dir.join(NEW)));
        Ok(Self {
            dir: dir.to_owned(),
            _lock: lock,
        })
    }

    /// Gives an address to a holder; false if it has one already.
    pub(super) fn reserve(
        &self,
        of: Holder<'_>,
        address: IpAddr,
        set: usize,
    ) -> Result<bool, CniError> {
        let path = self.dir.join(address.to_string());
        let what = || format!("address {}", path.display());
        match fs::symlink_metadata(&path) {
            Ok(_) => {
                // A set with very many addresses that are all taken.
                let late = Cancel::current().check();
                late.map_err(|_| fail("no free address was found in time"))?;
                return Ok(false);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).or_fail(what()),
        }
        // Whole at once: an address whose holder a kill kept from being written would be held for ever.
        let new = self.dir.join(NEW);
        let written = write(&new, &key(of)).and_then(|()| fs::rename(&new, &path));
        written.or_fail(what())?;
        let last = self.dir.join(format!("{LAST}{set}"));
        write(&last, &address.to_string()).or_fail(format!("last address {}", last.display()))?;
        Ok(true)
    }

    /// Returns the address that was given last from a set.
    pub(super) fn last(&self, set: usize) -> Option<IpAddr> {
        let text = fs::read_to_string(self.dir.join(format!("{LAST}{set}"))).ok()?;
        address::parse(&text)
    }

    /// Returns a holder's addresses; none in place of one whose file has another name.
    pub(super) fn held(&self, of: Holder<'_>) -> Vec<Option<IpAddr>> {
        let paths = self.files_of(of).into_iter();
        paths
            .map(|path| address::parse(path.file_name()?.to_str()?))
            .collect()
    }

    /// Takes a holder's addresses back. One whose file cannot be deleted stays, as with the program.
    pub(super) fn release(&self, of: Holder<'_>) {
        for path in self.files_of(of) {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!("address {} is not taken back: {error}", path.display());
            }
        }
    }

    fn files_of(&self, of: Holder<'_>) -> Vec<PathBuf> {
        // Old versions of the program wrote no interface.
        holders::files_of(&self.dir, &[&key(of), of.container])
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}

fn key(of: Holder<'_>) -> String {
    format!("{}{LINE_BREAK}{}", of.container.trim(), of.interface)
}
