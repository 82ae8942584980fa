//! Why an archive cannot be written.

use std::io;
use std::path::{Path, PathBuf};

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiagnoseError {
    #[error("{} is there already; --force replaces it", .0.display())]
    Exists(PathBuf),
    #[error("cannot {what} {}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl DiagnoseError {
    pub(super) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| DiagnoseError::File { what, path, source }
    }
}
