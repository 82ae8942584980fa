//! The folder of network configurations: read as a whole, the first file's network is the default one.
//!
//! A file that was good and is bad now keeps its network as it was, and is named as bad: pods go on, and the operator
//! sees why the change does not count. A first file that was never good leaves the node without a default network,
//! because to take the next one would move pods to another network unseen.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::{ConfError, FILE_MAX, Form, Network, PLUGINS_MAX, PluginConf, parse};

/// More files than any node has networks.
const FILES_MAX: usize = 256;

/// Everything that the folder holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Folder {
    /// In the order of their names.
    pub(crate) files: Vec<NetworkFile>,
    /// Why the folder itself cannot be read, or not wholly.
    pub(crate) problem: Option<String>,
}

/// One file of a network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NetworkFile {
    pub(crate) path: PathBuf,
    /// Its network, as it was when the file was last good.
    pub(crate) network: Option<Arc<Network>>,
    /// Why it is bad now.
    pub(crate) problem: Option<String>,
}

/// Why a file is no network.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("is larger than {FILE_MAX} bytes")]
    TooLarge,
    #[error(transparent)]
    Conf(#[from] ConfError),
    #[error("{}: {error}", path.display())]
    Plugin { path: PathBuf, error: ConfError },
}

impl Folder {
    /// Returns the default network, in the first file.
    pub(crate) fn default_network(&self) -> Option<&Arc<Network>> {
        self.files.first().and_then(|file| file.network.as_ref())
    }

    /// Returns the network of this name; of two of one name the first.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Network>> {
        let mut networks = self.files.iter().filter_map(|file| file.network.as_ref());
        networks.find(|network| network.name == name)
    }

    /// Reads the folder anew; what was good in `before` stays where its file is bad now.
    pub(crate) fn read(dir: &Path, before: &Self) -> Self {
        let (paths, problem) = match list(dir, &["conf", "conflist", "json"]) {
            Ok(paths) => (paths, None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
            Err(error) => {
                let problem = format!("folder {} cannot be read: {error}", dir.display());
                let files = before.files.clone();
                return Self {
                    files,
                    problem: Some(problem),
                };
            }
        };
        let mut folder = Self {
            files: Vec::new(),
            problem,
        };
        if paths.len() > FILES_MAX {
            let text = format!(
                "{} files in {}, the first {FILES_MAX} count",
                paths.len(),
                dir.display()
            );
            folder.problem = Some(text);
        }
        for path in paths.into_iter().take(FILES_MAX) {
            let file = folder.file(path, dir, before);
            folder.files.push(file);
        }
        folder
    }

    fn file(&self, path: PathBuf, dir: &Path, before: &Self) -> NetworkFile {
        let read = network(&path, dir);
        let taken = |network: &Network| self.find(&network.name).is_some();
        match read {
            Ok(network) if taken(&network) => NetworkFile {
                problem: Some(format!(
                    "network {:?} is in an earlier file already",
                    network.name
                )),
                network: None,
                path,
            },
            Ok(network) => NetworkFile {
                path,
                network: Some(Arc::new(network)),
                problem: None,
            },
            Err(error) => {
                let earlier = before.files.iter().find(|file| file.path == path);
                let network = earlier.and_then(|file| file.network.clone());
                NetworkFile {
                    network: network.filter(|network| !taken(network)),
                    problem: Some(error.to_string()),
                    path,
                }
            }
        }
    }
}

/// Lists the files with one of these extensions, sorted by name. Links to files count.
fn list(dir: &Path, extensions: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| extensions.contains(&extension)) && !path.is_dir() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn network(path: &Path, dir: &Path) -> Result<Network, FileError> {
    let form = match path.extension().and_then(|extension| extension.to_str()) {
        Some("conflist") => Form::List,
        _ => Form::Single,
    };
    let mut network = parse(&read(path)?, form)?;
    if !network.only_inlined {
        add_own_folder(&mut network, dir)?;
    }
    match network.plugins.is_empty() {
        true => Err(ConfError::Empty.into()),
        false => Ok(network),
    }
}

/// Appends the plugins in the files of the network's own folder, `DIR/NAME/*.conf`.
fn add_own_folder(network: &mut Network, dir: &Path) -> Result<(), FileError> {
    let paths = match list(&dir.join(&network.name), &["conf"]) {
        Ok(paths) => paths,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for path in paths {
        let at = |error| FileError::Plugin {
            path: path.clone(),
            error,
        };
        let fields = serde_json::from_slice(&read(&path)?)
            .map_err(|error| at(ConfError::Json(error.to_string())))?;
        network
            .plugins
            .push(PluginConf::new(fields, "type").map_err(at)?);
        if network.plugins.len() > PLUGINS_MAX {
            let why = format!("more than {PLUGINS_MAX} plugins");
            return Err(at(super::wrong("plugins", why)));
        }
    }
    Ok(())
}

/// Reads a file; anything else than one, such as a pipe, neither blocks nor counts.
fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open(2) fits");
    let file = File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a file").into());
    }
    let mut text = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut text)?;
    match u64::try_from(text.len()).is_ok_and(|length| length <= FILE_MAX) {
        true => Ok(text),
        false => Err(FileError::TooLarge),
    }
}
