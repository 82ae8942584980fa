//! A file whose content is replaced as a whole, one write after the other, and not when it has not changed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What is appended to the name of a file that is of no use.
const DAMAGED: &str = "set-aside";

/// The file, and what is in it.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// None before it is read, and after a write that failed.
    stored: Option<Vec<u8>>,
    writing: bool,
}

/// The end of a write.
#[derive(Debug)]
pub struct WriteResult {
    content: Vec<u8>,
    pub(super) result: Result<(), String>,
}

impl StateFile {
    pub(super) fn new(path: PathBuf) -> Self {
        StateFile {
            path,
            stored: None,
            writing: false,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file; none where there is none yet.
    pub(super) async fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let path = self.path.clone();
        let content = blocking(move || match fs::read(path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        });
        self.stored = content.await?;
        Ok(self.stored.clone())
    }

    /// Keeps a file that is of no use under another name.
    pub(super) async fn set_aside(&mut self) -> io::Result<()> {
        let (path, aside) = (self.path.clone(), self.path.with_extension(DAMAGED));
        self.stored = None;
        blocking(move || fs::rename(path, aside)).await
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing
    }

    pub(super) fn is_stored(&self, content: &[u8]) -> bool {
        self.stored.as_deref() == Some(content)
    }

    /// Begins a write, which is the only one: its result goes to [`StateFile::written`].
    pub(super) fn write(&mut self, content: Vec<u8>) -> impl Future<Output = WriteResult> + use<> {
        self.writing = true;
        let path = self.path.clone();
        async move {
            let bytes = content.clone();
            let result = blocking(move || replace(&path, &bytes)).await;
            WriteResult {
                content,
                result: result.map_err(|error| error.to_string()),
            }
        }
    }

    pub(super) fn written(&mut self, write: WriteResult) -> Result<(), String> {
        self.writing = false;
        self.stored = write.result.is_ok().then_some(write.content);
        write.result
    }
}

/// A power cut leaves the old content or the new one.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let fresh = path.with_extension("new");
    let mut options = File::options();
    let mut file = options
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(folder)?.sync_all()
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let outcome = kernel::spawn_blocking(work).await;
    outcome.unwrap_or_else(|error| Err(io::Error::other(error)))
}
